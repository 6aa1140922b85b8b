// dense_forward: Z = A W^T + b, the kernels slow to fast. Each adds one idea to the one before:
//   naive            a thread computes one element of Z
//   coalesced        the threads of a warp read numbers that lie next to each other
//   tiled            a block shares what it reads
// and, in dense_tiles.cu:
//   tiles_1d         a thread computes 8 elements in a column, so what it has read of W serves 8 times
//   tiles_2d         a thread computes 8 x 8 elements, so what it has read of A serves 8 times too
//   vectorised       four numbers are read at once
//   warp_tiles       a warp computes a tile that is nearly square, so it reads less from shared memory
//   double_buffered  while one tile is multiplied, the next one is on its way
// A (batch, n_in), W (n_out, n_in), b (n_out,), Z (batch, n_out); all float32, row after row. Both matrices are read
// along their rows: k, which the sums run over, counts numbers that lie next to each other in A and in W.
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

// The 32 threads of a warp share one element: they run along k side by side, so that each reading of A and of W is one
// of 32 numbers in a row. Then they add up their sums, as in the costs.
extern "C" __global__ void dense_forward_coalesced(const float* A, const float* W, const float* b, float* Z,
                                                   int batch, int n_in, int n_out) {
    int lane = threadIdx.x;
    int j = blockIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= batch) return;  // all threads of the warp, since they have one sample
    float z = 0.0f;
    for (int k = lane; k < n_in; k += 32) z += A[i * n_in + k] * W[j * n_in + k];
    for (int distance = 16; distance > 0; distance /= 2) z += __shfl_down_sync(~0u, z, distance);
    if (lane == 0) Z[i * n_out + j] = z + b[j];
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
