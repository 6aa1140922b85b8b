// convolution_input_gradient, continued from convolution_backpropagation.cu. The functions on tiles are in tiles.cu.
//   implicit_gemm    a matrix product, as in convolution_tiles.cu
//   nncourse check convolution_input_gradient --kernel implicit_gemm       against the reference
//   nncourse time convolution_input_gradient                               against this machine's limits
//
// The first matrix has a row for each channel: the K = c_out k k weights through which it was read. The second has a
// column for each pixel: the deltas that met it through these weights, 0 where none did.
#define DEPTH 8      // steps along K for which a tile is loaded
#define ROWS 64      // channels of a tile of G
#define COLUMNS 128  // pixels of a tile of G, of one sample or of several
#define THREADS 128  // each computes 8 x 8 elements of G, and gathers the deltas of one pixel

// A step along K is weight (i, j) of filter o. Which delta met a pixel through it? Counted with the padding, the
// pixel's row is stride * y0 + rest. If i % stride is the same rest, it is the delta at y = y0 - i / stride; otherwise
// there is none. Everything except y0 is the same for all pixels. So the block has a table of it, to which each thread
// adds a place every THREADS steps.
struct alignas(16) Place {
    int rest, row, column, offset;  // rest: of i and j in one number; offset: the distance in D from (y0, x0)
};
#define RING (2 * THREADS)  // places in the table

__device__ Place place_of(int step, int c_out, int k, int stride, int h_out, int w_out) {
    int o = step / (k * k), i = step / k % k, j = step % k;
    int rest = o < c_out ? i % stride * stride + j % stride : -1;  // past the last step: no pixel's
    return {rest, -(i / stride), -(j / stride), (o * h_out - i / stride) * w_out - j / stride};
}

// The distance in W between weight 0 of filter 0 and that of the step, in the same channel; -1 past the last step.
__device__ int weight_of(int step, int c_out, int c_in, int k) {
    int o = step / (k * k);
    return o < c_out ? o * c_in * k * k + step % (k * k) : -1;
}

// The deltas of a pixel for DEPTH steps. D[first] is at (y0, x0), which may be outside.
__device__ __forceinline__ void gather(float (&numbers)[DEPTH], const Place* places, const float* D, int first, int y0,
                                       int x0, int rest, int h_out, int w_out) {
#pragma unroll
    for (int n = 0; n < DEPTH; n++) {
        Place place = places[n];
        bool met = (unsigned)(y0 + place.row) < h_out && (unsigned)(x0 + place.column) < w_out && place.rest == rest;
        numbers[n] = met ? D[first + place.offset] : 0.0f;
    }
}

__device__ __forceinline__ float weight(const float* W, int place) {
    return place < 0 ? 0.0f : W[place];
}

__device__ __forceinline__ float4 four_weights(const float* W, const int* places) {
    return make_float4(weight(W, places[0]), weight(W, places[1]), weight(W, places[2]), weight(W, places[3]));
}

// A block computes a tile of 64 channels x 128 pixels. Each of its 4 warps takes 64 x 32 of them.
extern "C" __global__ __launch_bounds__(THREADS, 3) void convolution_input_gradient_implicit_gemm(
    const float* D, const float* W, float* G, int batch, int c_out, int c_in, int k, int h_in, int w_in, int stride,
    int before, int after, int h_out, int w_out) {
    alignas(16) __shared__ float W_tile[2][DEPTH][ROWS + 4];
    alignas(16) __shared__ float D_tile[2][DEPTH][COLUMNS];
    __shared__ Place places[RING];  // of step k at k % RING
    __shared__ int weights[RING];
    int t = threadIdx.x, K = c_out * k * k, plane = h_in * w_in;
    int tiles = (c_in + ROWS - 1) / ROWS;  // blocks with the same pixels follow each other: they find D in the cache
    int c = blockIdx.x % tiles * ROWS, pixel = blockIdx.x / tiles * COLUMNS;
    int own = min(pixel + t, batch * plane - 1);  // past the end the last one again: it is not stored
    int row = own % plane / w_in + before, column = own % w_in + before;
    int y0 = row / stride, x0 = column / stride, rest = row % stride * stride + column % stride;
    int first = (own / plane * c_out * h_out + y0) * w_out + x0;
    int k_load = t % 2 * 4;  // of the tile of W this thread loads half a row
    const float* W_channel = W + min(c + t / 2, c_in - 1) * k * k;
    int y = lane_down() * 4, x = t / 32 * 32 + lane_across() * 4;

    for (int step = t; step < RING; step += THREADS) {
        places[step] = place_of(step, c_out, k, stride, h_out, w_out);
        weights[step] = weight_of(step, c_out, c_in, k);
    }
    __syncthreads();
    float D_next[DEPTH];
    gather(D_next, places, D, first, y0, x0, rest, h_out, w_out);
    store_transposed(W_tile[0], k_load, t / 2, four_weights(W_channel, weights + k_load));
#pragma unroll
    for (int n = 0; n < DEPTH; n++) D_tile[0][n][t] = D_next[n];
    __syncthreads();
    float g[8][8] = {}, w[2][8], d[2][8];
    read_fragment(w[0], &W_tile[0][0][y], 32);
    read_fragment(d[0], &D_tile[0][0][x], 16);
    int now = 0;  // the buffer in use
    for (int k0 = DEPTH; k0 < K + DEPTH; k0 += DEPTH) {  // where the next tile begins; there is none after the last
        float4 W_next;
        bool more = k0 < K;
        if (more) {
            W_next = four_weights(W_channel, weights + k0 % RING + k_load);
            gather(D_next, places + k0 % RING, D, first, y0, x0, rest, h_out, w_out);
            if (k0 % THREADS == 0) {  // the places of the last THREADS steps are not needed any more
                int step = k0 + THREADS + t;
                places[step % RING] = place_of(step, c_out, k, stride, h_out, w_out);
                weights[step % RING] = weight_of(step, c_out, c_in, k);
            }
        }
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
            if (step == DEPTH - 1) {  // this buffer is used up: switch (after the last tile to old values, never used)
                now = 1 - now;
                if (more) {
                    store_transposed(W_tile[now], k_load, t / 2, W_next);
#pragma unroll
                    for (int n = 0; n < DEPTH; n++) D_tile[now][n][t] = D_next[n];
                }
                __syncthreads();
            }
            read_fragment(w[(step + 1) % 2], &W_tile[now][(step + 1) % DEPTH][y], 32);
            read_fragment(d[(step + 1) % 2], &D_tile[now][(step + 1) % DEPTH][x], 16);
            multiply(g, w[step % 2], d[step % 2]);
        }
    }
    write_pixels(g, c + y, pixel + x, nullptr, G, batch, c_in, plane);
}
