// The language that the emulator knows (test_cuda_emulate.py).
extern "C" __global__ void reduce(const float* a, float* sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? a[i] : 0.0f;
    __shared__ float partial[32];
    for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffffu, value, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
        if (threadIdx.x == 0) sums[blockIdx.x] = value;
    }
}
extern "C" __global__ void shuffles(int* out, int width) {
    int t = threadIdx.x;
    out[t] = __shfl_sync(0xffffffff, t, 5, width);
    out[32 + t] = __shfl_up_sync(0xffffffff, t, 3, width);
    out[64 + t] = __shfl_down_sync(0xffffffff, t, 3, width);
    out[96 + t] = __shfl_xor_sync(0xffffffff, t, 6, width);
    double wide = __shfl_sync(0xffffffff, t + 0.25, 31);
    out[128 + t] = (int)(4.0 * wide);
}
extern "C" __global__ void votes(int* out, int n) {
    int t = threadIdx.x;
    out[0] = __ballot_sync(0xffffffff, t < n);
    out[1] = __any_sync(0xffffffff, t == 31) + 10 * __any_sync(0xffffffff, t > 31);
    out[2] = __all_sync(0xffffffff, t < 32) + 10 * __all_sync(0xffffffff, t < 31);
    out[3] = __syncthreads_count(t < n);
    out[4] = __syncthreads_and(t < n) + 10 * __syncthreads_and(t < 99);
    out[5] = __syncthreads_or(t > 99) + 10 * __syncthreads_or(t == 0);
    out[6] = __popc(__activemask());
    __syncwarp();
}
extern "C" __global__ void half_warps(int* out, int n) {
    int t = threadIdx.x;
    if (t < 16) out[t] = __shfl_xor_sync(0x0000ffffu, t, 1);
    else out[t] = __shfl_xor_sync(0xffff0000u, t, 2);
}
extern "C" __global__ void atomics(int* a, unsigned int* u, float* f, double* d) {
    int t = threadIdx.x;
    atomicAdd(&a[0], t);
    atomicSub(&a[1], 1);
    atomicMax(&a[2], t);
    atomicMin(&a[3], -t);
    atomicExch(&a[4], 7);
    atomicCAS(&a[5], 0, t + 1);
    atomicOr(&u[0], 1u << t);
    atomicAnd(&u[1], ~(1u << t));
    atomicXor(&u[2], 1u << t % 4);
    atomicInc(&u[3], 9u);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 1);
}
extern "C" __global__ void histogram(const unsigned char* values, int* counts, int n) {
    extern __shared__ int local[];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[values[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], local[i]);
}
extern "C" __global__ void places(int* out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        100000 * blockIdx.x + 10000 * blockIdx.y + 1000 * blockIdx.z +
        100 * threadIdx.x + 10 * threadIdx.y + threadIdx.z;
}
extern "C" __global__ void unwritten(float* out) {
    __shared__ float tile[32];
    out[threadIdx.x] = tile[threadIdx.x];
    tile[threadIdx.x] = 1.0f;
}
extern "C" __global__ void prints(int n) { printf("thread %d of %d\n", threadIdx.x, n); }
__constant__ float table[3] = {1.5f, 2.5f, 3.5f};
extern "C" __global__ void __launch_bounds__(32, 1) mathematics(float* __restrict__ out, const float* __restrict__ in) {
    float x = __ldg(in);
    int i = 0;
    out[i++] = __expf(x) + rsqrtf(x) + __fdividef(1.0f, x) + fmaf(x, x, 1.0f) + __logf(x);
    out[i++] = min(3, 4) + max(3.0f, x) + fminf(x, NAN) + table[2];
    out[i++] = isnan(NAN) && isinf(INFINITY) && !isnan(x) && -INFINITY < 0.0f;
    out[i++] = __int_as_float(__float_as_int(x)) + __popc(0xf0f0) + __ffs(8) + __clz(1);
    float4 four = make_float4(1.0f, 2.0f, 3.0f, x);
    out[i++] = four.x + four.w + make_int2(3, 4).y;
    long long before = clock64();
#pragma unroll
    for (int k = 0; k < 3; k++) out[i] = k;
    out[i + 1] = clock64() > before && warpSize == 32;
}
extern "C" __global__ void everyone_meets(int* a, int* sums) {
    __shared__ int mine[4];
    mine[threadIdx.x] = blockIdx.x;
    a[blockIdx.x * blockDim.x + threadIdx.x] = 1;
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#endif
    int sum = 100 * mine[threadIdx.x];
    for (int i = 0; i < gridDim.x * blockDim.x; i++) sum += a[i];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void adds_one(const float* a, float* b) { b[0] += 1.0f; b[1] = a[0]; }
