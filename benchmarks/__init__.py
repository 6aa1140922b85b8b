"""Time the course's kernels and training steps, and compare them with PyTorch, JAX and scikit-learn."""
