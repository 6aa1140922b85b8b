// Embedding. tokens (batch, t) of int; E (kinds, n), P (t, n), A and D (batch, t, n), dE (kinds, n).
//   naive    a thread computes one element; embedding_gradient: it looks at all tokens
//   ballot   embedding_gradient: each lane of a warp looks at one token, and all add the rows of those that fit
//   nncourse check embedding_gradient --kernel ballot    against the reference
//   nncourse time embedding                              against this machine's limits

extern "C" __global__ void embedding_naive(const int* tokens, const float* E, const float* P, float* A, int batch,
                                           int t, int kinds, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < batch * t * n) A[i] = E[tokens[i / n] * n + i % n] + P[i % (t * n)];
}

// No two threads write to the same number, so that nothing depends on their order.
extern "C" __global__ void embedding_gradient_naive(const int* tokens, const float* D, float* dE, int batch, int t,
                                                    int n, int kinds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kinds * n) return;
    float sum = 0.0f;
    for (int row = 0; row < batch * t; row++)
        if (tokens[row] == i / n) sum += D[row * n + i % n];
    dE[i] = sum / batch;
}

// A block adds up 32 columns of one kind. Its 8 warps take 32 tokens each in turn, from the first to the last, and
// their sums are added in the order of the warps.
extern "C" __global__ void embedding_gradient_ballot(const int* tokens, const float* D, float* dE, int batch, int t,
                                                     int n, int kinds) {
    __shared__ float sums[8][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kind = blockIdx.x, k = blockIdx.y * 32 + lane;
    float sum = 0.0f;
    for (int first = warp * 32; first < batch * t; first += 8 * 32) {
        int row = first + lane;
        unsigned left = __ballot_sync(0xffffffff, row < batch * t && tokens[row] == kind);  // a bit for each token
        for (; left; left &= left - 1)  // from the lowest bit on
            if (k < n) sum += D[(first + __ffs(left) - 1) * n + k];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || k >= n) return;
    for (int other = 1; other < 8; other++) sum += sums[other][lane];
    dE[kind * n + k] = sum / batch;
}
