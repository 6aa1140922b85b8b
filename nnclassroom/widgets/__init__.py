"""Interactive pictures, each .py with its .js. What notebooks use stands in __init__.pyi."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
