// dropout: B = A / (1 - rate) where a random number u is at least rate, else 0. A, B (batch, n).

// Philox4x32-10: four random words from a counter of four words and a key of two. A function with no state: any thread
// can compute any random number.
__device__ void philox(unsigned counter[4], unsigned key_0, unsigned key_1) {
    for (int round = 0; round < 10; round++) {
        unsigned high_0 = __umulhi(0xD2511F53u, counter[0]), low_0 = 0xD2511F53u * counter[0];
        unsigned high_2 = __umulhi(0xCD9E8D57u, counter[2]), low_2 = 0xCD9E8D57u * counter[2];
        counter[0] = high_2 ^ counter[1] ^ key_0;
        counter[1] = low_2;
        counter[2] = high_0 ^ counter[3] ^ key_1;
        counter[3] = low_0;
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
}

// One thread per element: it takes one of the four words, and its neighbours compute the same four again.
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
