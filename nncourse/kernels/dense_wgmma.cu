// dense_forward: Z = A W^T + b on the tensor cores of Hopper GPUs (H100, H200), with factors of TF32. The kernels, each
// with one idea more than the one above:
//   wgmma           a warpgroup, four warps, multiplies tiles straight from shared memory
//   wgmma_buffered  the next tiles are loaded while these are multiplied
//   tma             the copy engine loads them; no thread does
//   tma_pipelined   a larger tile, four of them in flight, and a warp that only requests the next ones
// dense_wgmma.py launches them, on a GPU only. The compiler reads tiles.cu and wgmma.cu before this file.
#define ROWS 128
#define COLUMNS 128  // of the first three

// The first address in shared memory, after the counters, at which a tile may begin.
__device__ float* tiles_in(char* memory) {
    return (float*)(((size_t)memory + 1023) / 1024 * 1024);
}

// A warpgroup's product along one step: z += 64 rows of A's tile times all rows of W's.
template <int SUMS>
__device__ __forceinline__ void multiply_step(float (&z)[SUMS], const float* A_tile, const float* W_tile) {
    unsigned long long a = described(A_tile + threadIdx.x / 128 * 64 * STEP), w = described(W_tile);
    before_products();
#pragma unroll
    for (int k = 0; k < STEP / 8; k++) multiply_tiles(z, a + 2 * k, w + 2 * k);
    end_batch();
}

// Writes a warpgroup's sums plus bias: the tile's first element of Z is (i0, j0).
template <int SUMS>
__device__ __forceinline__ void write_products(const float (&z)[SUMS], int i0, int j0, const float* b, float* Z,
                                               int batch, int n_out) {
    int t = threadIdx.x, i = i0 + t / 32 * 16 + t % 32 / 4, j = j0 + t % 4 * 2;
    bool pairs = n_out % 2 == 0;
#pragma unroll
    for (int n = 0; n < SUMS; n += 2) {
        int row = i + n / 2 % 2 * 8, column = j + n / 4 * 8;
        if (row >= batch || column >= n_out) continue;
        float* to = Z + (size_t)row * n_out + column;
        if (pairs) {
            *(float2*)to = make_float2(z[n] + b[column], z[n + 1] + b[column + 1]);
        } else {
            to[0] = z[n] + b[column];
            if (column + 1 < n_out) to[1] = z[n + 1] + b[column + 1];
        }
    }
}

// A thread's part of a tile: four numbers of each 32nd row. They are read into registers, and stored in wgmma's order.
struct Part {
    float4 fours[4];
};
__device__ __forceinline__ Part read_part(const float* matrix, int first, int rows, int n_in, int k0) {
    int row = first + threadIdx.x / 8, k = k0 + threadIdx.x % 8 * 4;
    bool at_once = by_fours(matrix, n_in) && k0 + STEP <= n_in;
    Part part;
#pragma unroll
    for (int q = 0; q < 4; q++) part.fours[q] = read4(row_of(matrix, row + 32 * q, rows, n_in), k, n_in, at_once);
    return part;
}
__device__ __forceinline__ void store_part(float* tile, const Part& part) {
    int row = threadIdx.x / 8, place = threadIdx.x % 8 ^ row % 8;
#pragma unroll
    for (int q = 0; q < 4; q++) ((float4*)tile)[(row + 32 * q) * 8 + place] = part.fours[q];
    stored_for_wgmma();
}

extern "C" __global__ __launch_bounds__(256) void dense_forward_wgmma(const float* A, const float* W, const float* b,
                                                                      float* Z, int batch, int n_in, int n_out) {
    extern __shared__ char memory[];
    float *A_tile = tiles_in(memory), *W_tile = A_tile + ROWS * STEP;
    int i0 = blockIdx.y * ROWS, j0 = blockIdx.x * COLUMNS;
    float z[COLUMNS / 2] = {};
    for (int k0 = 0; k0 < n_in; k0 += STEP) {
        store_part(A_tile, read_part(A, i0, batch, n_in, k0));
        store_part(W_tile, read_part(W, j0, n_out, n_in, k0));
        __syncthreads();
        multiply_step(z, A_tile, W_tile);
        wait_for_products<0>();
        __syncthreads();
    }
    write_products(z, i0, j0, b, Z, batch, n_out);
}

extern "C" __global__ __launch_bounds__(256, 2) void dense_forward_wgmma_buffered(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    extern __shared__ char memory[];
    float *A_tile = tiles_in(memory), *W_tile = A_tile + 2 * ROWS * STEP;
    int i0 = blockIdx.y * ROWS, j0 = blockIdx.x * COLUMNS, now = 0;
    float z[COLUMNS / 2] = {};
    store_part(A_tile, read_part(A, i0, batch, n_in, 0));
    store_part(W_tile, read_part(W, j0, n_out, n_in, 0));
    __syncthreads();
    for (int k0 = STEP; k0 < n_in + STEP; k0 += STEP) {  // where the next tiles begin; there are none after the last
        Part A_next, W_next;
        if (k0 < n_in) {
            A_next = read_part(A, i0, batch, n_in, k0);
            W_next = read_part(W, j0, n_out, n_in, k0);
        }
        multiply_step(z, A_tile + now * ROWS * STEP, W_tile + now * COLUMNS * STEP);
        now = 1 - now;
        if (k0 < n_in) {
            store_part(A_tile + now * ROWS * STEP, A_next);
            store_part(W_tile + now * COLUMNS * STEP, W_next);
        }
        wait_for_products<0>();
        __syncthreads();
    }
    write_products(z, i0, j0, b, Z, batch, n_out);
}

