"""Training any network with nncourse, PyTorch and JAX: all take the same steps."""
