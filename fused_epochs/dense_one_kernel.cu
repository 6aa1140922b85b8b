// An epoch of a dense network in one launch, by any optimizer: the kernel one_kernel of dense_sgd_epoch, and of
// network_epoch. The weights stay in registers and shared memory for all steps; the samples are streamed. Versions
// (MEETING):
//   ALONE    one block: no block waits for another
//   CLUSTER  layer 1 over 8 blocks, which write to each other's shared memory (from Hopper on)
//   GRID     layer 1 over up to 48 blocks, which exchange through global memory (any GPU)
//   CLUSTERS like GRID, but each cluster of 8 blocks first adds up its sums, and every block takes all samples through
//            the layers above (from Hopper on)
// dense_one_kernel.py chooses one by the amount of work.
//
//   nncourse check dense_sgd_epoch --kernel one_kernel   (--emulate without a GPU)
//   nncourse check network_epoch --kernel one_kernel
//   nncourse time dense_sgd_epoch --kernel one_kernel
//   python -m benchmarks.gpu --only epochs,floors        compared with PyTorch and JAX, and the least time of a step
//
// This file is compiled for each network: all sizes are constants, so loops are unrolled and registers hold weights.
//
//   Layer 1, usually the widest, is distributed over the threads of all blocks. A thread keeps NEURONS × 4 QUADS of its
//   weights in registers. LANES threads of a warp, and WARPS_K warps, share the inputs of a neuron. The samples pass
//   through shared memory: each warp copies the inputs that it needs while the previous step is being computed, or the
//   GPU's copy engine copies all of them.
//
//   The layers above are small. Their weights are in shared memory, and every block computes all of these layers. Of
//   layer 2 it holds only the weights of its own neurons of layer 1. GROUP threads of a warp take a sample through all
//   these layers, forward and backward, without waiting for other threads.
//
// A step: layer 1 forward | barrier | the layers above, forward and backward | barrier | update of all weights. Several
// blocks also exchange numbers once or twice between the barriers, because the sums of layer 2 need all blocks.
//
// The optimizer's memory for the weights of layer 1 is in registers; in shared memory, if registers do not suffice;
// or in global memory, if that does not suffice either (MEMORY). Its memory for the layers above is in shared memory.

#define ALONE 0
#define CLUSTER 1
#define GRID 2
#define CLUSTERS 3

#define IN_REGISTERS 0
#define IN_SHARED 1
#define IN_GLOBAL 2

// ---- sizes

__device__ constexpr int width(int layer) {  // neurons of a layer; layer 0: the inputs; 0 above the outputs
    constexpr int widths[] = {SIZES, 0};
    return widths[layer];
}
__device__ constexpr int activation(int layer) {
    constexpr int codes[] = {IDENTITY, ACTIVATIONS};
    return codes[layer];
}

constexpr int OUTPUTS = width(LAYERS);
// Every thread of a group computes a single output itself, so that none reads it or its delta from shared memory.
constexpr bool ONE_OUTPUT = OUTPUTS == 1 && activation(LAYERS) != SOFTMAX && LAYERS > (MEETING == ALONE ? 1 : 2);
constexpr int OWN = divided_up(width(1), BLOCKS);           // neurons of layer 1 in this block
constexpr int SPAN = LANES * 4 * QUADS;                     // inputs that a warp covers
constexpr int WARPS_K = divided_up(width(0), SPAN);         // warps that share the inputs of a neuron
constexpr int WARPS_J = divided_up(OWN, NEURONS * 32 / LANES);
// So that lanes can add their sums without selecting, register i of a lane is for neuron i ^ (its number in CROSS).
constexpr bool CROSSES = (NEURONS & (NEURONS - 1)) == 0 && NEURONS <= LANES;
constexpr int CROSS = CROSSES ? NEURONS : 1;
constexpr int D1_ROW = divided_up(WARPS_J * 32 / LANES * NEURONS, 4) * 4;  // neurons that the warps can hold
constexpr int WORKERS = WARPS_K * WARPS_J;                  // warps that hold weights of layer 1
constexpr int COPIES = STAGES == 1 ? WARPS_J : 1;           // of the inputs: see fetch() and refill()
constexpr int ZEROS = divided_up(width(0), 4) * 4;          // offset of the four zeros after the inputs of a sample
constexpr int GROUPS = THREADS / GROUP;                     // samples processed in parallel above layer 1
constexpr int ROUNDS = divided_up(BATCH, GROUPS);
constexpr int ROWS = ROUNDS * GROUPS;                       // every group has a sample; surplus rows are unused
constexpr int TAKEN = divided_up(BATCH, 32 / GROUP) * (32 / GROUP);  // rows of the warps that have a sample
constexpr int TEAM = MEETING == GRID ? 32 : GROUP;          // threads that take a sample through the layers above
constexpr bool IDLE = THREADS > WORKERS * 32;  // whether a warp has nothing to do for layer 1
constexpr bool DIRECT = RULE == SGD && !HAS_V;  // W <- W - rate G: each sample's part of G is subtracted at once
static_assert(WORKERS * 32 <= THREADS, "too few threads for the weights of layer 1");
static_assert(STAGES == 2 || !KEEPS, "inputs are replaced after their last use");
// Inputs are copied by the GPU's copy engine in whole rows, see copy_rows(); by each warp those that it needs itself, so it
// waits for no other warp's copies; or by all threads.
#if MEETING == CLUSTERS && STAGES == 2 && COPY == 4 && !defined(CUDA_ON_CPU)
#define BY_ENGINE
constexpr bool ENGINE = true;
#else
constexpr bool ENGINE = false;
#endif
constexpr bool PRIVATE = STAGES == 1 || (WARPS_J == 1 && (MEETING == GRID || MEETING == CLUSTERS) && !ENGINE);
constexpr bool BY_ALL = !PRIVATE && !ENGINE;

// The part of layer `layer` that a block keeps, and its offset in a row of all layers or among all weights. Elements
// are read as float4: every layer and every row of weights begins at a multiple of 4, and is padded with zeros.
__device__ constexpr int kept(int layer) { return layer == 1 ? OWN : width(layer); }
__device__ constexpr int fours(int number) { return divided_up(number, 4); }
__device__ constexpr int odd_fours(int number) { return 4 * (fours(number) | 1); }  // rows begin in different banks
__device__ constexpr int sharing(int layer) {  // threads of a group that share a sum
    constexpr int by[] = {1, 1, SHARING};
    return by[layer];
}
__device__ constexpr int place(int layer) { return layer == 1 ? 0 : place(layer - 1) + 4 * fours(kept(layer - 1)); }
__device__ constexpr int pitch(int layer) {  // row length of weights: eight adjacent threads read from different banks
    return 4 * (sharing(layer) + 8 * divided_up(fours(kept(layer - 1)) - sharing(layer), 8));
}
__device__ constexpr int weights_at(int layer) {
    return layer <= 2 ? 0 : weights_at(layer - 1) + kept(layer - 1) * pitch(layer - 1);
}
__device__ constexpr int parameters_at(int layer) {  // in the flat vector: W, then b
    return layer == 1 ? 0 : parameters_at(layer - 1) + width(layer - 1) * (width(layer - 2) + 1);
}

