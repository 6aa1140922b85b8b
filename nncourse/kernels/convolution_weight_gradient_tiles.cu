// convolution_weight_gradient, continued from convolution_backpropagation.cu. The functions on tiles are in tiles.cu.
//   implicit_gemm    a matrix product, as in convolution_tiles.cu, whose long sums are split among blocks
//   nncourse check convolution_weight_gradient --kernel implicit_gemm       against the reference
//   nncourse time convolution_weight_gradient                               against this machine's limits
//
// The first matrix has a row for each filter: the deltas of all pixels of all samples. The second has a column for each
// weight of a filter: the pixels of A that these deltas met through it, gathered when they are needed. The product has
// few elements, each a long sum. So a tile of it goes to several blocks: each adds up a part of the pixels (split k),
// and a second launch adds the parts, always in the same order.
#define DEPTH 16     // pixels for which a tile is loaded
#define THREADS 128  // each computes 8 x 8 elements

// The position of the pixel that a weight meets, relative to the window's first pixel; `offset` is the distance in A.
struct alignas(16) Place {
    int row, column, offset;
};

// A block computes ROWS filters x COLUMNS weights for `span` pixels, of which blockIdx.y selects the first. Each of its
// 4 warps takes 64 x 32 of them.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void add_up_part(const float* D, const float* A, float* parts, int batch, int c_out, int c_in,
                                            int h_in, int w_in, int k, int stride, int before, int h_out, int w_out,
                                            int span) {
    alignas(16) __shared__ float D_tile[2][DEPTH][ROWS + 4];
    alignas(16) __shared__ float A_tile[2][DEPTH][COLUMNS + 4];
    __shared__ Place places[COLUMNS];
    constexpr int APART = THREADS / DEPTH;  // from one row that a thread loads to its next
    int t = threadIdx.x, weights = c_in * k * k, plane = h_out * w_out;
    int tiles = (c_out + ROWS - 1) / ROWS;  // blocks with the same weights follow each other: they find A in the cache
    int o0 = blockIdx.x % tiles * ROWS, n0 = blockIdx.x / tiles * COLUMNS;
    int begin = blockIdx.y * span, end = min(begin + span, batch * plane);
    for (int column = t; column < COLUMNS; column += THREADS) {
        int n = min(n0 + column, weights - 1), i = n / k % k, j = n % k;
        places[column] = {i, j, (n / (k * k) * h_in + i) * w_in + j};
    }
    __syncthreads();

    // Adjacent threads load adjacent pixels. This thread's is pixel (y, x) of sample s, the next one DEPTH pixels on.
    int k_load = t % DEPTH, row_load = t / DEPTH;
    int pixel = begin + k_load, s = pixel / plane, y = pixel % plane / w_out, x = pixel % w_out;
    bool whole = o0 + ROWS <= c_out;  // then no filter has to be compared with the last one
    float d_next[ROWS / APART], a_next[COLUMNS / APART];
    auto load = [&]() {
        bool there = pixel < end;
        const float* d = D + ((size_t)s * c_out + o0 + row_load) * plane + y * w_out + x;
        if (there && whole) {
#pragma unroll
            for (int e = 0; e < ROWS / APART; e++) d_next[e] = d[e * APART * plane];
        } else {
#pragma unroll
            for (int e = 0; e < ROWS / APART; e++)
                d_next[e] = there && o0 + row_load + e * APART < c_out ? d[e * APART * plane] : 0.0f;
        }
        int row = there ? y * stride - before : 1 << 30, column = x * stride - before;  // past the end: outside
        const float* a = A + ((long long)s * c_in * h_in + y * stride - before) * w_in + column;
#pragma unroll
        for (int e = 0; e < COLUMNS / APART; e++) {
            Place place = places[row_load + e * APART];
            bool inside = (unsigned)(row + place.row) < h_in && (unsigned)(column + place.column) < w_in;
            a_next[e] = inside ? a[place.offset] : 0.0f;
        }
        pixel += DEPTH;
        x += DEPTH % w_out;  // without a division
        y += DEPTH / w_out % h_out + (x >= w_out);
        s += DEPTH / plane + (y >= h_out);
        if (x >= w_out) x -= w_out;
        if (y >= h_out) y -= h_out;
    };
    auto store = [&](int buffer) {
#pragma unroll
        for (int e = 0; e < ROWS / APART; e++) D_tile[buffer][k_load][row_load + e * APART] = d_next[e];
#pragma unroll
        for (int e = 0; e < COLUMNS / APART; e++) A_tile[buffer][k_load][row_load + e * APART] = a_next[e];
    };

    int warp = t / 32, o = warp % (ROWS / 64) * 64 + lane_down() * 4, n = warp / (ROWS / 64) * 32 + lane_across() * 4;
    load();
    store(0);
    __syncthreads();
    float sums[8][8] = {}, d[2][8], a[2][8];
    read_fragment(d[0], &D_tile[0][0][o], 32);
    read_fragment(a[0], &A_tile[0][0][n], 16);
    int now = 0;  // the buffer in use
    for (int k0 = begin + DEPTH; k0 < end + DEPTH; k0 += DEPTH) {  // where the next tile begins; none after the last
        bool more = k0 < end;
        if (more) load();
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
            if (step == DEPTH - 1) {  // this buffer is used up: switch (after the last tile to old values, never used)
                now = 1 - now;
                if (more) store(now);
                __syncthreads();
            }
            read_fragment(d[(step + 1) % 2], &D_tile[now][(step + 1) % DEPTH][o], 32);
            read_fragment(a[(step + 1) % 2], &A_tile[now][(step + 1) % DEPTH][n], 16);
            multiply(sums, d[step % 2], a[step % 2]);
        }
    }
    float* part = parts + (size_t)blockIdx.y * c_out * weights;
