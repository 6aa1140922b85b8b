// A step of dense_sgd_epoch on several GPUs (dense_peers.py). Launches, in this order:
//   forward            A = σ(A_below Wᵀ + b), once for each hidden layer
//   forward_to_deltas  the same for the output layer, and its deltas D
//   softmax_to_deltas  instead, for softmax outputs: they need the whole row, so `forward` computes z first
//   hidden_deltas      D_below = (D W) ⊙ σ'(A_below), once for each hidden layer, from the last to the first
//   gradients          sum the gradients over this GPU's rows
//   all_reduce         add them over all GPUs: all_reduce.cu
//   descend            W ← W − rate dC/dW, on every GPU with the same bits
//
//   make test FILES=tests/test_peer.py        one GPU, or the emulator, simulates several
//   python -m benchmarks.data_parallel        on several GPUs
//
// A launch costs as much time as one of these small products. So bias, activation and slope are fused into the
// products and applied to each sum before it is written. The results do not depend on the order of threads.
//
// A (batch, n) are activations, D (batch, n) deltas, W (n_out, n_in) the weights of a layer, row-major.

#define WARPS (THREADS / 32)
#define TILE(across) (SIDE * SIDE * (across))  // elements that a block computes

// Computes a block's tile of a product: the sums over k of left(i, k) right(k, j), for SIDE rows i and SIDE × ACROSS
// columns j. done(i, j, sum, early) is called for each element, with the value that early(i, j) has read beforehand.
//
// Small products are limited by memory latency, not by arithmetic. So the threads divide k among them, and each issues
// the loads of AHEAD steps along k before it uses the first. It computes SIDE × SIDE sums, so each loaded element is
// used SIDE times. ACROSS adjacent threads have adjacent columns, the others divide k: ACROSS is 1 if both factors are
// contiguous along k, and 32 if the right factor is contiguous along j. In both cases the reads of a warp coalesce.
// Rows and columns past the edge are computed from the last ones, and not stored.
template <int ACROSS, typename Left, typename Right, typename Early, typename Done>
__device__ void product(float* parts, int rows, int columns, int depth, Left left, Right right, Early early,
                        Done done) {
    constexpr int WIDTH = SIDE * ACROSS, STEP = THREADS / ACROSS, ROUNDS = (TILE(ACROSS) + THREADS - 1) / THREADS;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int i0 = blockIdx.x * SIDE, j0 = blockIdx.y * WIDTH;
    // At the end a thread handles elements e = thread, thread + THREADS … of the tile: row e / WIDTH, column e % WIDTH.
    auto is_there = [&](int e) { return e < TILE(ACROSS) && i0 + e / WIDTH < rows && j0 + e % WIDTH < columns; };
    float before[ROUNDS];
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        const int e = round * THREADS + thread;
        before[round] = is_there(e) ? early(i0 + e / WIDTH, j0 + e % WIDTH) : 0.0f;
    }

    float sums[SIDE * SIDE] = {};
    for (int k0 = thread / ACROSS; k0 < depth; k0 += AHEAD * STEP) {
        float l[AHEAD][SIDE], r[AHEAD][SIDE];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int k = min(k0 + a * STEP, depth - 1);
#pragma unroll
            for (int m = 0; m < SIDE; m++) {
                l[a][m] = left(min(i0 + m, rows - 1), k);
                r[a][m] = right(k, min(j0 + m * ACROSS + thread % ACROSS, columns - 1));
            }
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (k0 + a * STEP < depth)
#pragma unroll
                for (int e = 0; e < SIDE * SIDE; e++) sums[e] += l[a][e / SIDE] * r[a][e % SIDE];
    }

    if constexpr (ACROSS == 1) {
        int first = 0, end = SIDE * SIDE;
        add_over_lanes<SIDE * SIDE, 32>(sums, lane, first, end);
        // Each sum ends up in one lane; if there are fewer sums than lanes, the other lanes have none.
        if (first < end) parts[warp * TILE(1) + first] = sums[0];
    } else {
#pragma unroll
        for (int e = 0; e < SIDE * SIDE; e++) parts[warp * TILE(ACROSS) + e * ACROSS + lane] = sums[e];
    }
    __syncthreads();  // each warp has stored its part of the sums
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        const int e = round * THREADS + thread;
        if (!is_there(e)) continue;
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < WARPS; part++) sum += parts[part * TILE(ACROSS) + e];
        done(i0 + e / WIDTH, j0 + e % WIDTH, sum, before[round]);
    }
}

// ---- forward: rows are samples, columns are neurons, k runs over inputs

template <typename Done>
__device__ void weighted_sums(float* parts, const float* A, const float* W, const float* b, int batch, int n_in,
                              int n_out, Done done) {
    product<1>(
        parts, batch, n_out, n_in, [&](int s, int k) { return A[s * n_in + k]; },
        [&](int k, int j) { return W[j * n_in + k]; }, [&](int s, int j) { return b[j]; },
        [&](int s, int j, float sum, float bias) { done(s * n_out + j, sum + bias); });
}

