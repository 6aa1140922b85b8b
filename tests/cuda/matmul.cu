// Matrix products, right and without a barrier (test_cuda_emulate.py).
#define TILE 8
extern "C" __global__ void naive(const float* A, const float* B, float* C, int n, int m, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= m) return;
    float sum = 0.0f;
    for (int l = 0; l < k; l++) sum += A[i * k + l] * B[l * m + j];
    C[i * m + j] = sum;
}

template <bool FIRST, bool SECOND>
__device__ void product(const float* A, const float* B, float* C, int n, int m, int k) {
    __shared__ float A_tile[TILE][TILE];
    __shared__ float B_tile[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int j = blockIdx.x * TILE + x, i = blockIdx.y * TILE + y;
    float sum = 0.0f;
    for (int l = 0; l < k; l += TILE) {
        A_tile[y][x] = i < n && l + x < k ? A[i * k + l + x] : 0.0f;
        B_tile[y][x] = l + y < k && j < m ? B[(l + y) * m + j] : 0.0f;
        if (FIRST) __syncthreads();
        for (int t = 0; t < TILE; t++) sum += A_tile[y][t] * B_tile[t][x];
        if (SECOND) __syncthreads();
    }
    if (i < n && j < m) C[i * m + j] = sum;
}
extern "C" __global__ void tiled(const float* A, const float* B, float* C, int n, int m, int k) {
    product<true, true>(A, B, C, n, m, k);
}
extern "C" __global__ void no_first_barrier(const float* A, const float* B, float* C, int n, int m, int k) {
    product<false, true>(A, B, C, n, m, k);
}
extern "C" __global__ void no_second_barrier(const float* A, const float* B, float* C, int n, int m, int k) {
    product<true, false>(A, B, C, n, m, k);
}
