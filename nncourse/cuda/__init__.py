"""From CUDA C to a kernel: compile.py compiles for a GPU, emulate.py runs on the CPU, launch.py launches on either."""
