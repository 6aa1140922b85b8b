// Threads that sleep until others have come (test_cuda_emulate.py).
// Block b waits until block b + 1 has come: the last one need not wait. The first come is the last block.
extern "C" __global__ void in_turns(int* flags, int* order) {
    __shared__ int mine[4];
    mine[threadIdx.x] = 10 * blockIdx.x + threadIdx.x;
    if (threadIdx.x == 0 && blockIdx.x + 1 < gridDim.x)
        while (atomicAdd(flags + blockIdx.x + 1, 0) == 0) __nanosleep(20);
    __syncwarp();  // the others wait for the sleeper
    if (threadIdx.x == 3) {
        order[blockIdx.x] = 1000 * atomicAdd(flags + gridDim.x, 1) + mine[2];
        __threadfence();
        atomicExch(flags + blockIdx.x, 1);
    }
}
extern "C" __global__ void alone(int* flags) { while (atomicAdd(flags, 0) == 0) __nanosleep(20); }
extern "C" __global__ void impatient(int* flags, int* seen) {
    const long long start = clock64();
    while (atomicAdd(flags, 0) == 0 && clock64() - start < 2000000000) __nanosleep(20);
    *seen = 1 + flags[0];
}
extern "C" __global__ void one_does_not_come(int* flags) {
    if (threadIdx.x == 0) __nanosleep(20);
    else __syncthreads();
}
