// network_epoch in one launch, for networks too large for a chip's registers. Version (streamed.py):
//   streamed   all blocks compute one layer after the other; weights and activations stay in the L2 cache
//
//   nncourse check network_epoch --kernel streamed   (--emulate without a GPU)
//   nncourse time network_epoch --kernel streamed
//
// This text is compiled for each network: all sizes are constants. A step consists of phases, after each of which all
// blocks meet:
//   forward    A = σ(A_below Wᵀ + b), or a pool, of each layer in turn; a pool together with the convolution below it, if
//              each of its windows lies in a tile
//   head       the output layer, its deltas, and the deltas below: a block takes some samples through all of these
//   deltas     dC/dZ of the layer below, from the last layer to the second; in the same phase the weights of the layer
//              above, which nothing reads any more in this step
//   weights    the gradients of the first layers, and the step of the optimizer
// Every product of matrices, also that of a convolution, is computed in tiles by product(), on tensor cores where these are
// fast, and as exactly as without; those of a few samples without tiles, by streamed_few.cu. What follows a sum, such as
// bias, activation, slope or optimizer, is applied before it is written. Results do not depend on the order of threads.
//
// The map of a layer is (rows, channels, height, width), of a dense layer (rows, neurons). Map 0 are the samples.

// All tiles of a product, divided among the blocks.
template <typename Product>
__device__ constexpr int units_of() {
    if constexpr (Product::TILE.part < 0) return Product::UNITS;
    else if constexpr (Product::TILE.part == 0) return tiles_of<Product>() * Product::TILE.split;
    else return Tiles<Product>::COUNT * Product::TILE.split;
}
template <typename Product>
__device__ void product_from(const Memory& at, float* shared, int first_unit) {
    for (int unit = first_unit; unit < units_of<Product>(); unit += BLOCKS) {
        if constexpr (Product::TILE.part < 0) Product{{at}}.compute(shared, unit);
        else if constexpr (Product::TILE.part == 0) product(at, shared, unit, Product{at});
        else image_product(at, shared, unit, Product{{at}});
    }
}
// The first unit of a block for what comes after so many units: blocks to which these leave less begin with it.
template <int UNITS>
__device__ int after(int begin) {
    return (begin + BLOCKS - UNITS % BLOCKS) % BLOCKS;
}
template <int NUMBER, typename First, typename... Others>
struct Choice {
    using Type = typename Choice<NUMBER - 1, Others...>::Type;
};
template <typename First, typename... Others>
struct Choice<0, First, Others...> {
    using Type = First;
};
template <int LAYER>
__device__ constexpr int kind_of(Tile tile) { return of_few<LAYER>() ? 2 : tile.part == 0 ? 0 : 1; }
template <int LAYER>
using ForwardOf =
    typename Choice<kind_of<LAYER>(layer(LAYER).forward), Forward<LAYER>, ImageForward<LAYER>, ForwardOfFew<LAYER>>::Type;
template <int LAYER>
using DeltasOf =
    typename Choice<kind_of<LAYER>(layer(LAYER).deltas), Deltas<LAYER>, ImageDeltas<LAYER>, DeltasOfFew<LAYER>>::Type;
template <int LAYER>
using WeightsOf =
    typename Choice<kind_of<LAYER>(layer(LAYER).weights), Weights<LAYER>, ImageWeights<LAYER>, WeightsOfFew<LAYER>>::Type;

