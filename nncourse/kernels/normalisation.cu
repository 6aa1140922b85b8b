// Batch normalisation. A, D, G, Z, B (batch, c, h, w); a number for each of the c channels: mean, variance, gamma, beta.
//   naive    a thread computes one element, or goes through one channel
//   pieces   batchnorm_forward, _relu, _shortcut_relu, _backward: a warp computes 256 neighbouring pixels of a channel
//   tree     batchnorm_statistics, _gradients: the warps of a block share one channel
//   nncourse check batchnorm_forward --kernel pieces       against the reference
//   nncourse time batchnorm_statistics                     against this machine's limits

__device__ float scale_of(float variance, float epsilon) { return 1.0f / sqrtf(variance + epsilon); }

// ---- naive

// The first pass gives the mean, the second the squares of the distances from it.
extern "C" __global__ void batchnorm_statistics_naive(const float* A, float* mean, float* variance, int batch, int c,
                                                      int h, int w) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, plane = h * w;
    if (k >= c) return;
    float count = (float)batch * plane, sum = 0.0f, squares = 0.0f;
    for (int s = 0; s < batch; s++)
        for (int p = 0; p < plane; p++) sum += A[(s * c + k) * plane + p];
    float m = sum / count;
    for (int s = 0; s < batch; s++)
        for (int p = 0; p < plane; p++) {
            float difference = A[(s * c + k) * plane + p] - m;
            squares += difference * difference;
        }
    mean[k] = m;
    variance[k] = squares / count;
}

extern "C" __global__ void batchnorm_gradients_naive(const float* D, const float* A, const float* mean,
                                                     const float* variance, float epsilon, float* dgamma, float* dbeta,
                                                     int batch, int c, int h, int w) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, plane = h * w;
    if (k >= c) return;
    float products = 0.0f, sum = 0.0f;
    for (int s = 0; s < batch; s++)
        for (int p = 0; p < plane; p++) {
            int i = (s * c + k) * plane + p;
            products += D[i] * (A[i] - mean[k]);
            sum += D[i];
        }
    dgamma[k] = products * scale_of(variance[k], epsilon) / batch;
    dbeta[k] = sum / batch;
}

extern "C" __global__ void batchnorm_forward_naive(const float* A, const float* mean, const float* variance,
                                                   const float* gamma, const float* beta, float epsilon, float* Z,
                                                   int batch, int c, int h, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * c * h * w) return;
    int k = i / (h * w) % c;
    Z[i] = gamma[k] * (A[i] - mean[k]) * scale_of(variance[k], epsilon) + beta[k];
}

extern "C" __global__ void batchnorm_relu_naive(const float* A, const float* mean, const float* variance,
                                                const float* gamma, const float* beta, float epsilon, float* Z,
                                                int batch, int c, int h, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * c * h * w) return;
    int k = i / (h * w) % c;
    Z[i] = fmaxf(gamma[k] * (A[i] - mean[k]) * scale_of(variance[k], epsilon) + beta[k], 0.0f);
}

extern "C" __global__ void batchnorm_shortcut_relu_naive(const float* A, const float* mean, const float* variance,
                                                         const float* gamma, const float* beta, float epsilon,
                                                         const float* B, float* Z, int batch, int c, int h, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * c * h * w) return;
    int k = i / (h * w) % c;
    Z[i] = fmaxf(gamma[k] * (A[i] - mean[k]) * scale_of(variance[k], epsilon) + beta[k] + B[i], 0.0f);
}

extern "C" __global__ void batchnorm_backward_naive(const float* D, const float* A, const float* mean,
                                                    const float* variance, const float* gamma, const float* dgamma,
                                                    const float* dbeta, float epsilon, float* G, int batch, int c,
                                                    int h, int w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * c * h * w) return;
    int k = i / (h * w) % c;
    float scale = scale_of(variance[k], epsilon), normal = (A[i] - mean[k]) * scale;
    G[i] = gamma[k] * scale * (D[i] - (dbeta[k] + normal * dgamma[k]) / (h * w));
}

extern "C" __global__ void batchnorm_running_naive(float* running_mean, float* running_variance, const float* mean,
                                                   const float* variance, float momentum, float correction, int c) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= c) return;
    running_mean[k] = (1.0f - momentum) * running_mean[k] + momentum * mean[k];
    running_variance[k] = (1.0f - momentum) * running_variance[k] + momentum * correction * variance[k];
}