// One thread requests both tiles of a step, for stage number `stage` in shared memory, and has their bytes counted.
template <int WIDTH>
__device__ void order_tiles(float* A_tile, float* W_tile, int stage, const Map* A, const Map* W, Counter* loaded,
                            int k0, int i0, int j0) {
    arrive_and_expect(loaded, (ROWS + WIDTH) * STEP * (int)sizeof(float));
    copy_tile(A_tile + stage * ROWS * STEP, A, loaded, k0, i0);
    copy_tile(W_tile + stage * WIDTH * STEP, W, loaded, k0, j0);
}

extern "C" __global__ __launch_bounds__(256) void dense_forward_tma(const __grid_constant__ Map A,
                                                                    const __grid_constant__ Map W, const float* b,
                                                                    float* Z, int batch, int n_in, int n_out) {
    extern __shared__ char memory[];
    __shared__ Counter loaded[2];
    float *A_tile = tiles_in(memory), *W_tile = A_tile + 2 * ROWS * STEP;
    int i0 = blockIdx.y * ROWS, j0 = blockIdx.x * COLUMNS;
    float z[COLUMNS / 2] = {};
    if (threadIdx.x == 0) {
        for (int q = 0; q < 2; q++) make_counter(&loaded[q], 1);
        order_tiles<COLUMNS>(A_tile, W_tile, 0, &A, &W, &loaded[0], 0, i0, j0);
    }
    __syncthreads();
    for (int step = 0; step * STEP < n_in; step++) {
        int now = step % 2, next = 1 - now, k0 = (step + 1) * STEP;
        if (threadIdx.x == 0 && k0 < n_in)
            order_tiles<COLUMNS>(A_tile, W_tile, next, &A, &W, &loaded[next], k0, i0, j0);
        wait_for(&loaded[now], step / 2 % 2);
        multiply_step(z, A_tile + now * ROWS * STEP, W_tile + now * COLUMNS * STEP);
        wait_for_products<0>();
        __syncthreads();
    }
    write_products(z, i0, j0, b, Z, batch, n_out);
}

// One block for each multiprocessor computes tiles of 128 x 256 in turn. Its last warp requests tiles up to four steps
// ahead, even those of the next product while this one is being written. `loaded` counts their bytes, `used` the
// warpgroups that no longer need them.
#define STAGES 4
#define WIDE 256

extern "C" __global__ __launch_bounds__(288, 1) void dense_forward_tma_pipelined(const __grid_constant__ Map A,
                                                                                 const __grid_constant__ Map W,
                                                                                 const float* b, float* Z, int batch,
                                                                                 int n_in, int n_out) {
    extern __shared__ char memory[];
    __shared__ Counter loaded[STAGES], used[STAGES];
    float *A_tile = tiles_in(memory), *W_tile = A_tile + STAGES * ROWS * STEP;
    if (threadIdx.x == 0)
        for (int q = 0; q < STAGES; q++) {
            make_counter(&loaded[q], 1);
            make_counter(&used[q], 2);
        }
    __syncthreads();
    int down = (batch + ROWS - 1) / ROWS, tiles = down * ((n_out + WIDE - 1) / WIDE), steps = (n_in + STEP - 1) / STEP;
    int turn = 0;  // counts the steps of all tiles of this block
    if (threadIdx.x >= 256) {  // a whole warp, of which one thread has work
        for (int tile = blockIdx.x; threadIdx.x == 256 && tile < tiles; tile += gridDim.x)
            for (int step = 0; step < steps; step++, turn++) {
                int stage = turn % STAGES;
                wait_for(&used[stage], turn / STAGES % 2 ^ 1);
                order_tiles<WIDE>(A_tile, W_tile, stage, &A, &W, &loaded[stage], step * STEP, tile % down * ROWS,
                                  tile / down * WIDE);
            }
    } else {
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            float z[WIDE / 2] = {};
            for (int step = 0; step < steps; step++, turn++) {
                int stage = turn % STAGES;
                wait_for(&loaded[stage], turn / STAGES % 2);
                multiply_step(z, A_tile + stage * ROWS * STEP, W_tile + stage * WIDE * STEP);
                wait_for_products<1>();  // those of the step before are done
                if (step > 0 && threadIdx.x % 128 == 0) arrive(&used[(turn - 1) % STAGES]);
            }
            wait_for_products<0>();
            if (threadIdx.x % 128 == 0) arrive(&used[(turn - 1) % STAGES]);
            write_products(z, tile % down * ROWS, tile / down * WIDE, b, Z, batch, n_out);
        }
    }
}
