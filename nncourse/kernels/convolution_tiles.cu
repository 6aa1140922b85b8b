// convolution_forward: the kernel that follows those of convolution.cu. The functions on tiles are in tiles.cu.
// A convolution is a matrix product: W, in which a filter is a row of K = c_in k k weights, times a matrix in which a
// window is a column of K pixels. That matrix would have k k times as many elements as A, so it is never made: a tile's
// elements are gathered from A when they are needed, and multiplied as in dense_forward's double_buffered.
#define DEPTH 8      // steps along K for which a tile is loaded
#define ROWS 64      // filters of a tile of Z
#define COLUMNS 128  // pixels of a tile of Z, of one sample or of several
#define THREADS 128  // each computes 8 x 8 elements of Z, and gathers one window

// The next element of a window: its channel, row and column. The same for all threads, so it costs next to nothing.
struct Place {
    int c, i, j;
};

// The next DEPTH elements of a window whose first element is at (row, column) of each channel; 0 outside the image, and
// past the window's end.
__device__ __forceinline__ void gather(float (&numbers)[DEPTH], const float* image, int row, int column, Place& next,
                                       int c_in, int h_in, int w_in, int k) {
#pragma unroll
    for (int n = 0; n < DEPTH; n++) {
        int y = row + next.i, x = column + next.j;
        bool inside = next.c < c_in && y >= 0 && y < h_in && x >= 0 && x < w_in;
        numbers[n] = inside ? image[(next.c * h_in + y) * w_in + x] : 0.0f;
        if (++next.j < k) continue;
        next.j = 0;
        if (++next.i < k) continue;
        next.i = 0;
        next.c++;
    }
}

// Writes a thread's sums plus bias to Z: groups of 4 filters and 4 pixels, the first at (o, pixel), the others 32
// filters and 16 pixels further. `plane` counts the pixels of one filter and one sample, which are adjacent in Z.
__device__ __forceinline__ void write_pixels(const float (&sums)[8][8], int o, int pixel, const float* b, float* Z,
                                             int batch, int c_out, int plane) {
    bool fours = by_fours(Z, plane);
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int p = pixel + n / 4 * 16 + q, s = p / plane;
            if (s >= batch || (fours && q)) break;
            float* z = Z + (size_t)s * c_out * plane + p % plane;
#pragma unroll
            for (int m = 0; m < 8; m++) {
                int filter = o + m / 4 * 32 + m % 4;
                if (filter >= c_out) continue;
                float bias = b[filter];
                float* to = z + (size_t)filter * plane;
                if (fours)
                    *(float4*)to = make_float4(sums[m][n] + bias, sums[m][n + 1] + bias, sums[m][n + 2] + bias,
                                               sums[m][n + 3] + bias);
                else
                    *to = sums[m][n + q] + bias;
            }
        }
    }
}

// A block computes a tile of 64 filters x 128 pixels. Each of its 4 warps takes 64 x 32 of them.
extern "C" __global__ __launch_bounds__(THREADS, 3) void convolution_forward_implicit_gemm(
    const float* A, const float* W, const float* b, float* Z, int batch, int c_in, int h_in, int w_in, int c_out, int k,
    int stride, int before, int after, int h_out, int w_out) {
    alignas(16) __shared__ float W_tile[2][DEPTH][ROWS + 4];
    alignas(16) __shared__ float A_tile[2][DEPTH][COLUMNS];
    int t = threadIdx.x, K = c_in * k * k, plane = h_out * w_out;
    int tiles = (c_out + ROWS - 1) / ROWS;  // blocks with the same pixels follow each other: they find A in the cache
    int o = blockIdx.x % tiles * ROWS, pixel = blockIdx.x / tiles * COLUMNS;
    int window = min(pixel + t, batch * plane - 1);  // past the end the last one again: it is not stored
    int row = window % plane / w_out * stride - before, column = window % w_out * stride - before;
    const float* image = A + (size_t)(window / plane) * c_in * h_in * w_in;
    int k_load = t % 2 * 4;  // of the tile of W this thread loads half a row
    const float* W_row = row_of(W, o + t / 2, c_out, K);
    bool fours = by_fours(W, K), at_once = fours && DEPTH <= K;
    int y = lane_down() * 4, x = t / 32 * 32 + lane_across() * 4;

    Place next = {0, 0, 0};
    float A_next[DEPTH];
    gather(A_next, image, row, column, next, c_in, h_in, w_in, k);
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
            gather(A_next, image, row, column, next, c_in, h_in, w_in, k);
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
