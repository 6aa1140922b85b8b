// Functions for kernels that multiply matrices in tiles: those in the files named ..._tiles.cu, with which they are
// checked. A tile is in shared memory; each thread keeps the sums of several elements of the product in registers.

// sums[m][n] += a[m] w[n]. The loops must be unrolled so that sums, a and w are in registers, which cannot be indexed.
template <int M, int N> __device__ void multiply(float (&sums)[M][N], const float (&a)[M], const float (&w)[N]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++) sums[m][n] += a[m] * w[n];
}

// ---- Elements are read four at a time, as a float4, whose address must be a multiple of 16. If the length of a row is
// not a multiple of 4, or the matrix does not begin at such an address, they are read one by one.

// Whether rows of n elements can be read and written four at a time.
__device__ bool by_fours(const float* matrix, int n) {
    return n % 4 == 0 && (size_t)matrix % 16 == 0;
}

// Row i of a matrix. Past the end it is the last row: nothing that is computed from it is stored.
__device__ const float* row_of(const float* matrix, int i, int rows, int n) {
    return matrix + (size_t)min(i, rows - 1) * n;
}

// Four elements of a row, from k on: all at once, or one by one with zeros past the end of the row.
__device__ float4 read4(const float* row, int k, int n, bool at_once) {
    if (at_once) return *(const float4*)(row + k);
    return make_float4(k < n ? row[k] : 0.0f, k + 1 < n ? row[k + 1] : 0.0f, k + 2 < n ? row[k + 2] : 0.0f,
                       k + 3 < n ? row[k + 3] : 0.0f);
}

// Stores four elements that are consecutive along k into four rows of a tile. Tiles are transposed in shared memory:
// the elements that a thread needs for one k are then adjacent.
template <int WIDTH> __device__ void store_transposed(float (*tile)[WIDTH], int k, int i, float4 numbers) {
    tile[k][i] = numbers.x;
    tile[k + 1][i] = numbers.y;
    tile[k + 2][i] = numbers.z;
    tile[k + 3][i] = numbers.w;
}

// Reads a thread's M elements for one k: groups of four, `apart` elements from one group to the next.
template <int M> __device__ void read_fragment(float (&numbers)[M], const float* tile_row, int apart) {
#pragma unroll
    for (int m = 0; m < M; m += 4) {
        float4 four = *(const float4*)(tile_row + m / 4 * apart);
        numbers[m] = four.x;
        numbers[m + 1] = four.y;
        numbers[m + 2] = four.z;
        numbers[m + 3] = four.w;
    }
}

// ---- A block's tile is divided among its warps. A warp of 2 x 16 threads with 8 x 8 elements each reads 16 + 128
// elements a step; a warp of 8 x 4 threads reads 64 + 32 for the same number of products.

// The position of a thread in its warp, 8 down and 4 across. Threads 0 and 1 read the same elements of A, threads 0 and
// 2 the same of W: if neighbours read the same four elements, shared memory serves the warp in half the time.
__device__ int lane_down() {
    return threadIdx.x / 2 % 8;
}

__device__ int lane_across() {
    return threadIdx.x % 2 + threadIdx.x / 16 % 2 * 2;
}

// ---- A convolution's product has a row for each filter and a column for each pixel of all samples.

// Writes a thread's sums, plus bias if there is one, to Z: groups of 4 filters and 4 pixels, the first at (o, pixel), the
// others 32 filters and 16 pixels further. `plane` counts the pixels of one filter and one sample, adjacent in Z.
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
                float bias = b ? b[filter] : 0.0f;
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
