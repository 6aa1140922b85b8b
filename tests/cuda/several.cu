// Operations with two results, right and wrong (test_several_results.py).
#define EACH int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
extern "C" __global__ void split(const float* x, float* above, int* sign, int n) {
    EACH above[i] = fmaxf(x[i], 0.0f); sign[i] = (x[i] > 0.0f) - (x[i] < 0.0f);
}
extern "C" __global__ void split_writes_one(const float* x, float* above, int* sign, int n) {
    EACH above[i] = fmaxf(x[i], 0.0f);
}
extern "C" __global__ void split_leaves_zeros_out(const float* x, float* above, int* sign, int n) {
    EACH above[i] = fmaxf(x[i], 0.0f); if (x[i] != 0.0f) sign[i] = x[i] > 0.0f ? 1 : -1;
}
extern "C" __global__ void split_sign_wrong(const float* x, float* above, int* sign, int n) {
    EACH above[i] = fmaxf(x[i], 0.0f); sign[i] = x[i] > 0.0f;
}
extern "C" __global__ void decay(float* V, const float* G, float rate, float* size, int n) {
    EACH V[i] = rate * V[i] + G[i]; size[i] = fabsf(V[i]);
}
extern "C" __global__ void decay_not_in_place(float* V, const float* G, float rate, float* size, int n) {
    EACH size[i] = fabsf(rate * V[i] + G[i]);
}
extern "C" __global__ void decay_size_of_before(float* V, const float* G, float rate, float* size, int n) {
    EACH size[i] = fabsf(V[i]); V[i] = rate * V[i] + G[i];
}
