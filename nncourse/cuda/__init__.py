"""From CUDA C to a kernel: compile.py compiles for a GPU; launch.py launches there or on the emulator, cuda_on_cpu."""
