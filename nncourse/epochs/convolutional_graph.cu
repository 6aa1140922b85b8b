// convolutional_sgd_epoch and convolutional_adam_epoch with a few launches per step, for networks of any size. Versions
// (convolutional_graph.py):
//   fused   launch the kernels below one by one
//   graph   record the launches of many steps as a CUDA graph: one call replays them all
//
//   nncourse check convolutional_adam_epoch --kernel graph   (--emulate without a GPU)
//   nncourse time convolutional_adam_epoch --kernel fused --kernel graph
//
// Launches of a step, in this order:
//   images_forward    a block takes a sample through all convolutions and the pool
//   forward …         the dense layers, forward and backward, by dense_graph.cu, down to the deltas of their inputs
//   images_backward   a block takes a sample's deltas back to the image, and writes its gradient of all filters
//   update_all        all parameters; last, as the deltas need the old weights
// The results do not depend on the order of threads.
//
// Convolution l makes map l + 1 from map l; map 0 is the sample X. A map is (channels, height, width), row-major;
// `maps` holds map 1 and above of each sample. The zeros around an image are not stored: a filter skips them.

constexpr int TOGETHER = 4;  // filters, or channels, that share the numbers that a thread reads

// A row of `table`. `from` and `to` are offsets from map 1, `weights` from the first parameter.
struct Convolution {
    int channels, height, width, count, high, wide, k, stride, before, activation, from, to, weights;
    __device__ int taps() const { return channels * k * k; }
    __device__ int results() const { return count * high * wide; }
};

__device__ const float* map_below(int l, const Convolution& at, const float* X, const float* maps, int numbers) {
    return l == 0 ? X + blockIdx.x * at.channels * at.height * at.width : maps + blockIdx.x * numbers + at.from;
}

extern "C" __global__ void images_forward(const float* __restrict__ parameters, const float* __restrict__ X, float* maps,
                                          float* A, int* places, const int* __restrict__ table, int layers, int numbers,
                                          int pool, int channels, int height, int width) {
    for (int l = 0; l < layers; l++) {
        const Convolution& at = ((const Convolution*)table)[l];
        const float *below = map_below(l, at, X, maps, numbers), *W = parameters + at.weights;
        const float* b = W + at.count * at.taps();
        const int pixels = at.high * at.wide, groups = divided_up(at.count, TOGETHER);
        for (int item = threadIdx.x; item < groups * pixels; item += blockDim.x) {
            const int o = item / pixels * TOGETHER, pixel = item % pixels;
            const int y = pixel / at.wide * at.stride - at.before, x = pixel % at.wide * at.stride - at.before;
            float z[TOGETHER];
            int w[TOGETHER];
#pragma unroll
            for (int q = 0; q < TOGETHER; q++) {
                w[q] = min(o + q, at.count - 1) * at.taps();
                z[q] = b[min(o + q, at.count - 1)];
            }
            for (int c = 0; c < at.channels; c++)
                for (int i = max(0, -y); i < min(at.k, at.height - y); i++)
                    for (int j = max(0, -x); j < min(at.k, at.width - x); j++) {
                        const float a = below[(c * at.height + y + i) * at.width + x + j];
                        const int tap = (c * at.k + i) * at.k + j;
#pragma unroll
                        for (int q = 0; q < TOGETHER; q++) z[q] += a * W[w[q] + tap];
                    }
#pragma unroll
            for (int q = 0; q < TOGETHER; q++)
                if (o + q < at.count)
                    maps[blockIdx.x * numbers + at.to + (o + q) * pixels + pixel] = activate(at.activation, z[q]);
        }
        __syncthreads();
    }

    // The last map, of (channels, height, width): the first of the largest pixels of each window.
    const int by = max(1, pool), down = height / by, across = width / by, inputs = channels * down * across;
    const float* map = layers == 0 ? X + blockIdx.x * channels * height * width
                                   : maps + blockIdx.x * numbers + ((const Convolution*)table)[layers - 1].to;
    for (int i = threadIdx.x; i < inputs; i += blockDim.x) {
        const int c = i / (down * across), y = i / across % down * by, x = i % across * by;
        int place = (c * height + y) * width + x;
        float top = map[place];
        for (int e = 1; e < by * by; e++) {
            const int there = (c * height + y + e / by) * width + x + e % by;
            if (map[there] > top) top = map[there], place = there;
        }
        A[blockIdx.x * inputs + i] = top;
        places[blockIdx.x * inputs + i] = place;
    }
}

