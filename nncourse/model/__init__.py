"""Layers, networks, training, metrics and model files. __init__.pyi lists what is public."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
