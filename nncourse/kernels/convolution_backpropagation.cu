// Backpropagation through a convolution. Images are (batch, channels, height, width), row after row.

// One thread per weight, which looks at all deltas of its filter and at the pixels that they met through this weight.
extern "C" __global__ void convolution_weight_gradient_naive(const float* D, const float* A, float* dW, int batch,
                                                             int c_out, int c_in, int h_in, int w_in, int k, int stride,
                                                             int before, int after, int h_out, int w_out) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= c_out * c_in * k * k) return;
    int j = n % k, i = n / k % k, c = n / (k * k) % c_in, o = n / (k * k * c_in);
    float sum = 0.0f;
    for (int s = 0; s < batch; s++)
        for (int y = 0; y < h_out; y++)
            for (int x = 0; x < w_out; x++) {
                int row = y * stride + i - before, column = x * stride + j - before;
                if (row >= 0 && row < h_in && column >= 0 && column < w_in)
                    sum += D[((s * c_out + o) * h_out + y) * w_out + x] * A[((s * c_in + c) * h_in + row) * w_in + column];
            }
    dW[n] = sum / batch;
}

// One thread per filter.
extern "C" __global__ void convolution_bias_gradient_naive(const float* D, float* db, int batch, int c_out, int h_out,
                                                           int w_out) {
    int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= c_out) return;
    float sum = 0.0f;
    for (int s = 0; s < batch; s++)
        for (int p = 0; p < h_out * w_out; p++) sum += D[(s * c_out + o) * h_out * w_out + p];
    db[o] = sum / batch;
}

// One thread per pixel, which looks for the windows that hold it: y * stride + i - before = row.
extern "C" __global__ void convolution_input_gradient_naive(const float* D, const float* W, float* G, int batch,
                                                            int c_out, int c_in, int k, int h_in, int w_in, int stride,
                                                            int before, int after, int h_out, int w_out) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= batch * c_in * h_in * w_in) return;
    int column = n % w_in, row = n / w_in % h_in, c = n / (w_in * h_in) % c_in, s = n / (w_in * h_in * c_in);
    float sum = 0.0f;
    for (int o = 0; o < c_out; o++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                int y = row + before - i, x = column + before - j;  // still times the stride
                if (y >= 0 && x >= 0 && y % stride == 0 && x % stride == 0 && y / stride < h_out && x / stride < w_out)
                    sum += D[((s * c_out + o) * h_out + y / stride) * w_out + x / stride] *
                           W[((o * c_in + c) * k + i) * k + j];
            }
    G[n] = sum;
}
