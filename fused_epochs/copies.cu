// Asynchronous copies from global to shared memory, included by dense_one_kernel.cu and convolutional_one_kernel.cu.

#if defined(CUDA_ON_CPU) || __CUDA_ARCH__ < 800
#define COPIES_AT_ONCE  // GPUs before Ampere cannot copy in the background
#endif

// Copies four numbers between addresses aligned to 16 bytes. It bypasses the L1 cache, which may hold old values.
__device__ void copy_four_later(float4* to, const float4* from) {
#ifdef COPIES_AT_ONCE
    *to = __ldcg(from);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#endif
}

// Copies one number, or a zero unless it is `there`.
__device__ void copy_one_later(float* to, const float* from, bool there) {
#ifdef COPIES_AT_ONCE
    *to = there ? *from : 0.0f;
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 4 : 0) : "memory");
#endif
}

// Copies four numbers between addresses aligned to 16 bytes, or zeros unless they are `there`.
__device__ void copy_four_later(float* to, const float* from, bool there) {
#ifdef COPIES_AT_ONCE
    *(float4*)to = there ? __ldcg((const float4*)from) : float4{};
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0) : "memory");
#endif
}

// The copies that this thread has started since the last call form a group. Waits until at most LEFT groups are left.
__device__ void end_group_of_copies() {
#ifndef COPIES_AT_ONCE
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LEFT>
__device__ void wait_for_groups() {
#ifndef COPIES_AT_ONCE
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// Waits for the copies that this thread started.
__device__ void wait_for_copies() {
#ifndef COPIES_AT_ONCE
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