extern "C" __global__ void forward(const float* __restrict__ A_below, const float* __restrict__ W,
                                   const float* __restrict__ b, float* A, int batch, int n_in, int n_out,
                                   int activation) {
    __shared__ float parts[WARPS * TILE(1)];
    weighted_sums(parts, A_below, W, b, batch, n_in, n_out, [&](int at, float z) { A[at] = activate(activation, z); });
}

extern "C" __global__ void forward_to_deltas(const float* __restrict__ A_below, const float* __restrict__ W,
                                             const float* __restrict__ b, const float* __restrict__ Y, float* D,
                                             int batch, int n_in, int n_out, int activation, int cost) {
    __shared__ float parts[WARPS * TILE(1)];
    weighted_sums(parts, A_below, W, b, batch, n_in, n_out, [&](int at, float z) {
        const float a = activate(activation, z), g = cost_gradient(cost, a, Y[at]);
        D[at] = cost == CROSS_ENTROPY ? g : g * slope(activation, a);
    });
}

// One warp per sample: computes a = softmax(z) from z, which is stored in D, and from a the deltas of the outputs.
extern "C" __global__ void softmax_to_deltas(float* D, const float* Y, int n_out, int cost) {
    float* d = D + blockIdx.x * n_out;
    const float* y = Y + blockIdx.x * n_out;
    float top = -INFINITY, total = 0.0f, mean = 0.0f;
    for (int j = threadIdx.x; j < n_out; j += 32) top = fmaxf(top, d[j]);
    for (int distance = 16; distance > 0; distance /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
    for (int j = threadIdx.x; j < n_out; j += 32) total += d[j] = expf(d[j] - top);
    for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(~0u, total, distance);
    for (int j = threadIdx.x; j < n_out; j += 32) {
        d[j] /= total;
        mean += cost_gradient(cost, d[j], y[j]) * d[j];
    }
    for (int distance = 16; distance > 0; distance /= 2) mean += __shfl_xor_sync(~0u, mean, distance);
    for (int j = threadIdx.x; j < n_out; j += 32) {
        const float a = d[j], g = cost_gradient(cost, a, y[j]);
        d[j] = cost == CROSS_ENTROPY ? g : a * (g - mean);
    }
}

// ---- backward: (4b); rows are samples, columns are neurons of the layer below, k runs over those of the layer above

extern "C" __global__ void hidden_deltas(const float* __restrict__ D, const float* __restrict__ W,
                                         const float* __restrict__ A_below, float* D_below, int batch, int n_in,
                                         int n_out, int activation) {
    __shared__ float parts[WARPS * TILE(32)];
    product<32>(
        parts, batch, n_in, n_out, [&](int s, int k) { return D[s * n_out + k]; },
        [&](int k, int j) { return W[k * n_in + j]; }, [&](int s, int j) { return A_below[s * n_in + j]; },
        [&](int s, int j, float sum, float a) { D_below[s * n_in + j] = sum * slope(activation, a); });
}

// ---- gradients of all weights: (4d) and (4c); rows are neurons, columns are inputs, k runs over samples. The bias is the
// weight of one more input, which is always 1. blockIdx.z is the layer's row in `layers`: n_in, n_out, and the offsets
// of its parameters, its deltas and the activations below, which for the first layer are X instead of A.

// `scale` is 1 / the number of rows of all GPUs, so the gradients of all GPUs add up to the mean over the batch.
extern "C" __global__ void gradients(float* gradient, const float* __restrict__ X, const float* __restrict__ A,
                                     const float* __restrict__ D, const int* __restrict__ layers, int batch,
                                     float scale) {
    __shared__ float parts[WARPS * TILE(32)];
    const int* layer = layers + 5 * blockIdx.z;
    const int n_in = layer[0], n_out = layer[1];
    if (blockIdx.x * SIDE >= n_out || blockIdx.y * SIDE * 32 > n_in) return;  // the grid fits the largest layer
    const float *deltas = D + layer[3], *below = blockIdx.z == 0 ? X : A + layer[4];
    auto place = [&](int j, int i) { return layer[2] + (i < n_in ? j * n_in + i : n_out * n_in + j); };  // b follows W
    product<32>(
        parts, n_out, n_in + 1, batch, [&](int j, int s) { return deltas[s * n_out + j]; },
        [&](int s, int i) {
            const float a = below[s * n_in + min(i, n_in - 1)];  // read by all threads, to avoid divergence
            return i < n_in ? a : 1.0f;
        },
        [&](int, int) { return 0.0f; }, [&](int j, int i, float sum, float) { gradient[place(j, i)] = scale * sum; });
}

// One thread per parameter.
extern "C" __global__ void descend(float* parameters, const float* __restrict__ gradient, int p, float rate) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p) parameters[i] -= rate * gradient[i];
}
