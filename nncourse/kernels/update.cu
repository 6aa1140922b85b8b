// Updates of parameters, in place.
//   naive   a thread updates one parameter
//   nncourse check sgd_update       against the reference
//   nncourse time sgd_update        against this machine's limits

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

// Adam: M and V are running means of G and of its square; c1 and c2 correct for their start at 0.
__device__ void adam(float* W, const float* G, float* M, float* V, float rate, float c1, float c2, float beta1,
                     float beta2, float epsilon, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = G[i];
    float m = beta1 * M[i] + (1.0f - beta1) * g;
    float v = beta2 * V[i] + (1.0f - beta2) * g * g;
    M[i] = m;
    V[i] = v;
    W[i] -= rate * (m / c1) / (sqrtf(v / c2) + epsilon);
}

// adam_update: with 0.9, 0.999 and 1e-8, which update.py defines.
extern "C" __global__ void adam_update_naive(float* W, const float* G, float* M, float* V, float rate, float c1,
                                             float c2, int n) {
    adam(W, G, M, V, rate, c1, c2, BETA_1, BETA_2, EPSILON, n);
}

// general_adam_update: with any others.
extern "C" __global__ void general_adam_update_naive(float* W, const float* G, float* M, float* V, float rate, float c1,
                                                     float c2, float beta1, float beta2, float epsilon, int n) {
    adam(W, G, M, V, rate, c1, c2, beta1, beta2, epsilon, n);
}

// rmsprop_update: V is the running mean of the square of G.
extern "C" __global__ void rmsprop_update_naive(float* W, const float* G, float* V, float rate, float beta,
                                                float epsilon, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = G[i];
    float v = beta * V[i] + (1.0f - beta) * g * g;
    V[i] = v;
    W[i] -= rate * g / (sqrtf(v) + epsilon);
}

// adagrad_update: V is the sum of the squares of G.
extern "C" __global__ void adagrad_update_naive(float* W, const float* G, float* V, float rate, float epsilon, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = G[i];
    float v = V[i] + g * g;
    V[i] = v;
    W[i] -= rate * g / (sqrtf(v) + epsilon);
}