#pragma unroll
    for (int m = 0; m < 8; m++)
#pragma unroll
        for (int q = 0; q < 8; q++) {
            int filter = o0 + o + m / 4 * 32 + m % 4, weight = n0 + n + q / 4 * 16 + q % 4;
            if (filter < c_out && weight < weights) part[(size_t)filter * weights + weight] = sums[m][q] / batch;
        }
}

// For few filters.
extern "C" __global__ __launch_bounds__(THREADS, 3) void convolution_weight_gradient_part_64x128(
    const float* D, const float* A, float* parts, int batch, int c_out, int c_in, int h_in, int w_in, int k, int stride,
    int before, int h_out, int w_out, int span) {
    add_up_part<64, 128>(D, A, parts, batch, c_out, c_in, h_in, w_in, k, stride, before, h_out, w_out, span);
}

// For many filters: fewer pixels of A are gathered, since gathering costs more than loading deltas.
extern "C" __global__ __launch_bounds__(THREADS, 3) void convolution_weight_gradient_part_128x64(
    const float* D, const float* A, float* parts, int batch, int c_out, int c_in, int h_in, int w_in, int k, int stride,
    int before, int h_out, int w_out, int span) {
    add_up_part<128, 64>(D, A, parts, batch, c_out, c_in, h_in, w_in, k, stride, before, h_out, w_out, span);
}

// dW = the sum of `count` parts of `size` numbers. Of a block's 8 warps, `together` add up the same 32 numbers, each warp
// some of the parts; then the first of them adds their sums.
extern "C" __global__ void convolution_weight_gradient_join(const float* parts, float* dW, int count, int size,
                                                            int together) {
    __shared__ float sums[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = (blockIdx.x * 8 + warp) / together * 32 + lane;
    float sum = 0.0f;
    if (n < size) {
#pragma unroll 8
        for (int part = warp % together; part < count; part += together) sum += parts[(size_t)part * size + n];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp % together || n >= size) return;
    for (int other = 1; other < together; other++) sum += sums[warp + other][lane];
    dW[n] = sum;
}
