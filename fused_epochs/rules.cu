// How a step of each optimizer moves a number; included by the kernels of epochs for any optimizer. rules.py makes the
// constants from a Rule: RULE, MOMENTUM, L2, BETA_1, REST_1 (1 − β₁), LOG_1 (log β₁), BETA_2, REST_2, LOG_2, EPSILON.

enum Rules { SGD, ADAM, RMSPROP, ADAGRAD };
constexpr bool HAS_M = RULE == ADAM, HAS_V = RULE != SGD || MOMENTUM != 0.0f;  // what the optimizer remembers

// Numbers of a step, the same for all parameters: rate / c₁, or the rate; and 1 / c₂.
struct Numbers {
    float step, correction;
};
// Step number t, the first being 1. cₖ = 1 − βₖᵗ: expm1f() keeps its digits where β is near 1.
__device__ Numbers numbers_of(float rate, int t) {
    if constexpr (RULE == ADAM) return {rate / -expm1f((float)t * LOG_1), 1.0f / -expm1f((float)t * LOG_2)};
    return {rate, 1.0f};
}

// The parameter w after a step against dC/dw, the mean over the batch; *m and *v change too. Either may be null if the
// optimizer does not have it.
__device__ float moved(float w, float gradient, float* m, float* v, Numbers at) {
    if constexpr (L2 != 0.0f) gradient += L2 * w;
    if constexpr (RULE == SGD) {
        if constexpr (HAS_V) gradient = *v = MOMENTUM * *v + gradient;
        return w - at.step * gradient;
    } else {
        const float keep = RULE == ADAGRAD ? 1.0f : BETA_2, add = RULE == ADAGRAD ? 1.0f : REST_2;
        const float mean = *v = keep * *v + add * gradient * gradient;
        const float square = RULE == ADAM ? mean * at.correction : mean;
        const float root = square * rsqrtf(fmaxf(square, 1e-37f));  // faster than sqrtf(); its error is a few roundings
        if constexpr (HAS_M) gradient = *m = BETA_1 * *m + REST_1 * gradient;
        return w - __fdividef(at.step * gradient, root + EPSILON);
    }
}
