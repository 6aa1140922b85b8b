// The small kernels of notebook 03b, one new idea each.

// add_bias: Z[i][j] = A[i][j] + b[j]. A, Z (batch, n), b (n,). Two axes of threads: x along a row, y down the rows.
extern "C" __global__ void add_bias_naive(const float* A, const float* b, float* Z, int batch, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < batch && j < n) Z[i * n + j] = A[i * n + j] + b[j];
}

// turn_round: each block turns its PIECE numbers round. x, y (n,). The last piece may be shorter.
#define PIECE 64

extern "C" __global__ void turn_round_shared(const float* x, float* y, int n) {
    __shared__ float tile[PIECE];
    int t = threadIdx.x, i = blockIdx.x * PIECE + t;
    int here = min(PIECE, n - blockIdx.x * PIECE);  // how many numbers this piece has
    if (t < here) tile[t] = x[i];
    __syncthreads();  // nobody reads the tile before all of it is filled
    if (t < here) y[i] = tile[here - 1 - t];
}

// one_sample: z = W x + b. x (n_in,), W (n_out, n_in), b, z (n_out,); n_in and n_out are multiples of STEP.
// A block computes STEP neurons. It brings x to shared memory in steps, and each number of x serves all of them.
#define STEP 64

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
