// Pooling. A, G (batch, c, h_in, w_in) images, Z, places, D (batch, c, h_out, w_out). The images of all samples and
// channels follow one another: image = sample * c + channel.
//   naive   forward, a thread takes one window, or one image; backward, one pixel of G
//   nncourse check maxpool_forward       against the reference
//   nncourse time maxpool_forward        against this machine's limits

// The search starts with a pixel of the window, not with 0: all pixels may be negative.
extern "C" __global__ void maxpool_forward_naive(const float* A, float* Z, int* places,
                                                 int batch, int c, int h_in, int w_in,
                                                 int size, int stride, int padding, int h_out, int w_out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= batch * c * h_out * w_out) return;
    int x = t % w_out, y = t / w_out % h_out, image = t / (w_out * h_out);
    int top = y * stride - padding, left = x * stride - padding;
    int first_row = max(top, 0), end_row = min(top + size, h_in);
    int first_column = max(left, 0), end_column = min(left + size, w_in);
    const float* a = A + image * h_in * w_in;
    int place = first_row * w_in + first_column;
    float largest = a[place];
    for (int row = first_row; row < end_row; row++)
        for (int column = first_column; column < end_column; column++) {
            float value = a[row * w_in + column];
            if (value > largest || (isnan(value) && !isnan(largest))) {
                largest = value;
                place = row * w_in + column;
            }
        }
    Z[t] = largest;
    places[t] = place;
}

// A thread looks through the windows that hold its pixel. Windows may share a pixel: one thread adds their deltas, so
// there is no race, and the order of the sum is always the same.
extern "C" __global__ void maxpool_backward_naive(const float* D, const int* places, float* G,
                                                  int batch, int c, int h_in, int w_in,
                                                  int size, int stride, int padding, int h_out, int w_out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= batch * c * h_in * w_in) return;
    int place = t % (h_in * w_in), image = t / (h_in * w_in);
    int row = place / w_in + padding, column = place % w_in + padding;  // counted from the first window's corner
    // window y holds the rows from y * stride to y * stride + size - 1
    int first_y = row < size ? 0 : (row - size) / stride + 1, end_y = min(row / stride + 1, h_out);
    int first_x = column < size ? 0 : (column - size) / stride + 1, end_x = min(column / stride + 1, w_out);
    float sum = 0.0f;
    for (int y = first_y; y < end_y; y++)
        for (int x = first_x; x < end_x; x++) {
            int window = (image * h_out + y) * w_out + x;
            if (places[window] == place) sum += D[window];
        }
    G[t] = sum;
}

extern "C" __global__ void averagepool_forward_naive(const float* A, float* Z, int batch, int c, int h_in, int w_in,
                                                     int size, int stride, int h_out, int w_out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= batch * c * h_out * w_out) return;
    int x = t % w_out, y = t / w_out % h_out, image = t / (w_out * h_out);
    const float* window = A + (image * h_in + y * stride) * w_in + x * stride;
    float sum = 0.0f;
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) sum += window[i * w_in + j];
    Z[t] = sum / (size * size);
}

// The sum over the windows that hold the pixel, as in maxpool_backward_naive.
extern "C" __global__ void averagepool_backward_naive(const float* D, float* G, int batch, int c, int h_in, int w_in,
                                                      int size, int stride, int h_out, int w_out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= batch * c * h_in * w_in) return;
    int row = t / w_in % h_in, column = t % w_in, image = t / (h_in * w_in);
    int first_y = row < size ? 0 : (row - size) / stride + 1, end_y = min(row / stride + 1, h_out);
    int first_x = column < size ? 0 : (column - size) / stride + 1, end_x = min(column / stride + 1, w_out);
    float sum = 0.0f;
    for (int y = first_y; y < end_y; y++)
        for (int x = first_x; x < end_x; x++) sum += D[(image * h_out + y) * w_out + x];
    G[t] = sum / (size * size);
}

extern "C" __global__ void globalpool_forward_naive(const float* A, float* M, int batch, int c, int h, int w) {
    int image = blockIdx.x * blockDim.x + threadIdx.x;
    if (image >= batch * c) return;
    float sum = 0.0f;
    for (int place = 0; place < h * w; place++) sum += A[image * h * w + place];
    M[image] = sum / (h * w);
}

extern "C" __global__ void globalpool_backward_naive(const float* D, float* G, int batch, int c, int h, int w) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < batch * c * h * w) G[t] = D[t / (h * w)] / (h * w);
}
