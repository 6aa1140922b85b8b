// convolution_forward, continued from convolution.cu. The functions on tiles are in tiles.cu.
//   implicit_gemm    a matrix product with tiles as in dense_forward_double_buffered; its second matrix is never stored
//   nncourse check convolution_forward --kernel implicit_gemm       against the reference
//   nncourse time convolution_forward                               against this machine's limits
//
// The first matrix is W, in which a filter is a row of K = c_in k k weights. In the second a window is a column of K
// pixels: k k times as many elements as A has. So the elements of a tile are gathered from A when they are needed.
#define DEPTH 8      // steps along K for which a tile is loaded
#define ROWS 64      // filters of a tile of Z
#define COLUMNS 128  // pixels of a tile of Z, of one sample or of several
#define THREADS 128  // each computes 8 x 8 elements of Z, and gathers one window

// The place of a window's element for one step along K, relative to the window's first element. `offset` is the
// distance in A. It is the same for all windows, and takes divisions to compute: so the block has a table of places, to
// which each thread adds one every THREADS steps.
struct alignas(16) Place {
    int row, column, offset;
};
#define RING (2 * THREADS)  // places in the table

__device__ Place place_of(int step, int c_in, int h_in, int w_in, int k) {
    int c = step / (k * k), i = step / k % k, j = step % k;
    return {c < c_in ? i : 1 << 30, j, (c * h_in + i) * w_in + j};  // past the last step: outside every image
}

// The elements of a window for DEPTH steps; 0 outside the image. The window's first is A[first], at (row, column).
__device__ __forceinline__ void gather(float (&numbers)[DEPTH], const Place* places, const float* A, int first, int row,
                                       int column, int h_in, int w_in) {
#pragma unroll
    for (int n = 0; n < DEPTH; n++) {
        Place place = places[n];
        bool inside = (unsigned)(row + place.row) < h_in && (unsigned)(column + place.column) < w_in;  // nor below 0
        numbers[n] = inside ? A[first + place.offset] : 0.0f;
    }
}

// A block computes a tile of 64 filters x 128 pixels. Each of its 4 warps takes 64 x 32 of them.
extern "C" __global__ __launch_bounds__(THREADS, 3) void convolution_forward_implicit_gemm(
    const float* A, const float* W, const float* b, float* Z, int batch, int c_in, int h_in, int w_in, int c_out, int k,
    int stride, int before, int after, int h_out, int w_out) {
    alignas(16) __shared__ float W_tile[2][DEPTH][ROWS + 4];
    alignas(16) __shared__ float A_tile[2][DEPTH][COLUMNS];
    __shared__ Place places[RING];  // of step k at k % RING
    int t = threadIdx.x, K = c_in * k * k, plane = h_out * w_out;
    int tiles = (c_out + ROWS - 1) / ROWS;  // blocks with the same pixels follow each other: they find A in the cache
    int o = blockIdx.x % tiles * ROWS, pixel = blockIdx.x / tiles * COLUMNS;
    int window = min(pixel + t, batch * plane - 1);  // past the end the last one again: it is not stored
    int row = window % plane / w_out * stride - before, column = window % w_out * stride - before;
    int first = (window / plane * c_in * h_in + row) * w_in + column;  // the window's first element, maybe outside
    int k_load = t % 2 * 4;  // of the tile of W this thread loads half a row
    const float* W_row = row_of(W, o + t / 2, c_out, K);
    bool fours = by_fours(W, K), at_once = fours && DEPTH <= K;
    int y = lane_down() * 4, x = t / 32 * 32 + lane_across() * 4;

    for (int step = t; step < RING; step += THREADS) places[step] = place_of(step, c_in, h_in, w_in, k);
    __syncthreads();
    float A_next[DEPTH];
    gather(A_next, places, A, first, row, column, h_in, w_in);
    store_transposed(W_tile[0], k_load, t / 2, read4(W_row, k_load, K, at_once));
#pragma unroll
    for (int n = 0; n < DEPTH; n++) A_tile[0][n][t] = A_next[n];
    __syncthreads();
    float z[8][8] = {}, w[2][8], a[2][8];
    read_fragment(w[0], &W_tile[0][0][y], 32);
    read_fragment(a[0], &A_tile[0][0][x], 16);
    int now = 0;  // the buffer in use
    for (int k0 = DEPTH; k0 < K + DEPTH; k0 += DEPTH) {  // where the next tile begins; there is none after the last
        float4 W_next;
        bool more = k0 < K;
        if (more) {
            at_once = fours && k0 + DEPTH <= K;
            W_next = read4(W_row, k0 + k_load, K, at_once);
            gather(A_next, places + k0 % RING, A, first, row, column, h_in, w_in);
            if (k0 % THREADS == 0)  // the places of the last THREADS steps are not needed any more
                places[(k0 + THREADS + t) % RING] = place_of(k0 + THREADS + t, c_in, h_in, w_in, k);
        }
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
            if (step == DEPTH - 1) {  // this buffer is used up: switch (after the last tile to old values, never used)
                now = 1 - now;
                if (more) {
                    store_transposed(W_tile[now], k_load, t / 2, W_next);
#pragma unroll
                    for (int n = 0; n < DEPTH; n++) A_tile[now][n][t] = A_next[n];
                }
                __syncthreads();
            }
            read_fragment(w[(step + 1) % 2], &W_tile[now][(step + 1) % DEPTH][y], 32);
            read_fragment(a[(step + 1) % 2], &A_tile[now][(step + 1) % DEPTH][x], 16);
            multiply(z, w[step % 2], a[step % 2]);
        }
    }
    write_pixels(z, o + y, pixel + x, b, Z, batch, c_out, plane);
}
