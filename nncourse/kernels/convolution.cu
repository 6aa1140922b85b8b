// convolution_forward: each pixel of Z is the sum over all channels of a window of A times a filter, plus the filter's
// bias. The kernels, from slow to fast:
//   naive            a thread computes one pixel of Z
//   shared           a block shares the piece of the image that its windows cover, in shared memory
//   constant         the filters are in constant memory; a thread computes a pixel for 8 filters
// and, in convolution_tiles.cu:
//   implicit_gemm    a matrix product, with the tiles of dense_tiles.cu; its second matrix is never stored
//   nncourse check convolution_forward --kernel shared       against the reference
//   nncourse time convolution_forward                        against this machine's limits
//
// A (batch, c_in, h_in, w_in), W (c_out, c_in, k, k), b (c_out,), Z (batch, c_out, h_out, w_out); float32, row-major.

// All operands are read from global memory. Threads are numbered along the rows of Z, so that adjacent threads read
// adjacent pixels of A where the stride is 1.
extern "C" __global__ void convolution_forward_naive(const float* A, const float* W, const float* b, float* Z,
                                                     int batch, int c_in, int h_in, int w_in, int c_out, int k,
                                                     int stride, int before, int after, int h_out, int w_out) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= batch * c_out * h_out * w_out) return;
    int x = pixel % w_out, y = pixel / w_out % h_out;
    int o = pixel / w_out / h_out % c_out, s = pixel / w_out / h_out / c_out;
    float z = b[o];
    for (int c = 0; c < c_in; c++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                int row = y * stride + i - before, column = x * stride + j - before;
                if (row >= 0 && row < h_in && column >= 0 && column < w_in)
                    z += W[((o * c_in + c) * k + i) * k + j] * A[((s * c_in + c) * h_in + row) * w_in + column];
            }
    Z[pixel] = z;
}

// ---- From here on a block of 16 x 16 threads computes a tile of 16 x 16 pixels. Neighbouring windows overlap: the
// windows of a tile cover a piece of the image. For stride 1 that piece is the tile with a halo of k - 1 more rows and
// columns.
#define TILE 16
#define SIDE 48  // largest side of a piece that fits; for wider strides and filters, windows are read from A

// A pixel of one channel; 0 outside.
__device__ float pixel_of(const float* image, int row, int column, int h_in, int w_in) {
    return row >= 0 && row < h_in && column >= 0 && column < w_in ? image[row * w_in + column] : 0.0f;
}

// The block's threads load the piece of one channel whose first pixel is at (row, column).
__device__ void load_piece(float (*piece)[SIDE], int side, const float* image, int row, int column, int h_in,
                           int w_in) {
    for (int i = threadIdx.y; i < side; i += TILE)
        for (int j = threadIdx.x; j < side; j += TILE)
            piece[i][j] = pixel_of(image, row + i, column + j, h_in, w_in);
}

// blockIdx.x numbers the images of Z, one per sample and filter; blockIdx.y and z are the tile's place in the image.
extern "C" __global__ void convolution_forward_shared(const float* A, const float* W, const float* b, float* Z,
                                                      int batch, int c_in, int h_in, int w_in, int c_out, int k,
                                                      int stride, int before, int after, int h_out, int w_out) {
    __shared__ float piece[SIDE][SIDE];
    int o = blockIdx.x % c_out, s = blockIdx.x / c_out;
    int y = blockIdx.y * TILE + threadIdx.y, x = blockIdx.z * TILE + threadIdx.x;
    int row = blockIdx.y * TILE * stride - before, column = blockIdx.z * TILE * stride - before;  // the piece's first
    int i0 = threadIdx.y * stride, j0 = threadIdx.x * stride;  // where this thread's window begins in the piece
    int side = (TILE - 1) * stride + k;
    bool fits = side <= SIDE;
    float z = b[o];
    for (int c = 0; c < c_in; c++) {
        const float* image = A + (s * c_in + c) * h_in * w_in;
        if (fits) load_piece(piece, side, image, row, column, h_in, w_in);
        __syncthreads();  // nobody reads the piece before it is complete
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                float a = fits ? piece[i0 + i][j0 + j] : pixel_of(image, row + i0 + i, column + j0 + j, h_in, w_in);
                z += W[((o * c_in + c) * k + i) * k + j] * a;
            }
        __syncthreads();  // nobody loads the next one before all have read
    }
    if (y < h_out && x < w_out) Z[(blockIdx.x * h_out + y) * w_out + x] = z;
}

// All threads of a warp need the same weight at the same time: constant memory, 64 KB, serves them with one read. It is
// filled before the launch. Each pixel that a thread reads is used for 8 filters.
#define FILTERS 8
#define MOST_WEIGHTS 16384
__constant__ float filters[MOST_WEIGHTS];  // the first elements of W

// The kernel below, with its weights from constant memory or, if there are too many, from W.
template <bool CONSTANT> __device__ __forceinline__ void convolve(
    float (*piece)[SIDE], const float* A, const float* W, const float* b, float* Z, int c_in, int h_in, int w_in,
    int c_out, int k, int stride, int before, int h_out, int w_out) {
    int groups = (c_out + FILTERS - 1) / FILTERS, s = blockIdx.x / groups, o = blockIdx.x % groups * FILTERS;
    int y = blockIdx.y * TILE + threadIdx.y, x = blockIdx.z * TILE + threadIdx.x;
    int row = blockIdx.y * TILE * stride - before, column = blockIdx.z * TILE * stride - before;
    int i0 = threadIdx.y * stride, j0 = threadIdx.x * stride;
    int side = (TILE - 1) * stride + k, size = c_in * k * k;
    bool fits = side <= SIDE;
    float z[FILTERS] = {};
    int weight[FILTERS];  // where each filter begins; past the last filter, the last one again: not stored
#pragma unroll
    for (int n = 0; n < FILTERS; n++) weight[n] = min(o + n, c_out - 1) * size;
    for (int c = 0; c < c_in; c++) {
        const float* image = A + (s * c_in + c) * h_in * w_in;
        if (fits) load_piece(piece, side, image, row, column, h_in, w_in);
        __syncthreads();
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                float a = fits ? piece[i0 + i][j0 + j] : pixel_of(image, row + i0 + i, column + j0 + j, h_in, w_in);
                int at = (c * k + i) * k + j;
#pragma unroll
                for (int n = 0; n < FILTERS; n++) z[n] += (CONSTANT ? filters[weight[n] + at] : W[weight[n] + at]) * a;
            }
        __syncthreads();
    }
    if (y >= h_out || x >= w_out) return;
#pragma unroll
    for (int n = 0; n < FILTERS; n++)
        if (o + n < c_out) Z[((s * c_out + o + n) * h_out + y) * w_out + x] = z[n] + b[o + n];
}

extern "C" __global__ void convolution_forward_constant(const float* A, const float* W, const float* b, float* Z,
                                                        int batch, int c_in, int h_in, int w_in, int c_out, int k,
                                                        int stride, int before, int after, int h_out, int w_out) {
    __shared__ float piece[SIDE][SIDE];
    if (c_out * c_in * k * k <= MOST_WEIGHTS)
        convolve<true>(piece, A, W, b, Z, c_in, h_in, w_in, c_out, k, stride, before, h_out, w_out);
    else
        convolve<false>(piece, A, W, b, Z, c_in, h_in, w_in, c_out, k, stride, before, h_out, w_out);
}
