// Products of small matrices on tensor cores, for files named ..._tensor_cores.cu. PTX, the GPU's assembly language,
// has an instruction for them; CUDA C has none. The CPU emulator has its own version of each of the two functions.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "tensor cores multiply TF32 on GPUs of compute capability 8.0 (Ampere) and later"
#endif

// TF32, the format of the factors: a float32 with 10 of its 23 bits of mantissa. Rounds to the nearest, with an error of
// at most 2^-11 of the number.
__device__ float rounded_to_tf32(float number) {
    unsigned bits;
#ifdef CUDA_ON_CPU
    bits = cuda_on_cpu::rounded_to_tf32(number);
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(number));
#endif
    return __uint_as_float(bits);
}

// Z += A B for A (16, 8), B (8, 8) and Z (16, 8), by all 32 threads of a warp at once. Factors are TF32, sums float32.
// Each thread holds a part, a fragment, of each matrix. With g = lane / 4 and t = lane % 4 these are
//   z[0], z[1]   row g of Z, columns 2 t and 2 t + 1; z[2], z[3] the same of row g + 8
//   a[0], a[1]   rows g and g + 8 of A, column t; a[2], a[3] the same of column t + 4
//   b[0], b[1]   rows t and t + 4 of B, column g
__device__ void multiply_fragments(float (&z)[4], const float (&a)[4], const float (&b)[2]) {
    const unsigned A[4] = {__float_as_uint(a[0]), __float_as_uint(a[1]), __float_as_uint(a[2]), __float_as_uint(a[3])};
    const unsigned B[2] = {__float_as_uint(b[0]), __float_as_uint(b[1])};
#ifdef CUDA_ON_CPU
    cuda_on_cpu::multiply_tf32(z, A, B);
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
        : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
#endif
}
