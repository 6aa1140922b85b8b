// network_epoch in one launch, for networks too large for a chip's registers. Version (streamed.py):
//   streamed   all blocks compute one layer after the other; weights and activations stay in the L2 cache
//
//   nncourse check network_epoch --kernel streamed   (--emulate without a GPU)
//   nncourse time network_epoch --kernel streamed
//
// This text is compiled for each network: all sizes are constants. A step consists of phases, after each of which all
// blocks meet:
//   forward    A = σ(A_below Wᵀ + b), or a pool, of each layer in turn
//   head       the output layer, its deltas, and the deltas below: a block takes some samples through all of these
//   deltas     dC/dZ of the layer below, from the last layer to the second; in the same phase the weights of the layer
//              above, which nothing reads any more in this step
//   weights    the gradients of the first layers, and the step of the optimizer
// Every product of matrices, also that of a convolution, is computed in tiles by product(). What follows a sum, such as
// bias, activation, slope or optimizer, is applied before it is written. Results do not depend on the order of threads.
//
// The map of a layer is (rows, channels, height, width), of a dense layer (rows, neurons). Map 0 are the samples.

enum Kind { DENSE, CONVOLUTION, POOL };

// A tile of a product has `high` × `wide` elements. `split` blocks share its sum: their parts begin at `parts_at`, the
// counters of those that have arrived at `arrivals_at`.
struct Tile {
    int high, wide, split, parts_at, arrivals_at;
};
// A layer, or the samples.
struct Row {
    int kind, channels, height, width, k, stride, before, activation, parameters_at, map_at;
    Tile forward, deltas, weights;
};
__device__ constexpr Row layer(int number) {
    constexpr Row table[] = {TABLE};
    return table[number];
}
__device__ constexpr int pixels(int number) { return layer(number).height * layer(number).width; }
__device__ constexpr int numbers(int number) { return layer(number).channels * pixels(number); }
__device__ constexpr int taps(int number) { return layer(number).k * layer(number).k; }
__device__ constexpr bool is_dense(int number) { return layer(number).kind == DENSE; }
__device__ constexpr bool has_weights(int number) { return layer(number).kind != POOL; }
__device__ constexpr int inputs(int number) {  // of a neuron or a filter
    return is_dense(number) ? numbers(number - 1) : layer(number - 1).channels * taps(number);
}
__device__ constexpr int with_weights_from(int number) {  // the next layer with weights; LAYERS + 1 if there is none
    return number > LAYERS || has_weights(number) ? number : with_weights_from(number + 1);
}
constexpr int FIRST = with_weights_from(1), OUTPUTS = numbers(LAYERS), OUTPUT = layer(LAYERS).activation;

// All in global memory. A and D are the maps and the deltas of a batch. `rows` are the samples of this step.
struct Memory {
    float *parameters, *M, *V, *A, *D, *parts;
    const float *X, *Y;
    int *arrivals, rows;
    Numbers step;
};
template <int LAYER>
__device__ const float* map_of(const Memory& at) {
    if constexpr (LAYER == 0) return at.X;
    else return at.A + layer(LAYER).map_at;
}
template <int LAYER>
__device__ float* deltas_of(const Memory& at) {
    return at.D + layer(LAYER).map_at;
}

// ---- products of matrices

constexpr int FOUR = 4;  // numbers that a thread reads at once from shared memory, and rows and columns that it computes
__device__ constexpr int times(Tile tile) { return tile.high * tile.wide > 16 * THREADS ? 2 : 1; }  // fours of rows
__device__ constexpr int members(Tile tile) { return tile.high * tile.wide / (FOUR * FOUR * times(tile)); }
__device__ constexpr int steps_at_once(Tile tile) {  // along k, of a group: few if each thread had to hold many numbers
    return (tile.high + tile.wide) * 16 / members(tile) > 16 ? 8 : 16;
}

