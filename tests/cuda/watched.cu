// Memory that the emulator watches: comments mark the faulty lines (test_cuda_watched.py).
__device__ float total;
__device__ int table[4];
__constant__ float weights[3] = {1.0f, 2.0f, 3.0f};
__device__ static float kept[2] = {5.0f, 6.0f};

extern "C" __global__ void adds_to_a_variable(float* a, int n) {
    total += 1.0f;  // adds_to_a_variable
    a[0] = n;
}
extern "C" __global__ void sets_one_element(float* a, int n) {
    table[n] = threadIdx.x;  // sets_one_element
}
extern "C" __global__ void past_a_table(float* a, int n) {
    table[n] = 1;  // past_a_table
}
extern "C" __global__ void past_constants(float* a, int n) {
    a[0] = weights[n];  // past_constants
}
template <int N, typename T>
__device__ T turned(T value, int barrier) {
    __shared__ T tile[N];
    tile[threadIdx.x] = value;  // other: template_race
    if (barrier) __syncthreads();
    return tile[N - 1 - threadIdx.x];  // template_race
}
extern "C" __global__ void template_race(float* a, int n) {
    a[threadIdx.x] = turned<8>(float(threadIdx.x), n);
}
__device__ inline float turned_inline(float value, int n) {
    __shared__ float tile[8];
    tile[threadIdx.x] = value;
    if (n == 1) __syncthreads();
    return tile[7 - threadIdx.x];  // inline_race
}
extern "C" __global__ void inline_race(float* a, int n) {
    a[threadIdx.x] = turned_inline(threadIdx.x, n);
}
template <typename T>
__device__ T unset() {
    __shared__ T tile[8];
    T value = tile[threadIdx.x];
    __syncthreads();
    tile[threadIdx.x] = 1;
    return value;
}
extern "C" __global__ void template_unset(float* a, int n) { a[threadIdx.x] = unset<float>(); }
template <typename T>
__device__ void past(int n) {
    __shared__ T tile[8];
    tile[n] = 1;  // past_a_template
}
extern "C" __global__ void past_a_template(float* a, int n) { past<float>(n); }
extern "C" __global__ void two_barriers_in_a_line(float* a, int n) {
    if (threadIdx.x < n) { __syncthreads(); } else { __syncthreads(); }  // two_barriers_in_a_line
}
extern "C" __global__ void two_shuffles_in_a_line(float* a, int n) {
    a[threadIdx.x] = threadIdx.x < n ? __shfl_sync(~0u, 1.0f, 0) : __shfl_sync(~0u, 2.0f, 0);  // two_shuffles_in_a_line
}
extern "C" __global__ void unused_read(float* a, int n) {
    float lost = a[n];  // unused_read
}
extern "C" __global__ void read_for_nothing(float* a, int n) {
    if (a[n] > 0.0f) {}  // read_for_nothing
}
extern "C" __global__ void overwritten_read(float* a, int n) {
    float x = a[n];  // overwritten_read
    x = 1.0f;
    a[0] = x;
}
extern "C" __global__ void unset_sum(float* a, int n) {
    float sum;
    for (int i = 0; i < n; i++) sum += 1.0f;
    a[threadIdx.x] = sum;
}
extern "C" __global__ void unset_count(int* a, int n) {
    int count;
    if (n > 100) count = 3;
    a[threadIdx.x] = count;
}
extern "C" __global__ void unset_array(float* a, int n) {
    float sums[4];
    for (int i = 0; i < n; i++) sums[i % 4] += 1.0f;
    a[threadIdx.x] = sums[threadIdx.x % 4];
}
extern "C" __global__ void compare_and_swap(float* a, int n) {
    unsigned int* address = reinterpret_cast<unsigned int*>(a);
    unsigned int old = *address, assumed;
    do {
        assumed = old;
        old = atomicCAS(address, assumed, __float_as_uint(__uint_as_float(assumed) + n));
    } while (assumed != old);
}
extern "C" __global__ void swaps_once(int* a, int n) {
    int old = *a;
    atomicCAS(a, old, old + n);
}
extern "C" __global__ void looks_and_swaps_another(float* a, int n) {
    int* address = reinterpret_cast<int*>(a);
    int old = *address;  // other: looks_and_swaps_another
    atomicCAS(address + 1, old, 2);
    atomicAdd(address, 1);  // looks_and_swaps_another
}
extern "C" __global__ void traps(float* a, int n) {
    if (threadIdx.x == n) __trap();  // traps
}
[[noreturn]] __device__ void stop() {
    printf("stops\n");
    __trap();
}
extern "C" __global__ void stops(float* a, int n) { stop(); }
extern "C" __global__ void asserts(float* a, int n) {
    assert(threadIdx.x < n && "small");  // asserts
}
extern "C" __global__ void too_much_memory(float* a, int n) {
    for (int i = 0; i < n; i++) {
        float* more = (float*)malloc(1 << 20);
        more[0] = 1.0f;  // too_much_memory
    }
}
__device__ char large[1500][1 << 20];
extern "C" __global__ void fills_a_large_variable(float* a, int n) {
    for (int i = 0; i < 1500; i++)
        for (int k = 0; k < 1 << 20; k += 4096) large[i][k] = n;
}
extern "C" __global__ void prints_wide(float* a, int n) {
    for (int i = 0; i < n; i++) printf("%*d\n", 100000000, i);
    a[0] = 1;
}
extern "C" __global__ void deep(float* a, int n) {
    volatile float local[70000];
    local[n] = 1.0f;
    a[0] = local[n];
}
extern "C" __global__ void fine(float* a, int n) { a[0] += kept[1] + weights[2]; }
