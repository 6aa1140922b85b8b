// The small kernels of notebook 03b, one new idea each.

// add_bias: Z[i][j] = A[i][j] + b[j]. A, Z (batch, n), b (n,). Two axes of threads: x along a row, y down the rows.
extern "C" __global__ void add_bias_naive(const float* A, const float* b, float* Z, int batch, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < batch && j < n) Z[i * n + j] = A[i * n + j] + b[j];
}

// dense_transposed: Z = A W_t + b, with the weights of a neuron in a column of W_t (n_in, n_out). Adjacent threads in x
// read adjacent weights, so their reads coalesce.
extern "C" __global__ void dense_transposed_coalesced(const float* A, const float* W_t, const float* b, float* Z,
                                                      int batch, int n_in, int n_out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= batch || j >= n_out) return;
    float sum = b[j];
    for (int k = 0; k < n_in; k++) sum += A[i * n_in + k] * W_t[k * n_out + j];
    Z[i * n_out + j] = sum;
}

// turn_round: each block reverses the order of its PIECE numbers. x, y (n,). The last piece may be shorter.
#define PIECE 64

extern "C" __global__ void turn_round_shared(const float* x, float* y, int n) {
    __shared__ float tile[PIECE];
    int t = threadIdx.x, i = blockIdx.x * PIECE + t;
    int here = min(PIECE, n - blockIdx.x * PIECE);  // how many numbers this piece has
    if (t < here) tile[t] = x[i];
    __syncthreads();  // nobody reads the tile before all of it is filled
    if (t < here) y[i] = tile[here - 1 - t];
}

// one_step: z = W x + b. x (n_in,), W (n_out, n_in), b, z (n_out,); n_in is STEP, n_out a multiple of it.
// A block computes STEP neurons. It brings x to shared memory, and each number of x serves all of them.
#define STEP 64

extern "C" __global__ void one_step_shared(const float* x, const float* W, const float* b, float* z,
                                           int n_in, int n_out) {
    __shared__ float tile[STEP];
    int t = threadIdx.x, j = blockIdx.x * STEP + t;
    tile[t] = x[t];
    __syncthreads();  // nobody reads the tile before all of it is filled
    float sum = b[j];
    for (int k = 0; k < STEP; k++) sum += tile[k] * W[j * n_in + k];
    z[j] = sum;
}

// one_sample: the same for longer samples: n_in, too, is a multiple of STEP. x comes to shared memory in steps.
extern "C" __global__ void one_sample_shared(const float* x, const float* W, const float* b, float* z,
                                             int n_in, int n_out) {
    __shared__ float tile[STEP];
    int t = threadIdx.x, j = blockIdx.x * STEP + t;
    float sum = b[j];
    for (int k0 = 0; k0 < n_in; k0 += STEP) {
        tile[t] = x[k0 + t];
        __syncthreads();  // nobody reads the tile before all of it is filled
        for (int k = 0; k < STEP; k++) sum += tile[k] * W[j * n_in + k0 + k];
        __syncthreads();  // nobody refills it before all have read
    }
    z[j] = sum;
}

// whole_tiles: Z = A W^T + b, where batch, n_in and n_out are multiples of TILE: no element needs a guard.
#define TILE 16

extern "C" __global__ void whole_tiles_tiled(const float* A, const float* W, const float* b, float* Z,
                                             int batch, int n_in, int n_out) {
    __shared__ float A_tile[TILE][TILE];
    __shared__ float W_tile[TILE][TILE + 1];  // padded: threads that read down a column use different banks
    int x = threadIdx.x, y = threadIdx.y;
    int j = blockIdx.x * TILE + x, i = blockIdx.y * TILE + y;
    float sum = b[j];
    for (int k0 = 0; k0 < n_in; k0 += TILE) {
        A_tile[y][x] = A[i * n_in + k0 + x];
        W_tile[y][x] = W[(blockIdx.x * TILE + y) * n_in + k0 + x];
        __syncthreads();  // nobody reads the tiles before all of them are filled
        for (int k = 0; k < TILE; k++) sum += A_tile[y][k] * W_tile[x][k];
        __syncthreads();  // nobody refills them before all have read
    }
    Z[i * n_out + j] = sum;
}