// The largest of each window of a pool. Thread by thread, every APART of `count` windows, of which place_of(e) tells the
// place in the map, or -1.
template <int LAYER, int APART, typename PlaceOf>
__device__ void pool(const Memory& at, int first, int count, PlaceOf place_of) {
    constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
    constexpr int FEW = 4;  // windows that are read before any is written: no read can pass a write
    const float* map = map_of<LAYER - 1>(at);
    for (; first < count; first += FEW * APART) {
        float top[FEW];
        int place[FEW];
#pragma unroll
        for (int c = 0; c < FEW; c++) {
            place[c] = first + c * APART < count ? place_of(first + c * APART) : -1;
            if (place[c] < 0) continue;
            const int image = place[c] / pixels(LAYER), pixel = place[c] % pixels(LAYER);
            const float* corner = map + image * pixels(LAYER - 1) + corner_of<LAYER>(pixel);
            top[c] = *corner;
#pragma unroll
            for (int p = 1; p < here.k * here.k; p++) top[c] = fmaxf(top[c], corner[p / here.k * below.width + p % here.k]);
        }
#pragma unroll
        for (int c = 0; c < FEW; c++)
            if (place[c] >= 0) at.A[here.map_at + place[c]] = top[c];
    }
}
// Whether LAYER is a pool whose windows each lie in one tile of the convolution below.
template <int LAYER>
__device__ constexpr bool pools_in_tiles() {
    if constexpr (LAYER < 2 || LAYER > LAYERS) return false;
    else if constexpr (has_weights(LAYER) || !has_weights(LAYER - 1) || layer(LAYER - 1).forward.part == 0) return false;
    else return Patch<ImageForward<LAYER - 1>>::LINES % layer(LAYER).k == 0;
}
// The windows in a tile that this block has just computed.
template <int LAYER>
__device__ void pool_of_tile(const Memory& at, int tile) {
    using Part = Patch<ImageForward<LAYER - 1>>;
    constexpr Row here = layer(LAYER);
    constexpr int WIDE = Part::TILE.wide, WINDOWS = Part::LINES / here.k * here.width;
    static_assert(Part::TILE.split == 1, "a block has the whole sums of a tile");
    const int s0 = Part::first_sample(tile), y0 = Part::first_line(tile) / here.k, j0 = tile % Part::ACROSS * WIDE;
    __syncthreads();
    pool<LAYER, THREADS>(at, threadIdx.x, Part::SAMPLES * WIDE * WINDOWS, [&](int e) {
        const int s = s0 + e / (WIDE * WINDOWS), j = j0 + e / WINDOWS % WIDE, y = y0 + e % WINDOWS / here.width;
        const bool there = s < at.rows && j < here.channels && y < here.height;
        return there ? ((s * here.channels + j) * here.height + y) * here.width + e % here.width : -1;
    });
}

// The delta of output `o` from all outputs of its sample; from their z, for softmax.
__device__ float output_delta(const float* z, int o, const float* y) {
    if (OUTPUT != SOFTMAX) {
        const float a = activate(OUTPUT, z[o]), g = cost_gradient(COST, a, y[o]);
        return COST == CROSS_ENTROPY ? g : g * slope(OUTPUT, a);
    }
    float top = z[0], total = 0.0f, mean = 0.0f;
    for (int other = 1; other < OUTPUTS; other++) top = fmaxf(top, z[other]);
    for (int other = 0; other < OUTPUTS; other++) total += expf(z[other] - top);
    const float a = expf(z[o] - top) / total, g = cost_gradient(COST, a, y[o]);
    if (COST == CROSS_ENTROPY) return g;
    for (int other = 0; other < OUTPUTS; other++) {
        const float its = expf(z[other] - top) / total;
        mean += cost_gradient(COST, its, y[other]) * its;
    }
    return a * (g - mean);
}

// The deltas of softmax outputs that forward has left as z in A.
__device__ void outputs(const Memory& at) {
    for (int e = blockIdx.x * THREADS + threadIdx.x; e < at.rows * OUTPUTS; e += BLOCKS * THREADS) {
        const int sample = e / OUTPUTS * OUTPUTS;
        deltas_of<LAYERS>(at)[e] = output_delta(map_of<LAYERS>(at) + sample, e % OUTPUTS, at.Y + sample);
    }
}

