// one_block_epoch: an epoch of plain descent for a network n_in - n_hidden - n_out of sigmoids with the squared error.
// X (n, n_in), Y (n, n_out); W1 (n_hidden, n_in), b1, W2 (n_out, n_hidden), b2 change in place.

// One block goes through all steps. The parameters stay in its shared memory; global memory is read once at the start
// and written once at the end. What separate kernels get from the order of launches, the threads of a block get from
// __syncthreads(): all that was written before it can be read after it.
#define INPUTS 32  // at most this many inputs, hidden neurons, outputs, and samples in a batch
#define HIDDEN 32
#define OUTPUTS 4
#define BATCH 16

__device__ float sigmoid(float z) {
    return 1.0f / (1.0f + expf(-z));
}

// All threads copy n numbers.
__device__ void copy(const float* from, float* to, int n) {
    for (int e = threadIdx.x; e < n; e += blockDim.x) to[e] = from[e];
}

extern "C" __global__ void one_block_epoch_shared(float* W1, float* b1, float* W2, float* b2,
                                                  const float* X, const float* Y, float rate,
                                                  int n_hidden, int n_in, int n_out, int n, int batch) {
    __shared__ float w1[HIDDEN * INPUTS], c1[HIDDEN], w2[OUTPUTS * HIDDEN], c2[OUTPUTS];  // the parameters
    __shared__ float h[BATCH * HIDDEN], dh[BATCH * HIDDEN], dz[BATCH * OUTPUTS];          // of a batch
    int t = threadIdx.x, threads = blockDim.x;
    copy(W1, w1, n_hidden * n_in);
    copy(b1, c1, n_hidden);
    copy(W2, w2, n_out * n_hidden);
    copy(b2, c2, n_out);
    __syncthreads();  // nobody reads a parameter before all are there

    for (int first = 0; first < n; first += batch) {
        int m = min(batch, n - first);  // samples of this step
        const float *x = X + first * n_in, *y = Y + first * n_out;

        // 1. Forward, hidden layer: h = sigmoid(x w1^T + c1). A thread computes the elements t, t + threads, ...
        for (int e = t; e < m * n_hidden; e += threads) {
            int i = e / n_hidden, j = e % n_hidden;
            float z = c1[j];
            for (int k = 0; k < n_in; k++) z += x[i * n_in + k] * w1[j * n_in + k];
            h[e] = sigmoid(z);
        }
        __syncthreads();  // an output needs all of its sample's hidden neurons

        // 2. Forward, outputs, and their deltas: dz = (a - y) a (1 - a)
        for (int e = t; e < m * n_out; e += threads) {
            int i = e / n_out, o = e % n_out;
            float z = c2[o];
            for (int j = 0; j < n_hidden; j++) z += h[i * n_hidden + j] * w2[o * n_hidden + j];
            float a = sigmoid(z);
            dz[e] = (a - y[e]) * a * (1.0f - a);
        }
        __syncthreads();  // a hidden delta needs all of its sample's dz

        // 3. Back, hidden layer: dh = (dz w2) h (1 - h)
        for (int e = t; e < m * n_hidden; e += threads) {
            int i = e / n_hidden, j = e % n_hidden;
            float g = 0.0f;
            for (int o = 0; o < n_out; o++) g += dz[i * n_out + o] * w2[o * n_hidden + j];
            dh[e] = g * h[e] * (1.0f - h[e]);
        }
        __syncthreads();  // a gradient needs dh of all samples; and nobody changes w2 while it is read

        // 4. Update: each parameter minus rate times its gradient, the mean over the batch
        for (int e = t; e < n_out * n_hidden; e += threads) {
            int o = e / n_hidden, j = e % n_hidden;
            float g = 0.0f;
            for (int i = 0; i < m; i++) g += dz[i * n_out + o] * h[i * n_hidden + j];
            w2[e] -= rate * g / m;
        }
        for (int o = t; o < n_out; o += threads) {
            float g = 0.0f;
            for (int i = 0; i < m; i++) g += dz[i * n_out + o];
            c2[o] -= rate * g / m;
        }
        for (int e = t; e < n_hidden * n_in; e += threads) {
            int j = e / n_in, k = e % n_in;
            float g = 0.0f;
            for (int i = 0; i < m; i++) g += dh[i * n_hidden + j] * x[i * n_in + k];
            w1[e] -= rate * g / m;
        }
        for (int j = t; j < n_hidden; j += threads) {
            float g = 0.0f;
            for (int i = 0; i < m; i++) g += dh[i * n_hidden + j];
            c1[j] -= rate * g / m;
        }
        __syncthreads();  // the next step begins with the new parameters, and overwrites h
    }

    copy(w1, W1, n_hidden * n_in);
    copy(c1, b1, n_hidden);
    copy(w2, W2, n_out * n_hidden);
    copy(c2, b2, n_out);
}
