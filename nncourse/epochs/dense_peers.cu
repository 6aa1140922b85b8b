// A step on several devices: between these two kernels their gradients are added up. The sums over a device's rows are
// those of dense_graph.cu, whose text stands before this one.

// Each gradient is the sum over this device's rows, times `scale`: 1 / the rows of all devices.
extern "C" __global__ void gradients(float* gradient, const float* __restrict__ X, const float* __restrict__ A,
                                     const float* __restrict__ D, const int* __restrict__ layers, int batch,
                                     float scale) {
    __shared__ float parts[WARPS * TILE(32)];
    with_gradients(parts, gradient, X, A, D, layers, batch,
                   [&](int place, float sum, float) { gradient[place] = scale * sum; });
}

// One thread per parameter.
extern "C" __global__ void descend(float* parameters, const float* __restrict__ gradient, int p, float rate) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p) parameters[i] -= rate * gradient[i];
}
