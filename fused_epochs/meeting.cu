// Synchronisation between blocks, included by dense_one_kernel.cu and convolutional_one_kernel.cu:
//   cluster    blocks write to each other's shared memory, where a barrier counts the bytes (from Hopper on)
//   grid       a counter in global memory that all blocks increment (any GPU, cooperative launch)
//   marked     no barrier: the last bit of each number in global memory says whether it is new
// The CPU emulator always uses its grid barrier.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define __cluster_dims__(...)
#endif

#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 900
// PTX uses a separate address space for shared memory.
__device__ unsigned shared_address(const void* place) { return (unsigned)__cvta_generic_to_shared(place); }

// A counter completes a phase when the expected number of bytes has arrived. One thread initialises it. Writes to shared
// memory before this call (by this thread, or before a barrier that it has passed) precede later copies by the engine.
__device__ void make_counter(unsigned long long* counter) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(counter)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}
__device__ void expect(unsigned long long* counter, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(counter)), "r"(bytes)
                 : "memory");
}
// Waits until the counter has completed its phase; `time`, 0 or 1, is the parity of the phase.
__device__ void wait_until_open(unsigned long long* counter, int time) {
    for (unsigned open = 0; !open;)
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(open) : "r"(shared_address(counter)), "r"(time) : "memory");
}

// Sends a number asynchronously to `place` in the shared memory of block `to`, and counts it in that block's counter.
__device__ void send(float number, float* place, unsigned long long* counter, int to) {
    unsigned there, counter_there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(place)), "r"(to));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter_there) : "r"(shared_address(counter)), "r"(to));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there),
                 "r"(__float_as_uint(number)), "r"(counter_there) : "memory");
}

// The copy engine copies a row, of a multiple of 16 bytes, to the place `to` in each of the first `blocks` blocks of the
// cluster, and counts the bytes in the counter of each.
__device__ void copy_row(float* to, const float* from, int bytes, unsigned long long* counter, int blocks) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
                 "r"(shared_address(counter)), "h"((unsigned short)((1 << blocks) - 1)) : "memory");
}

__device__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
#endif

// A barrier for all blocks of a cooperative launch, in two halves. Between them a block may do independent work.
// `arrived` starts at 0 and is `wanted` when all blocks have arrived.
__device__ void arrive_grid(int* arrived) {
    __syncthreads();
#ifndef CUDA_ON_CPU
    // Makes this block's writes visible before its arrival.
    if (threadIdx.x == blockDim.x - 1) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(arrived) : "memory");
#endif
}
__device__ void wait_grid(int* arrived, int wanted) {
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#else
    if (threadIdx.x == 0)
        for (int there = 0; there < wanted;)
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(there) : "l"(arrived) : "memory");
    __syncthreads();
#endif
}
// The second half for single warps. (On the emulator the whole block has waited already.)
__device__ void wait_in_warp(int* arrived, int wanted) {
#ifndef CUDA_ON_CPU
    if (threadIdx.x % 32 == 0)
        for (int there = 0; there < wanted;)
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(there) : "l"(arrived) : "memory");
    __syncwarp();
#endif
}
__device__ void meet_grid(int* arrived, int wanted) {
    arrive_grid(arrived);
    wait_grid(arrived, wanted);
}

// Blocks of a cooperative launch exchange numbers without a barrier: one block tells a number, others hear it. The last
// bit of a number is the parity of its turn; a reader polls until the parity is right. The lost bit costs one rounding.
// All numbers start as 0, and the first turn is odd. The algorithm must ensure that no number is told again before all
// readers have heard it.
__device__ float read_from_all(const float* place) {
#ifdef CUDA_ON_CPU
    return *place;
#else
    float number;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(number) : "l"(place) : "memory");
    return number;
#endif
}
__device__ float4 read_from_all(const float4* place) {
#ifdef CUDA_ON_CPU
    return *place;
#else
    float4 four;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w) : "l"(place) : "memory");
    return four;
#endif
}
__device__ float marked(float number, int turn) {
    return __int_as_float((__float_as_int(number) & ~1) | (turn & 1));
}
__device__ float unmarked(float number) { return __int_as_float(__float_as_int(number) & ~1); }
__device__ float4 unmarked(float4 four) {
    return make_float4(unmarked(four.x), unmarked(four.y), unmarked(four.z), unmarked(four.w));
}
__device__ bool is_of(float number, int turn) { return ((__float_as_int(number) ^ turn) & 1) == 0; }
__device__ bool is_of(float4 four, int turn) {
    return is_of(four.x, turn) && is_of(four.y, turn) && is_of(four.z, turn) && is_of(four.w, turn);
}

__device__ void tell(float* place, float number, int turn) {
#ifdef CUDA_ON_CPU
    *place = marked(number, turn);
#else
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(place), "f"(marked(number, turn)) : "memory");
#endif
}
__device__ void tell(float4* place, float4 four, int turn) {
    four = make_float4(marked(four.x, turn), marked(four.y, turn), marked(four.z, turn), marked(four.w, turn));
#ifdef CUDA_ON_CPU
    *place = four;
#else
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(place), "f"(four.x), "f"(four.y), "f"(four.z),
                 "f"(four.w) : "memory");
#endif
}

// Reads numbers[i] from place(i), whether or not it is of this turn yet.
template <typename Number, int COUNT, typename Place>
__device__ void listen(Number (&numbers)[COUNT], Place place) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) numbers[i] = read_from_all(place(i));
}
// Repeats listen() until all numbers are of this turn.
template <typename Number, int COUNT, typename Place>
__device__ void hear(Number (&numbers)[COUNT], int turn, Place place) {
    for (;;) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < COUNT; i++) all = all && is_of(numbers[i], turn);
        if (all) break;
        listen(numbers, place);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) numbers[i] = unmarked(numbers[i]);
}

// The emulator needs a barrier before the first listen(); a GPU does not.
__device__ void begin_to_listen() {
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#endif
}
// The whole block waits until each of `count` other blocks has told the number at place(block). Their other numbers
// arrive at about the same time; polling for all of them would only keep the memory busy.
template <typename Place>
__device__ void wait_for_all(int count, int turn, Place place) {
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#else
    if (threadIdx.x < 32)
        for (int block = threadIdx.x; block < count; block += 32)
            while (!is_of(read_from_all(place(block)), turn)) {
            }
    __syncthreads();
#endif
}
