"""Kernels of NVIDIA's libraries."""
