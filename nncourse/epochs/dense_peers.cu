// A step of dense_sgd_epoch on several GPUs. dense_graph.cu, which precedes this text, computes the deltas; then:
//   gradients    sum the gradients over this GPU's rows
//   all_reduce   add them over all GPUs: kernels/peer/all_reduce.cu
//   descend      W ← W − rate dC/dW, on every GPU with the same bits
//
//   make test FILES=tests/test_peer.py        one GPU, or the emulator, plays several
//   python -m benchmarks.data_parallel        on several GPUs

// `scale` is 1 / the number of rows of all GPUs, so the gradients of all GPUs add up to the mean over the batch.
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