// The last layer, forward and backward, for TOGETHER samples of a block at a time. Threads divide the inputs.
__device__ void head(const Memory& at, float* shared) {
    constexpr int LAYER = LAYERS, INPUTS = inputs(LAYER), PIXELS = pixels(LAYER - 1), SUMS = TOGETHER * OUTPUTS, WARPS = THREADS / 32;
    const float *W = at.parameters + layer(LAYER).parameters_at, *b = W + OUTPUTS * INPUTS, *A = map_of<LAYER - 1>(at);
    float *parts = shared, *z = parts + WARPS * SUMS, *d = z + SUMS;
    static_assert((WARPS + 2) * SUMS <= SHARED, "streamed.py reserves too little shared memory");
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    for (int first = blockIdx.x * TOGETHER; first < at.rows; first += BLOCKS * TOGETHER) {
        float sums[SUMS] = {};
#pragma unroll 2
        for (int k = thread; k < INPUTS; k += THREADS) {
            float a[TOGETHER];
#pragma unroll
            for (int s = 0; s < TOGETHER; s++) a[s] = A[min(first + s, at.rows - 1) * INPUTS + k];
#pragma unroll
            for (int o = 0; o < OUTPUTS; o++) {
                const float w = W[o * INPUTS + k];
#pragma unroll
                for (int s = 0; s < TOGETHER; s++) sums[s * OUTPUTS + o] += a[s] * w;
            }
        }
        int begin = 0, end = SUMS;
        add_over_lanes<SUMS, 32>(sums, lane, begin, end);
        __syncthreads();  // the samples before are done
#pragma unroll
        for (int c = 0; c < left_over(SUMS, 32); c++)
            if (begin + c < end) parts[warp * SUMS + begin + c] = sums[c];
        __syncthreads();
        if (thread < SUMS) {
            float sum = b[thread % OUTPUTS];
            for (int part = 0; part < WARPS; part++) sum += parts[part * SUMS + thread];
            z[thread] = sum;
        }
        __syncthreads();
        if (thread < SUMS && first + thread / OUTPUTS < at.rows) {
            const int s = thread / OUTPUTS, o = thread % OUTPUTS;
            d[thread] = output_delta(z + s * OUTPUTS, o, at.Y + (first + s) * OUTPUTS);
            deltas_of<LAYER>(at)[(first + s) * OUTPUTS + o] = d[thread];
        }
        if constexpr (LAYER == FIRST) continue;
        __syncthreads();
        for (int k = thread; k < INPUTS; k += THREADS) {
            float g[TOGETHER] = {};
            Below below[TOGETHER];
#pragma unroll
            for (int s = 0; s < TOGETHER; s++)
                below[s] = look_below<LAYER - 1>(at, min(first + s, at.rows - 1), k / PIXELS, k % PIXELS);
#pragma unroll
            for (int o = 0; o < OUTPUTS; o++) {
                const float w = W[o * INPUTS + k];
#pragma unroll
                for (int s = 0; s < TOGETHER; s++) g[s] += d[s * OUTPUTS + o] * w;
            }
#pragma unroll
            for (int s = 0; s < TOGETHER; s++)
                if (first + s < at.rows) give<LAYER - 1>(at, first + s, k / PIXELS, k % PIXELS, g[s], below[s]);
        }
    }
}

// ---- the kernel

template <int LAYER>
__device__ void forward_of(const Memory& at, float* shared) {
    if constexpr (pools_in_tiles<LAYER + 1>())
        for (int tile = blockIdx.x; tile < Tiles<ForwardOf<LAYER>>::COUNT; tile += BLOCKS) {
            image_product(at, shared, tile, ForwardOf<LAYER>{{at}});
            pool_of_tile<LAYER + 1>(at, tile);
        }
    else if constexpr (has_weights(LAYER)) product_from<ForwardOf<LAYER>>(at, shared, blockIdx.x);
    else pool<LAYER, BLOCKS * THREADS>(at, blockIdx.x * THREADS + threadIdx.x, at.rows * numbers(LAYER), [](int e) { return e; });
}
template <int LAYER>
__device__ constexpr bool has_parts() {
    if constexpr (LAYER > LAYERS) return false;
    else return WeightsOf<LAYER>::SUMMED_LATER;
}