// Whether all blocks that share a tile have arrived, this one included.
__device__ bool is_last(int* arrivals, int blocks) {
    __shared__ bool last;
    __threadfence();  // this thread's part of the sums is visible before the block's arrival
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(arrivals, 1) % blocks == blocks - 1;
    __syncthreads();
    __threadfence();
    return last;
}

// Computes a tile: the sums over k < of.depth of left(i, k) right(k, j). Then done(i, j, sum) is called for each element
// with i < of.rows, j < COLUMNS.
//
// The factors pass through shared memory, some steps along k at a time for each group of threads; the next ones are
// loaded meanwhile. Groups of threads divide k, and so do the blocks that share a tile, of which the last one to arrive
// adds up their sums, in order. Adjacent threads load along k where LEFT_ALONG_K, or RIGHT_ALONG_K.
template <typename Product>
__device__ void product(const Memory& at, float* shared, int unit, const Product& of) {
    constexpr Tile TILE = Product::TILE;
    constexpr int HIGH = TILE.high, WIDE = TILE.wide, SPLIT = TILE.split, ROUNDS_OF_FOUR = times(TILE);
    constexpr int MEMBERS = members(TILE), GROUPS = THREADS / MEMBERS, EACH = steps_at_once(TILE), DEPTH = GROUPS * EACH;
    constexpr int LEFT = HIGH + FOUR, RIGHT = WIDE + FOUR, STAGE = DEPTH * (LEFT + RIGHT);  // rows are padded
    constexpr int LEFTS = HIGH * DEPTH / THREADS, RIGHTS = WIDE * DEPTH / THREADS;  // numbers that a thread loads
    constexpr int SHARE = divided_up(divided_up(Product::MOST_DEPTH, SPLIT), DEPTH) * DEPTH;
    static_assert(2 * STAGE <= SHARED && GROUPS * HIGH * WIDE <= SHARED, "streamed.py reserves too little shared memory");
    static_assert(HIGH * DEPTH % THREADS == 0 && WIDE * DEPTH % THREADS == 0, "too few numbers for these threads");
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    constexpr int TILES_ACROSS = divided_up(Product::COLUMNS, WIDE);
    const int tile = unit / SPLIT, share = unit % SPLIT;
    const int i0 = tile / TILES_ACROSS * HIGH, j0 = tile % TILES_ACROSS * WIDE;
    if (i0 >= of.rows) return;  // the last batch may be smaller
    const int first_k = share * SHARE, end_k = min(of.depth, first_k + SHARE);

    // Where in a tile is the number that this thread loads in a round. Along k, a warp loads 8 numbers of 4 rows.
    auto place_of = [&](bool along_k, int length, int round, int& i, int& k) {
        const int part = round * (THREADS / 32) + warp, number = round * THREADS + thread;
        i = along_k ? part % (length / 4) * 4 + lane / 8 : number % length;
        k = along_k ? part / (length / 4) * 8 + lane % 8 : number / length;
    };
    float held[LEFTS + RIGHTS];
    auto load = [&](int k0) {
        int i, k;
#pragma unroll
        for (int round = 0; round < LEFTS; round++) {
            place_of(Product::LEFT_ALONG_K, HIGH, round, i, k);
            held[round] = i0 + i < of.rows && k0 + k < end_k ? of.left(i0 + i, k0 + k) : 0.0f;
        }
#pragma unroll
        for (int round = 0; round < RIGHTS; round++) {
            place_of(Product::RIGHT_ALONG_K, WIDE, round, i, k);
            held[LEFTS + round] = j0 + i < Product::COLUMNS && k0 + k < end_k ? of.right(k0 + k, j0 + i) : 0.0f;
        }
    };
    auto store = [&](float* stage) {
        int i, k;
#pragma unroll
        for (int round = 0; round < LEFTS; round++) {
            place_of(Product::LEFT_ALONG_K, HIGH, round, i, k);
            stage[k * LEFT + i] = held[round];
        }
#pragma unroll
        for (int round = 0; round < RIGHTS; round++) {
            place_of(Product::RIGHT_ALONG_K, WIDE, round, i, k);
            stage[DEPTH * LEFT + k * RIGHT + i] = held[LEFTS + round];
        }
    };

    // This thread's elements: fours of rows, APART rows from each other, of four columns.
    constexpr int APART = HIGH / ROUNDS_OF_FOUR, SUMS = ROUNDS_OF_FOUR * FOUR * FOUR;
    const int group = thread / MEMBERS, member = thread % MEMBERS;
    const int down = member / (WIDE / FOUR) * FOUR, right = member % (WIDE / FOUR) * FOUR;
    auto row_of = [&](int e) { return e / (FOUR * FOUR) * APART + down + e / FOUR % FOUR; };
    float sums[SUMS] = {};
    load(first_k);
    __syncthreads();  // the tile before is no longer read
    store(shared);
    __syncthreads();
    for (int k0 = first_k, turn = 0; k0 < end_k; k0 += DEPTH, turn = 1 - turn) {
        const bool goes_on = k0 + DEPTH < end_k;
        if (goes_on) load(k0 + DEPTH);
        const float* lefts = shared + turn * STAGE + group * EACH * LEFT + down;
        const float* rights = shared + turn * STAGE + DEPTH * LEFT + group * EACH * RIGHT + right;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            float4 l[ROUNDS_OF_FOUR];
#pragma unroll
            for (int c = 0; c < ROUNDS_OF_FOUR; c++) l[c] = *(const float4*)(lefts + k * LEFT + c * APART);
            const float4 r = *(const float4*)(rights + k * RIGHT);
#pragma unroll
            for (int c = 0; c < ROUNDS_OF_FOUR; c++) {
                const float own[] = {l[c].x, l[c].y, l[c].z, l[c].w};
#pragma unroll
                for (int i = 0; i < FOUR; i++) {
                    float* sum = sums + (c * FOUR + i) * FOUR;
                    sum[0] += own[i] * r.x;
                    sum[1] += own[i] * r.y;
                    sum[2] += own[i] * r.z;
                    sum[3] += own[i] * r.w;
                }
            }
        }
        if (goes_on) {
            store(shared + (1 - turn) * STAGE);
            __syncthreads();
        }
    }

    if constexpr (GROUPS == 1 && SPLIT == 1) {
#pragma unroll
        for (int e = 0; e < SUMS; e++) {
            const int i = i0 + row_of(e), j = j0 + right + e % FOUR;
            if (i < of.rows && j < Product::COLUMNS) of.done(i, j, sums[e]);
        }
        return;
    }
    __syncthreads();  // the last factors are no longer read
