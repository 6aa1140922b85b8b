// The kernels `tiled` of attention_forward and attention_backward: see attention.cu, which lists all kernels.
// Their functions are in tiles.cu and attention_products.cu, which the compiler reads before this file. A block
// computes 64 x 64 elements of P at a time, or 16 x 16 if P has no more.

// ---- forward: rows of P and O. P first holds the scores, except those of the last tile, which stay in registers.

template <int M>
__device__ void forward_rows(Row* a, Row* b, const float* Q, const float* K, const float* V, float* O, float* P,
                             int i0, int t, int d, int causal) {
    int y = i0 + first_row<M>(), x = first_column();
    int last = ((causal ? min(t, i0 + 16 * M) : t) - 1) / (16 * M) * 16 * M;
    float s[M][2 * M], top[M], total[M] = {}, shrink[M];
    for (int m = 0; m < M; m++) top[m] = -INFINITY;
    for (int j0 = 0; j0 <= last; j0 += 16 * M) {
        scores_of(s, a, b, Q, i0, K, j0, t, d, causal);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < 2 * M; n++)
                if (j0 < last && y + 4 * m < t) P[(size_t)(y + 4 * m) * t + j0 + x + 8 * n] = s[m][n];
        exponentials(s, top, total, shrink);
    }
    for (int m = 0; m < M; m++) total[m] = 1.0f / sum_of_row(total[m]);
    for (int c0 = 0; c0 < d; c0 += SIDE) {
        float sums[M][8] = {};
        for (int j0 = last; j0 >= 0; j0 -= 16 * M) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < 2 * M; n++) {
                    int i = y + 4 * m, j = j0 + x + 8 * n;
                    bool inside = i < t && j < t;
                    float* p = P + (size_t)i * t + j;
                    if (j0 < last || c0 > 0) s[m][n] = inside ? *p : 0.0f;
                    if (c0 > 0) continue;
                    if (j0 < last) s[m][n] = __expf(s[m][n] - top[m]);
                    s[m][n] *= total[m];
                    if (inside) *p = s[m][n];
                }
            store(a, s);
            rows_by_columns_of(sums, a, b, V, j0, c0, t, d);
        }
        put(sums, O, y, 4, c0, t, d);
    }
    for (int i = i0 + threadIdx.x / 32; i < min(t, i0 + 16 * M); i += THREADS / 32)
        for (int j = last + 16 * M + threadIdx.x % 32; j < t; j += 32) P[(size_t)i * t + j] = 0.0f;
}

extern "C" __global__ __launch_bounds__ (THREADS) void attention_forward_tiled(
    const float* Q, const float* K, const float* V, float* O, float* P, int batch, int heads, int t, int d, int causal) {
    alignas(16) __shared__ Row a[SIDE], b[SIDE];
    int head = head_of_block(batch * heads), i0 = query_of_block(batch * heads, t);
    size_t first = (size_t)head * t * d, of_P = (size_t)head * t * t;
    if (t <= 16)
        forward_rows<1>(a, b, Q + first, K + first, V + first, O + first, P + of_P, i0, t, d, causal);
    else
        forward_rows<4>(a, b, Q + first, K + first, V + first, O + first, P + of_P, i0, t, d, causal);
}

// ---- backward: a block goes through all tiles of a head, twice through each row of tiles: first for the sums of rows.
// It adds up the gradients in global memory, which no other block touches. A tile of P that is all 0 adds nothing.

// A tile of P and, unless all of it is 0, of dP = D V^T. Returns false if all of P's tile is 0.
template <int M>
__device__ bool weights_of(float (&p)[M][2 * M], float (&dP)[M][2 * M], Row* a, Row* b, const float* P, const float* D, int i0,
                           const float* V, int j0, int t, int d) {
    bool some = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < 2 * M; n++) {
            int i = i0 + first_row<M>() + 4 * m, j = j0 + first_column() + 8 * n;
            p[m][n] = i < t && j < t ? P[(size_t)i * t + j] : 0.0f;
            some |= p[m][n] != 0.0f;
        }
    some = __syncthreads_or(some);
    if (some) rows_by_rows(dP, a, b, D, i0, V, j0, t, d);
    return some;
}

template <int M>
__device__ void backward_head(Row* a, Row* b, const float* D, const float* Q, const float* K, const float* V,
                              const float* P, float* dQ, float* dK, float* dV, int t, int d) {
    int last = (t - 1) / (16 * M) * 16 * M, adjacent = first_adjacent<M>();
    float scale = 1.0f / sqrtf(d), p[M][2 * M], dS[M][2 * M];
    for (int i0 = 0; i0 < t; i0 += 16 * M) {
        float mean[M] = {};
        bool some;
        for (int j0 = 0; j0 <= last; j0 += 16 * M)
            if (some = weights_of(p, dS, a, b, P, D, i0, V, j0, t, d))
                for (int m = 0; m < M; m++)
                    for (int n = 0; n < 2 * M; n++) mean[m] += p[m][n] * dS[m][n];
        for (int m = 0; m < M; m++) mean[m] = sum_of_row(mean[m]);
        for (int j0 = last; j0 >= 0; j0 -= 16 * M) {  // from the tile that is still in registers
            if (j0 < last) some = weights_of(p, dS, a, b, P, D, i0, V, j0, t, d);
            if (some) {
                store(a, p);
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < 2 * M; n++) dS[m][n] = p[m][n] * (dS[m][n] - mean[m]) * scale;
            }
            for (int c0 = 0; c0 < d; c0 += SIDE) {
                float sums[M][8] = {};
                if (some) columns_by_columns_of(sums, a, b, D, i0, c0, t, d);
                if (some || i0 == 0) put(sums, dV, j0 + adjacent, 1, c0, t, d, i0 > 0);
            }
            if (some) {
                __syncthreads();
                store(a, dS);
            }
            for (int c0 = 0; c0 < d; c0 += SIDE) {
                float of_Q[M][8] = {}, of_K[M][8] = {};
                if (some) rows_by_columns_of(of_Q, a, b, K, j0, c0, t, d);
                if (some || j0 == last) put(of_Q, dQ, i0 + first_row<M>(), 4, c0, t, d, j0 < last);
                if (some) columns_by_columns_of(of_K, a, b, Q, i0, c0, t, d);
                if (some || i0 == 0) put(of_K, dK, j0 + adjacent, 1, c0, t, d, i0 > 0);
            }
        }
    }
}

// Three blocks fit on a multiprocessor at once.
extern "C" __global__ __launch_bounds__ (THREADS, 3) void attention_backward_tiled(
    const float* D, const float* Q, const float* K, const float* V, const float* P, float* dQ, float* dK, float* dV,
    int batch, int heads, int t, int d) {
    alignas(16) __shared__ Row a[SIDE], b[SIDE];
    size_t first = (size_t)blockIdx.x * t * d, of_P = (size_t)blockIdx.x * t * t;
    D += first, Q += first, K += first, V += first, P += of_P, dQ += first, dK += first, dV += first;
    if (t <= 16)
        backward_head<1>(a, b, D, Q, K, V, P, dQ, dK, dV, t, d);
    else
        backward_head<4>(a, b, D, Q, K, V, P, dQ, dK, dV, t, d);
}