// ---- pieces: 8 pixels per lane, and the channel is looked up once for all. All 8 are read before the first is
// written, so that the reads overlap; the compiler may not reorder them itself, because Z could be A. A channel of a
// sample seldom begins at a multiple of 16 bytes, so numbers are read one by one; the reads of a warp coalesce.
#define EACH 8
#define PIECE (32 * EACH)

struct Piece {
    int channel, first, end;  // first: the lane's first pixel, 32 before its next one; end: of this sample's channel
};

// The piece of this number. Pieces are counted sample by sample, channel by channel.
__device__ Piece piece_of(int number, int c, int plane) {
    int pieces = (plane + PIECE - 1) / PIECE, image = number / pieces;
    return {image % c, image * plane + number % pieces * PIECE + (int)threadIdx.x % 32, (image + 1) * plane};
}

// The lane's numbers of a piece.
__device__ __forceinline__ void read(float (&numbers)[EACH], const float* A, Piece here) {
#pragma unroll
    for (int n = 0; n < EACH; n++) numbers[n] = here.first + 32 * n < here.end ? A[here.first + 32 * n] : 0.0f;
}

__device__ int piece_of_warp() { return (blockIdx.x * blockDim.x + threadIdx.x) / 32; }

__device__ int pieces_of(int batch, int c, int plane) { return batch * c * ((plane + PIECE - 1) / PIECE); }

extern "C" __global__ void batchnorm_forward_pieces(const float* A, const float* mean, const float* variance,
                                                    const float* gamma, const float* beta, float epsilon, float* Z,
                                                    int batch, int c, int h, int w) {
    if (piece_of_warp() >= pieces_of(batch, c, h * w)) return;
    Piece here = piece_of(piece_of_warp(), c, h * w);
    int k = here.channel;
    float m = mean[k], scale = gamma[k] * scale_of(variance[k], epsilon), shift = beta[k];
    float a[EACH];
    read(a, A, here);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = here.first + 32 * n;
        if (i < here.end) Z[i] = (a[n] - m) * scale + shift;
    }
}

extern "C" __global__ void batchnorm_relu_pieces(const float* A, const float* mean, const float* variance,
                                                 const float* gamma, const float* beta, float epsilon, float* Z,
                                                 int batch, int c, int h, int w) {
    if (piece_of_warp() >= pieces_of(batch, c, h * w)) return;
    Piece here = piece_of(piece_of_warp(), c, h * w);
    int k = here.channel;
    float m = mean[k], scale = gamma[k] * scale_of(variance[k], epsilon), shift = beta[k];
    float a[EACH];
    read(a, A, here);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = here.first + 32 * n;
        if (i < here.end) Z[i] = fmaxf((a[n] - m) * scale + shift, 0.0f);
    }
}

extern "C" __global__ void batchnorm_shortcut_relu_pieces(const float* A, const float* mean, const float* variance,
                                                          const float* gamma, const float* beta, float epsilon,
                                                          const float* B, float* Z, int batch, int c, int h, int w) {
    if (piece_of_warp() >= pieces_of(batch, c, h * w)) return;
    Piece here = piece_of(piece_of_warp(), c, h * w);
    int k = here.channel;
    float m = mean[k], scale = gamma[k] * scale_of(variance[k], epsilon), shift = beta[k];
    float a[EACH], b[EACH];
    read(a, A, here);
    read(b, B, here);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = here.first + 32 * n;
        if (i < here.end) Z[i] = fmaxf((a[n] - m) * scale + shift + b[n], 0.0f);
    }
}

extern "C" __global__ void batchnorm_backward_pieces(const float* D, const float* A, const float* mean,
                                                     const float* variance, const float* gamma, const float* dgamma,
                                                     const float* dbeta, float epsilon, float* G, int batch, int c,
                                                     int h, int w) {
    if (piece_of_warp() >= pieces_of(batch, c, h * w)) return;
    Piece here = piece_of(piece_of_warp(), c, h * w);
    int k = here.channel;
    float m = mean[k], scale = scale_of(variance[k], epsilon);
    float of_all = dbeta[k] / (h * w), of_normal = dgamma[k] * scale / (h * w);
    scale *= gamma[k];
    float d[EACH], a[EACH];
    read(d, D, here);
    read(a, A, here);
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int i = here.first + 32 * n;
        if (i < here.end) G[i] = scale * (d[n] - of_all - (a[n] - m) * of_normal);
    }
}

