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

// A thread computes some rows × some columns of a tile, `members` threads the tile. Groups of `members` divide k.
__device__ constexpr int own_rows(Tile tile) { return tile.high >= 64 && tile.high * tile.wide >= 2048 ? 8 : 4; }
__device__ constexpr int own_columns(Tile tile) { return tile.wide >= 64 && tile.high * tile.wide >= 2048 ? 8 : 4; }
__device__ constexpr int members(Tile tile) { return tile.high * tile.wide / (own_rows(tile) * own_columns(tile)); }
__device__ constexpr int groups(Tile tile) { return THREADS / members(tile); }
// Steps along k whose factors are in shared memory together: eight or more for each group.
__device__ constexpr int depth(Tile tile) { return tile.high * tile.wide > 1024 ? 32 : 64; }
__device__ constexpr bool divides_by_four(int number) { return number % 4 == 0; }

// What a step along k has in common for all rows, or columns, of a convolution.
struct Step {
    int at;
    short y, x;
};

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

// A factor of a tile in shared memory: LENGTH rows, or columns, of DEPTH steps along k. It lies there as in global memory:
// where ALONG_K, the steps of a row follow each other, else the rows of a step. All are padded.
template <int LENGTH, int DEPTH, bool ALONG_K>
struct Factor {
    static constexpr int PITCH = (ALONG_K ? DEPTH : LENGTH) + 4, NUMBERS = (ALONG_K ? LENGTH : DEPTH) * PITCH;

    __device__ static float* at(float* factor, int row, int k) {
        return factor + (ALONG_K ? row * PITCH + k : k * PITCH + row);
    }
    // The row of own number `c` of thread `number` out of LENGTH / COUNT.
    template <int COUNT>
    __device__ static int row_of(int number, int c) {
        return ALONG_K ? c * (LENGTH / COUNT) + number : c / 4 * (LENGTH / COUNT * 4) + number * 4 + c % 4;
    }
    // COUNT rows of four steps.
    template <int COUNT>
    __device__ static void read(const float* factor, int number, int k, float (&found)[COUNT][4]) {
        if constexpr (ALONG_K) {
#pragma unroll
            for (int c = 0; c < COUNT; c++) {
                const float4 four = *(const float4*)(factor + row_of<COUNT>(number, c) * PITCH + k);
                found[c][0] = four.x, found[c][1] = four.y, found[c][2] = four.z, found[c][3] = four.w;
            }
        } else {
#pragma unroll
            for (int step = 0; step < 4; step++)
#pragma unroll
                for (int c = 0; c < COUNT; c += 4) {
                    const float4 four = *(const float4*)(factor + (k + step) * PITCH + row_of<COUNT>(number, c));
                    found[c][step] = four.x, found[c + 1][step] = four.y;
                    found[c + 2][step] = four.z, found[c + 3][step] = four.w;
                }
        }
    }
    // Calls load(place, row, k) for this thread's share: for FOUR numbers, in the direction in which they lie.
    template <int FOUR, typename Load>
    __device__ static void fill(float* factor, Load load) {
        constexpr int ACROSS = (ALONG_K ? DEPTH : LENGTH) / FOUR, ALL = LENGTH * DEPTH / FOUR;
#pragma unroll
        for (int first = 0; first < ALL; first += THREADS) {
            const int number = first + threadIdx.x, far = number / ACROSS, near = number % ACROSS * FOUR;
            const int row = ALONG_K ? far : near, k = ALONG_K ? near : far;
            if (ALL % THREADS == 0 || number < ALL) load(at(factor, row, k), row, k);
        }
    }
};

