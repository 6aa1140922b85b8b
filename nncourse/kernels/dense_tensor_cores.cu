// dense_forward: Z = A W^T + b, the last of the kernels that dense.cu lists: its factors are rounded to TF32.
// Functions on tiles are in tiles.cu and tensor_cores.cu, which the compiler reads before this text.

// A block of 8 warps computes 128 x 256 elements, each warp 64 x 64 of them as 4 x 8 products on tensor cores. As in
// double_buffered the next tile is loaded while one is multiplied; numbers are rounded once, on their way into a tile.
// Rows of the tiles lie along k. A product takes 8 numbers of k, and a thread two of these, which may be any two: sums do
// not depend on the order of k, as long as A and W share it. So a thread takes four adjacent numbers, read at once,
// for two products; the 8 threads that shared memory serves at a time read 32 adjacent numbers.
#define STEP 16
#define TILE_ROWS 128
#define TILE_COLUMNS 256

// A thread's four numbers, rounded, into a tile.
__device__ void store_rounded(float* to, float4 numbers) {
    *(float4*)to = make_float4(rounded_to_tf32(numbers.x), rounded_to_tf32(numbers.y), rounded_to_tf32(numbers.z),
                               rounded_to_tf32(numbers.w));
}

// The products of a warp along one step: rows of A_tile from y on, rows of W_tile from x on.
__device__ __forceinline__ void multiply_step(float (&z)[4][8][4], const float (*A_tile)[STEP],
                                              const float (*W_tile)[STEP], int y, int x) {
    int g = threadIdx.x % 32 / 4, k = threadIdx.x % 4 * 4;
    float4 upper[4], lower[4];
#pragma unroll
    for (int m = 0; m < 4; m++) {
        upper[m] = *(const float4*)&A_tile[y + 16 * m + g][k];
        lower[m] = *(const float4*)&A_tile[y + 16 * m + g + 8][k];
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float4 w = *(const float4*)&W_tile[x + 8 * n + g][k];
#pragma unroll
        for (int m = 0; m < 4; m++)
            multiply_fragments(z[m][n], {upper[m].x, lower[m].x, upper[m].y, lower[m].y}, {w.x, w.y});
#pragma unroll
        for (int m = 0; m < 4; m++)  // each continues a sum that was begun four products before
            multiply_fragments(z[m][n], {upper[m].z, lower[m].z, upper[m].w, lower[m].w}, {w.z, w.w});
    }
}

extern "C" __global__ __launch_bounds__ (256, 1) void dense_forward_tensor_cores(
    const float* A, const float* W, const float* b, float* Z, int batch, int n_in, int n_out) {
    alignas(16) __shared__ float A_tile[2][TILE_ROWS][STEP];
    alignas(16) __shared__ float W_tile[2][TILE_COLUMNS][STEP];
    int t = threadIdx.x, warp = t / 32, i0 = blockIdx.y * TILE_ROWS, j0 = blockIdx.x * TILE_COLUMNS;
    int y = warp / 4 * 64, x = warp % 4 * 64;  // the warp's first row and column in the tile
    int row = t / 4, k_load = t % 4 * 4;       // this thread loads every 64th row, four numbers of each
    const float *A_row[2], *W_row[4];
    for (int q = 0; q < 2; q++) A_row[q] = row_of(A, i0 + row + 64 * q, batch, n_in);
    for (int q = 0; q < 4; q++) W_row[q] = row_of(W, j0 + row + 64 * q, n_out, n_in);
    bool fours = by_fours(A, n_in) && by_fours(W, n_in);
    bool idle = i0 + y >= batch || j0 + x >= n_out;  // the whole warp is past the edges of Z
    float z[4][8][4] = {};
    float4 A_next[2], W_next[4];
    int now = 1;  // the buffer in use
    for (int k0 = 0; k0 < n_in + STEP; k0 += STEP) {  // where the next tile begins; there is none after the last
        bool more = k0 < n_in, at_once = fours && k0 + STEP <= n_in;
        if (more) {
#pragma unroll
            for (int q = 0; q < 2; q++) A_next[q] = read4(A_row[q], k0 + k_load, n_in, at_once);
#pragma unroll
            for (int q = 0; q < 4; q++) W_next[q] = read4(W_row[q], k0 + k_load, n_in, at_once);
        }
        if (k0 > 0 && !idle) multiply_step(z, A_tile[now], W_tile[now], y, x);
        now = 1 - now;
        if (more) {
#pragma unroll
            for (int q = 0; q < 2; q++) store_rounded(&A_tile[now][row + 64 * q][k_load], A_next[q]);
#pragma unroll
            for (int q = 0; q < 4; q++) store_rounded(&W_tile[now][row + 64 * q][k_load], W_next[q]);
        }
        __syncthreads();
    }
    int g = t % 32 / 4, pair = t % 4 * 2;
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int i = i0 + y + 16 * m + g + c / 2 * 8, j = j0 + x + 8 * n + pair + c % 2;
                if (i < batch && j < n_out) Z[(size_t)i * n_out + j] = z[m][n][c] + b[j];
            }
}
