"""The student's loop in a notebook: fill in, check, time, carry over."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