__device__ constexpr int updates_before(int layer) {  // of four weights each; every layer begins with a new warp
    return layer == 2 ? 0 : updates_before(layer - 1) + divided_up(width(layer - 1) * fours(kept(layer - 2)), 32) * 32;
}
// Updates are done by the warps without weights of layer 1, or by all warps if there are too few of these.
constexpr int FREE = THREADS - WORKERS * 32, UPDATES = updates_before(LAYERS + 1);
constexpr int UPDATERS = UPDATES <= 2 * FREE ? FREE : THREADS;
constexpr int ALL = place(LAYERS + 1);  // neurons of all layers in this block, with padding
constexpr int LAST = place(LAYERS);     // offset of the outputs among them
// The numbers that a block tells all others of a sample: activations of layers 2 and above, no outputs; then deltas.
constexpr int SECOND = place(2), ACTIVATED = LAST - SECOND, TOLD = ACTIVATED + ALL - SECOND;

constexpr int NEAR = 8, FAR = divided_up(BLOCKS, NEAR);  // CLUSTERS: blocks of a cluster, number of clusters
static_assert(MEETING != CLUSTERS || BLOCKS % NEAR == 0, "a cluster is not whole");
constexpr int PARTS = MEETING == CLUSTER    ? BLOCKS * width(2) * 2 * ROWS
                      : MEETING == CLUSTERS ? NEAR * width(2) * divided_up(BATCH, NEAR)
                                            : 1;

struct Shared {
    unsigned long long copied[2];                  // barriers that count the bytes of inputs, one for each stage
    unsigned long long handed_over[2];             // the same of partial sums: CLUSTER uses both alternately, CLUSTERS one
    float x[STAGES][COPIES][BATCH][ZEROS + 4];     // inputs of the batch
    float w[weights_at(LAYERS + 1) + 4];           // weights of layers 2 and above
    float a[2][ROWS][odd_fours(ALL)];              // activations, used alternately: a slow warp may still update
    float d[ROWS][odd_fours(ALL)];                 // deltas of layers 2 and above
    float d1[ROWS][CROSS][D1_ROW];                 // deltas of layer 1, times (4d)'s factor, in each order of CROSS
    float sums[WARPS_K][ROWS][OWN];                // partial sums of layer 1, one per warp, if WARPS_K > 1
    float y[2][ROWS][OUTPUTS];                     // targets of this batch and of the next
    float b[ALL];                                  // biases of layers 2 and above
    float parts[PARTS];                            // partial sums of layer 2, one per block of the cluster
    // The optimizer's memory: for the weights w; for the biases b and those of layer 1; for layer 1's weights.
    alignas(16) float m[HAS_M ? weights_at(LAYERS + 1) + 4 : 1];
    alignas(16) float v[HAS_V ? weights_at(LAYERS + 1) + 4 : 1];
    float b_m[HAS_M ? ALL : 1], b_v[HAS_V ? ALL : 1];
    float m1[HAS_M && MEMORY == IN_SHARED ? NEURONS * 4 * QUADS * WORKERS * 32 : 1];
    float v1[HAS_V && MEMORY == IN_SHARED ? NEURONS * 4 * QUADS * WORKERS * 32 : 1];
    Numbers numbers[2];  // of this step and of the next, for Adam
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "dense_one_kernel.py reserves too little shared memory");

// ---- functions with PTX, each with an equivalent for the CPU emulator; for block synchronisation see meeting.cu

// Copies COPY elements to shared memory asynchronously, or zeros unless `there`. PTX has a separate address space for
// shared memory. Converting an address takes time, so only the base address is converted, once: `memory_at`.
__device__ void copy_later(unsigned memory_at, float* to, const float* from, bool there) {
#ifdef COPIES_AT_ONCE
    for (int i = 0; i < COPY; i++) to[i] = there ? __ldg(from + i) : 0.0f;
#else
    extern __shared__ __align__(16) float memory[];
    const unsigned address = memory_at + (unsigned)((char*)to - (char*)memory);
#if COPY == 4
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(4 * COPY),
                 "r"(there ? 4 * COPY : 0) : "memory");
#endif
#endif
}

// Exchanges between blocks. Each block has partial sums of layer 2, from its own neurons of layer 1, of all samples.
//
//   CLUSTER  A block sends all its sums to all blocks, and every block takes every sample through the layers above. It
//            waits on a counter in its own shared memory, which opens when all numbers have arrived. (The cluster
//            barrier would also wait for all outstanding copies, including the next batch.) Steps alternate between two
//            buffers, because a slow block may still read the last step's sums while another writes the next.
//   GRID     A block sends its sums of a sample to one block, which takes the sample through the layers above and tells
//            all blocks its activations and deltas: two exchanges, but of few numbers. Each number carries its turn:
//            see meeting.cu. No block sends again before it has heard of all samples.
//   CLUSTERS A block sends its sums of a sample to one block of its cluster, which adds them and tells all blocks the
//            result. Every block takes every sample through the layers above: one exchange, of an eighth of the numbers
//            that all blocks would tell. The results alternate between two buffers. The parts need only one: no block
//            sends any again before it has heard all results.
#if (MEETING == CLUSTER || MEETING == CLUSTERS) && !defined(CUDA_ON_CPU)
#define BY_CLUSTER
#endif
__device__ constexpr int part_at(int turn, int from, int sample, int neuron) {
    if (MEETING == GRID) return (sample * BLOCKS + from) * width(2) + neuron;
    if (MEETING == CLUSTERS) return (sample / NEAR * width(2) + neuron) * NEAR + from % NEAR;
    return ((turn * BLOCKS + from) * ROWS + sample) * width(2) + neuron;
}
// CLUSTERS: where the sum of a cluster is told, next to those of the other clusters; sums are heard in fours.
constexpr int FOURS = divided_up(FAR, 4);
__device__ float* sum_at(float* meeting_place, int turn, int cluster, int sample, int neuron) {
    return meeting_place + ((turn * BATCH + sample) * width(2) + neuron) * 4 * FOURS + cluster;
}
// A block adds up its cluster's parts of every NEAR-th sample, from its rank on. This is their number.
__device__ int summed_here() { return divided_up(BATCH - (int)blockIdx.x % NEAR, NEAR); }
// The parts that the block of this rank in its cluster adds up; on a GPU this block's own, whatever the rank. The emulator
// keeps them after the sums, in global memory.
__device__ float* parts_of(Shared& at, float* meeting_place, int rank) {
#ifdef BY_CLUSTER
    return at.parts;
#else
    return sum_at(meeting_place, 2, 0, 0, 0) + (blockIdx.x / NEAR * NEAR + rank) * PARTS;
#endif
}
// Sends this block's partial sum; `share` is the thread's index among the sharing(2) that have this sum.
__device__ void hand_over(Shared& at, float* meeting_place, int step, int sample, int neuron, int share, float part) {
    const int place = part_at(step % 2, blockIdx.x, sample, neuron);
#if MEETING == CLUSTERS
    if (share > 0 || sample >= BATCH) return;
#ifdef BY_CLUSTER
    send(part, &at.parts[place], &at.handed_over[0], sample % NEAR);
#else
    parts_of(at, meeting_place, sample % NEAR)[place] = part;
#endif
#elif defined(BY_CLUSTER)
    for (int to = share; to < BLOCKS; to += sharing(2)) send(part, &at.parts[place], &at.handed_over[step % 2], to);
#elif MEETING == GRID
    if (share == 0 && sample < BATCH) tell(meeting_place + place, part, step + 1);
#else
    if (share == 0) meeting_place[place] = part;  // the emulator of a cluster
#endif
}
// The partial sums at place(0), place(1), …
template <int COUNT, typename Place>
__device__ void handed_over(Shared& at, const float* meeting_place, float (&parts)[COUNT], int step, Place place) {
#if MEETING == GRID
    auto there = [&](int i) { return meeting_place + place(i); };
    listen(parts, there);
    hear(parts, step + 1, there);
#else
#ifdef BY_CLUSTER
    const float* all = at.parts;
#else
    const float* all = meeting_place;
#endif
#pragma unroll
    for (int i = 0; i < COUNT; i++) parts[i] = all[place(i)];
#endif
}