// Computes a tile: the sums over k < of.depth of left(i, k) right(k, j), for i < of.rows and j < COLUMNS. Each is handed
// to done(i, j, sum, early), with what early(i, j) has read: that of several elements is read at once, since no read can
// pass a write.
//
// The factors pass through shared memory in STAGES stages: those of the next ones are copied meanwhile. Groups of threads
// divide k, and so do the blocks that share a tile, of which the last one to arrive adds up their sums, in order.
template <typename Product>
__device__ void product(const Memory& at, float* shared, int unit, const Product& of) {
    constexpr Tile TILE = Product::TILE;
    constexpr int HIGH = TILE.high, WIDE = TILE.wide, SPLIT = TILE.split, COLUMNS = Product::COLUMNS;
    constexpr int MEMBERS = members(TILE), GROUPS = groups(TILE), DEPTH = depth(TILE);
    using Left = Factor<HIGH, DEPTH, Product::LEFT_ALONG_K>;
    using Right = Factor<WIDE, DEPTH, Product::RIGHT_ALONG_K>;
    constexpr int STAGE = Left::NUMBERS + Right::NUMBERS;
    constexpr int SHARE = divided_up(divided_up(Product::WHOLE, SPLIT), DEPTH) * DEPTH;
    static_assert(STAGES * STAGE <= SHARED && DEPTH <= MOST_DEPTH, "streamed.py reserves too little shared memory");
    const int thread = threadIdx.x;
    constexpr int TILES_ACROSS = divided_up(COLUMNS, WIDE);
    const int tile = unit / SPLIT, share = unit % SPLIT;
    const int i0 = tile / TILES_ACROSS * HIGH, j0 = tile % TILES_ACROSS * WIDE;
    if (i0 >= of.rows) return;  // the last batch may be smaller
    const int first_k = share * SHARE, end_k = min(of.depth, first_k + SHARE);
    const int turns = end_k > first_k ? divided_up(end_k - first_k, DEPTH) : 0;

    // Steps are prepared a turn before their factors are copied.
    Step* steps = (Step*)(shared + SHARED);
    auto prepare = [&](int turn) {
        if (Product::HAS_STEPS && thread < DEPTH)
            steps[turn % (STAGES + 1) * DEPTH + thread] = of.step(first_k + turn * DEPTH + thread);
    };
    auto copy = [&](int turn) {
        float* stage = shared + turn % STAGES * STAGE;
        const Step* own = steps + turn % (STAGES + 1) * DEPTH;
        const int k0 = first_k + turn * DEPTH;
        if (turn < turns) {
            Left::template fill<Product::LEFT_FOUR>(stage, [&](float* to, int i, int k) {
                of.left(to, i0 + i < of.rows && k0 + k < end_k, i0 + i, k0 + k, own[k]);
            });
            Right::template fill<Product::RIGHT_FOUR>(stage + Left::NUMBERS, [&](float* to, int j, int k) {
                of.right(to, j0 + j < COLUMNS && k0 + k < end_k, j0 + j, k0 + k, own[k]);
            });
        }
        end_group_of_copies();
    };

    constexpr int ROWS = own_rows(TILE), OWN_COLUMNS = own_columns(TILE), ACROSS = WIDE / OWN_COLUMNS;
    const int group = thread / MEMBERS, down = thread % MEMBERS / ACROSS, right = thread % ACROSS;
    float sums[ROWS][OWN_COLUMNS] = {};
    __syncthreads();  // the tile before is no longer read
    if (Product::HAS_STEPS) {
        for (int turn = 0; turn < STAGES; turn++) prepare(turn);
        __syncthreads();
    }
#pragma unroll
    for (int turn = 0; turn < STAGES - 1; turn++) copy(turn);
    for (int turn = 0; turn < turns; turn++) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();
        copy(turn + STAGES - 1);
        prepare(turn + STAGES);
        const float *left_at = shared + turn % STAGES * STAGE, *right_at = left_at + Left::NUMBERS;
#pragma unroll
        for (int k = 0; k < DEPTH / GROUPS; k += 4) {
            float l[ROWS][4], r[OWN_COLUMNS][4];
            Left::read(left_at, down, group * (DEPTH / GROUPS) + k, l);
            Right::read(right_at, right, group * (DEPTH / GROUPS) + k, r);
#pragma unroll
            for (int step = 0; step < 4; step++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int j = 0; j < OWN_COLUMNS; j++) sums[i][j] += l[i][step] * r[j][step];
        }
    }
    wait_for_groups<0>();

    // The sums of all groups. Where these do not fit in shared memory, half of the groups hand theirs over first.
    constexpr bool HALVES = GROUPS * HIGH * WIDE > SHARED;
    constexpr int LEFT_OVER = HALVES ? GROUPS / 2 : GROUPS;
    static_assert(LEFT_OVER * HIGH * WIDE <= SHARED, "streamed.py reserves too little shared memory");
    auto each_of_own = [&](auto visit) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < OWN_COLUMNS; j++) {
                const int row = Left::template row_of<ROWS>(down, i), column = Right::template row_of<OWN_COLUMNS>(right, j);
                visit(sums[i][j], shared[(group % LEFT_OVER * HIGH + row) * WIDE + column]);
            }
    };
    auto write = [](float sum, float& place) { place = sum; };
    __syncthreads();  // the last factors are no longer read
    if (HALVES) {
        if (group >= LEFT_OVER) each_of_own(write);
        __syncthreads();
        if (group < LEFT_OVER) each_of_own([](float& sum, float place) { sum += place; });
        __syncthreads();
    }
    if (group < LEFT_OVER) each_of_own(write);
    __syncthreads();

    // From here on each thread has some elements; adjacent threads write adjacent numbers.
    constexpr int ELEMENTS = divided_up(HIGH * WIDE, THREADS), FEW = ELEMENTS < 8 ? ELEMENTS : 8;
    auto place = [&](int number) {
        const int e = number * THREADS + thread;
        return Product::DOWN ? e % HIGH * WIDE + e / HIGH : e;
    };
    auto sum_of_groups = [&](int e) {
        float sum = 0.0f;
#pragma unroll
        for (int g = 0; g < LEFT_OVER; g++) sum += shared[g * HIGH * WIDE + e];
        return sum;
    };
    float* parts = at.parts + TILE.parts_at + tile * SPLIT * HIGH * WIDE;
    if constexpr (SPLIT > 1) {
#pragma unroll
        for (int c = 0; c < ELEMENTS; c++) parts[share * HIGH * WIDE + place(c)] = sum_of_groups(place(c));
        if (!is_last(at.arrivals + TILE.arrivals_at + tile, SPLIT)) return;
    }
