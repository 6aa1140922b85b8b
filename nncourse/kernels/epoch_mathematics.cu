// What the kernels of train_epoch share: activations, their slopes, the gradients of costs. The codes are known when a
// kernel is compiled or do not differ within a launch, so no warp is split by the questions here.

enum Activation { IDENTITY, STEP, SIGMOID, TANH, RELU, LEAKY_RELU, SOFTPLUS, SOFTMAX };
enum Cost { MSE, MAE, CROSS_ENTROPY };

// __expf and __fdividef are the GPU's own, quick functions; they are a few roundings less exact.
__device__ float activate(int code, float z) {
    if (code == STEP) return z > 0.0f ? 1.0f : 0.0f;
    if (code == SIGMOID) return __fdividef(1.0f, 1.0f + __expf(-z));
    if (code == TANH) return tanhf(z);
    if (code == RELU) return fmaxf(z, 0.0f);
    if (code == LEAKY_RELU) return z > 0.0f ? z : ALPHA * z;
    if (code == SOFTPLUS) return fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z)));
    return z;  // softmax needs the whole row: its kernels see to that
}

// σ'(z), told from a = σ(z): so no kernel has to keep z.
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
