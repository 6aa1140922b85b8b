// Layer normalisation. A, D, G, Z (batch, t, n); mean and scale of each row (batch, t); gamma and beta (n,).
//   naive    a thread goes through one row; layernorm_gradients: through one column
//   warp     layernorm_forward, _backward: a warp shares one row, and adds up by shuffles
//   shared   layernorm_gradients: a warp reads 8 neighbouring columns of 4 rows; the warps of a block take rows in turn
//   nncourse check layernorm_forward --kernel warp       against the reference
//   nncourse time layernorm_forward                      against this machine's limits

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

// ---- warp: lanes take the numbers of a row in turn. The sums are always added in the same order.

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

// ---- shared: as in bias_gradient_tree, a block has 128 partial sums of each of 8 columns, which meet in shared memory

#define COLUMNS 8
#define THREADS 1024

extern "C" __global__ void layernorm_gradients_shared(const float* D, const float* A, const float* mean,
                                                      const float* scale, float* dgamma, float* dbeta, int batch,
                                                      int t, int n) {
    __shared__ float products_of[THREADS], sums_of[THREADS];
    int me = threadIdx.x, k = blockIdx.x * COLUMNS + me % COLUMNS;
    float products = 0.0f, sum = 0.0f;
    if (k < n)
#pragma unroll 4
        for (int row = me / COLUMNS; row < batch * t; row += THREADS / COLUMNS) {
            float d = D[row * n + k];
            products += d * (A[row * n + k] - mean[row]) * scale[row];
            sum += d;
        }
    products_of[me] = products;
    sums_of[me] = sum;
    for (int half = THREADS / 2; half >= COLUMNS; half /= 2) {
        __syncthreads();
        if (me < half) {
            products_of[me] += products_of[me + half];
            sums_of[me] += sums_of[me + half];
        }
    }
    if (me >= COLUMNS || k >= n) return;
    dgamma[k] = products_of[me] / batch;
    dbeta[k] = sums_of[me] / batch;
}
