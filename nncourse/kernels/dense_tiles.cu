// dense_forward: Z = A W^T + b, continued from dense.cu, which lists all kernels and how to check and time them.
// Functions on tiles that other operations need too are in tiles.cu, which the compiler reads before this text.
// Each thread computes several elements of Z and keeps their sums in registers, so that an element read from shared
// memory is used in several products. A block proceeds along k in steps of DEPTH.
#define DEPTH 8

// A block of 512 threads computes 64 x 64 elements, each thread 8 in a column: 9 reads from shared memory for 8
// products; `tiled` needs 16.
#define SIDE_1D 64
#define COLUMN 8

extern "C" __global__ void dense_forward_tiles_1d(const float* A, const float* W, const float* b, float* Z,
                                                  int batch, int n_in, int n_out) {
    __shared__ float A_tile[SIDE_1D][DEPTH];
    __shared__ float W_tile[SIDE_1D][DEPTH + 1];
    int t = threadIdx.x, i0 = blockIdx.y * SIDE_1D, j0 = blockIdx.x * SIDE_1D;
    int x = t % SIDE_1D, y = t / SIDE_1D * COLUMN;     // this thread's neuron and first sample, relative to the tile
    int row_load = t / DEPTH, k_load = t % DEPTH;      // the element of each tile that it loads
    float z[COLUMN] = {};
    for (int k0 = 0; k0 < n_in; k0 += DEPTH) {
        bool inside = k0 + k_load < n_in;
        A_tile[row_load][k_load] = inside && i0 + row_load < batch ? A[(i0 + row_load) * n_in + k0 + k_load] : 0.0f;
        W_tile[row_load][k_load] = inside && j0 + row_load < n_out ? W[(j0 + row_load) * n_in + k0 + k_load] : 0.0f;
        __syncthreads();
        for (int k = 0; k < DEPTH; k++) {
            float w = W_tile[x][k];
            for (int m = 0; m < COLUMN; m++) z[m] += A_tile[y + m][k] * w;
        }
        __syncthreads();
    }
    for (int m = 0; m < COLUMN; m++)
        if (i0 + y + m < batch && j0 + x < n_out) Z[(i0 + y + m) * n_out + j0 + x] = z[m] + b[j0 + x];
}

// A block of 16 x 16 threads computes 128 x 128 elements, each thread 8 x 8: 16 reads for 64 products.
// A thread's elements are 16 apart, so that adjacent threads read and write adjacent elements.
#define SIDE 128
#define THREADS 256
#define APART 16

extern "C" __global__ __launch_bounds__ (THREADS, 2) void dense_forward_tiles_2d(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    __shared__ float A_tile[SIDE][DEPTH + 1];
    __shared__ float W_tile[SIDE][DEPTH + 1];
    int t = threadIdx.x, x = t % APART, y = t / APART, i0 = blockIdx.y * SIDE, j0 = blockIdx.x * SIDE;
    float z[8][8] = {};
    for (int k0 = 0; k0 < n_in; k0 += DEPTH) {
        int k = k0 + t % DEPTH;
        for (int row = t / DEPTH; row < SIDE; row += THREADS / DEPTH) {
            A_tile[row][t % DEPTH] = i0 + row < batch && k < n_in ? A[(i0 + row) * n_in + k] : 0.0f;
            W_tile[row][t % DEPTH] = j0 + row < n_out && k < n_in ? W[(j0 + row) * n_in + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float a[8], w[8];
            for (int m = 0; m < 8; m++) a[m] = A_tile[y + APART * m][k];
            for (int n = 0; n < 8; n++) w[n] = W_tile[x + APART * n][k];
            multiply(z, a, w);
        }
        __syncthreads();
    }
    for (int m = 0; m < 8; m++)
        for (int n = 0; n < 8; n++) {
            int i = i0 + y + APART * m, j = j0 + x + APART * n;
            if (i < batch && j < n_out) Z[i * n_out + j] = z[m][n] + b[j];
        }
}

// ---- From here on elements are read and written four at a time where n_in allows it.

// Writes a thread's sums, plus bias if there is one, to Z in groups of 4 x 4: the first at (i, j), the others i_apart
// or j_apart further.
template <int M, int N> __device__ void write_sums(const float (&sums)[M][N], int i, int j, int i_apart, int j_apart,
                                                   const float* b, float* Z, int batch, int n_out) {
    bool fours = by_fours(Z, n_out);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            int sample = i + m / 4 * i_apart + m % 4, neuron = j + n / 4 * j_apart;
            float *z = Z + (size_t)sample * n_out + neuron, four[4];
            if (sample >= batch || neuron >= n_out) continue;
#pragma unroll
            for (int c = 0; c < 4; c++) four[c] = sums[m][n + c] + (b && neuron + c < n_out ? b[neuron + c] : 0.0f);
            if (fours) {
                *(float4*)z = make_float4(four[0], four[1], four[2], four[3]);
            } else {
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (neuron + c < n_out) z[c] = four[c];
            }
        }
}

