// Synchronisation between blocks. Blocks of a cluster, on Hopper and later GPUs, send each other numbers, and a barrier
// in shared memory counts the bytes that arrive. Blocks of a grid synchronise through global memory, on any GPU. The
// CPU emulator always uses its grid barrier.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define __cluster_dims__(...)
#endif

#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 900
// PTX uses a separate address space for shared memory.
__device__ unsigned shared_address(const void* place) { return (unsigned)__cvta_generic_to_shared(place); }

// A counter completes a phase when the expected number of bytes has arrived, and then starts the next. One thread
// initialises it.
__device__ void make_counter(unsigned long long* counter) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(counter)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
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

__device__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
#endif

// A barrier for all blocks of a cooperative launch, in two halves: between them a block may do what concerns no other.
// `arrived` is 0 at first, and `wanted` when all blocks have arrived.
__device__ void arrive_grid(int* arrived) {
    __syncthreads();
#ifndef CUDA_ON_CPU
    if (threadIdx.x == 0) {
        __threadfence();  // makes this block's writes visible before its arrival
        atomicAdd(arrived, 1);
    }
#endif
}
__device__ void wait_grid(int* arrived, int wanted) {
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#else
    if (threadIdx.x == 0) {
        while (*(volatile int*)arrived < wanted) {
        }
        __threadfence();
    }
    __syncthreads();
#endif
}
__device__ void meet_grid(int* arrived, int wanted) {
    arrive_grid(arrived);
    wait_grid(arrived, wanted);
}