// In a grid: number c of those told of a sample, and where they are told.
__device__ float& told(Shared& at, int turn, int s, int c) {
    return c < ACTIVATED ? at.a[turn][s][SECOND + c] : at.d[s][SECOND + c - ACTIVATED];
}
__device__ float* told_at(float* meeting_place, int s) { return meeting_place + BATCH * BLOCKS * width(2) + s * TOLD; }
// A warp tells all blocks about its sample.
__device__ void tell_all(Shared& at, float* meeting_place, int step, int s, int lane) {
    float* row = told_at(meeting_place, s);
    for (int c = lane; c < TOLD; c += 32) tell(row + c, told(at, step % 2, s, c), step + 1);
    __syncwarp();  // see tell_sums()
}
// A group waits for what is told about its sample.
__device__ void hear_all(Shared& at, float* meeting_place, int step, int s, int member) {
#if MEETING == GRID
    constexpr int COUNT = divided_up(TOLD, GROUP);
    const float* row = told_at(meeting_place, min(s, BATCH - 1));
    float numbers[COUNT];
    auto place = [&](int i) { return row + min(i * GROUP + member, TOLD - 1); };
    listen(numbers, place);
    hear(numbers, step + 1, place);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (s < BATCH && i * GROUP + member < TOLD) told(at, step % 2, s, i * GROUP + member) = numbers[i];
    __syncwarp();
#endif
}

// In a cluster: the counters of a block, the number of bytes to expect, and the wait for them.
__device__ void make_counters(Shared& at) {
#ifdef BY_CLUSTER
    for (int turn = 0; turn < 2; turn++) {
        make_counter(&at.handed_over[turn]);
        make_counter(&at.copied[turn]);
    }
#endif
}
__device__ void expect_parts(Shared& at, int step) {
#ifdef BY_CLUSTER
    if (MEETING == CLUSTER) expect(&at.handed_over[step % 2], 4 * BLOCKS * TAKEN * width(2));
    else if (summed_here() > 0) expect(&at.handed_over[0], 4 * NEAR * summed_here() * width(2));
#endif
}
__device__ void wait_for_parts(Shared& at, int step) {
#ifdef BY_CLUSTER
    if (MEETING == CLUSTER) wait_until_open(&at.handed_over[step % 2], step / 2 % 2);
    else wait_until_open(&at.handed_over[0], step % 2);
#endif
}

// CLUSTERS: adds up the parts of this block's samples, and tells all blocks the sums.
__device__ void tell_sums(Shared& at, float* meeting_place, int step) {
    const int rank = blockIdx.x % NEAR, cluster = blockIdx.x / NEAR, count = summed_here() * width(2);
    for (int e = THREADS - 1 - threadIdx.x; e < count; e += THREADS) {
        wait_for_parts(at, step);
        const float* parts = parts_of(at, meeting_place, rank) + e * NEAR;
        float sum = 0.0f;
#pragma unroll
        for (int from = 0; from < NEAR; from++) sum += parts[from];
        const int sample = e / width(2) * NEAR + rank, neuron = e % width(2);
        tell(sum_at(meeting_place, step % 2, cluster, sample, neuron), sum, step / 2 + 1);
        if (cluster == 0)  // instead of clusters that do not exist
            for (int other = FAR; other < 4 * FOURS; other++)
                tell(sum_at(meeting_place, step % 2, other, sample, neuron), 0.0f, step / 2 + 1);
    }
    __syncwarp();  // otherwise threads with nothing to tell start to poll, and hold up those of their warp that have
}
// CLUSTERS: the activations of layer 2 of a sample, from the sums of all clusters.
__device__ void hear_sums(const Shared& at, float* meeting_place, int step, int s, int member, float* a) {
    constexpr int NEURONS_2 = width(2), COUNT = NEURONS_2 ? divided_up(NEURONS_2, GROUP) : 1, FIRST_2 = place(2);
    float4 sums[COUNT * FOURS];
    auto place = [&](int i) {
        const int sample = min(s, BATCH - 1), neuron = min(i / FOURS * GROUP + member, NEURONS_2 - 1);
        return (const float4*)sum_at(meeting_place, step % 2, i % FOURS * 4, sample, neuron);
    };
    listen(sums, place);
    hear(sums, step / 2 + 1, place);
#pragma unroll
    for (int c = 0; c < COUNT; c++) {
        const int j = c * GROUP + member;
        float z = at.b[FIRST_2 + min(j, NEURONS_2 - 1)];
#pragma unroll
        for (int four = 0; four < FOURS; four++) {
            const float4 of = sums[c * FOURS + four];
            z += (of.x + of.y) + (of.z + of.w);
        }
        if (j < NEURONS_2) a[j] = activate(activation(2), z);
    }
}