#pragma unroll
    for (int c0 = 0; c0 < ELEMENTS; c0 += FEW) {
        float found[FEW] = {};
        decltype(of.early(0, 0)) before[FEW];
#pragma unroll
        for (int c = 0; c < FEW; c++) {
            const int e = place(c0 + c), i = i0 + e / WIDE, j = j0 + e % WIDE;
            before[c] = of.early(min(i, of.rows - 1), min(j, COLUMNS - 1));
            if (SPLIT == 1) found[c] = sum_of_groups(e);
        }
        if constexpr (SPLIT > 1) {
            constexpr int AT_ONCE = 16 / FEW;
#pragma unroll AT_ONCE
            for (int s = 0; s < SPLIT; s++)
#pragma unroll
                for (int c = 0; c < FEW; c++) found[c] += read_from_all(parts + s * HIGH * WIDE + place(c0 + c));
        }
#pragma unroll
        for (int c = 0; c < FEW; c++) {
            const int e = place(c0 + c), i = i0 + e / WIDE, j = j0 + e % WIDE;
            if (i < of.rows && j < COLUMNS) of.done(i, j, found[c], before[c]);
        }
    }
}

// Handing dC/dA of a number of map LAYER down: to the deltas of that layer, through pools to the largest of each window.
// look_below() reads what give() needs: the activation, or the largest one, and its place in its window.
struct Below {
    float a;
    int largest;
};
template <int LAYER>
__device__ Below look_below(const Memory& at, int sample, int number) {
    if constexpr (LAYER < FIRST) return {};
    else if constexpr (has_weights(LAYER)) return {map_of<LAYER>(at)[sample * numbers(LAYER) + number], 0};
    else {
        constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
        const int channel = number / pixels(LAYER), y = number / here.width % here.height, x = number % here.width;
        const int corner = (channel * below.height + y * here.k) * below.width + x * here.k;
        const float* map = map_of<LAYER - 1>(at) + sample * numbers(LAYER - 1) + corner;
        Below found = {*map, 0};
#pragma unroll
        for (int p = 1; p < here.k * here.k; p++) {  // the first of equals
            const float a = map[p / here.k * below.width + p % here.k];
            if (a > found.a) found = {a, p};
        }
        return found;
    }
}
template <int LAYER>
__device__ void give(const Memory& at, int sample, int number, float gradient, Below seen) {
    if constexpr (LAYER < FIRST) return;
    else if constexpr (has_weights(LAYER)) {
        deltas_of<LAYER>(at)[sample * numbers(LAYER) + number] = gradient * slope(layer(LAYER).activation, seen.a);
    } else {
        constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
        const int channel = number / pixels(LAYER), y = number / here.width % here.height, x = number % here.width;
        const int corner = (channel * below.height + y * here.k) * below.width + x * here.k;
#pragma unroll
        for (int p = 0; p < here.k * here.k; p++) {
            const int place = corner + p / here.k * below.width + p % here.k;
            Below its = {seen.a, 0};
            if constexpr (!has_weights(LAYER - 1)) its = look_below<LAYER - 1>(at, sample, place);
            give<LAYER - 1>(at, sample, place, p == seen.largest ? gradient : 0.0f, its);
        }
    }
}