// One block's tile of the product, read four elements at a time: from global memory along k, from shared memory along
// samples and neurons, for which the tiles are transposed. Rows are padded by four elements, so that the threads of a
// warp store to different banks. The thread's first element of the tile is (y, x); for the others see write_sums().
__device__ __forceinline__ void multiply_by_fours(int y, int x, int y_apart, int x_apart, const float* A,
                                                  const float* W, const float* b, float* Z, int batch, int n_in,
                                                  int n_out) {
    alignas(16) __shared__ float A_tile[DEPTH][SIDE + 4];
    alignas(16) __shared__ float W_tile[DEPTH][SIDE + 4];
    int t = threadIdx.x, i0 = blockIdx.y * SIDE, j0 = blockIdx.x * SIDE;
    int row = t / 2, k_load = t % 2 * 4;  // this thread loads half a row of each tile
    const float* A_row = row_of(A, i0 + row, batch, n_in);
    const float* W_row = row_of(W, j0 + row, n_out, n_in);
    bool fours = by_fours(A, n_in) && by_fours(W, n_in);
    float z[8][8] = {};
    for (int k0 = 0; k0 < n_in; k0 += DEPTH) {
        bool at_once = fours && k0 + DEPTH <= n_in;
        store_transposed(A_tile, k_load, row, read4(A_row, k0 + k_load, n_in, at_once));
        store_transposed(W_tile, k_load, row, read4(W_row, k0 + k_load, n_in, at_once));
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float a[8], w[8];
            read_fragment(a, &A_tile[k][y], y_apart);
            read_fragment(w, &W_tile[k][x], x_apart);
            multiply(z, a, w);
        }
        __syncthreads();
    }
    write_sums(z, i0 + y, j0 + x, y_apart, x_apart, b, Z, batch, n_out);
}

// Like tiles_2d, but four elements at a time: a thread's elements are four groups of 4 x 4, half a tile apart.
extern "C" __global__ __launch_bounds__ (THREADS, 2) void dense_forward_vectorised(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    int t = threadIdx.x;
    multiply_by_fours(t / 16 * 4, t % 16 * 4, SIDE / 2, SIDE / 2, A, W, b, Z, batch, n_in, n_out);
}

// ---- From here on a block's tile is divided among its warps.

// Like vectorised, but each of the 8 warps computes a tile of 64 x 32 elements.
extern "C" __global__ __launch_bounds__ (THREADS, 2) void dense_forward_warp_tiles(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    int warp = threadIdx.x / 32;
    int y = warp / 4 * 64 + lane_down() * 4, x = warp % 4 * 32 + lane_across() * 4;
    multiply_by_fours(y, x, 32, 16, A, W, b, Z, batch, n_in, n_out);
}

// Two buffers for each tile. Before a block multiplies one part of a tile, it issues the loads of the next; they
// arrive while it multiplies, and are stored in the other buffer, so one barrier is enough for DEEP numbers of k.
// Registers are double-buffered too: a thread multiplies one fragment while it reads the next. So a single block keeps
// a multiprocessor busy, and a thread can have 8 x 16 sums, which take nearly all registers: 128 products for 6 reads
// of four elements. A block of WIDE threads, 256 or 128, has a tile of WIDE / 2 samples and WIDE neurons.

