// Kernels with parameters of every type, shared and constant memory (test_cuda_launch.py).
extern "C" __global__ void scalars(double* out, float f, double d, int i, unsigned int u, long long l,
                                   unsigned char c, bool b) {
    out[0] = f; out[1] = d; out[2] = i; out[3] = u; out[4] = l; out[5] = c; out[6] = b;
}
extern "C" __global__ void scaled(const float* a, float* out, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * a[i];
}
extern "C" __global__ void types(int* i, unsigned int* u, long long* l, unsigned char* c, bool* b, double* d) {
    i[0] -= 1; u[0] -= 1; l[0] -= 1; c[0] -= 1; b[0] = !b[0]; d[0] -= 1;
}
extern "C" __global__ void backwards(const float* a, float* out, int n) {
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = a[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[n - 1 - i];
}
extern "C" __global__ void tree_sum(const float* a, float* sum, int n) {
    __shared__ float partial[8];
    float value = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) value += a[i];
    for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 0; w < 8; w++) sum[0] += partial[w];
}
extern "C" __global__ void histogram(const int* values, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[values[i]], 1);
}
#define MANY 6
__constant__ float table[MANY];
__constant__ float other[2] = {10.0f, 20.0f};
extern "C" __global__ void looks_up(const float* a, const int* at, float* out, int n) {
    for (int i = 0; i < n; i++) out[i] = table[at[i]] + other[1];
}