// ---- the three products of a layer: rows are samples, or their pixels; columns neurons, or filters
//
// left() and right() copy numbers to shared memory: LEFT_FOUR, or RIGHT_FOUR, adjacent ones at a time, four where all lie
// at addresses that allow it; zeros where these are not `there`.

// Of a convolution, a number lies at row.at + input.at, unless that is outside of the image. One of both is a step
// along k, which is prepared once for all threads.
struct Place {
    int at, y, x;
};
// A pixel of the result of layer LAYER: the pixel below at which a filter begins.
template <int LAYER>
__device__ Place pixel_of_result(int row) {
    constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
    const int pixel = row % pixels(LAYER);
    const int y = pixel / here.width * here.stride - here.before, x = pixel % here.width * here.stride - here.before;
    return {row / pixels(LAYER) * numbers(LAYER - 1) + y * below.width + x, y, x};
}
template <int LAYER>
__device__ Place input_of_filter(int input) {
    constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
    const int y = input % taps(LAYER) / here.k, x = input % taps(LAYER) % here.k;
    return {input / taps(LAYER) * pixels(LAYER - 1) + y * below.width + x, y, x};
}
__device__ Step step_at(Place place) { return {place.at, (short)place.y, (short)place.x}; }
template <int LAYER>
__device__ void copy_below(float* to, const float* A, bool there, Place one, Step other) {
    constexpr Row below = layer(LAYER - 1);
    there = there && (unsigned)(one.y + other.y) < below.height && (unsigned)(one.x + other.x) < below.width;
    copy_one_later(to, A + (there ? one.at + other.at : 0), there);
}
template <int FOUR>
__device__ void copy(float* to, const float* from, bool there) {
    if constexpr (FOUR == 4) copy_four_later(to, from, there);
    else copy_one_later(to, from, there);
}
// How many numbers of map LAYER, or of parameters from place `at` on, can be copied at once in rows of `length`.
__device__ constexpr int at_once(int at, int length) { return divides_by_four(at) && divides_by_four(length) ? 4 : 1; }
__device__ constexpr int parameters_at_once(int at, int length) { return PARAMETERS_AT_ONCE == 4 ? at_once(at, length) : 1; }
__device__ constexpr int of_map_at_once(int number) { return number == 0 ? X_AT_ONCE : at_once(0, numbers(number)); }

template <int LAYER>
struct Forward {
    static constexpr Tile TILE = layer(LAYER).forward;
    static constexpr int COLUMNS = layer(LAYER).channels, WHOLE = inputs(LAYER), MOST_ROWS = BATCH * pixels(LAYER);
    static constexpr bool HAS_STEPS = !is_dense(LAYER), LEFT_ALONG_K = is_dense(LAYER), RIGHT_ALONG_K = true;
    static constexpr bool DOWN = !is_dense(LAYER);
    static constexpr int LEFT_FOUR = is_dense(LAYER) ? of_map_at_once(LAYER - 1) : 1;
    static constexpr int RIGHT_FOUR = parameters_at_once(layer(LAYER).parameters_at, WHOLE);
    const Memory& at;
    const int rows = at.rows * pixels(LAYER), depth = WHOLE;
    const float *A = map_of<LAYER - 1>(at), *W = at.parameters + layer(LAYER).parameters_at, *b = W + COLUMNS * WHOLE;