// A thread's first row and column in a tile.
__device__ int first_row() {
    return threadIdx.x / 128 * 64 + lane_down() * 4;
}

template <int WIDE> __device__ int first_column() {
    return threadIdx.x / 32 % 4 * (WIDE / 4) + lane_across() * 4;
}

// The sums of a thread along k from `begin` to `end`, of the tile whose first element of Z is (i0, j0). Rows of the
// tiles have PAD more elements than they need. `begin` is a multiple of DEEP.
template <int DEEP, int WIDE, int PAD>
__device__ __forceinline__ void multiply_buffered(float (&z)[8][WIDE / 16], float (*A_tile)[DEEP][WIDE / 2 + PAD],
                                                  float (*W_tile)[DEEP][WIDE + PAD], const float* A, const float* W,
                                                  int i0, int j0, int begin, int end, int batch, int n_in, int n_out) {
    int y = first_row(), x = first_column<WIDE>(), row = threadIdx.x / 2, k_load = threadIdx.x % 2 * 4;
    const float* A_row = row_of(A, i0 + row, batch, n_in);
    const float* W_row = row_of(W, j0 + row, n_out, n_in);
    const float* W_row_2 = row_of(W, j0 + row + WIDE / 2, n_out, n_in);  // the tile of W has twice as many rows
    bool fours = by_fours(A, n_in) && by_fours(W, n_in), at_once = fours && begin + DEEP <= n_in;
#pragma unroll
    for (int k = k_load; k < DEEP; k += 8) {
        store_transposed(A_tile[0], k, row, read4(A_row, begin + k, n_in, at_once));
        store_transposed(W_tile[0], k, row, read4(W_row, begin + k, n_in, at_once));
        store_transposed(W_tile[0], k, row + WIDE / 2, read4(W_row_2, begin + k, n_in, at_once));
    }
    __syncthreads();
    float a[2][8], w[2][WIDE / 16];
    read_fragment(a[0], &A_tile[0][0][y], 32);
    read_fragment(w[0], &W_tile[0][0][x], 16);
    int now = 0;  // the buffer in use
    for (int k0 = begin + DEEP; k0 < end + DEEP; k0 += DEEP) {  // where the next part begins; none is after the last
        float4 A_next, W_next, W_next_2;
        bool more = k0 < end;
        at_once = fours && k0 + DEEP <= n_in;
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            if (k % 8 == 0 && more) {
                A_next = read4(A_row, k0 + k + k_load, n_in, at_once);
                W_next = read4(W_row, k0 + k + k_load, n_in, at_once);
                W_next_2 = read4(W_row_2, k0 + k + k_load, n_in, at_once);
            }
            if (k % 8 == 7 && more) {
                store_transposed(A_tile[1 - now], k - 7 + k_load, row, A_next);
                store_transposed(W_tile[1 - now], k - 7 + k_load, row, W_next);
                store_transposed(W_tile[1 - now], k - 7 + k_load, row + WIDE / 2, W_next_2);
            }
            if (k == DEEP - 1) {  // this buffer is used up: switch (after the last part to old values, never used)
                now = 1 - now;
                __syncthreads();
            }
            read_fragment(a[(k + 1) % 2], &A_tile[now][(k + 1) % DEEP][y], 32);
            read_fragment(w[(k + 1) % 2], &W_tile[now][(k + 1) % DEEP][x], 16);
            multiply(z, a[k % 2], w[k % 2]);
        }
    }
}

// All of k for the tile of this block.
template <int WIDE>
__device__ __forceinline__ void compute_tile(const float* A, const float* W, const float* b, float* Z, int batch,
                                             int n_in, int n_out) {
    alignas(16) __shared__ float A_tile[2][8][WIDE / 2 + 4];
    alignas(16) __shared__ float W_tile[2][8][WIDE + 4];
    int i0 = blockIdx.y * WIDE / 2, j0 = blockIdx.x * WIDE;
    float z[8][WIDE / 16] = {};
    multiply_buffered<8, WIDE, 4>(z, A_tile, W_tile, A, W, i0, j0, 0, n_in, batch, n_in, n_out);
    write_sums(z, i0 + first_row(), j0 + first_column<WIDE>(), 32, 16, b, Z, batch, n_out);
}

