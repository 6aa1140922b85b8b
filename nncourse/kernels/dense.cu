// dense_forward: Z = A W^T + b. The kernels, from slow to fast; each adds one idea to the one above:
//   naive            a thread computes one element of Z
//   coalesced        the threads of a warp read adjacent elements
//   tiled            a block shares what it reads, in shared memory
// and, in dense_tiles.cu:
//   tiles_1d         a thread computes 8 elements in a column: each element of W that it reads is used 8 times
//   tiles_2d         a thread computes 8 x 8 elements: each element of A that it reads is used 8 times too
//   vectorised       four elements are read at once
//   warp_tiles       a warp computes a nearly square tile, so it reads less from shared memory
//   double_buffered  the next tile is loaded while one is multiplied
//   small_tiles      the same with smaller tiles, for small matrices
//   stream_k         all multiprocessors get the same share of the work, whatever the number of tiles
// and, in dense_tensor_cores.cu, no longer in float32:
//   tensor_cores     a warp multiplies small matrices at once, of factors rounded to TF32
// and, in dense_wgmma.cu, four for the tensor cores of Hopper GPUs.
//   nncourse check dense_forward --kernel tiled       against the reference
//   nncourse time dense_forward                       against this machine's limits
//
// A (batch, n_in), W (n_out, n_in), b (n_out,), Z (batch, n_out); all float32, row-major. The sums run over k, along
// the rows of both A and W, so consecutive k are adjacent in memory.
// extern "C" prevents name mangling, so that the kernels can be found by name after compilation.

// All operands are read from global memory. Adjacent threads in x read different rows of W, n_in elements apart: these
// reads do not coalesce, so it is slow.
extern "C" __global__ void dense_forward_naive(const float* A, const float* W, const float* b, float* Z,
                                               int batch, int n_in, int n_out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;  // neuron
    int i = blockIdx.y * blockDim.y + threadIdx.y;  // sample
    if (i >= batch || j >= n_out) return;           // the last blocks reach past the edges of Z
    float z = b[j];
    for (int k = 0; k < n_in; k++) z += A[i * n_in + k] * W[j * n_in + k];
    Z[i * n_out + j] = z;
}

// The 32 threads of a warp share one element of Z, and add their sums by shuffles, as in cost.cu.
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

// A block of 16 x 16 threads computes a tile of Z. It proceeds along k in steps of 16, and each step first loads one
// tile of A and one of W into shared memory: a block reads each element from global memory once, not 16 times.
#define TILE 16

extern "C" __global__ void dense_forward_tiled(const float* A, const float* W, const float* b, float* Z,
                                               int batch, int n_in, int n_out) {
    __shared__ float A_tile[TILE][TILE];
    __shared__ float W_tile[TILE][TILE + 1];  // padded: threads that read down a column use different banks
    int x = threadIdx.x, y = threadIdx.y;
    int j = blockIdx.x * TILE + x;      // neuron of this thread's element
    int i = blockIdx.y * TILE + y;      // its sample
    int j_load = blockIdx.x * TILE + y; // row of W that this thread loads from: x runs along k, so the reads coalesce
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
