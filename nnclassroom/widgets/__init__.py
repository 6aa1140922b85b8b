"""Interactive pictures, each a .py with its .js file. The names for notebooks are listed in __init__.pyi."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