// ---- tree: the warps of a block take the channel's pieces in turn, then a tree joins the results of the lanes. The
// order is always the same, and so are all digits. A lane takes 16 pixels at once: with 64 channels half of the GPU has
// no block, so the other half needs more reads in flight.
#define MANY 16

// How many numbers there are, their mean, and the sum of the squares of their distances from it. Two of these are
// joined without subtracting one large sum from another (Chan, Golub and LeVeque, 1979).
struct Moments {
    float count, mean, squares;
};

__device__ Moments joined(Moments a, Moments b) {
    float count = a.count + b.count;
    if (count == 0.0f) return a;
    float difference = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + difference * share, a.squares + b.squares + difference * difference * a.count * share};
}

__device__ Moments joined_over_warp(Moments here) {
    for (int distance = 16; distance > 0; distance /= 2) {
        Moments other;
        other.count = __shfl_down_sync(0xffffffff, here.count, distance);
        other.mean = __shfl_down_sync(0xffffffff, here.mean, distance);
        other.squares = __shfl_down_sync(0xffffffff, here.squares, distance);
        here = joined(here, other);
    }
    return here;  // of all lanes, in lane 0
}

extern "C" __global__ __launch_bounds__(1024) void batchnorm_statistics_tree(const float* A, float* mean,
                                                                             float* variance, int batch, int c, int h,
                                                                             int w) {
    __shared__ float counts[32], means[32], squares_of[32];
    int k = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, plane = h * w;
    int pieces = (plane + 32 * MANY - 1) / (32 * MANY);
    Moments here = {0.0f, 0.0f, 0.0f};
    for (int number = warp; number < batch * pieces; number += warps) {
        int first = number % pieces * (32 * MANY) + lane;
        const float* a = A + (number / pieces * c + k) * plane;
        float numbers[MANY], sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int n = 0; n < MANY; n++) numbers[n] = first + 32 * n < plane ? a[first + 32 * n] : 0.0f;
        int count = min((plane - first + 31) / 32, MANY);
        if (first >= plane) continue;
#pragma unroll
        for (int n = 0; n < MANY; n++) sum += numbers[n];
        float m = sum / count;
#pragma unroll
        for (int n = 0; n < MANY; n++)
            if (n < count) squares += (numbers[n] - m) * (numbers[n] - m);
        here = joined(here, {(float)count, m, squares});
    }
    here = joined_over_warp(here);
    if (lane == 0) {
        counts[warp] = here.count;
        means[warp] = here.mean;
        squares_of[warp] = here.squares;
    }
    __syncthreads();
    if (warp > 0) return;
    here = {0.0f, 0.0f, 0.0f};
    if (lane < warps) here = {counts[lane], means[lane], squares_of[lane]};
    here = joined_over_warp(here);
    if (lane == 0) {
        mean[k] = here.mean;
        variance[k] = here.squares / here.count;
    }
}

__device__ float sum_over_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffff, value, distance);
    return value;
}

extern "C" __global__ __launch_bounds__(1024) void batchnorm_gradients_tree(const float* D, const float* A,
                                                                            const float* mean, const float* variance,
                                                                            float epsilon, float* dgamma, float* dbeta,
                                                                            int batch, int c, int h, int w) {
    __shared__ float products_of[32], sums[32];
    int k = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, plane = h * w;
    int pieces = (plane + 32 * MANY - 1) / (32 * MANY);
    float m = mean[k], products = 0.0f, sum = 0.0f;
    for (int number = warp; number < batch * pieces; number += warps) {
        int first = number % pieces * (32 * MANY) + lane, image = (number / pieces * c + k) * plane;
        float d[MANY], a[MANY];
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            bool inside = first + 32 * n < plane;
            d[n] = inside ? D[image + first + 32 * n] : 0.0f;
            a[n] = inside ? A[image + first + 32 * n] : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < MANY; n++) {
            products += d[n] * (a[n] - m);
            sum += d[n];
        }
    }
    products = sum_over_warp(products);
    sum = sum_over_warp(sum);
    if (lane == 0) {
        products_of[warp] = products;
        sums[warp] = sum;
    }
    __syncthreads();
    if (warp > 0) return;
    products = sum_over_warp(lane < warps ? products_of[lane] : 0.0f);
    sum = sum_over_warp(lane < warps ? sums[lane] : 0.0f);
    if (lane == 0) {
        dgamma[k] = products * scale_of(variance[k], epsilon) / batch;
        dbeta[k] = sum / batch;
    }
}