// The sum of a warp's numbers, in each of its lanes.
__device__ float over_lanes(float sum) {
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

// D (batch, inputs) are the deltas of the dense layers' inputs. `deltas` is scratch space of the size of `maps`;
// `gradients` (batch, filter_numbers) receives each sample's gradients of all filters.
extern "C" __global__ void images_backward(const float* __restrict__ parameters, const float* __restrict__ X,
                                           const float* __restrict__ maps, const float* __restrict__ D,
                                           const int* __restrict__ places, float* deltas, float* gradients,
                                           const int* __restrict__ table, int layers, int numbers, int pool, int inputs,
                                           int filter_numbers) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    D += blockIdx.x * inputs;
    places += blockIdx.x * inputs;
    deltas += blockIdx.x * numbers;
    gradients += blockIdx.x * filter_numbers;

    // Only the maximum of each window has a delta.
    const Convolution& last = ((const Convolution*)table)[layers - 1];
    const int by = max(1, pool), down = last.high / by, across = last.wide / by;
    for (int i = threadIdx.x; i < last.results(); i += blockDim.x) {
        const int c = i / (last.high * last.wide), y = i / last.wide % last.high / by, x = i % last.wide / by;
        const int window = (c * down + y) * across + x;
        deltas[last.to + i] = y < down && x < across && places[window] == i ? D[window] : 0.0f;
    }
    __syncthreads();

    for (int l = layers - 1; l >= 0; l--) {
        const Convolution& at = ((const Convolution*)table)[l];
        const float *below = map_below(l, at, X, maps, numbers), *above = deltas + at.to;
        const float* W = parameters + at.weights;
        const int pixels = at.high * at.wide, taps = at.taps();

        // A warp for each weight, and for each bias, which is the weight of a pixel that is always 1.
        for (int weight = warp; weight < at.count * (taps + 1); weight += warps) {
            const bool is_bias = weight >= at.count * taps;
            const int o = is_bias ? weight - at.count * taps : weight / taps, tap = is_bias ? 0 : weight % taps;
            const int c = tap / (at.k * at.k), i = tap / at.k % at.k - at.before, j = tap % at.k - at.before;
            float sum = 0.0f;
            auto add = [&](int y, int x, float d) {
                const int row = y * at.stride + i, column = x * at.stride + j;
                const bool inside = row >= 0 && row < at.height && column >= 0 && column < at.width;
                if (is_bias) sum += d;
                else if (inside) sum += d * below[(c * at.height + row) * at.width + column];
            };
            if (l == layers - 1 && pool > 1)
                for (int v = o * down * across + lane; v < (o + 1) * down * across; v += 32) {
                    const int pixel = places[v] - o * pixels;
                    add(pixel / at.wide, pixel % at.wide, D[v]);
                }
            else
                for (int y = 0; y < at.high; y++)
                    for (int x = lane; x < at.wide; x += 32) add(y, x, above[o * pixels + y * at.wide + x]);
            sum = over_lanes(sum);
            if (lane == 0) gradients[at.weights + weight] = sum;
        }
        if (l == 0) break;

        // The delta of a pixel below sums over the results whose filter covers it.
        const int pixels_below = at.height * at.width, groups = divided_up(at.channels, TOGETHER);
        const Convolution& under = ((const Convolution*)table)[l - 1];
        for (int item = threadIdx.x; item < groups * pixels_below; item += blockDim.x) {
            const int c = item / pixels_below * TOGETHER, pixel = item % pixels_below;
            const int row = pixel / at.width + at.before, column = pixel % at.width + at.before;
            float sums[TOGETHER] = {};
            int w[TOGETHER];
#pragma unroll
            for (int q = 0; q < TOGETHER; q++) w[q] = min(c + q, at.channels - 1) * at.k * at.k;
            for (int i = 0; i < at.k; i++)
                for (int j = 0; j < at.k; j++) {
                    const int y = row - i, x = column - j;
                    if (y < 0 || x < 0 || y % at.stride || x % at.stride) continue;
                    if (y / at.stride >= at.high || x / at.stride >= at.wide) continue;
                    const float* seen_by = above + y / at.stride * at.wide + x / at.stride;
                    for (int o = 0; o < at.count; o++) {
                        const float d = seen_by[o * pixels];
                        const int tap = o * taps + i * at.k + j;
#pragma unroll
                        for (int q = 0; q < TOGETHER; q++) sums[q] += d * W[w[q] + tap];
                    }
                }
#pragma unroll
            for (int q = 0; q < TOGETHER; q++)
                if (c + q < at.channels) {
                    const int place = (c + q) * pixels_below + pixel;
                    deltas[at.from + place] = sums[q] * slope(under.activation, below[place]);
                }
        }
        __syncthreads();
    }
}

// blockIdx.z is a dense layer, as in dense_graph.cu's update; the last one is all filters. `taken` counts the steps
// before the recording, `step` those within it, from 0.
extern "C" __global__ void update_all(float* parameters, float* M, float* V, const float* __restrict__ inputs,
                                      const float* __restrict__ A, const float* __restrict__ D,
                                      const int* __restrict__ layers, int dense_layers,
                                      const float* __restrict__ gradients, int filter_numbers, int batch,
                                      const float* __restrict__ rate, const int* __restrict__ taken, int step, int adam,
                                      float beta_1, float rest_1, float log_1, float beta_2, float rest_2, float log_2,
                                      float epsilon) {
    __shared__ float parts[WARPS * TILE(32)];
    // rest is 1 − β, and log is log β. cₖ = 1 − βₖᵗ: expm1f() keeps its digits where β is near 1.
    const float t = (float)(*taken + step + 1), c1 = -expm1f(t * log_1), c2 = -expm1f(t * log_2);
    auto move = [&](int place, float sum, float w) {
        const float gradient = sum / batch;
        if (!adam) {
            parameters[place] = w - *rate * gradient;
            return;
        }
        const float m = M[place] = beta_1 * M[place] + rest_1 * gradient;
        const float v = V[place] = beta_2 * V[place] + rest_2 * gradient * gradient;
        parameters[place] = w - *rate * (m / c1) / (sqrtf(v / c2) + epsilon);
    };
    if (blockIdx.z < dense_layers) {
        with_gradients(parts, parameters, inputs, A, D, layers, batch, move);
        return;
    }
    const int first = (blockIdx.x * gridDim.y + blockIdx.y) * THREADS + threadIdx.x;
    for (int i = first; i < filter_numbers; i += gridDim.x * gridDim.y * THREADS) {
        float sum = 0.0f;
        for (int s = 0; s < batch; s++) sum += gradients[s * filter_numbers + i];
        move(i, sum, parameters[i]);
    }
}
