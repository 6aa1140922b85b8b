"""Timings of the course's kernels and training steps, compared with PyTorch, JAX and scikit-learn."""
