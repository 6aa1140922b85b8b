// convolution_forward: A (batch, c_in, h_in, w_in), W (c_out, c_in, k, k), b (c_out,), Z (batch, c_out, h_out, w_out), the
// kernels from slow to fast:
//   naive            a thread computes one pixel of Z

// One thread computes one pixel of Z and reads all operands from global memory. Pixels are numbered along the rows of Z,
// so that adjacent threads read adjacent pixels of A where the stride is 1.
extern "C" __global__ void convolution_forward_naive(const float* A, const float* W, const float* b, float* Z,
                                                     int batch, int c_in, int h_in, int w_in, int c_out, int k,
                                                     int stride, int before, int after, int h_out, int w_out) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= batch * c_out * h_out * w_out) return;
    int x = pixel % w_out, y = pixel / w_out % h_out;
    int o = pixel / (w_out * h_out) % c_out, s = pixel / (w_out * h_out * c_out);
    float z = b[o];
    for (int c = 0; c < c_in; c++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                int row = y * stride + i - before, column = x * stride + j - before;
                if (row >= 0 && row < h_in && column >= 0 && column < w_in)
                    z += W[((o * c_in + c) * k + i) * k + j] * A[((s * c_in + c) * h_in + row) * w_in + column];
            }
    Z[pixel] = z;
}