#pragma unroll
    for (int e = 0; e < SUMS; e++) shared[(group * HIGH + row_of(e)) * WIDE + right + e % FOUR] = sums[e];
    __syncthreads();
    float* parts = at.parts + TILE.parts_at + tile * SPLIT * HIGH * WIDE;
    auto sum_of_groups = [&](int e) {
        float sum = 0.0f;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) sum += shared[g * HIGH * WIDE + e];
        return sum;
    };
    if constexpr (SPLIT > 1) {
        for (int e = thread; e < HIGH * WIDE; e += THREADS) parts[share * HIGH * WIDE + e] = sum_of_groups(e);
        if (!is_last(at.arrivals + TILE.arrivals_at + tile, SPLIT)) return;
    }
    for (int e = thread; e < HIGH * WIDE; e += THREADS) {
        // Adjacent threads write adjacent numbers.
        const int i = Product::DOWN ? e % HIGH : e / WIDE, j = Product::DOWN ? e / HIGH : e % WIDE;
        if (i0 + i >= of.rows || j0 + j >= Product::COLUMNS) continue;
        float sum = 0.0f;
        if constexpr (SPLIT == 1) sum = sum_of_groups(i * WIDE + j);
        else
#pragma unroll 4
            for (int s = 0; s < SPLIT; s++) sum += read_from_all(parts + (s * HIGH + i) * WIDE + j);
        of.done(i0 + i, j0 + j, sum);
    }
}

