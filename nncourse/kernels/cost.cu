// Costs and their gradients. A, Z, Y, G (batch, n), one row per sample; C is one number, zero before the launch.
// For sequences: Z, D (batch, t, kinds), Y (batch, t) of int.
//   naive     gradients: a thread computes one element; token_delta: one position
//   warp      token_delta: a warp computes one position
//   atomic    all threads add to the same number, one after the other: simple but slow
//   tree      half of the threads of a block add the numbers of the other half, then a quarter, then an eighth
//   shuffle   the threads of a warp read each other's registers, without shared memory or barriers
//   nncourse check mse --kernel tree       against the reference
//   nncourse time mse                      against this machine's limits

// ---- three ways to add up numbers that are in different threads

// 1. Float sums depend on the order of addition: here the last digits change from run to run.
extern "C" __global__ void mse_atomic(const float* A, const float* Y, float* C, int batch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * n) return;
    float difference = A[i] - Y[i];
    atomicAdd(C, difference * difference / (2.0f * batch));
}

// 2. A tree. blockDim.x must be a power of two, at most 1,024. The sum is valid in thread 0.
__device__ float tree_sum(float value) {
    __shared__ float partial[1024];
    int t = threadIdx.x;
    partial[t] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    return partial[0];
}

// 3. Shuffles. Only the sums of the warps, at most 32, go through shared memory.
__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffff, value, distance);
    return value;
}

__device__ float shuffle_sum(float value) {
    __shared__ float partial[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = warp_sum(value);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    if (warp == 0) value = warp_sum(lane < blockDim.x / 32 ? partial[lane] : 0.0f);
    return value;
}

// ---- the costs: one block strides over all elements, then adds up the threads' sums. The order of addition is fixed.

__device__ float squares(const float* A, const float* Y, int size) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        float difference = A[i] - Y[i];
        sum += difference * difference;
    }
    return sum;
}

extern "C" __global__ void mse_tree(const float* A, const float* Y, float* C, int batch, int n) {
    float sum = tree_sum(squares(A, Y, batch * n));
    if (threadIdx.x == 0) *C = sum / (2.0f * batch);
}

extern "C" __global__ void mse_shuffle(const float* A, const float* Y, float* C, int batch, int n) {
    float sum = shuffle_sum(squares(A, Y, batch * n));
    if (threadIdx.x == 0) *C = sum / (2.0f * batch);
}

extern "C" __global__ void mae_tree(const float* A, const float* Y, float* C, int batch, int n) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < batch * n; i += blockDim.x) sum += fabsf(A[i] - Y[i]);
    sum = tree_sum(sum);
    if (threadIdx.x == 0) *C = sum / batch;
}

extern "C" __global__ void binary_cross_entropy_tree(const float* Z, const float* Y, float* C, int batch, int n) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < batch * n; i += blockDim.x) {
        float z = Z[i];
        sum += fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z))) - Y[i] * z;  // softplus(z) - y z, without overflow
    }
    sum = tree_sum(sum);
    if (threadIdx.x == 0) *C = sum / batch;
}

// A thread takes whole samples: the log of the sum of exponentials. The largest z is subtracted first: none overflows.
extern "C" __global__ void categorical_cross_entropy_tree(const float* Z, const float* Y, float* C, int batch, int n) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < batch; i += blockDim.x) {
        const float *z = Z + i * n, *y = Y + i * n;
        float top = z[0], exponentials = 0.0f;
        for (int j = 1; j < n; j++) top = fmaxf(top, z[j]);
        for (int j = 0; j < n; j++) {
            exponentials += expf(z[j] - top);
            sum += y[j] * (top - z[j]);
        }
        sum += logf(exponentials);
    }
    sum = tree_sum(sum);
    if (threadIdx.x == 0) *C = sum / batch;
}

// A position's share of its sample: 1 / the number of positions that count. −1 marks those that do not.
__device__ float share_of_positions(const int* y, int t) {
    int count = 0;
    for (int i = 0; i < t; i++) count += y[i] >= 0;
    return count > 0 ? 1.0f / count : 0.0f;
}

extern "C" __global__ void token_cross_entropy_tree(const float* Z, const int* Y, float* C, int batch, int t,
                                                    int kinds) {
    float sum = 0.0f;
    for (int row = threadIdx.x; row < batch * t; row += blockDim.x) {
        if (Y[row] < 0) continue;
        const float* z = Z + row * kinds;
        float top = z[0], exponentials = 0.0f;
        for (int k = 1; k < kinds; k++) top = fmaxf(top, z[k]);
        for (int k = 0; k < kinds; k++) exponentials += expf(z[k] - top);
        sum += (logf(exponentials) + (top - z[Y[row]])) * share_of_positions(Y + row / t * t, t);
    }
    sum = tree_sum(sum);
    if (threadIdx.x == 0) *C = sum / batch;
}

// ---- gradients

// The gradient of (3), and the delta of both cross-entropies.
extern "C" __global__ void difference_naive(const float* A, const float* Y, float* G, int batch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < batch * n) G[i] = A[i] - Y[i];
}

extern "C" __global__ void mae_gradient_naive(const float* A, const float* Y, float* G, int batch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * n) return;
    float difference = A[i] - Y[i];
    G[i] = difference > 0.0f ? 1.0f : difference < 0.0f ? -1.0f : 0.0f;
}

extern "C" __global__ void token_delta_naive(const float* Z, const int* Y, float* D, int batch, int t, int kinds) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch * t) return;
    const float* z = Z + row * kinds;
    float* d = D + row * kinds;
    float top = z[0], exponentials = 0.0f;
    for (int k = 1; k < kinds; k++) top = fmaxf(top, z[k]);
    for (int k = 0; k < kinds; k++) exponentials += expf(z[k] - top);
    float share = Y[row] < 0 ? 0.0f : share_of_positions(Y + row / t * t, t);
    for (int k = 0; k < kinds; k++) d[k] = share * (expf(z[k] - top) / exponentials - (k == Y[row] ? 1.0f : 0.0f));
}

// The lanes of a warp take the kinds of a position in turn, and the positions of its sample. All get the same results.
extern "C" __global__ void token_delta_warp(const float* Z, const int* Y, float* D, int batch, int t, int kinds) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= batch * t) return;
    const float* z = Z + row * kinds;
    const int* y = Y + row / t * t;
    float top = z[0], exponentials = 0.0f;
    int count = 0;
    for (int k = lane; k < kinds; k += 32) top = fmaxf(top, z[k]);
    for (int far = 16; far > 0; far /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, far));
    for (int k = lane; k < kinds; k += 32) exponentials += expf(z[k] - top);
    for (int i = lane; i < t; i += 32) count += y[i] >= 0;
    for (int far = 16; far > 0; far /= 2) {
        exponentials += __shfl_xor_sync(0xffffffff, exponentials, far);
        count += __shfl_xor_sync(0xffffffff, count, far);
    }
    float share = Y[row] < 0 ? 0.0f : 1.0f / count;
    for (int k = lane; k < kinds; k += 32)
        D[row * kinds + k] = share * (expf(z[k] - top) / exponentials - (k == Y[row] ? 1.0f : 0.0f));
}
