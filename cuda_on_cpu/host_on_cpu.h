// A stand-in for the host side of CUDA, so that a whole CUDA C++ program runs where there is no GPU: memory, copies,
// errors, and launches without barriers, one thread after the other. host_program.py puts it before the program and
// writes launch(grid, block, …) for <<<grid, block>>>. AddressSanitizer watches what the kernels touch.
//
// Kernels alone run on the other emulator, cuda_on_cpu.h, which knows barriers, warps and races.
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#define __global__ static
#define __device__ static
#define __host__

// As on a GPU, memory that is not freed is released with the program, without a report.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

inline const char* cudaGetErrorString(cudaError_t code) {
    switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    }
    return "unrecognized error code";
}

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host_on_cpu {

const unsigned MOST_THREADS = 1024, MOST_DEEP = 64, MOST_BLOCKS = 2147483647, MOST_BESIDE = 65535;
const size_t MEMORY = size_t(16) << 30;  // bytes of a GPU

static std::map<char*, size_t> arrays;  // on the "GPU": where each begins, and its bytes
static size_t used = 0;
static cudaError_t last = cudaSuccess;

inline cudaError_t noted(cudaError_t code) { return code == cudaSuccess ? code : last = code; }

inline bool there(const void* begin, size_t bytes) {
    auto after = arrays.upper_bound((char*)begin);
    if (after == arrays.begin()) return false;
    auto array = std::prev(after);
    return (char*)begin + bytes <= array->first + array->second;
}

template <typename Call>
void launch(dim3 grid, dim3 block, Call call) {
    bool fits = grid.x && grid.y && grid.z && block.x && block.y && block.z && block.z <= MOST_DEEP;
    fits = fits && size_t(block.x) * block.y <= MOST_THREADS && size_t(block.x) * block.y * block.z <= MOST_THREADS;
    fits = fits && grid.x <= MOST_BLOCKS && grid.y <= MOST_BESIDE && grid.z <= MOST_BESIDE;
    if (!fits) {  // the kernel does not run at all
        noted(cudaErrorInvalidConfiguration);
        return;
    }
    gridDim = grid, blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
                for (threadIdx.z = 0; threadIdx.z < block.z; threadIdx.z++)
                    for (threadIdx.y = 0; threadIdx.y < block.y; threadIdx.y++)
                        for (threadIdx.x = 0; threadIdx.x < block.x; threadIdx.x++) call();
}

}  // namespace host_on_cpu

template <typename T>
cudaError_t cudaMalloc(T** place, size_t bytes) {
    *place = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > host_on_cpu::MEMORY - host_on_cpu::used) return host_on_cpu::noted(cudaErrorMemoryAllocation);
    char* begin = (char*)malloc(bytes);
    if (!begin) return host_on_cpu::noted(cudaErrorMemoryAllocation);
    memset(begin, 0xff, bytes);  // NaN: a GPU's memory holds what was there before
    host_on_cpu::arrays[begin] = bytes;
    host_on_cpu::used += bytes;
    *place = (T*)begin;
    return cudaSuccess;
}

inline cudaError_t cudaFree(void* place) {
    if (!place) return cudaSuccess;
    auto array = host_on_cpu::arrays.find((char*)place);
    if (array == host_on_cpu::arrays.end()) return host_on_cpu::noted(cudaErrorInvalidValue);
    host_on_cpu::used -= array->second;
    host_on_cpu::arrays.erase(array);
    free(place);
    return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return cudaSuccess;
    bool to_gpu = kind == cudaMemcpyHostToDevice;
    if (!host_on_cpu::there(to_gpu ? to : from, bytes)) return host_on_cpu::noted(cudaErrorInvalidValue);
    memcpy(to, from, bytes);
    return cudaSuccess;
}

inline cudaError_t cudaGetLastError() {
    cudaError_t code = host_on_cpu::last;
    host_on_cpu::last = cudaSuccess;
    return code;
}

inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
