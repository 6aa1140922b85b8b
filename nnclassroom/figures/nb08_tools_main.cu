// The host side of the programs of notebook 08c: one launch, on 33 samples, 20 inputs and 18 neurons.
#include <cstdio>
#include <vector>

float* on_gpu(int count, float number) {
    std::vector<float> here(count, number);
    float* there;
    cudaMalloc(&there, count * sizeof(float));
    cudaMemcpy(there, here.data(), count * sizeof(float), cudaMemcpyHostToDevice);
    return there;
}

int main() {
    const int batch = 33, n_in = 20, n_out = 18;
    float *A = on_gpu(batch * n_in, 1), *W = on_gpu(n_out * n_in, 2), *b = on_gpu(n_out, 3), *Z;
    cudaMalloc(&Z, batch * n_out * sizeof(float));
    dim3 block(16, 16), grid((n_out + 15) / 16, (batch + 15) / 16);
    dense_forward_tiled<<<grid, block>>>(A, W, b, Z, batch, n_in, n_out);
    std::vector<float> z(batch * n_out);
    cudaMemcpy(z.data(), Z, z.size() * sizeof(float), cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (float number : z) wrong += number != 20 * 1 * 2 + 3;
    printf("%s; %d of %d numbers are wrong\n", cudaGetErrorString(cudaGetLastError()), wrong, batch * n_out);
}
