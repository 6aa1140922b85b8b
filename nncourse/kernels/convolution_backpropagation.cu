// Backpropagation through a convolution. D (batch, c_out, h_out, w_out) are the deltas of the pixels of Z, A (batch, c_in,
// h_in, w_in) the images below, W (c_out, c_in, k, k) the filters. Pixel (y, x) of Z met pixel (row, column) of A through
// weight (i, j) where row = y * stride + i - before and column = x * stride + j - before. For each gradient, the kernels
// from slow to fast:
//   naive            a thread computes one weight, one bias, or one pixel
//   tree             a block computes one weight, or one bias: its threads share the pixels of D
//   tiles            a block computes 8 x 8 weights: 8 filters and 8 weights of each
//   shared           a thread computes a pixel in 8 channels; the filters are in shared memory
//   implicit_gemm    in convolution_weight_gradient_tiles.cu and convolution_input_gradient_tiles.cu: a product of two
//                    matrices, one of which is never stored
//   nncourse check convolution_weight_gradient --kernel tree       against the reference
//   nncourse time convolution_input_gradient                       against this machine's limits

// ---- dW[o][c][i][j] = mean over s of the sum over y, x of D[s][o][y][x] * A[s][c][row][column]

extern "C" __global__ void convolution_weight_gradient_naive(const float* D, const float* A, float* dW, int batch,
                                                             int c_out, int c_in, int h_in, int w_in, int k, int stride,
                                                             int before, int after, int h_out, int w_out) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= c_out * c_in * k * k) return;
    int j = n % k, i = n / k % k, c = n / (k * k) % c_in, o = n / (k * k * c_in);
    float sum = 0.0f;
    for (int s = 0; s < batch; s++)
        for (int y = 0; y < h_out; y++)
            for (int x = 0; x < w_out; x++) {
                int row = y * stride + i - before, column = x * stride + j - before;
                if (row >= 0 && row < h_in && column >= 0 && column < w_in)
                    sum += D[((s * c_out + o) * h_out + y) * w_out + x] * A[((s * c_in + c) * h_in + row) * w_in + column];
            }
    dW[n] = sum / batch;
}

// The sum of one number from each thread of the block, in a tree: half of the threads add the numbers of the other half,
// then a quarter, then an eighth. blockDim.x is a power of two, at most 1,024. The sum is valid in thread 0.
__device__ float tree_sum(float value) {
    __shared__ float partial[1024];
    int t = threadIdx.x;
    partial[t] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    return partial[0];
}

// Each thread takes some pixels of D, in all samples; adjacent threads read adjacent pixels.
extern "C" __global__ void convolution_weight_gradient_tree(const float* D, const float* A, float* dW, int batch,
                                                            int c_out, int c_in, int h_in, int w_in, int k, int stride,
                                                            int before, int after, int h_out, int w_out) {
    int n = blockIdx.x, j = n % k, i = n / k % k, c = n / (k * k) % c_in, o = n / (k * k * c_in);
    int deltas = h_out * w_out, pixels = h_in * w_in;
    float sum = 0.0f;
    for (int p = threadIdx.x; p < deltas; p += blockDim.x) {
        int row = p / w_out * stride + i - before, column = p % w_out * stride + j - before;
        if (row < 0 || row >= h_in || column < 0 || column >= w_in) continue;
        const float* d = D + o * deltas + p;
        const float* a = A + c * pixels + row * w_in + column;
#pragma unroll 8
        for (int s = 0; s < batch; s++) sum += d[s * c_out * deltas] * a[s * c_in * pixels];
    }
    sum = tree_sum(sum);
    if (threadIdx.x == 0) dW[n] = sum / batch;
}

// The threads of a block take the pixels of D in turn. For each pixel a thread reads 8 deltas and the 8 pixels of A
// that they met, and adds all 64 products to sums in its registers. At the end the threads' sums are added through
// shared memory.
#define SIDE 8
#define THREADS 256  // a warp for each of 8 weights

