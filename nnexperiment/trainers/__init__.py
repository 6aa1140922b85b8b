"""Training of any network with nncourse, PyTorch and JAX, which all take the same steps."""
