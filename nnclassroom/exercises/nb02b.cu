// The kernels of notebook 02b after the sigmoid: threads also touch elements other than their own.

// reverse: y[i] = x[n - 1 - i]. x, y (n,).
extern "C" __global__ void reverse_naive(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[n - 1 - i];
}

// every_second: y[i] = x[2 i]. x (n,), y (m,), m = (n + 1) / 2. A thread for each element of y, so the guard is for m.
extern "C" __global__ void every_second_naive(const float* x, float* y, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m) y[i] = x[2 * i];
}

// saxpy: y[i] += a x[i]. x, y (n,). A grid of any size: each thread takes steps of the number of all threads.
extern "C" __global__ void saxpy_grid_stride(float a, const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += a * x[i];
}
