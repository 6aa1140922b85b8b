"""Training on many devices: groups of processes, ways to start them, and strategies. __init__.pyi lists the API."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