// With ENGINE, the last warp, which may have no weights of layer 1, starts the copies of a batch: of each NEAR-th row, to
// all blocks of the cluster. The caller must know that none of these blocks still reads this stage.
__device__ void copy_rows(Shared& at, int stage, const float* X, int start, int n) {
#ifdef BY_ENGINE
    const int lane = (int)threadIdx.x - (THREADS - 32), rows = min(BATCH, n - start);
    if (lane < 0 || rows <= 0) return;
    if (lane == 0) expect(&at.copied[stage], 4 * rows * width(0));
    __syncwarp();
    for (int s = lane * NEAR + blockIdx.x % NEAR; s < rows; s += 32 * NEAR)
        copy_row(at.x[stage][0][s], X + (size_t)(start + s) * width(0), 4 * width(0), &at.copied[stage], NEAR);
#endif
}
__device__ void wait_for_rows(Shared& at, int step) {
#ifdef BY_ENGINE
    wait_until_open(&at.copied[step % 2], step / 2 % 2);
#endif
}

// A barrier for all blocks of a cluster.
__device__ void meet() {
#ifdef BY_CLUSTER
    meet_cluster();
#endif
}

template <bool FIRST, typename A, typename B>
__device__ auto& select(A& first, B& second) {
    if constexpr (FIRST) return first;
    else return second;
}

// Makes the compiler compute a number here, in every thread, and not later in the branch that stores it. In each such
// branch a warp would wait for the result; without branches it waits for many results at once.
__device__ void computed_here(float& number) {
#ifndef CUDA_ON_CPU
    asm volatile("" : "+f"(number));
#endif
}

// ---- outputs

// Replaces the z of a sample's outputs by their softmax. Each thread of the team has some of its terms.
__device__ void softmax(float* a, int member) {
    constexpr int COUNT = divided_up(OUTPUTS, TEAM);
    float terms[COUNT], top = a[0], total = 0.0f;
#pragma unroll
    for (int c = 0; c < COUNT; c++) top = fmaxf(top, terms[c] = a[min(c * TEAM + member, OUTPUTS - 1)]);
#pragma unroll
    for (int by = TEAM / 2; by > 0; by /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, by, TEAM));
#pragma unroll
    for (int c = 0; c < COUNT; c++) {
        terms[c] = expf(terms[c] - top);
        if (c * TEAM + member < OUTPUTS) total += terms[c];
    }
#pragma unroll
    for (int by = TEAM / 2; by > 0; by /= 2) total += __shfl_xor_sync(~0u, total, by, TEAM);
#pragma unroll
    for (int c = 0; c < COUNT; c++)
        if (c * TEAM + member < OUTPUTS) a[c * TEAM + member] = terms[c] / total;
    __syncwarp();
}

// The delta of an output: (4a). `mean` is used by softmax only.
__device__ float output_delta(float a, float y, float mean) {
    constexpr int code = activation(LAYERS);
    const float g = cost_gradient(COST, a, y);
    return COST == CROSS_ENTROPY ? g : code == SOFTMAX ? a * (g - mean) : g * slope(code, a);
}

// The deltas of a sample's outputs; 0 unless the sample is `there`, because the last batch may be smaller.
__device__ void output_deltas(const float* a, const float* y, float* d, int member, bool there) {
    float mean = 0.0f;
    if (activation(LAYERS) == SOFTMAX && COST != CROSS_ENTROPY)
        for (int o = 0; o < OUTPUTS; o++) mean += cost_gradient(COST, a[o], y[o]) * a[o];
#pragma unroll
    for (int first = 0; first < OUTPUTS; first += TEAM) {
        const int o = min(first + member, OUTPUTS - 1);
        const float delta = there ? output_delta(a[o], y[o], mean) : 0.0f;
        if (first + member < OUTPUTS) d[o] = delta;
    }
    __syncwarp();
}

// Weighted sums of layer LAYER for one sample. Calls done(neuron, share, there, sum): `share` is the thread's index
// among those that share the sum, `there` whether it has a neuron. Threads without one compute the last neuron's sum,
// to avoid branches: see computed_here(). Partial sums sent to other blocks do not include the bias.
template <int LAYER, typename Done>
__device__ void weighted_sums(const Shared& at, const float* below, int member, Done done) {
    constexpr int neurons = width(LAYER), inputs = fours(kept(LAYER - 1)), shared_by = sharing(LAYER);
    constexpr int SIZE = LAYER == 2 ? GROUP : TEAM;
    constexpr int row = pitch(LAYER) / 4, first_weight = weights_at(LAYER);
    const float4 *w = (const float4*)(at.w + first_weight), *x = (const float4*)below;
#pragma unroll
    for (int first = 0; first < neurons; first += SIZE / shared_by) {
        const bool there = first + member / shared_by < neurons;
        const int neuron = there ? first + member / shared_by : neurons - 1, share = member % shared_by;
        const bool with_bias = share == 0 && (LAYER > 2 || MEETING == ALONE);
        float4 sums = {with_bias ? at.b[place(LAYER) + neuron] : 0.0f};  // four, for parallel additions
#pragma unroll 16
        for (int i0 = 0; i0 < inputs; i0 += shared_by) {
            const int i = i0 + share;
            const float4 weights = i < inputs ? w[neuron * row + i] : float4{}, numbers = x[min(i, inputs - 1)];
            sums.x += weights.x * numbers.x;
            sums.y += weights.y * numbers.y;
            sums.z += weights.z * numbers.z;
            sums.w += weights.w * numbers.w;
        }
        const float part = (sums.x + sums.y) + (sums.z + sums.w);
        float z = part;
#pragma unroll
        for (int i = 1; i < shared_by; i++) {  // independent shuffles, so their latencies overlap
            const int from = (neuron - first) * shared_by + (share + i) % shared_by;
            z += __shfl_sync(~0u, part, from, SIZE);
        }
        done(neuron, share, there, z);
    }
}

// The deltas of layer 1 for one sample and this thread's neurons. `row` is aligned as NEURONS numbers are.
__device__ void read_deltas(float (&d)[NEURONS], const float* row) {
    constexpr int AT_ONCE = NEURONS % 4 == 0 ? 4 : NEURONS % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < NEURONS; i += AT_ONCE)
        if constexpr (AT_ONCE == 4) {
            const float4 four = *(const float4*)(row + i);
            d[i] = four.x, d[i + 1] = four.y, d[i + 2] = four.z, d[i + 3] = four.w;
        } else if constexpr (AT_ONCE == 2) {
            const float2 two = *(const float2*)(row + i);
            d[i] = two.x, d[i + 1] = two.y;
        } else d[i] = row[i];
}

