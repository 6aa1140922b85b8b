"""What students write: the operations that only exercises have, by notebook, their hints, and kept kernels."""
