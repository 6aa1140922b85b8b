// Mistakes that the emulator finds: a comment marks the faulty line (test_cuda_emulate.py).
extern "C" __global__ void unguarded_write(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = 1.0f;  // unguarded_write
}
extern "C" __global__ void unguarded_read(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i % n] = a[i];  // unguarded_read
}
extern "C" __global__ void before_the_start(float* a, int n) {
    a[n - 1] = 1.0f;  // before_the_start
}
extern "C" __global__ void unguarded_atomic(int* a, int n) {
    atomicAdd(&a[n], 1);  // unguarded_atomic
}
extern "C" __global__ void shared_write(float* a, int n) {
    __shared__ float tile[4][8];
    tile[n][threadIdx.x] = 1.0f;  // shared_write
    a[0] = tile[0][0];
}
extern "C" __global__ void shared_read(float* a, int n) {
    __shared__ float tile[8];
    tile[threadIdx.x] = 1.0f;
    a[0] = tile[n];  // shared_read
}
extern "C" __global__ void dynamic_write(float* a, int n) {
    extern __shared__ float tile[];
    tile[threadIdx.x + n] = 1.0f;  // dynamic_write
    a[0] = tile[0];
}
extern "C" __global__ void local_write(float* a, int n) {
    float local[4] = {};
    local[n] = 1.0f;  // local_write
    a[0] = local[0];
}
extern "C" __global__ void misaligned_read(float* a, int n) {
    float4 four = *(float4*)(a + n);  // misaligned_read
    a[0] = four.x + four.w;
}
extern "C" __global__ void misaligned_write(float* a, int n) {
    __shared__ float tile[8];
    *reinterpret_cast<float2*>(tile + n) = make_float2(1.0f, 2.0f);  // misaligned_write
    a[0] = tile[0];
}
extern "C" __global__ void null_pointer(float* a, int n) {
    float* nothing = nullptr;
    nothing[n] = 1.0f;  // null_pointer
}
extern "C" __global__ void divides(int* a, int n) {
    a[0] = 7 / n;  // divides
}
extern "C" __global__ void some_return_early(float* a, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();  // some_return_early
    a[0] = 1.0f;
}
extern "C" __global__ void divergent_barrier(float* a, int n) {
    if (threadIdx.x < n)
        __syncthreads();  // divergent_barrier
    else
        __syncthreads();  // its other branch
    a[0] = 1.0f;
}
__device__ float warp_sum(float value) {
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_down_sync(0xffffffff, value, d);  // divergent_shuffle
    return value;
}
extern "C" __global__ void divergent_shuffle(float* a, int n) {
    float value = threadIdx.x;
    if (threadIdx.x < n) value = warp_sum(value);
    if (threadIdx.x == 0) a[0] = value;
}
extern "C" __global__ void shuffle_or_barrier(float* a, int n) {
    if (threadIdx.x < n)
        a[0] = __shfl_xor_sync(0xffffffff, 1.0f, 1);  // shuffle_or_barrier
    __syncthreads();
}
extern "C" __global__ void not_in_its_mask(float* a, int n) {
    a[0] = __shfl_sync(1u, 1.0f, 0);  // not_in_its_mask
}
extern "C" __global__ void endless(float* a, int n) {
    while (a[0] < n)
        a[1] += 1.0f;  // endless
}
extern "C" __global__ void casts_const_away(const float* a, float* b, int n) {
    const_cast<float*>(a)[n] = b[n] = 5.0f;
}
extern "C" __global__ void fine(float* a, int n) {
    if (threadIdx.x < n) a[threadIdx.x] = threadIdx.x;
}