// Moves a parameter of the layers above. `sum` is that of all samples, `scale` see (4d) below.
__device__ void move_one(float& w, float* m, float* v, float sum, float scale, Numbers now) {
    if constexpr (!DIRECT) {
        w = moved(w, scale * sum, m, v, now);
        return;
    }
    if (L2 != 0.0f) w = moved(w, 0.0f, m, v, now);
    w += scale * sum;
}
__device__ void move_four(float* w, float* m, float* v, float4 sum, float scale, Numbers now) {
    float4 four = *(float4*)w, four_m = HAS_M ? *(float4*)m : float4{}, four_v = HAS_V ? *(float4*)v : float4{};
    move_one(four.x, &four_m.x, &four_v.x, sum.x, scale, now);
    move_one(four.y, &four_m.y, &four_v.y, sum.y, scale, now);
    move_one(four.z, &four_m.z, &four_v.z, sum.z, scale, now);
    move_one(four.w, &four_m.w, &four_v.w, sum.w, scale, now);
    *(float4*)w = four;
    if (HAS_M) *(float4*)m = four_m;
    if (HAS_V) *(float4*)v = four_v;
}

// ---- the kernel

extern "C" __global__ void __launch_bounds__(THREADS, 1)
__cluster_dims__(MEETING == CLUSTER ? BLOCKS : MEETING == CLUSTERS ? NEAR : 1)
dense_epoch(float* parameters, float* M, float* V, const float* X, const float* Y, float* meeting_place, int n,
            float rate, int steps) {
    extern __shared__ __align__(16) float memory[];
    Shared& at = *(Shared*)memory;
#ifdef CUDA_ON_CPU
    const unsigned memory_at = 0;
#else
    unsigned memory_at = (unsigned)__cvta_generic_to_shared(memory);
    asm volatile("" : "+r"(memory_at));  // otherwise the compiler converts it again at each use
#endif
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, block = blockIdx.x;

    // This thread's part of layer 1: neurons j0, j0 + 1, … of this block; four inputs from k0, k0 + 4 LANES, …
    const bool works = warp < WORKERS;
    const int warp_k = warp % WARPS_K, warp_j = warp / WARPS_K, first_k = warp_k * SPAN, k0 = lane % LANES * 4;
    const int j0 = (warp_j * (32 / LANES) + lane / LANES) * NEURONS, cross = lane % LANES * CROSS / LANES;
    int column[QUADS];  // offset of each four inputs; past the inputs, of the zeros
#pragma unroll
    for (int q = 0; q < QUADS; q++) column[q] = min(first_k + k0 + q * 4 * LANES, ZEROS);
    const int own = min(OWN, width(1) - block * OWN);  // the last blocks may have fewer, or none

    // The inputs of a batch are loaded in one of four ways. If there is room for two batches, the next one is copied
    // while this one is used: by all threads; by each warp its own inputs (PRIVATE); or by the copy engine (ENGINE).
    // Otherwise each warp replaces its inputs, sample by sample, after their last use.
    const int copy = STAGES == 1 ? warp_j % COPIES : 0;  // the copy that this warp reads
    auto fetch = [&](int stage, int start) {
        constexpr int in_row = width(0) / COPY;
        const float* from = X + (size_t)start * width(0);
#pragma unroll
        for (int t0 = 0; t0 < BATCH * in_row; t0 += THREADS) {
            const int t = t0 + thread, s = t / in_row, k = t % in_row * COPY;
            if (t < BATCH * in_row) copy_later(memory_at, &at.x[stage][0][s][k], from + t * COPY, start + s < n);
        }
    };
    // A small batch goes through registers: loaded at the beginning of a step, stored to shared memory at its end.
    constexpr int INPUTS = BATCH * width(0), TARGETS = BATCH * OUTPUTS;
    constexpr int X_HELD = divided_up(INPUTS, THREADS), Y_HELD = divided_up(TARGETS, THREADS);
    constexpr bool HOLDS = BY_ALL && X_HELD <= 4, FETCHES = BY_ALL && !HOLDS;
    float x_next[X_HELD], y_next[Y_HELD];
    auto ask = [&](int start) {
        const float *x = X + (size_t)start * width(0), *y = Y + (size_t)start * OUTPUTS;
        if (HOLDS)
#pragma unroll
            for (int c = 0; c < X_HELD; c++) {
                const int t = c * THREADS + thread;
                x_next[c] = t < min(BATCH, n - start) * width(0) ? x[t] : 0.0f;
            }
#pragma unroll
        for (int c = 0; c < Y_HELD; c++) {
            const int t = c * THREADS + thread;
            y_next[c] = t < min(BATCH, n - start) * OUTPUTS ? y[t] : 0.0f;
        }
    };
    auto put = [&](int stage, int turn) {
        if (HOLDS)
#pragma unroll
            for (int c = 0; c < X_HELD; c++) {
                const int t = c * THREADS + thread;
                if (t < INPUTS) at.x[stage][0][t / width(0)][t % width(0)] = x_next[c];
            }
#pragma unroll
        for (int c = 0; c < Y_HELD; c++) {
            const int t = c * THREADS + thread;
            if (t < TARGETS) (&at.y[turn][0][0])[t] = y_next[c];
        }
    };
    auto refill = [&](int stage, int s, int row) {
        const float* from = X + (size_t)row * width(0);
#pragma unroll
        for (int k0 = 0; k0 < SPAN; k0 += 32 * COPY) {
            const int k = first_k + k0 + lane * COPY;
            if (k < first_k + SPAN && k < width(0)) copy_later(memory_at, &at.x[stage][copy][s][k], from + k, row < n);
        }
        end_group_of_copies();
    };
    const int group = thread / GROUP, member = thread % GROUP;
    const int updater = UPDATERS < THREADS ? thread - (THREADS - UPDATERS) : THREADS - 1 - thread;

    // Calls body(i, q, place) for this thread's weights of layer 1 that exist, with their place in the flat vector.
    auto of_layer_1 = [&](auto body) {
#pragma unroll
        for (int i = 0; i < NEURONS; i++)
#pragma unroll
            for (int q = 0; q < 4 * QUADS; q++) {
                const int k = first_k + k0 + q / 4 * 4 * LANES + q % 4;
                const int j = j0 + (i ^ cross);
                if (works && j < own && k < width(0)) body(i, q, (block * OWN + j) * width(0) + k);
            }
    };
    // The optimizer's memory for them, and where it is: m_of(i, q), v_of(i, q).
    constexpr bool M_KEPT = HAS_M && MEMORY == IN_REGISTERS, V_KEPT = HAS_V && MEMORY == IN_REGISTERS;
    float m1[M_KEPT ? NEURONS : 1][4 * QUADS] = {}, v1[V_KEPT ? NEURONS : 1][4 * QUADS] = {};
    auto shared_at = [&](int i, int q) { return (i * 4 * QUADS + q) * WORKERS * 32 + thread; };
    auto m_of = [&](int i, int q) { return M_KEPT ? &m1[i][q] : HAS_M ? &at.m1[shared_at(i, q)] : nullptr; };
    auto v_of = [&](int i, int q) { return V_KEPT ? &v1[i][q] : HAS_V ? &at.v1[shared_at(i, q)] : nullptr; };

    // ---- load all weights
    float w[NEURONS][4 * QUADS] = {};
    of_layer_1([&](int i, int q, int place) { w[i][q] = parameters[place]; });
    // The bias of a neuron of layer 1 is added to the partial sum of one thread, whose number in CROSS is 0.
    const bool biased = works && warp_k == 0 && lane % LANES == 0;
    float bias[NEURONS];
#pragma unroll
    for (int i = 0; i < NEURONS; i++)
        bias[i] = biased && j0 + i < own ? parameters[width(1) * width(0) + block * OWN + j0 + i] : 0.0f;
    for (int t = thread; t < (int)(sizeof(Shared) / 4); t += THREADS) memory[t] = 0.0f;  // padding stays zero
    __syncthreads();
    if (MEMORY != IN_GLOBAL)
        of_layer_1([&](int i, int q, int place) {
            if (HAS_M) *m_of(i, q) = M[place];
            if (HAS_V) *v_of(i, q) = V[place];
        });
    for (int j = thread; j < own; j += THREADS) {
        if (HAS_M) at.b_m[j] = M[width(1) * width(0) + block * OWN + j];
        if (HAS_V) at.b_v[j] = V[width(1) * width(0) + block * OWN + j];
    }
    upwards<2, LAYERS>([&](auto number) {
        constexpr int layer = number.number, n_out = width(layer), n_in = width(layer - 1), inputs = kept(layer - 1);
        constexpr int first_neuron = place(layer), from = parameters_at(layer);
        constexpr int first_weight = weights_at(layer), row = pitch(layer);
        const float *W = parameters + from, *b = W + n_out * n_in;
        const int first = layer == 2 ? block * OWN : 0;
        for (int j = thread; j < n_out; j += THREADS) {
            at.b[first_neuron + j] = b[j];
            if (HAS_M) at.b_m[first_neuron + j] = M[from + n_out * n_in + j];
            if (HAS_V) at.b_v[first_neuron + j] = V[from + n_out * n_in + j];
        }
        for (int t = thread; t < n_out * inputs; t += THREADS) {
            const int j = t / inputs, i = t % inputs, to = first_weight + j * row + i, place = j * n_in + first + i;
            at.w[to] = first + i < n_in ? W[place] : 0.0f;
            if (HAS_M) at.m[to] = first + i < n_in ? M[from + place] : 0.0f;
            if (HAS_V) at.v[to] = first + i < n_in ? V[from + place] : 0.0f;
        }
    });
    if (thread == 0) make_counters(at);
    ask(0);
    put(0, 0);
    if (PRIVATE && works)
        for (int s = 0; s < BATCH; s++) refill(0, s, s);
    if (FETCHES) fetch(0, 0);
    wait_for_copies();
    __syncthreads();
    meet();
    copy_rows(at, 0, X, 0, n);

    // For (4d): the deltas of layer 1 times this are added to its weights, or are their gradient. The last batch may be
    // smaller.
    const float down_whole = (DIRECT ? -rate : 1.0f) / BATCH, down_last = (DIRECT ? -rate : 1.0f) / max(1, n % BATCH);

    float4 kept_x[KEEPS ? BATCH : 1][QUADS];  // the inputs that this thread has read, for the update, if KEEPS
    for (int start = 0, step = 0; start < n; start += BATCH, step++) {
        const int next = start + BATCH, turn = step % 2, stage = step % STAGES;
        ask(next);
        if (RULE == ADAM && IDLE && thread == THREADS - 1) at.numbers[turn] = numbers_of(rate, steps + step + 1);
        if (ENGINE) {
            if (works) wait_for_rows(at, step);
            // With KEEPS every block of the cluster had read the other stage before it handed over its last parts, and this
            // block has heard the sums of these.
            if (KEEPS) copy_rows(at, 1 - stage, X, next, n);
        } else if (PRIVATE && STAGES == 2) {
            wait_for_copies();
            __syncwarp();
        }

        // ---- layer 1 forward: this thread's partial sums, SAMPLES samples at a time
        auto forward = [&](int s0) {
            float z[SAMPLES * NEURONS];
#pragma unroll
            for (int c = 0; c < SAMPLES * NEURONS; c++) z[c] = bias[c / SAMPLES];
#pragma unroll
            for (int s = 0; s < SAMPLES; s++)
#pragma unroll
                for (int q = 0; q < QUADS; q++) {
                    const float4 x = *(const float4*)&at.x[stage][copy][s0 + s][column[q]];
                    if (KEEPS) kept_x[s0 + s][q] = x;
#pragma unroll
                    for (int i = 0; i < NEURONS; i++) {
                        float& sum = z[i * SAMPLES + s];
                        sum += w[i][4 * q] * x.x;
                        sum += w[i][4 * q + 1] * x.y;
                        sum += w[i][4 * q + 2] * x.z;
                        sum += w[i][4 * q + 3] * x.w;
                    }
                }
            // Each round leaves a lane with half of its sums: first by its neurons, then by samples.
#pragma unroll
            for (int by = 1; by < CROSS; by *= 2)
#pragma unroll
                for (int c = 0; c < SAMPLES * NEURONS / (2 * by); c++)
                    z[c] += __shfl_xor_sync(~0u, z[c + SAMPLES * NEURONS / (2 * by)], LANES / (2 * by));
            constexpr int REST = SAMPLES * NEURONS / CROSS, left = left_over(REST, LANES / CROSS);
            int first = 0, end = REST;
            add_over_lanes<REST, LANES / CROSS>(z, lane, first, end);
#pragma unroll
            for (int c = 0; c < left; c++) {
                const int s = (first + c) % SAMPLES, j = j0 + (CROSS > 1 ? cross : (first + c) / SAMPLES);
                float activated = BLOCKS == 1 || j < own ? activate(activation(1), z[c]) : 0.0f;
                computed_here(activated);
                float* to = WARPS_K > 1 ? &at.sums[warp_k][s0 + s][j] : &at.a[turn][s0 + s][j];
                if (first + c < end && j < OWN) *to = WARPS_K > 1 ? z[c] : activated;
            }
        };
        // With one stage, the first samples need not wait for the copies of the last. Registers cannot be indexed.
        constexpr int WAITS = KEEPS || (STAGES == 1 && BATCH / SAMPLES <= 8) ? BATCH / SAMPLES : 1;
        constexpr int AT_ONCE = BATCH / WAITS;
        if (works)
            upwards<0, WAITS - 1>([&](auto number) {
                constexpr int from = number.number * AT_ONCE;
                if (STAGES == 1) {
                    wait_for_groups<BATCH - from - AT_ONCE>();
                    __syncwarp();
                }
                for (int s0 = from; s0 < from + AT_ONCE; s0 += SAMPLES) forward(s0);
            });
        __syncthreads();
        if (FETCHES) fetch(1 - stage, next);

        // ---- the layers above
        if (thread == 0) expect_parts(at, step);
        const float down = n - start >= BATCH ? down_whole : down_last;
        // Calls body(s) for each sample of this group.
        auto each_sample = [&](auto body) {
            for (int round = 0; round < ROUNDS; round++) {
                const int s = round * GROUPS + group;
                if (TAKEN < ROWS && s >= TAKEN) break;
                body(s);
            }
        };
        if (WARPS_K > 1 || MEETING != ALONE)
            each_sample([&](int s) {
                float* a = at.a[turn][s];
                if (WARPS_K > 1) {
                    for (int j = member; j < OWN; j += GROUP) {
                        float z = 0.0f;
#pragma unroll
                        for (int part = 0; part < WARPS_K; part++) z += at.sums[part][s][j];
                        a[j] = j < own ? activate(activation(1), z) : 0.0f;
                    }
                    __syncwarp();
                }
                if constexpr (MEETING != ALONE) {
                    weighted_sums<2>(at, a, member, [&](int neuron, int share, bool there, float z) {
                        if (there) hand_over(at, meeting_place, step, s, neuron, share, z);
                    });
                    __syncwarp();  // see tell_sums()
                }
            });
        // The next batch is copied while the blocks exchange: earlier copies would delay their numbers.
        if (PRIVATE && STAGES == 2 && works)
#pragma unroll 8
            for (int s = 0; s < BATCH; s++) refill(1 - stage, s, next + s);
        if (RULE == ADAM && !IDLE && thread == THREADS - 1) at.numbers[turn] = numbers_of(rate, steps + step + 1);
        if (MEETING != ALONE) begin_to_listen();
        if (MEETING == CLUSTERS) {
            tell_sums(at, meeting_place, step);
            begin_to_listen();
        }

        auto give = [&](int s, int j, float delta) {  // a delta of layer 1
#pragma unroll
            for (int p = 0; p < CROSS; p++) at.d1[s][p][j ^ p] = down * delta;
        };
        // The deltas of layer `number` of sample s, by a group or team: (4b). `delta`: the output's, if ONE_OUTPUT.
        auto back = [&](auto number, int s, int member, float delta) {
            constexpr int layer = number.number, SIZE = layer == 1 ? GROUP : TEAM;
            constexpr int neurons = kept(layer), first = place(layer), n_above = width(layer + 1);
            constexpr int above = place(layer + 1), first_weight = weights_at(layer + 1), row = pitch(layer + 1);
            constexpr int at_once = neurons <= 4 * SIZE ? divided_up(neurons, SIZE) : 1;
            float *a = at.a[turn][s], *d = at.d[s];
            for (int i0 = 0; i0 < neurons; i0 += at_once * SIZE) {
                float sums[at_once] = {};  // all are computed before the first store: reads cannot pass it
#pragma unroll 16
                for (int o = 0; o < n_above; o++)
#pragma unroll
                    for (int c = 0; c < at_once; c++) {
                        const int i = min(i0 + c * SIZE + member, neurons - 1);
                        const float from_above = ONE_OUTPUT && layer == LAYERS - 1 ? delta : d[above + o];
                        sums[c] += at.w[first_weight + o * row + i] * from_above;
                    }
#pragma unroll
                for (int c = 0; c < at_once; c++) {
                    sums[c] *= slope(activation(layer), a[first + min(i0 + c * SIZE + member, neurons - 1)]);
                    computed_here(sums[c]);
                }
#pragma unroll
                for (int c = 0; c < at_once; c++) {
                    const int i = i0 + c * SIZE + member;
                    if (i >= neurons) continue;
                    if (layer > 1) d[first + i] = sums[c];
                    else give(s, i, sums[c]);
                }
            }
            __syncwarp();
        };
        // A team takes a sample through the layers above, and back to layer 2. Returns `delta`.
        auto through = [&](int s, int member) {
            float *a = at.a[turn][s], *d = at.d[s];
            const float target = at.y[turn][s][0];
            float output = 0.0f, delta = 0.0f;  // if ONE_OUTPUT
            upwards<2, LAYERS>([&](auto number) {
                constexpr int layer = number.number, neurons = width(layer);
                constexpr int first = place(layer), below = place(layer - 1);
                if constexpr (layer == 2 && MEETING == CLUSTERS) hear_sums(at, meeting_place, step, s, member, a + first);
                else if constexpr (layer == 2 && MEETING != ALONE) {
                    constexpr int most = MEETING == GRID ? BLOCKS : 1, can = neurons < TEAM ? TEAM / neurons : 1;
                    constexpr int by = can < most ? can : most;  // threads that share a sum
                    constexpr int count = divided_up(BLOCKS, by), step_j = TEAM / by;
                    for (int j0 = 0; j0 < neurons; j0 += step_j) {
                        const bool there = j0 + member / by < neurons;
                        const int j = there ? j0 + member / by : neurons - 1, share = member % by;
                        float parts[count], sum = share == 0 ? at.b[first + j] : 0.0f;
                        handed_over(at, meeting_place, parts, step,
                                    [&](int i) { return part_at(turn, min(i * by + share, BLOCKS - 1), s, j); });
#pragma unroll
                        for (int i = 0; i < count; i++) sum += i * by + share < BLOCKS ? parts[i] : 0.0f;
                        float z = sum;
#pragma unroll
                        for (int i = 1; i < by; i++) z += __shfl_sync(~0u, sum, (j - j0) * by + (share + i) % by, TEAM);
                        if (there && share == 0) a[first + j] = activate(activation(layer), z);
                    }
                } else {
                    weighted_sums<layer>(at, a + below, member, [&](int j, int share, bool there, float z) {
                        float activated = activate(activation(layer), z);
                        computed_here(activated);
                        if (there && share == 0) a[first + j] = activated;
                        if (layer == LAYERS) output = activated;
                    });
                }
                __syncwarp();
            });
            if constexpr (ONE_OUTPUT) {
                delta = start + s < n ? output_delta(output, target, 0.0f) : 0.0f;
                if (member == 0) d[LAST] = delta;
            } else {
                if (activation(LAYERS) == SOFTMAX) softmax(a + LAST, member);
                output_deltas(a + LAST, at.y[turn][s], d + LAST, member, start + s < n);
            }
            downwards<LAYERS - 1, 2>([&](auto number) { back(number, s, member, delta); });
            return delta;
        };
        if (MEETING == CLUSTER) wait_for_parts(at, step);
        if constexpr (MEETING == GRID) {  // a sample for each warp, the last first: it may have nothing to copy
            for (int s = block + (THREADS / 32 - 1 - warp) * BLOCKS; s < BATCH; s += THREADS / 32 * BLOCKS) {
                through(s, lane);
                __syncwarp();
                tell_all(at, meeting_place, step, s, lane);
            }
            begin_to_listen();
        }
        each_sample([&](int s) {
            float delta = 0.0f;
            if constexpr (MEETING == GRID) hear_all(at, meeting_place, step, s, member);
            else delta = through(s, member);
            if constexpr (LAYERS == 1)
                for (int j = member; j < OWN; j += GROUP) give(s, j, at.d[s][j]);
            else back(Layer<1>(), s, member, delta);
        });
        put(STAGES == 2 ? 1 - stage : 0, 1 - turn);
        if (FETCHES) wait_for_copies();
        __syncthreads();
        if (!KEEPS) copy_rows(at, 1 - stage, X, next, n);

        // ---- update of all weights: (4d) and (4c)
        const Numbers now = RULE == ADAM ? at.numbers[turn] : numbers_of(rate, 0);
        constexpr int TOGETHER = KEEPS ? BATCH : 10;  // registers cannot be indexed: unroll over all samples
        if (works) {
            // The samples add up to the new weights, or to their gradient.
            float sum[DIRECT ? 1 : NEURONS][4 * QUADS] = {}, bias_sum[NEURONS] = {};
            auto& total = select<DIRECT>(w, sum);
            auto& bias_total = select<DIRECT>(bias, bias_sum);
            if (DIRECT && L2 != 0.0f)
#pragma unroll
                for (int i = 0; i < NEURONS; i++) {
                    bias[i] = moved(bias[i], 0.0f, nullptr, nullptr, now);
#pragma unroll
                    for (int q = 0; q < 4 * QUADS; q++) w[i][q] = moved(w[i][q], 0.0f, nullptr, nullptr, now);
                }
#pragma unroll TOGETHER
            for (int s = 0; s < BATCH; s++) {
                float d[NEURONS];
                read_deltas(d, &at.d1[s][cross][j0]);
                if (biased)
#pragma unroll
                    for (int i = 0; i < NEURONS; i++) bias_total[i] += d[i];
#pragma unroll
                for (int q = 0; q < QUADS; q++) {
                    const float4 x = KEEPS ? kept_x[s][q] : *(const float4*)&at.x[stage][copy][s][column[q]];
#pragma unroll
                    for (int i = 0; i < NEURONS; i++) {
                        total[i][4 * q] += d[i] * x.x;
                        total[i][4 * q + 1] += d[i] * x.y;
                        total[i][4 * q + 2] += d[i] * x.z;
                        total[i][4 * q + 3] += d[i] * x.w;
                    }
                }
                if (STAGES == 1) {  // last use of this sample: replace it by the next batch's
                    __syncwarp();
                    refill(0, s, next + s);
                }
            }
            if constexpr (!DIRECT) {
                if (MEMORY == IN_GLOBAL)
                    of_layer_1([&](int i, int q, int place) {
                        w[i][q] = moved(w[i][q], sum[i][q], M + place, V + place, now);
                    });
                else
#pragma unroll
                    for (int i = 0; i < NEURONS; i++)
#pragma unroll
                        for (int q = 0; q < 4 * QUADS; q++)
                            w[i][q] = moved(w[i][q], sum[i][q], m_of(i, q), v_of(i, q), now);
                if (biased)
#pragma unroll
                    for (int i = 0; i < NEURONS; i++)
                        if (j0 + i < own) bias[i] = moved(bias[i], bias_sum[i], at.b_m + j0 + i, at.b_v + j0 + i, now);
            }
        }
        // Layers 2 and above: four weights per thread, and the bias with the first four.
        upwards<2, LAYERS>([&](auto number) {
            constexpr int layer = number.number, inputs = fours(kept(layer - 1)), neurons = width(layer);
            constexpr int first = place(layer), below = place(layer - 1), first_weight = weights_at(layer);
            constexpr int row = pitch(layer), before = updates_before(layer) % UPDATERS, weights = neurons * inputs;
            if (updater < 0) return;
            for (int t = (updater + UPDATERS - before) % UPDATERS; t < weights; t += UPDATERS) {
                const int j = t / inputs, i = t % inputs * 4;
                float4 sum = {};
                float deltas = 0.0f;
#pragma unroll 10
                for (int s = 0; s < BATCH; s++) {
                    const float delta = at.d[s][first + j];
                    const float4 a = *(const float4*)&at.a[turn][s][below + i];
                    deltas += delta;
                    sum.x += delta * a.x;
                    sum.y += delta * a.y;
                    sum.z += delta * a.z;
                    sum.w += delta * a.w;
                }
                const int here = first_weight + j * row + i;
                move_four(at.w + here, at.m + (HAS_M ? here : 0), at.v + (HAS_V ? here : 0), sum, down, now);
                const int m_at = HAS_M ? first + j : 0, v_at = HAS_V ? first + j : 0;
                if (i == 0) move_one(at.b[first + j], at.b_m + m_at, at.b_v + v_at, deltas, down, now);
            }
        });
    }
    wait_for_copies();

    // ---- store all weights, each by the block that owns it
    __syncthreads();
    of_layer_1([&](int i, int q, int place) {
        parameters[place] = w[i][q];
        if (MEMORY == IN_GLOBAL) return;
        if (HAS_M) M[place] = *m_of(i, q);
        if (HAS_V) V[place] = *v_of(i, q);
    });
#pragma unroll
    for (int i = 0; i < NEURONS; i++)
        if (biased && j0 + i < own) parameters[width(1) * width(0) + block * OWN + j0 + i] = bias[i];
    for (int j = thread; j < own; j += THREADS) {
        if (HAS_M) M[width(1) * width(0) + block * OWN + j] = at.b_m[j];
        if (HAS_V) V[width(1) * width(0) + block * OWN + j] = at.b_v[j];
    }
    upwards<2, LAYERS>([&](auto number) {
        constexpr int layer = number.number, n_out = width(layer), n_in = width(layer - 1), inputs = kept(layer - 1);
        constexpr int first_neuron = place(layer), from = parameters_at(layer);
        constexpr int first_weight = weights_at(layer), row = pitch(layer);
        const int first = layer == 2 ? block * OWN : 0;
        if (block == 0)
            for (int j = thread; j < n_out; j += THREADS) {
                const int place = from + n_out * n_in + j;
                parameters[place] = at.b[first_neuron + j];
                if (HAS_M) M[place] = at.b_m[first_neuron + j];
                if (HAS_V) V[place] = at.b_v[first_neuron + j];
            }
        if (layer == 2 || block == 0)
            for (int t = thread; t < n_out * inputs; t += THREADS) {
                const int j = t / inputs, i = t % inputs, here = first_weight + j * row + i;
                const int place = from + j * n_in + first + i;
                if (first + i >= n_in) continue;
                parameters[place] = at.w[here];
                if (HAS_M) M[place] = at.m[here];
                if (HAS_V) V[place] = at.v[here];
            }
    });
}
