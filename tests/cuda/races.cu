// Kernels with races and, by the name of ok_…, without: comments mark the two accesses (test_cuda_emulate.py).
extern "C" __global__ void adds(float* a) {
    a[1] += 1.0f;  // adds
}
extern "C" __global__ void all_write_the_same(float* a) {
    a[0] = 1.0f;  // all_write_the_same
}
extern "C" __global__ void one_writes(float* a) {
    float x = a[0];  // other: one_writes
    if (threadIdx.x == 3) a[0] = x;  // one_writes
}
extern "C" __global__ void four_from_a_call(float* a) {
    *(float4*)a = make_float4(1.0f, 1.0f, 1.0f, 1.0f);  // four_from_a_call
}
extern "C" __global__ void shared_for_private(float* a) {
    __shared__ float x;
    x = threadIdx.x;  // shared_for_private
    a[blockIdx.x * blockDim.x + threadIdx.x] = x;  // other: shared_for_private
}
extern "C" __global__ void dynamic(float* a) {
    extern __shared__ float x[];
    x[threadIdx.x] = 1.0f;  // other: dynamic
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x / 2];  // dynamic
}
extern "C" __global__ void bytes(float* a) {
    __shared__ unsigned char x[64];
    x[threadIdx.x] = 1;  // bytes
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x ^ 1];  // other: bytes
}
extern "C" __global__ void no_barrier_in_the_tree(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2)
        if (threadIdx.x < half) x[threadIdx.x] += x[threadIdx.x + half];  // no_barrier_in_the_tree
}
extern "C" __global__ void sets_then_adds(float* a) {
    if (threadIdx.x == 0) a[0] = 0.0f;  // other: sets_then_adds
    atomicAdd(a, 1.0f);  // sets_then_adds
}
extern "C" __global__ void reads_what_others_add(float* a) {
    atomicAdd(a, 1.0f);  // reads_what_others_add
    if (*a > 3.0f) a[1 + blockIdx.x] = 1.0f;  // other: reads_what_others_add
}
__device__ void helper(float* a) {
    a[0] = threadIdx.x;  // in_a_function
}
extern "C" __global__ void in_a_function(float* a) { helper(a); }
extern "C" __global__ void four_at_once(float* a) {
    float4 b = make_float4(1, 2, 3, 4);
    *reinterpret_cast<float4*>(a + threadIdx.x / 2 * 4) = b;  // four_at_once
}
extern "C" __global__ void warps_do_not_wait(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;  // other: warps_do_not_wait
    __syncwarp();
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[63 - threadIdx.x];  // warps_do_not_wait
}
extern "C" __global__ void fence_only(float* a) {
    a[0] += 1.0f;  // fence_only
    __threadfence();
}

extern "C" __global__ void ok_atomics(float* a) {
    atomicAdd(a, 1.0f);
    atomicMax(reinterpret_cast<int*>(a + 1), 3);
    atomicCAS(reinterpret_cast<int*>(a + 2), 0, 1);
}
extern "C" __global__ void ok_own_cells(float* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = i;
    a[i] += 1.0f;
}
extern "C" __global__ void ok_tree(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) x[threadIdx.x] += x[threadIdx.x + half];
        __syncthreads();
    }
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[0];
}
extern "C" __global__ void ok_syncwarp(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = threadIdx.x;
    for (int distance = 1; distance < 32; distance *= 2) {
        __syncwarp();
        float y = x[threadIdx.x ^ distance];
        __syncwarp();
        x[threadIdx.x] += y;
    }
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void ok_shuffle_orders(float* a) {
    __shared__ float x[64];
    x[threadIdx.x] = 1.0f;
    float y = __shfl_xor_sync(0xffffffff, 1.0f, 1);
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x ^ 1] + y;
}
extern "C" __global__ void ok_reads(float* a) {
    float x = a[0] + a[1];
    if (x < 0.0f) a[0] = 1.0f;
}
extern "C" __global__ void ok_bytes(float* a) {
    __shared__ unsigned char x[64];
    x[threadIdx.x] = 1;
    a[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void ok_grid_barrier(float* a) {
    __shared__ float x;
    if (threadIdx.x == 0) x = 1.0f;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = blockDim.x * gridDim.x;
    a[i] = x;
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
    float y = a[n - 1 - i];
    cuda_on_cpu::grid_barrier();
    a[i] = y;
#endif
}
__device__ int blocks_done;
extern "C" __global__ void ok_last_block(float* a) {
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = 1.0f;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&blocks_done, 1) % gridDim.x == gridDim.x - 1;
    __syncthreads();
    if (last) for (int k = 0; k < gridDim.x; k++) a[threadIdx.x] += k > 0 ? a[k * blockDim.x + threadIdx.x] : 0.0f;
}
extern "C" __global__ void ok_lock(float* a) {
    int* lock = reinterpret_cast<int*>(a + 1);
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    a[0] += 1.0f;
    __threadfence();
    atomicExch(lock, 0);
}
