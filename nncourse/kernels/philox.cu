// Philox4x32-10: four random words from a counter of four words and a key of two. It has no state: any thread can
// compute any random number. All kernels that draw random numbers use it; `nncourse check dropout` checks it.
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
