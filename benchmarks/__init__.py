"""Timings of the course's kernels and training steps beside PyTorch and scikit-learn."""
