// Products of tiles in shared memory on Hopper's tensor cores, and copies of tiles by its copy engine, TMA: for
// dense_wgmma.cu. CUDA C has neither, so here is the PTX that these kernels need. The CPU emulator does not know it.

// A tile in shared memory begins at a multiple of 1,024 bytes. Its rows have 32 numbers along k, 128 bytes: all banks
// once. The groups of four numbers in a row are swapped, so that the same group of eight rows is in different banks:
// group c of row i is at position c ^ i % 8. TMA and wgmma both know this order, "swizzle 128".
#define STEP 32

__device__ unsigned in_shared(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

// A tile's descriptor for wgmma: its address, the distance of 1,024 bytes from eight rows to the next eight, and the
// order. For the next eight numbers along k, 32 bytes further, add 2.
__device__ unsigned long long described(const float* tile) {
    return (in_shared(tile) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Z += A W^T for 64 rows of A and 128 or 256 of W, along 8 numbers of k, by the 128 threads of a warpgroup at once.
// Factors are TF32: the last 13 bits of the float32 in the tiles are ignored. This only begins the products. With
// g = lane / 4, t = lane % 4 and warp w of the group, z[4 n] and z[4 n + 1] are row 16 w + g of Z, columns 8 n + 2 t
// and the next; z[4 n + 2] and z[4 n + 3] are the same columns of row 16 w + g + 8.
#define FOUR(i) "+f"(z[i]), "+f"(z[i + 1]), "+f"(z[i + 2]), "+f"(z[i + 3])
__device__ __forceinline__ void multiply_tiles(float (&z)[64], unsigned long long a, unsigned long long w) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
        "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1;"
        : FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28), FOUR(32), FOUR(36), FOUR(40),
          FOUR(44), FOUR(48), FOUR(52), FOUR(56), FOUR(60)
        : "l"(a), "l"(w));
}
__device__ __forceinline__ void multiply_tiles(float (&z)[128], unsigned long long a, unsigned long long w) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
        "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
        "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, "
        "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "
        "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "
        "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "
        "%123, %124, %125, %126, %127}, %128, %129, 1, 1, 1;"
        : FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28), FOUR(32), FOUR(36), FOUR(40),
          FOUR(44), FOUR(48), FOUR(52), FOUR(56), FOUR(60), FOUR(64), FOUR(68), FOUR(72), FOUR(76), FOUR(80),
          FOUR(84), FOUR(88), FOUR(92), FOUR(96), FOUR(100), FOUR(104), FOUR(108), FOUR(112), FOUR(116), FOUR(120),
          FOUR(124)
        : "l"(a), "l"(w));
}
#undef FOUR

// Call it before the first product: it completes all earlier writes to the registers of the sums.
__device__ __forceinline__ void before_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// The products begun since the last call form one batch.
__device__ __forceinline__ void end_batch() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all batches except the last BATCHES are done.
template <int BATCHES> __device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BATCHES) : "memory");
}

// Makes this thread's writes to shared memory visible to wgmma, once the block has passed a barrier.
__device__ void stored_for_wgmma() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- A counter in shared memory completes a phase when `arrivals` threads and all expected bytes have arrived.

typedef unsigned long long Counter;

__device__ void make_counter(Counter* counter, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;"
                 ::"r"(in_shared(counter)), "r"(arrivals) : "memory");
}

// Arrives, and says how many bytes the copy engine will bring; or only arrives.
__device__ void arrive_and_expect(Counter* counter, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(in_shared(counter)), "r"(bytes)
                 : "memory");
}
__device__ void arrive(Counter* counter) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(in_shared(counter)) : "memory");
}

// Waits until the counter has completed a phase of this parity: 0 is the first, and 1 is true at the beginning.
__device__ void wait_for(Counter* counter, int parity) {
    asm volatile("{\n\t.reg .pred done;\nagain:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra again;\n\t}"
                 ::"r"(in_shared(counter)), "r"(parity) : "memory");
}

// A matrix as the copy engine sees it: address, sizes, and the rows of a tile. dense_wgmma.py fills it in.
struct alignas(64) Map {
    char bytes[128];
};

// Begins to copy the tile that starts at (row, k) to shared memory, with zeros past the edges of the matrix.
__device__ void copy_tile(float* tile, const Map* map, Counter* counter, int k, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(in_shared(tile)), "l"(map), "r"(in_shared(counter)), "r"(k), "r"(row) : "memory");
}
