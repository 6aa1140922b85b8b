// One neuron: its weighted sum, and the perceptron's update rule.
//   tree    neuron: the threads of one block stride over the inputs, then add their sums in a tree: see notebook 04
//   naive   perceptron_update: a thread changes one weight
//   nncourse check neuron       against the reference
//   nncourse time neuron        against this machine's limits

// neuron: z = w x + b, one number from n inputs.
#define THREADS 512

extern "C" __global__ void neuron_tree(const float* x, const float* w, float b, float* z, int n) {
    __shared__ float partial[THREADS];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = t; i < n; i += THREADS) sum += w[i] * x[i];
    partial[t] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        __syncthreads();
    }
    if (t == 0) *z = partial[0] + b;
}

// perceptron_update: w <- w + rate (y - a) x, in place.
extern "C" __global__ void perceptron_update_naive(
    float* w, const float* x, float y, float a, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] += rate * (y - a) * x[i];
}
