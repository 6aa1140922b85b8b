// The code that the programs of all .cu texts share: threads, the conversation with Python, and race detection.
// program.py compiles it once for memory faults and once for races, and links it with each .cu text.
#include <fcntl.h>
#include <math.h>
#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CUDA_ON_CPU_PROGRAM  // the system's mathematics instead of CUDA's
#include "cuda_on_cpu.h"  // after the system's headers, since it defines CUDA's keywords

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

#include "cuda_on_cpu_threads.h"
#include "cuda_on_cpu_serve.h"
#include "cuda_on_cpu_races.h"

// The kernels' new and delete
void* operator new(size_t bytes) { return cuda_on_cpu::allocate(bytes); }
void* operator new[](size_t bytes) { return cuda_on_cpu::allocate(bytes); }
void operator delete(void* memory) noexcept { cuda_on_cpu::release(memory); }
void operator delete[](void* memory) noexcept { cuda_on_cpu::release(memory); }
void operator delete(void* memory, size_t) noexcept { cuda_on_cpu::release(memory); }
void operator delete[](void* memory, size_t) noexcept { cuda_on_cpu::release(memory); }

int main() { return cuda_on_cpu::serve(); }
