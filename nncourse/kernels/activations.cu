// Activation functions and their derivatives. z are the weighted sums, a the outputs of the neurons; n elements, in any
// shape.
//   naive   a thread computes one element; for softmax and softmax_delta, one row
//   tree    softmax: the 128 threads of a block share one row
//   nncourse check sigmoid       against the reference
//   nncourse time softmax        against this machine's limits
//
// In all elementwise kernels i is the number of threads in the blocks before this one, plus the thread's index in its
// block. The guard `if (i < n)` stops threads of the last block past n.

extern "C" __global__ void identity_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = z[i];
}

extern "C" __global__ void identity_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1.0f;
}

extern "C" __global__ void step_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = z[i] > 0.0f ? 1.0f : 0.0f;
}

extern "C" __global__ void step_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 0.0f;
}

// (2a). For very negative z, expf(-z) is infinity, and 1 / infinity is 0: the right result.
extern "C" __global__ void sigmoid_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));
}

extern "C" __global__ void sigmoid_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = 1.0f / (1.0f + expf(-z[i]));
    a[i] = s * (1.0f - s);
}

// (2b)
extern "C" __global__ void tanh_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = tanhf(z[i]);
}

extern "C" __global__ void tanh_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float t = tanhf(z[i]);
    a[i] = 1.0f - t * t;
}

// (2c)
extern "C" __global__ void relu_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = fmaxf(z[i], 0.0f);
}

extern "C" __global__ void relu_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = z[i] > 0.0f ? 1.0f : 0.0f;
}

// (2d)
extern "C" __global__ void leaky_relu_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = z[i] > 0.0f ? z[i] : ALPHA * z[i];
}

extern "C" __global__ void leaky_relu_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = z[i] > 0.0f ? 1.0f : ALPHA;
}

// (2e), in a form whose exponential is at most 1.
extern "C" __global__ void softplus_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = fmaxf(z[i], 0.0f) + log1pf(expf(-fabsf(z[i])));
}

extern "C" __global__ void softplus_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));
}

// z σ(2u), u = √(2/π) (z + 0.044715 z³). From z = −10 down the result is 0 in float32, and e^(−2u) would overflow.
__device__ float exp_of_gelu(float z) { return expf(-1.595769122f * (z + 0.044715f * z * z * z)); }

extern "C" __global__ void gelu_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = z[i] < -10.0f ? -10.0f : z[i];
    a[i] = x / (1.0f + exp_of_gelu(x));
}

extern "C" __global__ void gelu_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = z[i] < -10.0f ? -10.0f : z[i] > 10.0f ? 10.0f : z[i];
    float e = exp_of_gelu(x), s = 1.0f / (1.0f + e);
    a[i] = s * (1.0f + e * s * x * (1.595769122f + 0.2140644488f * x * x));  // e s is at most 1, x e may overflow
}

// ---- softmax: every output needs its whole row. Z, A (batch, n).

// Three passes over a row: the maximum, the sum of exponentials, the quotients.
extern "C" __global__ void softmax_naive(const float* Z, float* A, int batch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch) return;
    const float* z = Z + i * n;
    float* a = A + i * n;
    float top = z[0], total = 0.0f;
    for (int j = 1; j < n; j++) top = fmaxf(top, z[j]);
    for (int j = 0; j < n; j++) total += a[j] = expf(z[j] - top);
    for (int j = 0; j < n; j++) a[j] /= total;
}

// The threads of a block reduce in a tree, to the maximum and to the sum of the row.
#define THREADS 128

__device__ float tree_max(float value, float* partial) {
    int t = threadIdx.x;
    partial[t] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) partial[t] = fmaxf(partial[t], partial[t + half]);
        __syncthreads();
    }
    return partial[0];
}

__device__ float tree_sum(float value, float* partial) {
    int t = threadIdx.x;
    partial[t] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    return partial[0];
}

extern "C" __global__ void softmax_tree(const float* Z, float* A, int batch, int n) {
    __shared__ float maxima[THREADS], sums[THREADS];
    const float* z = Z + blockIdx.x * n;
    float* a = A + blockIdx.x * n;
    float top = -INFINITY, total = 0.0f;
    for (int j = threadIdx.x; j < n; j += THREADS) top = fmaxf(top, z[j]);
    top = tree_max(top, maxima);
    for (int j = threadIdx.x; j < n; j += THREADS) total += expf(z[j] - top);
    total = tree_sum(total, sums);
    for (int j = threadIdx.x; j < n; j += THREADS) a[j] = expf(z[j] - top) / total;
}

// The derivative of softmax times a gradient.
extern "C" __global__ void softmax_delta_naive(const float* G, const float* A, float* D, int batch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch) return;
    const float *g = G + i * n, *a = A + i * n;
    float mean = 0.0f;
    for (int k = 0; k < n; k++) mean += g[k] * a[k];
    for (int j = 0; j < n; j++) D[i * n + j] = a[j] * (g[j] - mean);
}
