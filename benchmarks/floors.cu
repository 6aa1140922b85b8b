// Lower bounds of a GPU's times: for a barrier of a block, a cluster or a grid; for reads from shared memory; for
// multiply-adds. Each kernel repeats one of these so often that its launch time is negligible. BLOCKS is the number of
// blocks at a barrier.

extern "C" __global__ void block_barrier(int* done, int rounds) {
    for (int round = 0; round < rounds; round++) __syncthreads();
    if (threadIdx.x == 0) done[blockIdx.x] = rounds;
}

// As in dense_one_kernel.cu: every block sends a number to every block, and waits until all have arrived.
extern "C" __global__ void __cluster_dims__(BLOCKS) cluster_barrier(int* done, int rounds) {
#ifdef CUDA_ON_CPU
    for (int round = 0; round < rounds; round++) begin_to_listen();
#elif __CUDA_ARCH__ >= 900
    __shared__ unsigned long long counters[2];  // used alternately
    __shared__ float numbers[2][BLOCKS];
    if (threadIdx.x == 0)
        for (int turn = 0; turn < 2; turn++) make_counter(&counters[turn]);
    meet_cluster();
    for (int round = 0; round < rounds; round++) {
        const int turn = round % 2;
        if (threadIdx.x == 0) expect(&counters[turn], sizeof numbers[turn]);
        if (threadIdx.x < BLOCKS) send(round, &numbers[turn][blockIdx.x], &counters[turn], threadIdx.x);
        wait_until_open(&counters[turn], round / 2 % 2);
        __syncthreads();  // a slow thread must see its phase complete: two phases later the parity is the same again
    }
#endif
    if (threadIdx.x == 0) done[blockIdx.x] = rounds;
}

// The same for a grid: `numbers` are 2 × BLOCKS, used alternately, and begin as 0.
extern "C" __global__ void grid_barrier(int* done, float* numbers, int rounds) {
    for (int round = 0; round < rounds; round++) {
        float* told = numbers + round % 2 * BLOCKS;
        if (threadIdx.x == 0) tell(told + blockIdx.x, 1.0f, round / 2 + 1);
        wait_for_all(BLOCKS, round / 2 + 1, [&](int block) { return told + block; });
    }
    if (threadIdx.x == 0) done[blockIdx.x] = rounds;
}

// A warp reads 32 adjacent float4: no bank conflicts. The place changes from round to round, otherwise the compiler
// would read only once.
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

// CHAINS independent sums, so that a thread does not wait for the result of one.
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
