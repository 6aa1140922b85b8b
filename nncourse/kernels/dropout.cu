// dropout: B = A / (1 - rate) where a random number u is at least rate, else 0. A, B (batch, n).
//   naive   a thread computes one element: it uses one of its four random words; its neighbours compute all four again
//   nncourse check dropout       against the reference
//   nncourse time dropout        against this machine's limits

extern "C" __global__ void dropout_naive(const float* A, float rate, float* B, int batch, int n,
                                         int seed, int epoch, int first, int layer) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= batch * n) return;
    unsigned row = t / n, unit = t % n;
    unsigned words[4] = {unit / 4, first + row, (unsigned)epoch, (unsigned)layer};
    philox(words, seed, 0);
    float u = (words[unit % 4] >> 8) * 0x1p-24f;
    B[t] = u >= rate ? A[t] / (1.0f - rate) : 0.0f;
}
