"""Kernels that read and write another GPU's memory."""