// Where filter `tap` of layer LAYER lies at the pixel `to` of its result: the pixel below, or -1 outside of the image.
template <int LAYER>
__device__ int pixel_below(int to, int tap) {
    constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
    const int y = to / here.width * here.stride - here.before + tap / here.k;
    const int x = to % here.width * here.stride - here.before + tap % here.k;
    return y >= 0 && y < below.height && x >= 0 && x < below.width ? y * below.width + x : -1;
}
// The number below that input `k` of a neuron or a filter meets, for row i of the product of forward or weights.
template <int LAYER>
__device__ float input_of(const Memory& at, int row, int k) {
    const float* A = map_of<LAYER - 1>(at);
    if constexpr (is_dense(LAYER)) return A[row * numbers(LAYER - 1) + k];
    const int below = pixel_below<LAYER>(row % pixels(LAYER), k % taps(LAYER));
    const int image = row / pixels(LAYER) * layer(LAYER - 1).channels + k / taps(LAYER);
    return below < 0 ? 0.0f : A[image * pixels(LAYER - 1) + below];
}
// Of (batch, channels, pixels), where channel j of row i is: a row is a pixel of a sample.
template <int LAYER>
__device__ int place_in_map(int i, int j) {
    return (i / pixels(LAYER) * layer(LAYER).channels + j) * pixels(LAYER) + i % pixels(LAYER);
}

// Hands dC/dA of a number of map LAYER down: to the deltas of that layer, through pools to the largest of each window.
template <int LAYER>
__device__ void give(const Memory& at, int sample, int number, float gradient) {
    if constexpr (LAYER < FIRST) return;
    else if constexpr (layer(LAYER).kind == POOL) {
        constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
        const int channel = number / pixels(LAYER), y = number / here.width % here.height, x = number % here.width;
        const int corner = (channel * below.height + y * here.k) * below.width + x * here.k;
        const float* map = map_of<LAYER - 1>(at) + sample * numbers(LAYER - 1);
        const float top = map_of<LAYER>(at)[sample * numbers(LAYER) + number];
        bool found = false;  // the first of equals
        for (int i = 0; i < here.k; i++)
            for (int j = 0; j < here.k; j++) {
                const int place = corner + i * below.width + j;
                const bool is_top = !found && map[place] == top;
                found = found || is_top;
                give<LAYER - 1>(at, sample, place, is_top ? gradient : 0.0f);
            }
    } else {
        const int place = sample * numbers(LAYER) + number;
        deltas_of<LAYER>(at)[place] = gradient * slope(layer(LAYER).activation, map_of<LAYER>(at)[place]);
    }
}

// ---- the three products of a layer: rows are samples, or their pixels; columns neurons, or filters

template <int LAYER>
struct Forward {
    static constexpr Tile TILE = layer(LAYER).forward;
    static constexpr bool LEFT_ALONG_K = is_dense(LAYER), RIGHT_ALONG_K = true, DOWN = !is_dense(LAYER);
    static constexpr int COLUMNS = layer(LAYER).channels, MOST_DEPTH = inputs(LAYER), MOST_ROWS = BATCH * pixels(LAYER);
    const Memory& at;
    const int rows = at.rows * pixels(LAYER), depth = MOST_DEPTH;
    const float *W = at.parameters + layer(LAYER).parameters_at, *b = W + COLUMNS * MOST_DEPTH;

    __device__ float left(int i, int k) const { return input_of<LAYER>(at, i, k); }
    __device__ float right(int k, int j) const { return W[j * MOST_DEPTH + k]; }
    __device__ void done(int i, int j, float sum) const {
        const int place = place_in_map<LAYER>(i, j);
        const float a = activate(layer(LAYER).activation, sum + b[j]);
        at.A[layer(LAYER).map_at + place] = a;
        if constexpr (LAYER == LAYERS && OUTPUT != SOFTMAX) {
            const float g = cost_gradient(COST, a, at.Y[place]);
            deltas_of<LAYER>(at)[place] = COST == CROSS_ENTROPY ? g : g * slope(OUTPUT, a);
        }
    }
};

