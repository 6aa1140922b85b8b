"""The name that kept_kernels.py had before version 0.2: notebooks of that time import it."""

from nncourse.kernels.kept_kernels import build  # noqa: F401
