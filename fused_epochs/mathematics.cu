// Included by all CUDA kernels of epochs: activations, their derivatives, gradients of costs, sums over lanes, loops
// over layers. The codes are compile-time constants or the same in a whole launch, so these branches do not diverge.

enum Activation { IDENTITY, STEP, SIGMOID, TANH, RELU, LEAKY_RELU, SOFTPLUS, SOFTMAX };
enum Cost { MSE, MAE, CROSS_ENTROPY };

// __expf and __fdividef are fast intrinsics: their error is larger by a few roundings.
__device__ float activate(int code, float z) {
    if (code == STEP) return z > 0.0f ? 1.0f : 0.0f;
    if (code == SIGMOID) return __fdividef(1.0f, 1.0f + __expf(-z));
    if (code == TANH) return tanhf(z);
    if (code == RELU) return fmaxf(z, 0.0f);
    if (code == LEAKY_RELU) return z > 0.0f ? z : ALPHA * z;
    if (code == SOFTPLUS) return fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z)));
    return z;  // softmax needs the whole row: the kernels compute it themselves
}

// σ'(z), computed from a = σ(z), so that no kernel has to store z.
__device__ float slope(int code, float a) {
    if (code == STEP) return 0.0f;
    if (code == SIGMOID) return a * (1.0f - a);
    if (code == TANH) return 1.0f - a * a;
    if (code == RELU) return a > 0.0f ? 1.0f : 0.0f;
    if (code == LEAKY_RELU) return a > 0.0f ? 1.0f : ALPHA;
    if (code == SOFTPLUS) return 1.0f - expf(-a);
    return 1.0f;
}

__device__ float cost_gradient(int code, float a, float y) { return code == MAE ? (a > y) - (a < y) : a - y; }

__device__ constexpr int divided_up(int number, int by) { return (number + by - 1) / by; }

// Sums z[0 … COUNT) over WIDTH adjacent lanes. After each round a lane continues with half of its sums, so COUNT sums
// cost little more than COUNT shuffles. At the end a lane holds the sums `first` to `end` - 1, from z[0] on; some
// lanes hold none if there are fewer sums than lanes.
template <int COUNT, int WIDTH>
__device__ void add_over_lanes(float* z, int lane, int& first, int& end) {
    if constexpr (WIDTH > 1) {
        constexpr int HALF = divided_up(COUNT, 2), DISTANCE = WIDTH / 2;
        const bool upper = lane & DISTANCE;
#pragma unroll
        for (int c = 0; c < HALF; c++) {
            const float low = z[c], high = c + HALF < COUNT ? z[c + HALF] : 0.0f;
            z[c] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, DISTANCE);
        }
        if (upper) first += HALF;
        else end = min(end, first + HALF);
        add_over_lanes<HALF, DISTANCE>(z, lane, first, end);
    }
}

// The number of sums that a lane has after add_over_lanes.
__device__ constexpr int left_over(int count, int lanes) {
    return lanes == 1 ? count : left_over(divided_up(count, 2), lanes / 2);
}

// Compile-time loops over layers, so that all sizes and offsets are constants: body(Layer<2>()), body(Layer<3>()) …
template <int NUMBER>
struct Layer {
    static constexpr int number = NUMBER;
};
template <int FIRST, int LAST, typename Body>
__device__ void upwards(Body body) {
    if constexpr (FIRST <= LAST) {
        body(Layer<FIRST>());
        upwards<FIRST + 1, LAST>(body);
    }
}
template <int FIRST, int LAST, typename Body>
__device__ void downwards(Body body) {
    if constexpr (FIRST >= LAST) {
        body(Layer<FIRST>());
        downwards<FIRST - 1, LAST>(body);
    }
}