// dC/dA of the layer below, of which rows are the pixels and columns the channels.
template <int LAYER>
struct Deltas {
    static constexpr Tile TILE = layer(LAYER).deltas;
    static constexpr bool LEFT_ALONG_K = is_dense(LAYER), RIGHT_ALONG_K = !is_dense(LAYER), DOWN = !is_dense(LAYER);
    static constexpr int COLUMNS = is_dense(LAYER) ? numbers(LAYER - 1) : layer(LAYER - 1).channels;
    static constexpr int PIXELS = is_dense(LAYER) ? 1 : pixels(LAYER - 1), MOST_ROWS = BATCH * PIXELS;
    static constexpr int MOST_DEPTH = layer(LAYER).channels * taps(LAYER);
    const Memory& at;
    const int rows = at.rows * PIXELS, depth = MOST_DEPTH;
    const float *D = deltas_of<LAYER>(at), *W = at.parameters + layer(LAYER).parameters_at;

    __device__ float left(int i, int k) const {
        if constexpr (is_dense(LAYER)) return D[i * MOST_DEPTH + k];
        // The pixel of the result at which tap k meets pixel i.
        constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
        const int tap = k % taps(LAYER), pixel = i % PIXELS;
        const int y = pixel / below.width + here.before - tap / here.k, x = pixel % below.width + here.before - tap % here.k;
        const bool meets = y >= 0 && x >= 0 && y % here.stride == 0 && x % here.stride == 0 &&
                           y / here.stride < here.height && x / here.stride < here.width;
        const int image = i / PIXELS * here.channels + k / taps(LAYER);
        return meets ? D[image * pixels(LAYER) + y / here.stride * here.width + x / here.stride] : 0.0f;
    }
    __device__ float right(int k, int j) const {
        return W[(k / taps(LAYER) * COLUMNS + j) * taps(LAYER) + k % taps(LAYER)];
    }
    __device__ void done(int i, int j, float sum) const {
        give<LAYER - 1>(at, i / PIXELS, j * PIXELS + i % PIXELS, sum);
    }
};

// The gradients: rows are neurons or filters, columns their inputs, and the bias, the weight of an input that is 1.
template <int LAYER>
struct Weights {
    static constexpr Tile TILE = layer(LAYER).weights;
    static constexpr bool LEFT_ALONG_K = !is_dense(LAYER), RIGHT_ALONG_K = !is_dense(LAYER), DOWN = false;
    static constexpr int COLUMNS = inputs(LAYER) + 1, MOST_ROWS = layer(LAYER).channels, MOST_DEPTH = BATCH * pixels(LAYER);
    const Memory& at;
    const int rows = MOST_ROWS, depth = at.rows * pixels(LAYER);
    const float* D = deltas_of<LAYER>(at);

    __device__ float left(int i, int k) const { return D[place_in_map<LAYER>(k, i)]; }
    __device__ float right(int k, int j) const { return j < inputs(LAYER) ? input_of<LAYER>(at, k, j) : 1.0f; }
    __device__ void done(int i, int j, float sum) const {
        const int own = j < inputs(LAYER) ? i * inputs(LAYER) + j : MOST_ROWS * inputs(LAYER) + i;
        const int place = layer(LAYER).parameters_at + own;
        float& w = at.parameters[place];
        w = moved(w, sum / at.rows, at.M + place, at.V + place, at.step);
    }
};

template <typename Product>
__device__ constexpr int units() {
    constexpr Tile TILE = Product::TILE;
    return divided_up(Product::MOST_ROWS, TILE.high) * divided_up(Product::COLUMNS, TILE.wide) * TILE.split;
}
// All tiles of some products, divided among the blocks.
template <typename One>
__device__ void products(const Memory& at, float* shared, int first_unit) {
    for (int unit = first_unit; unit < units<One>(); unit += BLOCKS) product(at, shared, unit, One{at});
}
template <typename One, typename Other>
__device__ void products(const Memory& at, float* shared) {
    products<One>(at, shared, blockIdx.x);
    constexpr int left_over = units<One>() % BLOCKS;  // the blocks behind these begin with the other product
    products<Other>(at, shared, (blockIdx.x + BLOCKS - left_over) % BLOCKS);
}