extern "C" __global__ __launch_bounds__(THREADS, 2) void convolution_weight_gradient_tiles(
    const float* D, const float* A, float* dW, int batch, int c_out, int c_in, int h_in, int w_in, int k, int stride,
    int before, int after, int h_out, int w_out) {
    __shared__ float partial[SIDE][THREADS];
    int t = threadIdx.x, o0 = blockIdx.y * SIDE, n0 = blockIdx.x * SIDE;
    int weights = c_in * k * k, deltas = h_out * w_out, pixels = h_in * w_in;
    int i[SIDE], j[SIDE], shift[SIDE], filter[SIDE];
#pragma unroll
    for (int e = 0; e < SIDE; e++) {  // past the end, the last filter and the last weight again
        int n = min(n0 + e, weights - 1);
        i[e] = n / k % k, j[e] = n % k;
        shift[e] = n / (k * k) * pixels + i[e] * w_in + j[e];
        filter[e] = min(o0 + e, c_out - 1) * deltas;
    }
    float sums[SIDE][SIDE] = {};
    int x = t % w_out, y = t / w_out % h_out, s = t / deltas;
    while (s < batch) {
        float d[SIDE], a[SIDE];
        int row = y * stride - before, column = x * stride - before;
        const float* delta = D + s * c_out * deltas + y * w_out + x;
        const float* pixel = A + s * c_in * pixels + row * w_in + column;
#pragma unroll
        for (int e = 0; e < SIDE; e++) {
            bool inside = row + i[e] >= 0 && row + i[e] < h_in && column + j[e] >= 0 && column + j[e] < w_in;
            d[e] = delta[filter[e]];
            a[e] = inside ? pixel[shift[e]] : 0.0f;
        }
#pragma unroll
        for (int m = 0; m < SIDE; m++)
#pragma unroll
            for (int n = 0; n < SIDE; n++) sums[m][n] += d[m] * a[n];
        x += THREADS % w_out;  // THREADS pixels on, without a division
        y += THREADS / w_out % h_out + (x >= w_out);
        s += THREADS / deltas + (y >= h_out);
        if (x >= w_out) x -= w_out;
        if (y >= h_out) y -= h_out;
    }
#pragma unroll
    for (int m = 0; m < SIDE; m++) {  // filter after filter: a warp adds the threads' sums for one weight
        __syncthreads();              // nobody overwrites the sums before they have been read
#pragma unroll
        for (int n = 0; n < SIDE; n++) partial[n][t] = sums[m][n];
        __syncthreads();  // nobody reads the sums before all of them are there
        float sum = 0.0f;
        for (int other = t % 32; other < THREADS; other += 32) sum += partial[t / 32][other];
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
        int o = o0 + m, n = n0 + t / 32;
        if (t % 32 == 0 && o < c_out && n < weights) dW[o * weights + n] = sum / batch;
    }
}

// ---- db[o] = mean over s of the sum over y, x of D[s][o][y][x]

extern "C" __global__ void convolution_bias_gradient_naive(const float* D, float* db, int batch, int c_out, int h_out,
                                                           int w_out) {
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= c_out) return;
    float sum = 0.0f;
    for (int s = 0; s < batch; s++)
        for (int p = 0; p < h_out * w_out; p++) sum += D[(s * c_out + o) * h_out * w_out + p];
    db[o] = sum / batch;
}

extern "C" __global__ void convolution_bias_gradient_tree(const float* D, float* db, int batch, int c_out, int h_out,
                                                          int w_out) {
    int o = blockIdx.x, deltas = h_out * w_out;
    float sum = 0.0f;
    for (int p = threadIdx.x; p < deltas; p += blockDim.x)
#pragma unroll 8
        for (int s = 0; s < batch; s++) sum += D[(s * c_out + o) * deltas + p];
    sum = tree_sum(sum);
    if (threadIdx.x == 0) db[o] = sum / batch;
}

// ---- G[s][c][row][column] = sum of D[s][o][y][x] * W[o][c][i][j] over all filters o and all windows that hold the pixel

