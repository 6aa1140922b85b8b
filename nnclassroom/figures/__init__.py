"""Figures of the notebooks: a module for each notebook, nb00 to nb15, and shared modules."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