// ---- what is no product

template <int LAYER>
__device__ void pool(const Memory& at) {
    constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
    const float* map = map_of<LAYER - 1>(at);
    for (int e = blockIdx.x * THREADS + threadIdx.x; e < at.rows * numbers(LAYER); e += BLOCKS * THREADS) {
        const int image = e / pixels(LAYER), y = e / here.width % here.height, x = e % here.width;
        const float* corner = map + (image * below.height + y * here.k) * below.width + x * here.k;
        float top = *corner;
#pragma unroll
        for (int p = 1; p < here.k * here.k; p++) top = fmaxf(top, corner[p / here.k * below.width + p % here.k]);
        at.A[here.map_at + e] = top;
    }
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
    constexpr int LAYER = LAYERS, INPUTS = inputs(LAYER), SUMS = TOGETHER * OUTPUTS, WARPS = THREADS / 32;
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
#pragma unroll
            for (int o = 0; o < OUTPUTS; o++) {
                const float w = W[o * INPUTS + k];
#pragma unroll
                for (int s = 0; s < TOGETHER; s++) g[s] += d[s * OUTPUTS + o] * w;
            }
#pragma unroll
            for (int s = 0; s < TOGETHER; s++)
                if (first + s < at.rows) give<LAYER - 1>(at, first + s, k, g[s]);
        }
    }
}

// ---- the kernel

template <int LAYER>
__device__ void forward_of(const Memory& at, float* shared) {
    if constexpr (has_weights(LAYER)) products<Forward<LAYER>>(at, shared, blockIdx.x);
    else pool<LAYER>(at);
}

// Deltas below LAYER, and the weights of layer ABOVE, if there is one.
template <int LAYER, int ABOVE, typename Meet>
__device__ void backward_from(const Memory& at, float* shared, Meet meet) {
    if constexpr (LAYER <= FIRST) {
        if constexpr (ABOVE <= LAYERS) products<Weights<FIRST>, Weights<ABOVE>>(at, shared);
        else products<Weights<FIRST>>(at, shared, blockIdx.x);
    } else if constexpr (!has_weights(LAYER)) {
        backward_from<LAYER - 1, ABOVE>(at, shared, meet);
        return;
    } else {
        if constexpr (ABOVE <= LAYERS) products<Deltas<LAYER>, Weights<ABOVE>>(at, shared);
        else products<Deltas<LAYER>>(at, shared, blockIdx.x);
        meet();
        backward_from<LAYER - 1, LAYER>(at, shared, meet);
        return;
    }
    meet();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
network_epoch(float* parameters, float* M, float* V, const float* X, const float* Y, float* A, float* D, float* parts,
              int* arrivals, int n, int steps, float rate) {
    __shared__ __align__(16) float shared[SHARED];
    int met = 0;
    // The first counter is that of the barrier.
    auto meet = [&] { meet_grid(arrivals, ++met * BLOCKS); };
    for (int start = 0; start < n; start += BATCH) {
        const int rows = min(BATCH, n - start);
        const Memory at = {parameters, M, V, A, D, parts, X + (size_t)start * numbers(0), Y + (size_t)start * OUTPUTS,
                           arrivals + 1, rows, numbers_of(rate, steps + start / BATCH + 1)};
        upwards<1, LAYERS - HAS_HEAD>([&](auto number) {
            forward_of<number.number>(at, shared);
            meet();
        });
        if constexpr (HAS_HEAD) {
            head(at, shared);
            meet();
            if constexpr (LAYERS > FIRST) backward_from<LAYERS - 1, LAYERS>(at, shared, meet);
            else backward_from<LAYERS, LAYERS + 1>(at, shared, meet);
        } else {
            if constexpr (OUTPUT == SOFTMAX) {
                outputs(at);
                meet();
            }
            backward_from<LAYERS, LAYERS + 1>(at, shared, meet);
        }
    }
}
