// The kernel `tiled` of fused_attention: see attention.cu, which lists all kernels. Its functions are in tiles.cu and
// attention_products.cu, which the compiler reads before this file.
// A block takes 64 queries and goes through the keys, 64 at a time. Scores are in registers. Their exponentials
// go to shared memory, in place of the queries, where they are a factor of the product with V.

template <int M>
__device__ void fused_rows(Row* a, Row* b, const float* Q, const float* K, const float* V, float* O, int i0, int t,
                           int d, int causal) {
    for (int c0 = 0; c0 < d; c0 += SIDE) {
        float s[M][2 * M], sums[M][8] = {}, top[M], total[M] = {}, shrink[M];
        for (int m = 0; m < M; m++) top[m] = -INFINITY;
        for (int j0 = 0; j0 < (causal ? min(t, i0 + 16 * M) : t); j0 += 16 * M) {
            scores_of(s, a, b, Q, i0, K, j0, t, d, causal);
            exponentials(s, top, total, shrink);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < 8; n++) sums[m][n] *= shrink[m];
            store(a, s);
            rows_by_columns_of(sums, a, b, V, j0, c0, t, d);
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            float factor = 1.0f / sum_of_row(total[m]);
#pragma unroll
            for (int n = 0; n < 8; n++) sums[m][n] *= factor;
        }
        put(sums, O, i0 + first_row<M>(), 4, c0, t, d);
    }
}

extern "C" __global__ __launch_bounds__ (THREADS) void fused_attention_tiled(
    const float* Q, const float* K, const float* V, float* O, int batch, int heads, int t, int d, int causal) {
    alignas(16) __shared__ Row a[SIDE], b[SIDE];
    int head = head_of_block(batch * heads), i0 = query_of_block(batch * heads, t);
    size_t first = (size_t)head * t * d;
    if (t <= 16)
        fused_rows<1>(a, b, Q + first, K + first, V + first, O + first, i0, t, d, causal);
    else
        fused_rows<4>(a, b, Q + first, K + first, V + first, O + first, i0, t, d, causal);
}