    __device__ Step step(int k) const { return step_at(input_of_filter<LAYER>(k)); }
    __device__ void left(float* to, bool there, int i, int k, const Step& step) const {
        if constexpr (is_dense(LAYER)) copy<LEFT_FOUR>(to, A + (there ? i * WHOLE + k : 0), there);
        else copy_below<LAYER>(to, A, there, pixel_of_result<LAYER>(i), step);
    }
    __device__ void right(float* to, bool there, int j, int k, const Step&) const {
        copy<RIGHT_FOUR>(to, W + (there ? j * WHOLE + k : 0), there);
    }
    __device__ float early(int i, int j) const { return b[j]; }
    __device__ void done(int i, int j, float sum, float bias) const {
        const int place = (i / pixels(LAYER) * COLUMNS + j) * pixels(LAYER) + i % pixels(LAYER);
        const float a = activate(layer(LAYER).activation, sum + bias);
        at.A[layer(LAYER).map_at + place] = a;
        if constexpr (LAYER == LAYERS && OUTPUT != SOFTMAX) {
            const float g = cost_gradient(COST, a, at.Y[place]);
            deltas_of<LAYER>(at)[place] = COST == CROSS_ENTROPY ? g : g * slope(OUTPUT, a);
        }
    }
};

// dC/dA of the layer below, of which rows are the pixels and columns the channels. Tap (i, j) of a filter meets pixel
// (y, x) at the pixel ((y + before − i) / stride, (x + before − j) / stride) of the result, where these are whole.
template <int LAYER>
struct Deltas {
    static constexpr Tile TILE = layer(LAYER).deltas;
    static constexpr Row HERE = layer(LAYER), BELOW = layer(LAYER - 1);
    static constexpr int COLUMNS = is_dense(LAYER) ? numbers(LAYER - 1) : BELOW.channels;
    static constexpr int PIXELS = is_dense(LAYER) ? 1 : pixels(LAYER - 1), MOST_ROWS = BATCH * PIXELS;
    static constexpr int WHOLE = HERE.channels * taps(LAYER);
    static constexpr bool HAS_STEPS = !is_dense(LAYER), LEFT_ALONG_K = is_dense(LAYER), RIGHT_ALONG_K = false;
    static constexpr bool DOWN = !is_dense(LAYER);
    static constexpr int LEFT_FOUR = is_dense(LAYER) ? of_map_at_once(LAYER) : 1;
    static constexpr int RIGHT_FOUR = is_dense(LAYER) ? parameters_at_once(HERE.parameters_at, COLUMNS) : 1;
    const Memory& at;
    const int rows = at.rows * PIXELS, depth = WHOLE;
    const float *D = deltas_of<LAYER>(at), *W = at.parameters + HERE.parameters_at;

    __device__ Step step(int k) const {
        const int y = k % taps(LAYER) / HERE.k, x = k % taps(LAYER) % HERE.k;
        return step_at({k / taps(LAYER) * pixels(LAYER) - y / HERE.stride * HERE.width - x / HERE.stride, y, x});
    }
    __device__ void left(float* to, bool there, int i, int k, const Step& step) const {
        if constexpr (is_dense(LAYER)) {
            copy<LEFT_FOUR>(to, D + (there ? i * WHOLE + k : 0), there);
            return;
        }
        const int row = i % PIXELS / BELOW.width + HERE.before, column = i % PIXELS % BELOW.width + HERE.before;
        const int begin = i / PIXELS * numbers(LAYER) + row / HERE.stride * HERE.width + column / HERE.stride;
        const int y = row - step.y, x = column - step.x;
        there = there && y >= 0 && x >= 0 && y % HERE.stride == 0 && x % HERE.stride == 0 &&
                y / HERE.stride < HERE.height && x / HERE.stride < HERE.width;
        copy_one_later(to, D + (there ? begin + step.at : 0), there);
    }
    __device__ void right(float* to, bool there, int j, int k, const Step&) const {
        const int place = is_dense(LAYER) ? k * COLUMNS + j : (k / taps(LAYER) * COLUMNS + j) * taps(LAYER) + k % taps(LAYER);
        copy<RIGHT_FOUR>(to, W + (there ? place : 0), there);
    }
    __device__ Below early(int i, int j) const {
        return look_below<LAYER - 1>(at, i / PIXELS, j * PIXELS + i % PIXELS);
    }
    __device__ void done(int i, int j, float sum, Below below) const {
        give<LAYER - 1>(at, i / PIXELS, j * PIXELS + i % PIXELS, sum, below);
    }
};

