// How blocks meet. Those of a cluster, which Hopper's and later GPUs have, send each other numbers, and a barrier in shared
// memory counts what has come. Those of a grid meet in global memory, on any GPU. On the CPU emulator all meet as a grid.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define __cluster_dims__(...)
#endif

#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 900
// PTX has addresses of its own for shared memory.
__device__ unsigned shared_address(const void* place) { return (unsigned)__cvta_generic_to_shared(place); }

// A counter opens when as many bytes have come as were expected; then it begins anew. One thread makes it.
__device__ void make_counter(unsigned long long* counter) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(counter)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(unsigned long long* counter, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(counter)), "r"(bytes)
                 : "memory");
}
// Waits until it has opened: `time`, 0 or 1, tells the even times from the odd ones.
__device__ void wait_until_open(unsigned long long* counter, int time) {
    for (unsigned open = 0; !open;)
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(open) : "r"(shared_address(counter)), "r"(time) : "memory");
}

// Sends a number to block `to`: to the same place as `place` is here, and to the same counter. Nobody waits for it.
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

// All blocks of a cooperative launch. `arrived` is 0 in the beginning, and `wanted` when all have come.
__device__ void meet_grid(int* arrived, int wanted) {
#ifdef CUDA_ON_CPU
    cuda_on_cpu::grid_barrier();
#else
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();  // what this block wrote is seen before its arrival is
        atomicAdd(arrived, 1);
        while (*(volatile int*)arrived < wanted) {
        }
        __threadfence();
    }
    __syncthreads();
#endif
}