extern "C" __global__ __launch_bounds__ (THREADS, 1) void dense_forward_double_buffered(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    compute_tile<256>(A, W, b, Z, batch, n_in, n_out);
}

// Like double_buffered, with a quarter of the tile: four times as many blocks. For matrices so small that most
// multiprocessors would have none.
extern "C" __global__ __launch_bounds__ (128, 4) void dense_forward_small_tiles(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    compute_tile<128>(A, W, b, Z, batch, n_in, n_out);
}

#define ROWS 128
#define COLUMNS 256

// With 70 tiles, half of 132 multiprocessors have nothing to do; with 140, nearly all have nothing to do in the second
// round. Here all blocks, one for each multiprocessor, get the same number of steps of 16 k, tile by tile (stream-K).
// If a block's share ends within a tile, the next block continues it. Blocks add their parts in Z, one at a time, in
// the order in which they finish; the last one adds the biases.
#define DEEP 16
#define MOST_BLOCKS 1024

// For the tile that each block has begun but not completed: is a block adding its part, and how many steps are added?
__device__ int adding[MOST_BLOCKS], added[MOST_BLOCKS];

// Adds to a thread's sums what other blocks have put in Z. __ldcg() reads from the L2 cache, which all blocks share.
__device__ void add_sums(float (&sums)[8][16], int i, int j, const float* Z, int batch, int n_out) {
    bool fours = by_fours(Z, n_out);
#pragma unroll
    for (int m = 0; m < 8; m++)
#pragma unroll
        for (int n = 0; n < 16; n += 4) {
            int sample = i + m / 4 * 32 + m % 4, neuron = j + n / 4 * 16;
            const float* z = Z + (size_t)sample * n_out + neuron;
            if (sample >= batch || neuron >= n_out) continue;
            float4 four = fours ? __ldcg((const float4*)z)
                                : make_float4(__ldcg(z), neuron + 1 < n_out ? __ldcg(z + 1) : 0.0f,
                                              neuron + 2 < n_out ? __ldcg(z + 2) : 0.0f,
                                              neuron + 3 < n_out ? __ldcg(z + 3) : 0.0f);
            sums[m][n] += four.x;
            sums[m][n + 1] += four.y;
            sums[m][n + 2] += four.z;
            sums[m][n + 3] += four.w;
        }
}

extern "C" __global__ __launch_bounds__ (THREADS, 1) void dense_forward_stream_k(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    alignas(16) __shared__ float A_tile[2][DEEP][ROWS];
    alignas(16) __shared__ float W_tile[2][DEEP][COLUMNS];
    int down = (batch + ROWS - 1) / ROWS, across = (n_out + COLUMNS - 1) / COLUMNS, steps = (n_in + DEEP - 1) / DEEP;
    long long all = (long long)down * across * steps;
    long long step = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;  // of this block
    while (step < end) {
        int tile = step / steps, first = step % steps, last = min((long long)steps, first + end - step);
        step += last - first;
        int i0 = tile % down * ROWS, j0 = tile / down * COLUMNS;
        int y = i0 + first_row(), x = j0 + first_column<COLUMNS>();
        float z[8][16] = {};
        multiply_buffered<DEEP, COLUMNS, 0>(z, A_tile, W_tile, A, W, i0, j0, first * DEEP, min(n_in, last * DEEP),
                                            batch, n_in, n_out);
        bool whole = last - first == steps;
        // The block in whose share the tile begins.
        int owner = (((long long)tile * steps + 1) * gridDim.x - 1) / all, before = 0;
        if (!whole) {
            if (threadIdx.x == 0)
                while (atomicCAS(&adding[owner], 0, 1)) {
                }
            __threadfence();
            __syncthreads();
            before = added[owner];
            if (before > 0) add_sums(z, y, x, Z, batch, n_out);
        }
        bool complete = before + last - first == steps;
        write_sums(z, y, x, 32, 16, complete ? b : nullptr, Z, batch, n_out);
        if (!whole) {
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                added[owner] = complete ? 0 : before + last - first;
                __threadfence();
                atomicExch(&adding[owner], 0);
            }
        }
        __syncthreads();  // before the tiles are filled anew
    }
}
