// The kernel of notebook 15b that is only an exercise; fused_attention's are in nncourse/kernels/attention.cu.

// softmax_sums: the largest score of each row of S (n, t), and the sum of exp(score - largest). A warp takes a row. Each
// lane carries both numbers over its share of the row. Then all lanes merge theirs in pairs, which are 16, 8, 4, 2 and 1
// apart.
extern "C" __global__ void softmax_sums_warp(const float* S, float* top, float* total, int n, int t) {
    int row = blockIdx.x, lane = threadIdx.x;
    float largest = -INFINITY, sum = 0.0f;
    for (int j = lane; j < t; j += 32) {
        float score = S[row * t + j], larger = fmaxf(largest, score);
        sum = sum * expf(largest - larger) + expf(score - larger);
        largest = larger;
    }
    for (int apart = 16; apart > 0; apart /= 2) {
        float other = __shfl_xor_sync(0xffffffff, largest, apart), more = __shfl_xor_sync(0xffffffff, sum, apart);
        float larger = fmaxf(largest, other);
        if (larger > -INFINITY) sum = sum * expf(largest - larger) + more * expf(other - larger);
        largest = larger;
    }
    if (lane == 0) {
        top[row] = largest;
        total[row] = sum;
    }
}
