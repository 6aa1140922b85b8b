// What a GPU needs at least: for a barrier among the threads of a block, the blocks of a cluster, or all blocks; for
// numbers from shared memory; for a multiplication and addition. Each kernel does one of these over and over, so that its
// own launch does not count. BLOCKS is the number of blocks that meet.

extern "C" __global__ void block_barrier(int* done, int rounds) {
    for (int round = 0; round < rounds; round++) __syncthreads();
    if (threadIdx.x == 0) done[blockIdx.x] = rounds;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define __cluster_dims__(...)
#endif

// As `meet` in epoch_one_kernel.cu does it for a cluster.
extern "C" __global__ void __cluster_dims__(BLOCKS) cluster_barrier(int* done, int rounds) {
    for (int round = 0; round < rounds; round++) {
#ifdef CUDA_ON_CPU
        cuda_on_cpu::grid_barrier();
#elif __CUDA_ARCH__ >= 900
        asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
    }
    if (threadIdx.x == 0) done[blockIdx.x] = rounds;
}

// And for a grid. `arrived` is 0 in the beginning; the launch is cooperative, so that all blocks run at once.
extern "C" __global__ void grid_barrier(int* done, int* arrived, int rounds) {
    for (int round = 1; round <= rounds; round++) {
#ifdef CUDA_ON_CPU
        cuda_on_cpu::grid_barrier();
#else
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1);
            while (*(volatile int*)arrived < round * BLOCKS) {
            }
            __threadfence();
        }
        __syncthreads();
#endif
    }
    if (threadIdx.x == 0) done[blockIdx.x] = rounds;
}

// A warp reads 32 float4 that lie next to each other: no bank conflicts. From round to round the place moves on, or the
// compiler would read once.
extern "C" __global__ void __launch_bounds__(THREADS) shared_reads(const float* from, float* sums, int rounds) {
    __shared__ __align__(16) float4 tile[THREADS + 32 * READS];
#pragma unroll 1
    for (int t = threadIdx.x; t < THREADS + 32 * READS; t += THREADS)
        tile[t] = make_float4(from[t], from[t], from[t], from[t]);
    __syncthreads();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    unsigned place = threadIdx.x;
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < READS; k++) {
            const float4 x = tile[place + 32 * k];
            sum.x += x.x;
            sum.y += x.y;
            sum.z += x.z;
            sum.w += x.w;
        }
        place = (place + 32) % THREADS;
    }
    sums[threadIdx.x] = sum.x + sum.y + sum.z + sum.w;
}

// CHAINS sums that do not wait for each other, so that a thread always has something to do.
extern "C" __global__ void __launch_bounds__(THREADS) multiply_add(float* sums, float factor, float summand, int rounds) {
    float x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) x[c] = threadIdx.x + c;
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int k = 0; k < LENGTH; k++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++) x[c] = x[c] * factor + summand;
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) sum += x[c];
    sums[threadIdx.x] = sum;
}
