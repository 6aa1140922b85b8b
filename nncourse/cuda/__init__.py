"""How CUDA C becomes a kernel: compile.py on a GPU or for a check, emulate.py on the CPU, launch.py for both."""
