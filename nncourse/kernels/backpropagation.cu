// The four equations of backpropagation. D (batch, n_out) deltas, W (n_out, n_in) weights, A, S (batch, n_in).
//   naive   a thread computes one element of the result
//   tiled   hidden_delta and weight_gradient: a block shares what it reads, in shared memory, as in dense_forward_tiled
//   tree    bias_gradient: the threads of a block share the rows of eight columns
//   nncourse check weight_gradient       against the reference
//   nncourse time weight_gradient        against this machine's limits

// (4a) D = G * S
extern "C" __global__ void output_delta_naive(const float* G, const float* S, float* D, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) D[i] = G[i] * S[i];
}

// (4b) D_below = (D W) * S. Adjacent threads in x read adjacent elements of a row of W: unlike the reads of
// dense_forward_naive, these coalesce.
extern "C" __global__ void hidden_delta_naive(const float* D, const float* W, const float* S, float* D_below,
                                              int batch, int n_out, int n_in) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;  // neuron of the layer below
    int i = blockIdx.y * blockDim.y + threadIdx.y;  // sample
    if (i >= batch || k >= n_in) return;
    float sum = 0.0f;
    for (int j = 0; j < n_out; j++) sum += D[i * n_out + j] * W[j * n_in + k];
    D_below[i * n_in + k] = sum * S[i * n_in + k];
}

#define TILE 16

extern "C" __global__ void hidden_delta_tiled(const float* D, const float* W, const float* S, float* D_below,
                                              int batch, int n_out, int n_in) {
    __shared__ float D_tile[TILE][TILE];
    __shared__ float W_tile[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int k = blockIdx.x * TILE + x;
    int i = blockIdx.y * TILE + y;
    float sum = 0.0f;
    for (int j0 = 0; j0 < n_out; j0 += TILE) {
        D_tile[y][x] = i < batch && j0 + x < n_out ? D[i * n_out + j0 + x] : 0.0f;
        W_tile[y][x] = j0 + y < n_out && k < n_in ? W[(j0 + y) * n_in + k] : 0.0f;
        __syncthreads();
        for (int j = 0; j < TILE; j++) sum += D_tile[y][j] * W_tile[j][x];
        __syncthreads();
    }
    if (i < batch && k < n_in) D_below[i * n_in + k] = sum * S[i * n_in + k];
}

// (4c) db = mean of D over the batch. A thread sums the column of its neuron: the reads of a warp coalesce.
extern "C" __global__ void bias_gradient_naive(const float* D, float* db, int batch, int n_out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n_out) return;
    float sum = 0.0f;
    for (int i = 0; i < batch; i++) sum += D[i * n_out + j];
    db[j] = sum / batch;
}

// A warp reads eight columns of four rows: a sector of each row. In shared memory half of the threads then add the sums
// of the other half, until the first eight have those of all rows.
#define COLUMNS 8
#define THREADS 1024

extern "C" __global__ void bias_gradient_tree(const float* D, float* db, int batch, int n_out) {
    __shared__ float sums[THREADS];
    int t = threadIdx.x, j = blockIdx.x * COLUMNS + t % COLUMNS;
    float sum = 0.0f;
    if (j < n_out)
#pragma unroll 4
        for (int i = t / COLUMNS; i < batch; i += THREADS / COLUMNS) sum += D[i * n_out + j];
    sums[t] = sum;
    for (int half = THREADS / 2; half >= COLUMNS; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t < COLUMNS && j < n_out) db[j] = sums[t] / batch;
}

// (4d) dW = D^T A / batch
extern "C" __global__ void weight_gradient_naive(const float* D, const float* A, float* dW,
                                                 int batch, int n_out, int n_in) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;  // input that the weight comes from
    int j = blockIdx.y * blockDim.y + threadIdx.y;  // neuron that it goes to
    if (j >= n_out || k >= n_in) return;
    float sum = 0.0f;
    for (int i = 0; i < batch; i++) sum += D[i * n_out + j] * A[i * n_in + k];
    dW[j * n_in + k] = sum / batch;
}

// 16 samples at a time
extern "C" __global__ void weight_gradient_tiled(const float* D, const float* A, float* dW,
                                                 int batch, int n_out, int n_in) {
    __shared__ float D_tile[TILE][TILE];  // [sample][neuron]
    __shared__ float A_tile[TILE][TILE];  // [sample][input]
    int x = threadIdx.x, y = threadIdx.y;
    int k = blockIdx.x * TILE + x;
    int j = blockIdx.y * TILE + y;
    int j_load = blockIdx.y * TILE + x;  // x runs along a row of D, so that the reads coalesce
    float sum = 0.0f;
    for (int i0 = 0; i0 < batch; i0 += TILE) {
        D_tile[y][x] = i0 + y < batch && j_load < n_out ? D[(i0 + y) * n_out + j_load] : 0.0f;
        A_tile[y][x] = i0 + y < batch && k < n_in ? A[(i0 + y) * n_in + k] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += D_tile[i][y] * A_tile[i][x];
        __syncthreads();
    }
    if (j < n_out && k < n_in) dW[j * n_in + k] = sum / batch;
}
