// One training step of a dense layer, as a CUDA C++ program of its own: sigmoid, binary cross-entropy, plain descent. The
// kernels are the course's naive ones, to the letter. With CuPy you write none of the code around them.
//
//     nvcc -O2 nb08_host_side.cu -o host_side
//     ./host_side BATCH INPUTS OUTPUTS RATE BLOCK < numbers > new_parameters
//
// The numbers are float32: X, Y, W, b; the new parameters are W, b.
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
__global__ void dense_forward(const float* A, const float* W, const float* b, float* Z,
                              int batch, int n_in, int n_out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= batch || j >= n_out) return;
    float z = b[j];
    for (int k = 0; k < n_in; k++) z += A[i * n_in + k] * W[j * n_in + k];
    Z[i * n_out + j] = z;
}

__global__ void sigmoid(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));
}

__global__ void cross_entropy_delta(const float* A, const float* Y, float* D, int batch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < batch * n) D[i] = A[i] - Y[i];
}

__global__ void weight_gradient(const float* D, const float* A, float* dW, int batch, int n_out, int n_in) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (j >= n_out || k >= n_in) return;
    float sum = 0.0f;
    for (int i = 0; i < batch; i++) sum += D[i * n_out + j] * A[i * n_in + k];
    dW[j * n_in + k] = sum / batch;
}

__global__ void bias_gradient(const float* D, float* db, int batch, int n_out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= n_out) return;
    float sum = 0.0f;
    for (int i = 0; i < batch; i++) sum += D[i * n_out + j];
    db[j] = sum / batch;
}

__global__ void sgd_update(float* W, const float* G, float rate, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) W[i] -= rate * G[i];
}

// ---- read
static std::vector<float> numbers(int count) {
    std::vector<float> read(count);
    if (fread(read.data(), sizeof(float), count, stdin) != (size_t)count) {
        fprintf(stderr, "nb08_host_side.cu: expected %d more numbers\n", count);
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

// ---- blocks
// Enough blocks for `wanted` threads. The number is rounded up, which is why kernels have a guard.
static int blocks(int wanted, int block) {
    return (wanted + block - 1) / block;
}

// ---- main
int main(int argc, char** argv) {
    if (argc != 6) return 2;
    int batch = atoi(argv[1]), n = atoi(argv[2]), m = atoi(argv[3]), block = atoi(argv[5]);
    float rate = atof(argv[4]);
    std::vector<float> X = numbers(batch * n), Y = numbers(batch * m), W = numbers(m * n), b = numbers(m);
    float *x = sent(X), *y = sent(Y), *w = sent(W), *c = sent(b);
    float *z = allocated(batch * m), *a = allocated(batch * m), *d = allocated(batch * m);
    float *dw = allocated(m * n), *db = allocated(m);

    // ---- launch
    int wide = block < 32 ? block : 32, high = block / wide;  // a block for two axes
    dim3 two(wide, high);
    dense_forward<<<dim3(blocks(m, wide), blocks(batch, high)), two>>>(x, w, c, z, batch, n, m);
    sigmoid<<<blocks(batch * m, block), block>>>(z, a, batch * m);
    cross_entropy_delta<<<blocks(batch * m, block), block>>>(a, y, d, batch, m);
    weight_gradient<<<dim3(blocks(n, wide), blocks(m, high)), two>>>(d, x, dw, batch, m, n);
    bias_gradient<<<blocks(m, block), block>>>(d, db, batch, m);
    sgd_update<<<blocks(m * n, block), block>>>(w, dw, rate, m * n);
    sgd_update<<<blocks(m, block), block>>>(c, db, rate, m);

    // ---- wait
    CHECK(cudaGetLastError());       // a launch returns no code: was one of them refused?
    CHECK(cudaDeviceSynchronize());  // the launches were only queued: did one of the kernels fail?

    // ---- results
    fetched(W, w);
    fetched(b, c);

    // ---- free
    for (float* there : {x, y, w, c, z, a, d, dw, db}) CHECK(cudaFree(there));
    return 0;
}
