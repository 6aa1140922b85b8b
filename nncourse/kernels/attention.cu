// Attention. Q, K, V, O and their gradients (batch, heads, t, d), P (batch, heads, t, t); a head is one sample's.
//   naive    attention_forward, fused_attention: a thread computes one row; attention_backward: a block computes one head
//   naive    split_heads, merge_heads: a thread moves one number
//   tiled    in attention_tiles.cu
//   nncourse check attention_forward       against the reference
//   nncourse time attention_forward        beside this machine's limits

// H[p, s, h, i, k] = A[s, i, p, h, k]
extern "C" __global__ void split_heads_naive(const float* A, float* H, int batch, int t, int parts, int heads, int d) {
    int to = blockIdx.x * blockDim.x + threadIdx.x;
    if (to >= batch * t * parts * heads * d) return;
    int k = to % d, i = to / d % t, h = to / d / t % heads, s = to / d / t / heads % batch, p = to / d / t / heads / batch;
    H[to] = A[(((s * t + i) * parts + p) * heads + h) * d + k];
}

// A[s, i, p, h, k] = H[p, s, h, i, k]
extern "C" __global__ void merge_heads_naive(const float* H, float* A, int parts, int batch, int heads, int t, int d) {
    int to = blockIdx.x * blockDim.x + threadIdx.x;
    if (to >= batch * t * parts * heads * d) return;
    int k = to % d, h = to / d % heads, p = to / d / heads % parts, i = to / d / heads / parts % t;
    int s = to / d / heads / parts / t;
    A[to] = H[(((p * batch + s) * heads + h) * t + i) * d + k];
}

__device__ float dot(const float* a, const float* b, int n) {
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[k] * b[k];
    return sum;
}

// The row of P first holds the scores, then their exponentials, then these divided by their sum.
extern "C" __global__ void attention_forward_naive(const float* Q, const float* K, const float* V, float* O, float* P,
                                                   int batch, int heads, int t, int d, int causal) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch * heads * t) return;
    int i = row % t, seen = causal ? i + 1 : t;
    const float *q = Q + (size_t)row * d, *keys = K + (size_t)(row - i) * d, *values = V + (size_t)(row - i) * d;
    float *o = O + (size_t)row * d, *p = P + (size_t)row * t;
    float root = sqrtf(d), top = -INFINITY, total = 0.0f;
    for (int j = 0; j < seen; j++) {
        p[j] = dot(q, keys + j * d, d) / root;
        top = fmaxf(top, p[j]);
    }
    for (int j = 0; j < seen; j++) {
        p[j] = expf(p[j] - top);
        total += p[j];
    }
    for (int j = 0; j < t; j++) p[j] = j < seen ? p[j] / total : 0.0f;
    for (int k = 0; k < d; k++) {
        float sum = 0.0f;
        for (int j = 0; j < seen; j++) sum += p[j] * values[j * d + k];
        o[k] = sum;
    }
}

// Each thread takes rows of dS, which give dQ, then columns of dS, which give dK. The columns need the sums of all rows:
// until dV is computed, last, the first number of each of its rows holds the sum of that row.
extern "C" __global__ void attention_backward_naive(const float* D, const float* Q, const float* K, const float* V,
                                                    const float* P, float* dQ, float* dK, float* dV, int batch,
                                                    int heads, int t, int d) {
    size_t first = (size_t)blockIdx.x * t * d;
    const float *deltas = D + first, *queries = Q + first, *keys = K + first, *values = V + first;
    const float* weights = P + (size_t)blockIdx.x * t * t;
    float *sums = dV + first, root = sqrtf(d);
    for (int i = threadIdx.x; i < t; i += blockDim.x) {
        float sum = 0.0f;
        for (int j = 0; j < t; j++) sum += weights[i * t + j] * dot(deltas + i * d, values + j * d, d);
        sums[i * d] = sum;
        for (int k = 0; k < d; k++) dQ[first + i * d + k] = 0.0f;
        for (int j = 0; j < t; j++) {
            float dS = weights[i * t + j] * (dot(deltas + i * d, values + j * d, d) - sum);
            for (int k = 0; k < d; k++) dQ[first + i * d + k] += dS * keys[j * d + k] / root;
        }
    }
    __syncthreads();
    for (int j = threadIdx.x; j < t; j += blockDim.x) {
        for (int k = 0; k < d; k++) dK[first + j * d + k] = 0.0f;
        for (int i = 0; i < t; i++) {
            float dS = weights[i * t + j] * (dot(deltas + i * d, values + j * d, d) - sums[i * d]);
            for (int k = 0; k < d; k++) dK[first + j * d + k] += dS * queries[i * d + k] / root;
        }
    }
    __syncthreads();
    for (int j = threadIdx.x; j < t; j += blockDim.x)
        for (int k = 0; k < d; k++) {
            float sum = 0.0f;
            for (int i = 0; i < t; i++) sum += weights[i * t + j] * deltas[i * d + k];
            dV[first + j * d + k] = sum;
        }
}

// Online softmax: the sums so far are those of exp(score - top), with the largest score so far. If a larger one comes,
// they shrink. The first score makes them 0: exp(-INFINITY) is 0.
extern "C" __global__ void fused_attention_naive(const float* Q, const float* K, const float* V, float* O, int batch,
                                                 int heads, int t, int d, int causal) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch * heads * t) return;
    int i = row % t;
    const float *q = Q + (size_t)row * d, *keys = K + (size_t)(row - i) * d, *values = V + (size_t)(row - i) * d;
    float *o = O + (size_t)row * d, root = sqrtf(d), top = -INFINITY, total = 0.0f;
    for (int k = 0; k < d; k++) o[k] = 0.0f;
    for (int j = 0; j < (causal ? i + 1 : t); j++) {
        float score = dot(q, keys + j * d, d) / root, larger = fmaxf(top, score);
        float shrink = expf(top - larger), weight = expf(score - larger);
        total = total * shrink + weight;
        for (int k = 0; k < d; k++) o[k] = o[k] * shrink + weight * values[j * d + k];
        top = larger;
    }
    for (int k = 0; k < d; k++) o[k] /= total;
}
