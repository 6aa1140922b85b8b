// Attention of one new position. q and o (batch, heads, d), K and V (batch, heads, most, d), of which `length` rows count.
//   warp    a warp for each head; its lanes share the keys, then the columns of the result
//   nncourse check attention_step --kernel warp    against the reference

// A lane keeps the largest score of its keys and the sum of their exponentials; then the lanes merge these in pairs.
// After that the lanes compute columns, 32 at a time, and pass each other the weights of 32 keys.
extern "C" __global__ void attention_step_warp(const float* q, const float* K, const float* V, float* o, int batch,
                                               int heads, int d, int most, int length) {
    const unsigned all = 0xffffffff;
    int head = blockIdx.x, lane = threadIdx.x;
    q += (size_t)head * d, o += (size_t)head * d, K += (size_t)head * most * d, V += (size_t)head * most * d;
    float root = sqrtf(d), top = -INFINITY, total = 0.0f;
    for (int c0 = -32; c0 < d; c0 += 32) {  // the first round is only for top and total
        float sum = 0.0f;
        for (int j0 = 0; j0 < length; j0 += 32) {
            float score = 0.0f;
            if (j0 + lane < length)
                for (int k = 0; k < d; k++) score += q[k] * K[(size_t)(j0 + lane) * d + k];
            score = j0 + lane < length ? score / root : -INFINITY;
            if (c0 < 0) {
                float larger = fmaxf(top, score);
                if (larger > -INFINITY) total = total * expf(top - larger) + expf(score - larger);
                top = larger;
                continue;
            }
            float weight = expf(score - top) / total;
            for (int j = 0; j < min(32, length - j0); j++) {
                float each = __shfl_sync(all, weight, j);
                if (c0 + lane < d) sum += each * V[(size_t)(j0 + j) * d + c0 + lane];
            }
        }
        if (c0 >= 0 && c0 + lane < d) o[c0 + lane] = sum;
        for (int distance = 16; distance > 0 && c0 < 0; distance /= 2) {
            float other = __shfl_xor_sync(all, top, distance), more = __shfl_xor_sync(all, total, distance);
            float larger = fmaxf(top, other);
            if (larger > -INFINITY) total = total * expf(top - larger) + more * expf(other - larger);
            top = larger;
        }
    }
}