// The gradients: rows are neurons or filters, columns their inputs. The last column is the bias, the weight of an input
// that is always 1.
template <int LAYER>
struct Weights {
    static constexpr Tile TILE = layer(LAYER).weights;
    static constexpr int INPUTS = inputs(LAYER), COLUMNS = INPUTS + 1, MOST_ROWS = layer(LAYER).channels;
    static constexpr int WHOLE = BATCH * pixels(LAYER);
    static constexpr bool HAS_STEPS = !is_dense(LAYER), LEFT_ALONG_K = !is_dense(LAYER), RIGHT_ALONG_K = !is_dense(LAYER);
    static constexpr bool DOWN = false;
    static constexpr int LEFT_FOUR = is_dense(LAYER) ? of_map_at_once(LAYER) : at_once(0, pixels(LAYER));
    static constexpr int RIGHT_FOUR = is_dense(LAYER) ? of_map_at_once(LAYER - 1) : 1;
    struct Parameter {
        float w, m, v;
    };
    const Memory& at;
    const int rows = MOST_ROWS, depth = at.rows * pixels(LAYER);
    const float *A = map_of<LAYER - 1>(at), *D = deltas_of<LAYER>(at);

    __device__ Step step(int k) const { return step_at(pixel_of_result<LAYER>(k)); }
    __device__ void left(float* to, bool there, int i, int k, const Step&) const {
        const int place = k / pixels(LAYER) * numbers(LAYER) + i * pixels(LAYER) + k % pixels(LAYER);
        copy<LEFT_FOUR>(to, D + (there ? place : 0), there);
    }
    __device__ void right(float* to, bool there, int j, int k, const Step& step) const {
        if (j == INPUTS) {  // where k is not there, neither is the other factor
            to[0] = 1.0f;
            return;
        }
        there = there && j < INPUTS;
        if constexpr (is_dense(LAYER)) copy<RIGHT_FOUR>(to, A + (there ? k * INPUTS + j : 0), there);
        else copy_below<LAYER>(to, A, there, input_of_filter<LAYER>(min(j, INPUTS - 1)), step);
    }
    __device__ int place_of(int i, int j) const {
        return layer(LAYER).parameters_at + (j < INPUTS ? i * INPUTS + j : MOST_ROWS * INPUTS + i);
    }
    __device__ Parameter early(int i, int j) const {
        const int place = place_of(i, j);
        return {at.parameters[place], HAS_M ? at.M[place] : 0.0f, HAS_V ? at.V[place] : 0.0f};
    }
    __device__ void done(int i, int j, float sum, Parameter own) const {
        const int place = place_of(i, j);
        at.parameters[place] = moved(own.w, sum / at.rows, &own.m, &own.v, at.step);
        if (HAS_M) at.M[place] = own.m;
        if (HAS_V) at.V[place] = own.v;
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
            Below below[TOGETHER];
#pragma unroll
            for (int s = 0; s < TOGETHER; s++) below[s] = look_below<LAYER - 1>(at, min(first + s, at.rows - 1), k);
#pragma unroll
            for (int o = 0; o < OUTPUTS; o++) {
                const float w = W[o * INPUTS + k];
#pragma unroll
                for (int s = 0; s < TOGETHER; s++) g[s] += d[s * OUTPUTS + o] * w;
            }
#pragma unroll
            for (int s = 0; s < TOGETHER; s++)
                if (first + s < at.rows) give<LAYER - 1>(at, first + s, k, g[s], below[s]);
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
    extern __shared__ __align__(16) float shared[];  // SHARED numbers, and the steps of STAGES + 1 turns
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