// All tiles of a layer's weights, and its biases. Returns the unit with which the block begins what comes next.
template <int LAYER>
__device__ int weights_from(const Memory& at, float* shared, int begin) {
    product_from<WeightsOf<LAYER>>(at, shared, begin);
    begin = after<units_of<WeightsOf<LAYER>>()>(begin);
    biases_from<LAYER>(at, shared, begin);
    return after<bias_units<LAYER>()>(begin);
}

// A phase: the deltas below LAYER, if BACK; the weights of OF and of MORE, and the sums of PARTS, where these are layers.
template <int LAYER, bool BACK, int OF, int MORE, int PARTS>
__device__ void backward_phase(const Memory& at, float* shared) {
    int begin = blockIdx.x;
    if constexpr (BACK) {
        product_from<DeltasOf<LAYER>>(at, shared, begin);
        begin = after<units_of<DeltasOf<LAYER>>()>(begin);
    }
    if constexpr (OF <= LAYERS) begin = weights_from<OF>(at, shared, begin);
    if constexpr (MORE <= LAYERS) weights_from<MORE>(at, shared, begin);
    if constexpr (has_parts<PARTS>()) add_parts<PARTS>(at);
}

// From LAYER down to the first layer. The weights of ABOVE are not moved yet, and the sums of PARTS not added up, where
// these are layers.
template <int LAYER, int ABOVE, int PARTS, typename Meet>
__device__ void backward_from(const Memory& at, float* shared, Meet meet) {
    constexpr int NONE = LAYERS + 1;
    if constexpr (LAYER > FIRST && !has_weights(LAYER)) backward_from<LAYER - 1, ABOVE, PARTS>(at, shared, meet);
    else if constexpr (LAYER > FIRST) {
        backward_phase<LAYER, true, ABOVE, NONE, PARTS>(at, shared);
        meet();
        backward_from<LAYER - 1, LAYER, ABOVE>(at, shared, meet);
    } else {
        backward_phase<LAYER, false, FIRST, ABOVE, PARTS>(at, shared);
        meet();
        if constexpr (has_parts<FIRST>() || has_parts<ABOVE>()) {
            if constexpr (has_parts<FIRST>()) add_parts<FIRST>(at);
            if constexpr (has_parts<ABOVE>()) add_parts<ABOVE>(at);
            meet();
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
network_epoch(float* parameters, float* M, float* V, const float* X, const float* Y, float* A, float* D, float* parts,
              int* arrivals, int n, int steps, float rate) {
    extern __shared__ __align__(16) float shared[];  // SHARED numbers, and the steps of STAGES + 1 turns
    int met = 0;
    // The first counter is that of the barrier.
    auto meet = [&] { meet_grid(arrivals, ++met * BLOCKS); };
    for (int start = 0; start < n; start += BATCH) {
        const int rows = min(BATCH, n - start);
        const Memory at = {parameters, M, V, A, D, parts, X + (size_t)start * numbers(0), Y + (size_t)start * OUTPUTS,
                           arrivals + 1, rows, numbers_of(rate, steps + start / BATCH + 1)};
        upwards<1, LAYERS - HAS_HEAD>([&](auto number) {
            if constexpr (!pools_in_tiles<number.number>()) {
                forward_of<number.number>(at, shared);
                meet();
            }
        });
        if constexpr (HAS_HEAD) {
            head(at, shared);
            meet();
            if constexpr (LAYERS > FIRST) backward_from<LAYERS - 1, LAYERS, LAYERS + 1>(at, shared, meet);
            else backward_from<LAYERS, LAYERS + 1, LAYERS + 1>(at, shared, meet);
        } else {
            if constexpr (OUTPUT == SOFTMAX) {
                outputs(at);
                meet();
            }
            backward_from<LAYERS, LAYERS + 1, LAYERS + 1>(at, shared, meet);
        }
    }
}
