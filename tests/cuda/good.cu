// Kernels that compile (test_cuda_compile.py).
extern "C" __global__ void doubled(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = 2.0f * a[i];
}
extern "C" __global__ void turned(float* a, int n) {
    __shared__ float tile[256];
    float many[100];
    for (int i = 0; i < 100; i++) many[i] = a[i];
    tile[threadIdx.x] = many[n];
    __syncthreads();
    a[threadIdx.x] = tile[255 - threadIdx.x] + many[n + 1];
}
