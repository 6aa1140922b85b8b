// A step of an optimizer for one parameter, included by the CUDA kernels of network_epoch. rules.py states the constants.

enum Rule { SGD, MOMENTUM, ADAM, RMSPROP, ADAGRAD };
constexpr bool HAS_M = RULE == ADAM, HAS_V = RULE != SGD;

// What differs from step to step: the learning rate, and 1 − β₁ᵗ and 1 − β₂ᵗ for Adam.
struct Numbers {
    float rate, c1, c2;
};
__device__ Numbers numbers_of(float rate, int step) {
    // 1 − βᵗ from log β: expm1f() keeps its digits where β is near 1.
    if (RULE != ADAM) return {rate, 1.0f, 1.0f};
    return {rate, -expm1f(step * LOG_BETA1), -expm1f(step * LOG_BETA2)};
}

// The parameter w after a step along its gradient. M and V are its own; those that the rule does not know are not read.
__device__ float moved(float w, float gradient, float* M, float* V, Numbers at) {
    const float g = L2 > 0.0f ? gradient + L2 * w : gradient;
    if (RULE == SGD) return w - at.rate * g;
    if (RULE == MOMENTUM) return w - at.rate * (*V = BETA1 * *V + g);
    if (RULE == ADAGRAD) return w - at.rate * g / (sqrtf(*V += g * g) + EPSILON);
    const float v = *V = BETA2 * *V + REST2 * g * g;
    if (RULE == RMSPROP) return w - at.rate * g / (sqrtf(v) + EPSILON);
    const float m = *M = BETA1 * *M + REST1 * g;
    return w - at.rate * (m / at.c1) / (sqrtf(v / at.c2) + EPSILON);
}
