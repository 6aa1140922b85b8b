// Attention. Q, K, V, O and their gradients (batch, heads, t, d), P (batch, heads, t, t); a head belongs to a sample.
//   naive    attention_forward, fused_attention: a thread computes one row; attention_backward: a block computes one head
//   rows     split_heads, merge_heads: a block moves all numbers of one position
//   shared   fused_attention: a thread computes one row; keys and values pass through shared memory
//   tiled    in attention_tiles.cu and fused_attention.cu
//   nncourse check attention_forward       against the reference
//   nncourse time attention_forward        against this machine's limits

// H[p, s, h, i, k] = A[s, i, p, h, k]
extern "C" __global__ void split_heads_rows(const float* A, float* H, int batch, int t, int parts, int heads, int d) {
    int s = blockIdx.x / t, i = blockIdx.x % t, n = parts * heads * d;
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
        int p = e / d / heads, h = e / d % heads, k = e % d;
        H[(((size_t)(p * batch + s) * heads + h) * t + i) * d + k] = A[(size_t)blockIdx.x * n + e];
    }
}

// A[s, i, p, h, k] = H[p, s, h, i, k]
extern "C" __global__ void merge_heads_rows(const float* H, float* A, int parts, int batch, int heads, int t, int d) {
    int s = blockIdx.x / t, i = blockIdx.x % t, n = parts * heads * d;
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
        int p = e / d / heads, h = e / d % heads, k = e % d;
        A[(size_t)blockIdx.x * n + e] = H[(((size_t)(p * batch + s) * heads + h) * t + i) * d + k];
    }
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

// Each thread takes rows of dS, which give dQ, then columns of dS, which give dK. Columns need the sums of all rows.
// dV is computed last; until then the first number of each row of dV holds the sum of that row of dS.
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

// Online softmax: the sums so far contain exp(score - top), where top is the largest score so far. A larger score
// shrinks them. The first score makes them 0, since exp(-INFINITY) is 0.
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

// A block takes QUERIES queries of one head, each thread one, with its sums in registers. Keys pass through shared memory,
// KEYS at a time. Wide rows pass PART numbers at a time; then the scores are computed again for each PART columns of O.
#define QUERIES 128
#define KEYS 16
#define PART 64

// All threads load `rows` rows of a matrix (t, d), from row `first` and column `c` on, with zeros past its ends. A row
// of PART + 4 numbers begins at a multiple of 16 bytes, so a thread can read four at once; eight rows use all banks.
__device__ void bring(float (*tile)[PART + 4], int rows, const float* matrix, int first, int c, int t, int d) {
    for (int e = threadIdx.x; e < rows * PART; e += blockDim.x) {
        int i = first + e / PART, k = c + e % PART;
        tile[e / PART][e % PART] = i < t && k < d ? matrix[(size_t)i * d + k] : 0.0f;
    }
}

extern "C" __global__ void fused_attention_shared(const float* Q, const float* K, const float* V, float* O, int batch,
                                                  int heads, int t, int d, int causal) {
    alignas(16) __shared__ float q[QUERIES][PART + 4], k[KEYS][PART + 4], v[KEYS][PART + 4];
    int blocks = (t + QUERIES - 1) / QUERIES, i0 = blockIdx.x % blocks * QUERIES, i = i0 + threadIdx.x;
    size_t first = (size_t)(blockIdx.x / blocks) * t * d;
    int end = causal ? min(t, i0 + QUERIES) : t;  // no query of the block sees a key from there on
    for (int c = 0; c < d; c += PART) {
        float o[PART] = {}, top = -INFINITY, total = 0.0f;
        for (int j0 = 0; j0 < end; j0 += KEYS) {
            float s[KEYS] = {};
            __syncthreads();  // nobody refills v before all have read
            bring(v, KEYS, V + first, j0, c, t, d);
            for (int part = 0; part < d; part += PART) {
                bring(q, QUERIES, Q + first, i0, part, t, d);
                bring(k, KEYS, K + first, j0, part, t, d);
                __syncthreads();
                float mine[PART];  // its query, in registers
#pragma unroll
                for (int n = 0; n < PART; n++) mine[n] = q[threadIdx.x][n];
#pragma unroll
                for (int j = 0; j < KEYS; j++)
#pragma unroll
                    for (int n = 0; n < PART; n++) s[j] += mine[n] * k[j][n];
                __syncthreads();
            }
            float larger = top;
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                s[j] = j0 + j < t && (!causal || j0 + j <= i) ? s[j] / sqrtf(d) : -INFINITY;
                larger = fmaxf(larger, s[j]);
            }
            float shrink = expf(top - larger);
            total *= shrink;
#pragma unroll
            for (int n = 0; n < PART; n++) o[n] *= shrink;
#pragma unroll
            for (int j = 0; j < KEYS; j++) {
                float weight = expf(s[j] - larger);
                total += weight;
#pragma unroll
                for (int n = 0; n < PART; n++) o[n] += weight * v[j][n];
            }
            top = larger;
        }
#pragma unroll
        for (int n = 0; n < PART; n++)
            if (i < t && c + n < d) O[first + (size_t)i * d + c + n] = o[n] / total;
    }
}
