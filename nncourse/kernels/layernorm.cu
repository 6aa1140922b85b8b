// Layer normalisation. A, D, G, Z (batch, t, n); mean and scale of each row (batch, t); gamma and beta (n,).
//   naive    a thread goes through one row; layernorm_gradients: through one column
//   warp     layernorm_forward, _backward: a warp shares one row, and adds up by shuffles
//   shared   layernorm_gradients: a warp reads 32 neighbouring columns of a row; 8 warps take the rows in turn
//   nncourse check layernorm_forward --kernel warp       against the reference
//   nncourse time layernorm_forward                      beside this machine's limits

// ---- naive

// The first pass gives the mean, the second the squares of the distances from it.
extern "C" __global__ void layernorm_forward_naive(const float* A, const float* gamma, const float* beta, float epsilon,
                                                   float* Z, float* mean, float* scale, int batch, int t, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch * t) return;
    const float* a = A + row * n;
    float sum = 0.0f, squares = 0.0f;
    for (int k = 0; k < n; k++) sum += a[k];
    float m = sum / n;
    for (int k = 0; k < n; k++) squares += (a[k] - m) * (a[k] - m);
    float factor = 1.0f / sqrtf(squares / n + epsilon);
    for (int k = 0; k < n; k++) Z[row * n + k] = (a[k] - m) * factor * gamma[k] + beta[k];
    mean[row] = m;
    scale[row] = factor;
}

extern "C" __global__ void layernorm_backward_naive(const float* D, const float* A, const float* mean,
                                                    const float* scale, const float* gamma, float* G, int batch, int t,
                                                    int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch * t) return;
    float m = mean[row], factor = scale[row], sum = 0.0f, products = 0.0f;
    for (int k = 0; k < n; k++) {
        float h = gamma[k] * D[row * n + k];
        sum += h;
        products += h * (A[row * n + k] - m) * factor;
    }
    for (int k = 0; k < n; k++) {
        float normal = (A[row * n + k] - m) * factor;
        G[row * n + k] = factor * (gamma[k] * D[row * n + k] - sum / n - normal * products / n);
    }
}

extern "C" __global__ void layernorm_gradients_naive(const float* D, const float* A, const float* mean,
                                                     const float* scale, float* dgamma, float* dbeta, int batch, int t,
                                                     int n) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    float products = 0.0f, sum = 0.0f;
    for (int row = 0; row < batch * t; row++) {
        products += D[row * n + k] * (A[row * n + k] - mean[row]) * scale[row];
        sum += D[row * n + k];
    }
    dgamma[k] = products / batch;
    dbeta[k] = sum / batch;
}

// ---- warp: lanes take the numbers of a row in turn. The sums are added in the same order always.

// The sum of all lanes' values, in every lane.
__device__ float sum_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
}

extern "C" __global__ void layernorm_forward_warp(const float* A, const float* gamma, const float* beta, float epsilon,
                                                  float* Z, float* mean, float* scale, int batch, int t, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= batch * t) return;
    const float* a = A + row * n;
    float sum = 0.0f, squares = 0.0f;
    for (int k = lane; k < n; k += 32) sum += a[k];
    float m = sum_of_warp(sum) / n;
    for (int k = lane; k < n; k += 32) squares += (a[k] - m) * (a[k] - m);
    float factor = 1.0f / sqrtf(sum_of_warp(squares) / n + epsilon);
    for (int k = lane; k < n; k += 32) Z[row * n + k] = (a[k] - m) * factor * gamma[k] + beta[k];
    if (lane == 0) {
        mean[row] = m;
        scale[row] = factor;
    }
}

extern "C" __global__ void layernorm_backward_warp(const float* D, const float* A, const float* mean,
                                                   const float* scale, const float* gamma, float* G, int batch, int t,
                                                   int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= batch * t) return;
    float m = mean[row], factor = scale[row], sum = 0.0f, products = 0.0f;
    for (int k = lane; k < n; k += 32) {
        float h = gamma[k] * D[row * n + k];
        sum += h;
        products += h * (A[row * n + k] - m) * factor;
    }
    sum = sum_of_warp(sum) / n;
    products = sum_of_warp(products) / n;
    for (int k = lane; k < n; k += 32) {
        float normal = (A[row * n + k] - m) * factor;
        G[row * n + k] = factor * (gamma[k] * D[row * n + k] - sum - normal * products);
    }
}

// ---- shared: 8 partial sums of each column meet in shared memory

extern "C" __global__ void layernorm_gradients_shared(const float* D, const float* A, const float* mean,
                                                      const float* scale, float* dgamma, float* dbeta, int batch,
                                                      int t, int n) {
    __shared__ float products_of[8][32], sums_of[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = blockIdx.x * 32 + lane;
    float products = 0.0f, sum = 0.0f;
    if (k < n)
        for (int row = warp; row < batch * t; row += 8) {
            products += D[row * n + k] * (A[row * n + k] - mean[row]) * scale[row];
            sum += D[row * n + k];
        }
    products_of[warp][lane] = products;
    sums_of[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || k >= n) return;
    for (int other = 1; other < 8; other++) {
        products += products_of[other][lane];
        sum += sums_of[other][lane];
    }
    dgamma[k] = products / batch;
    dbeta[k] = sum / batch;
}
