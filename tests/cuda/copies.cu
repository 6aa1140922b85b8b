// Copies that coalesce or do not (test_picture.py).
extern "C" __global__ void strided(const float* x, float* y, int step) {
    y[threadIdx.x] = x[threadIdx.x * step];
}
extern "C" __global__ void unaligned(const float* x, float* y, int step) {
    y[threadIdx.x] = x[threadIdx.x + step];
}
extern "C" __global__ void all_the_same(const float* x, float* y, int step) {
    y[threadIdx.x] = x[step];
}
extern "C" __global__ void four_at_once(const float* x, float* y, int step) {
    reinterpret_cast<float4*>(y)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
}
extern "C" __global__ void read_only_cache(const float* x, float* y, int step) {
    y[threadIdx.x] = __ldg(x + threadIdx.x) + __ldg(&x[step]);
}
extern "C" __global__ void column_of_shared(const float* x, float* y, int step) {
    __shared__ float tile[32][32];
    extern __shared__ float padded[];
    for (int k = 0; k < 32; k++) {
        tile[k][threadIdx.x] = 1.0f;
        padded[k * 33 + threadIdx.x] = 1.0f;
    }
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x][0] + padded[threadIdx.x * 33];
}
extern "C" __global__ void before_and_after(const float* x, float* y, int step) {
    __shared__ float tile[8];
    int i = threadIdx.x;
    tile[i] = x[i - 2];
    y[threadIdx.x + step] = 1.0f;
}
extern "C" __global__ void far_away(const float* x, float* y, int step) {
    y[(1LL << 40) * step] = 1.0f;
}

// Kernels whose lanes diverge in loops of `step` turns.
extern "C" __global__ void every_second_turn(const float* x, float* y, int step) {
    float sum = 0.0f;
    for (int turn = 0; turn < step; turn++)
        if ((threadIdx.x + turn) % 2) sum += x[32 * turn + threadIdx.x];
    y[threadIdx.x] = sum;
}
extern "C" __global__ void continues(const float* x, float* y, int step) {
    float sum = 0.0f;
    for (int turn = 0; turn < step; turn++) {
        if (turn < threadIdx.x % 4) continue;
        sum += x[8 * turn];
    }
    y[threadIdx.x] = sum;
}
extern "C" __global__ void leaves_early(const float* x, float* y, int step) {
    float sum = 0.0f;
    int turn = threadIdx.x % 2;
    while (true) {
        if (turn >= step) break;
        if (threadIdx.x >= 16 && turn == 2) return;
        sum += x[8 * turn++];
    }
    y[threadIdx.x] = sum;
}
__device__ __noinline__ float at(const float* x, int i) {
    if (i >= 0) return x[i];
    return 0.0f;
}
extern "C" __global__ void calls(const float* x, float* y, int step) {
    float sum = threadIdx.x % 2 ? at(x, 0) : at(x, 8);
    for (int turn = 0; turn < step; turn++)
        if ((threadIdx.x + turn) % 2) sum += at(x, 8 * turn) + at(x, 8 * turn);
    y[threadIdx.x] = sum;
}
extern "C" __global__ void nested(const float* x, float* y, int step) {
    float sum = 0.0f;
    int row = 0, column = 0;
    while (row < step)
        for (; column <= threadIdx.x % 2 || (column = 0, ++row, false); column++) sum += x[8 * (2 * row + column)];
    y[threadIdx.x] = sum;
}
extern "C" __global__ void spins(const float* x, float* y, int step) {
    while (atomicExch(y + 32, 1.0f)) {}
    y[33] += x[threadIdx.x];
    atomicExch(y + 32, 0.0f);
    y[threadIdx.x] = y[33];
}
