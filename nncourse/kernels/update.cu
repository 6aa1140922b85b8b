// sgd_update: W <- W - rate G, in place. One thread per parameter.
extern "C" __global__ void sgd_update_naive(float* W, const float* G, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) W[i] -= rate * G[i];
}
