"""CUDA C without a GPU: read a .cu text, compile it for errors, run its kernels thread by thread, find their races.

Begin with emulate.py.
"""