// Through weight (i, j), a pixel was read by the window at y = (row + before - i) / stride, if that is a whole number
// and there is such a window.
extern "C" __global__ void convolution_input_gradient_naive(const float* D, const float* W, float* G, int batch,
                                                            int c_out, int c_in, int k, int h_in, int w_in, int stride,
                                                            int before, int after, int h_out, int w_out) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= batch * c_in * h_in * w_in) return;
    int column = n % w_in, row = n / w_in % h_in, c = n / (w_in * h_in) % c_in, s = n / (w_in * h_in * c_in);
    float sum = 0.0f;
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++) {
            int y = row + before - i, x = column + before - j;  // times the stride
            if (y < 0 || x < 0 || y % stride != 0 || x % stride != 0) continue;
            y /= stride, x /= stride;
            if (y >= h_out || x >= w_out) continue;
            for (int o = 0; o < c_out; o++)
                sum += D[((s * c_out + o) * h_out + y) * w_out + x] * W[((o * c_in + c) * k + i) * k + j];
        }
    G[n] = sum;
}

// A delta that a thread has read is used for 8 channels. A block keeps the weights of these channels in shared memory:
// as many filters as there is room for, or a part of one large filter. A thread steps from one weight that reaches its
// pixel to the next, which is `stride` weights on and one window back.
#define CHANNELS 8
#define ROOM 512  // weights of each channel

extern "C" __global__ void convolution_input_gradient_shared(const float* D, const float* W, float* G, int batch,
                                                             int c_out, int c_in, int k, int h_in, int w_in, int stride,
                                                             int before, int after, int h_out, int w_out) {
    __shared__ float4 weights[ROOM][CHANNELS / 4];
    int pixels = h_in * w_in, n = blockIdx.x * blockDim.x + threadIdx.x, c0 = blockIdx.y * CHANNELS;
    bool inside = n < batch * pixels;
    int s = inside ? n / pixels : 0, pixel = n % pixels, row = pixel / w_in + before, column = pixel % w_in + before;
    int j_many = min(k, ROOM), i_many = min(k, ROOM / j_many), o_many = max(1, ROOM / (k * k));
    float g[CHANNELS] = {};
    for (int o0 = 0; o0 < c_out; o0 += o_many)
        for (int i0 = 0; i0 < k; i0 += i_many)
            for (int j0 = 0; j0 < k; j0 += j_many) {
                int o_end = min(o0 + o_many, c_out), i_end = min(i0 + i_many, k), j_end = min(j0 + j_many, k);
                int height = i_end - i0, width = j_end - j0, many = (o_end - o0) * height * width;
                __syncthreads();  // nobody refills the weights before all have read
                for (int m = threadIdx.x; m < many * CHANNELS; m += blockDim.x) {
                    int c = c0 + m % CHANNELS, w = m / CHANNELS;
                    int j = j0 + w % width, i = i0 + w / width % height, o = o0 + w / (width * height);
                    ((float*)weights)[m] = c < c_in ? W[((o * c_in + c) * k + i) * k + j] : 0.0f;
                }
                __syncthreads();  // nobody reads the weights before all of them are there
                if (!inside) continue;
                // the first weights that reach the pixel, and the window that they belong to
                int i_first = i0 + ((row - i0) % stride + stride) % stride, y_first = (row - i_first) / stride;
                int j_first = j0 + ((column - j0) % stride + stride) % stride, x_first = (column - j_first) / stride;
                for (int o = o0; o < o_end; o++)
                    for (int i = i_first, y = y_first; i < i_end; i += stride, y--) {
                        if (y < 0 || y >= h_out) continue;
                        const float* d_row = D + ((s * c_out + o) * h_out + y) * w_out;
                        int w_row = ((o - o0) * height + i - i0) * width - j0;
                        for (int j = j_first, x = x_first; j < j_end; j += stride, x--) {
                            if (x < 0 || x >= w_out) continue;
                            float d = d_row[x];
                            float4 low = weights[w_row + j][0], high = weights[w_row + j][1];
                            g[0] += d * low.x, g[1] += d * low.y, g[2] += d * low.z, g[3] += d * low.w;
                            g[4] += d * high.x, g[5] += d * high.y, g[6] += d * high.z, g[7] += d * high.w;
                        }
                    }
            }
#pragma unroll
    for (int e = 0; e < CHANNELS; e++)
        if (inside && c0 + e < c_in) G[(s * c_in + c0 + e) * pixels + pixel] = g[e];
}
