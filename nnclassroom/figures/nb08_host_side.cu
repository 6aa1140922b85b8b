// One training step of a network with one hidden layer, as a CUDA C++ program of its own: sigmoid, mean squared error,
// plain descent. With CuPy the kernels are the same, and you write none of what stands around them here.
//
//     nvcc -O2 nb08_host_side.cu -o host_side
//     ./host_side BATCH INPUTS HIDDEN OUTPUTS RATE BLOCK < numbers > new_parameters
//
// The numbers are float32: X, Y, W1, b1, W2, b2; the new parameters are W1, b1, W2, b2.
#include <cstdio>
#include <cstdlib>
#include <vector>

// ---- errors
// Each CUDA call returns a code. After an error the program simply goes on: a code that nobody reads reports nothing.
static void check(cudaError_t code, const char* call, int line) {
    if (code == cudaSuccess) return;
    fprintf(stderr, "nb08_host_side.cu:%d: %s: %s\n", line, call, cudaGetErrorString(code));
    exit(1);
}
#ifdef UNCHECKED
#define CHECK(call) (void)(call)
#else
#define CHECK(call) check(call, #call, __LINE__)
#endif

// ---- kernels
// A thread computes one element, as everywhere in the course.
__global__ void forward(const float* A, const float* W, const float* b, float* S,
                        int batch, int n_in, int n_out) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, i = at / n_out, j = at % n_out;
    if (at >= batch * n_out) return;
    float z = b[j];
    for (int k = 0; k < n_in; k++) z += W[j * n_in + k] * A[i * n_in + k];
    S[at] = 1 / (1 + expf(-z));
}

__global__ void output_delta(const float* S, const float* Y, float* D, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) D[at] = (S[at] - Y[at]) * S[at] * (1 - S[at]);
}

__global__ void hidden_delta(const float* D, const float* W, const float* S, float* below,
                             int batch, int n_in, int n_out) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, i = at / n_in, k = at % n_in;
    if (at >= batch * n_in) return;
    float g = 0;
    for (int j = 0; j < n_out; j++) g += D[i * n_out + j] * W[j * n_in + k];
    below[at] = g * S[at] * (1 - S[at]);
}

__global__ void update(float* W, float* b, const float* D, const float* A, float rate,
                       int batch, int n_in, int n_out) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, j = at / (n_in + 1), k = at % (n_in + 1);
    if (at >= n_out * (n_in + 1)) return;
    float g = 0;
    for (int i = 0; i < batch; i++) g += D[i * n_out + j] * (k < n_in ? A[i * n_in + k] : 1);
    if (k < n_in) W[j * n_in + k] -= rate * g / batch;
    else b[j] -= rate * g / batch;
}

// ---- read
static std::vector<float> numbers(int count) {
    std::vector<float> read(count);
    if (fread(read.data(), sizeof(float), count, stdin) != (size_t)count) {
        fprintf(stderr, "nb08_host_side.cu: wanted %d more numbers\n", count);
        exit(2);
    }
    return read;
}

// ---- allocate
// `there` is an address in GPU memory: reading it from the CPU crashes the program.
static float* allocated(int count) {
    float* there;
    CHECK(cudaMalloc(&there, count * sizeof(float)));
    return there;
}

// ---- copy there
static float* sent(const std::vector<float>& here) {
    float* there = allocated(here.size());
    CHECK(cudaMemcpy(there, here.data(), here.size() * sizeof(float), cudaMemcpyHostToDevice));
    return there;
}

// ---- copy back
static void fetched(std::vector<float>& here, const float* there) {
    CHECK(cudaMemcpy(here.data(), there, here.size() * sizeof(float), cudaMemcpyDeviceToHost));
    fwrite(here.data(), sizeof(float), here.size(), stdout);
}

// ---- main
int main(int argc, char** argv) {
    if (argc != 7) return 2;
    int batch = atoi(argv[1]), n = atoi(argv[2]), h = atoi(argv[3]), m = atoi(argv[4]);
    float rate = atof(argv[5]);
    int block = atoi(argv[6]);
    std::vector<float> X = numbers(batch * n), Y = numbers(batch * m);
    std::vector<float> W1 = numbers(h * n), b1 = numbers(h), W2 = numbers(m * h), b2 = numbers(m);
    float *x = sent(X), *y = sent(Y), *w1 = sent(W1), *c1 = sent(b1), *w2 = sent(W2), *c2 = sent(b2);
    float *s1 = allocated(batch * h), *d1 = allocated(batch * h);  // activations and deltas, hidden
    float *s2 = allocated(batch * m), *d2 = allocated(batch * m);  // and of the outputs

    // ---- launch
    auto blocks = [=](int threads) { return (threads + block - 1) / block; };
    forward<<<blocks(batch * h), block>>>(x, w1, c1, s1, batch, n, h);
    forward<<<blocks(batch * m), block>>>(s1, w2, c2, s2, batch, h, m);
    output_delta<<<blocks(batch * m), block>>>(s2, y, d2, batch * m);
    hidden_delta<<<blocks(batch * h), block>>>(d2, w2, s1, d1, batch, h, m);
    update<<<blocks(m * (h + 1)), block>>>(w2, c2, d2, s1, rate, batch, h, m);
    update<<<blocks(h * (n + 1)), block>>>(w1, c1, d1, x, rate, batch, n, h);

    // ---- wait
    CHECK(cudaGetLastError());       // a launch returns no code: was one of them refused?
    CHECK(cudaDeviceSynchronize());  // the launches were only queued: did one of the kernels fail?

    // ---- results
    fetched(W1, w1);
    fetched(b1, c1);
    fetched(W2, w2);
    fetched(b2, c2);

    // ---- free
    for (float* there : {x, y, w1, c1, w2, c2, s1, s2, d1, d2}) CHECK(cudaFree(there));
    return 0;
}
