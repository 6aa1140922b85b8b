// dense_forward: Z = A W^T + b, the kernels slow to fast.
// A (batch, n_in), W (n_out, n_in), b (n_out,), Z (batch, n_out); all float32, row after row.
// extern "C" keeps the names as they are written, so that they can be found after compiling.

// One thread computes one element of Z and reads all that it needs from global memory.
// Threads next to each other in x read different rows of W, n_in numbers apart: slow, and that is the lesson.
extern "C" __global__ void dense_forward_naive(const float* A, const float* W, const float* b, float* Z,
                                               int batch, int n_in, int n_out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;  // neuron
    int i = blockIdx.y * blockDim.y + threadIdx.y;  // sample
    if (i >= batch || j >= n_out) return;           // the last blocks reach past the edges of Z
    float z = b[j];
    for (int k = 0; k < n_in; k++) z += A[i * n_in + k] * W[j * n_in + k];
    Z[i * n_out + j] = z;
}

// A block of 16 x 16 threads computes a tile of Z. It walks along k in steps of 16, and each step first brings one tile
// of A and one of W into shared memory: every number is read from global memory once a block, not 16 times.
#define TILE 16

extern "C" __global__ void dense_forward_tiled(const float* A, const float* W, const float* b, float* Z,
                                               int batch, int n_in, int n_out) {
    __shared__ float A_tile[TILE][TILE];
    __shared__ float W_tile[TILE][TILE + 1];  // one more column: threads that read down a column use different banks
    int x = threadIdx.x, y = threadIdx.y;
    int j = blockIdx.x * TILE + x;      // neuron of this thread's element
    int i = blockIdx.y * TILE + y;      // its sample
    int j_load = blockIdx.x * TILE + y; // the row of W that this thread helps to load: x runs along k, so reads coalesce
    float z = 0.0f;
    for (int k0 = 0; k0 < n_in; k0 += TILE) {
        int k_load = k0 + x;
        A_tile[y][x] = i < batch && k_load < n_in ? A[i * n_in + k_load] : 0.0f;
        W_tile[y][x] = j_load < n_out && k_load < n_in ? W[j_load * n_in + k_load] : 0.0f;
        __syncthreads();  // nobody reads the tiles before all of them are filled
        for (int k = 0; k < TILE; k++) z += A_tile[y][k] * W_tile[x][k];
        __syncthreads();  // nobody refills them before all have read
    }
    if (i < batch && j < n_out) Z[i * n_out + j] = z + b[j];
}
