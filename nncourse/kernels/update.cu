// Updates of parameters, in place. One thread moves one parameter.

// sgd_update: W <- W - rate G
extern "C" __global__ void sgd_update_naive(float* W, const float* G, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) W[i] -= rate * G[i];
}

// l2_gradient: G <- G + l2 W
extern "C" __global__ void l2_gradient_naive(float* G, const float* W, float l2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) G[i] += l2 * W[i];
}

// momentum_update: V <- momentum V + G, W <- W - rate V
extern "C" __global__ void momentum_update_naive(float* W, const float* G, float* V, float rate, float momentum,
                                                 int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = momentum * V[i] + G[i];
    V[i] = v;
    W[i] -= rate * v;
}

// adam_update: M and V are running means of G and of its square; c1 and c2 correct for their start at 0.
extern "C" __global__ void adam_update_naive(float* W, const float* G, float* M, float* V, float rate, float c1,
                                             float c2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = G[i];
    float m = 0.9f * M[i] + 0.1f * g;
    float v = 0.999f * V[i] + 0.001f * g * g;
    M[i] = m;
    V[i] = v;
    W[i] -= rate * (m / c1) / (sqrtf(v / c2) + 1e-8f);
}
