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
