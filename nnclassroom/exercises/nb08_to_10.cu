// blur: y[i] = mean of x[i - 2] … x[i + 2], with zeros outside. x, y (n,).

// A block computes BLOCK elements. It needs HALO more on each side, which its neighbours need too.
#define BLOCK 64
#define HALO 2

extern "C" __global__ void blur_shared(const float* x, float* y, int n) {
    __shared__ float tile[BLOCK + 2 * HALO];
    int first = blockIdx.x * BLOCK - HALO;  // the element of x that is in tile[0]
    for (int t = threadIdx.x; t < BLOCK + 2 * HALO; t += BLOCK) {  // some threads load twice
        int i = first + t;
        tile[t] = i >= 0 && i < n ? x[i] : 0.0f;
    }
    __syncthreads();  // nobody reads the tile before all of it is loaded
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int t = 0; t <= 2 * HALO; t++) sum += tile[threadIdx.x + t];
    y[i] = sum / (2 * HALO + 1);
}
