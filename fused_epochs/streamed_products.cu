// Products of matrices in tiles, for streamed.cu: those of dense layers, and of convolutions as matrices whose rows are
// pixels. What follows a sum, such as bias, activation, slope or optimizer, is applied before it is written.

// Whether warps compute a tile on tensor cores, each 32 rows × 32 columns: see multiply_in_warp().
__device__ constexpr bool by_warps(Tile tile) {
    return TENSOR_CORES && tile.part == 0 && tile.high % 32 == 0 && tile.wide % 32 == 0;
}
// A thread computes some rows × some columns of a tile, `members` threads the tile. Groups of `members` divide k.
__device__ constexpr int own_rows(Tile tile) {
    return !by_warps(tile) && tile.high >= 64 && tile.high * tile.wide >= 2048 ? 8 : 4;
}
__device__ constexpr int own_columns(Tile tile) {
    return by_warps(tile) || (tile.wide >= 64 && tile.high * tile.wide >= 2048) ? 8 : 4;
}
__device__ constexpr int members(Tile tile) { return tile.high * tile.wide / (own_rows(tile) * own_columns(tile)); }
__device__ constexpr int groups(Tile tile) { return THREADS / members(tile); }
// The number of steps along k whose factors are in shared memory together: eight or more for each group.
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

// The elements of a tile that a thread finishes: adjacent threads have adjacent numbers. What of.early(i, j) reads is read
// for FEW of them at once, since no read can pass a write.
template <typename Product, int HIGH, int WIDE>
struct Elements {
    using Early = decltype(((const Product*)nullptr)->early(0, 0));
    static constexpr int SIZE = HIGH * WIDE, COUNT = divided_up(SIZE, THREADS);
    // Where they take few registers, they are read before the sums are computed.
    static constexpr bool READS_AHEAD = COUNT * sizeof(Early) <= 64 && Product::TILE.split == 1, DOWN = Product::DOWN;
    static constexpr int FEW = READS_AHEAD || COUNT < 8 ? COUNT : 8;
    Early before[FEW];

    // The place in the tile of a thread's element number `c`. Where all threads together are some whole columns, it is in
    // the same row for all c, and where they are whole rows in the same column: what follows from that is computed once.
    __device__ static int row_of(int c) {
        const int number = c * THREADS + threadIdx.x;
        if (DOWN) return THREADS % HIGH == 0 ? threadIdx.x % HIGH : number % HIGH;
        return THREADS % WIDE == 0 ? c * (THREADS / WIDE) + threadIdx.x / WIDE : number / WIDE;
    }
    __device__ static int column_of(int c) {
        const int number = c * THREADS + threadIdx.x;
        if (DOWN) return THREADS % HIGH == 0 ? c * (THREADS / HIGH) + threadIdx.x / HIGH : number / HIGH;
        return THREADS % WIDE == 0 ? threadIdx.x % WIDE : number % WIDE;
    }
    __device__ static bool is_in_tile(int c) {
        return SIZE % THREADS == 0 ? c < COUNT : c * THREADS + threadIdx.x < SIZE;
    }

    __device__ static bool find(const Product& of, int tile, int c, int& i, int& j) {
        i = j = 0;
        return is_in_tile(c) && of.place(tile, row_of(c), column_of(c), i, j);
    }
    __device__ void read(const Product& of, int tile, int first) {
#pragma unroll
        for (int c = 0; c < FEW; c++) {
            int i, j;
            if (find(of, tile, first + c, i, j)) before[c] = of.early(i, j);
        }
    }
};

// Adds up the sums of a tile: each of GROUPS groups of threads has its own, and so has each of `split` blocks, of which
// the last one to arrive goes on. Then calls of.done(i, j, sum, early) for each element that of.place() finds.
//
// A thread has sums[a][b], of row row_of(a) and column column_of(b) of the tile; none where column_of(b) is -1.
template <int GROUPS, int HIGH, int WIDE, int ROWS, int COLUMNS, typename Product, typename RowOf, typename ColumnOf>
__device__ void finish(const Memory& at, float* shared, const Product& of, int tile, int share, int group,
                       float (&sums)[ROWS][COLUMNS], Elements<Product, HIGH, WIDE>& own, RowOf row_of, ColumnOf column_of) {
    using Own = Elements<Product, HIGH, WIDE>;
    constexpr Tile TILE = Product::TILE;
    constexpr int SPLIT = TILE.split, SIZE = HIGH * WIDE, PITCH = Own::DOWN ? HIGH + 4 : WIDE + (WIDE == TILE.wide ? 8 : 0);
    constexpr int PADDED = Own::DOWN ? WIDE * PITCH : HIGH * PITCH;
    // Padded: the threads of a warp write to different banks.
    auto place_of = [](int row, int column) { return Own::DOWN ? column * PITCH + row : row * PITCH + column; };
    // Where the sums of all groups do not fit in shared memory, half of the groups hand theirs over first.
    constexpr bool HALVES = GROUPS * PADDED > SHARED;
    constexpr int LEFT_OVER = HALVES ? GROUPS / 2 : GROUPS;
    static_assert(LEFT_OVER * PADDED <= SHARED, "streamed.py reserves too little shared memory");
    static_assert(!HALVES || GROUPS % 2 == 0, "half of the groups hand their sums to the others");
    // A thread's rows, or columns, may be adjacent in fours, or in pairs.
    constexpr int DOWN_BY = Own::DOWN && !by_warps(TILE) ? 4 : 1;
    constexpr int ACROSS_BY = Own::DOWN ? 1 : by_warps(TILE) ? 2 : Product::RIGHT_ALONG_K ? 1 : 4;
    auto each_of_own = [&](auto visit) {
#pragma unroll
        for (int a = 0; a < ROWS; a += DOWN_BY)
#pragma unroll
            for (int b = 0; b < COLUMNS; b += ACROSS_BY)
                if (column_of(b) >= 0) visit(a, b, shared + group % LEFT_OVER * PADDED + place_of(row_of(a), column_of(b)));
    };
    auto write = [&](int a, int b, float* place) {
        if constexpr (DOWN_BY == 4) *(float4*)place = make_float4(sums[a][b], sums[a + 1][b], sums[a + 2][b], sums[a + 3][b]);
        else if constexpr (ACROSS_BY == 4)
            *(float4*)place = make_float4(sums[a][b], sums[a][b + 1], sums[a][b + 2], sums[a][b + 3]);
        else if constexpr (ACROSS_BY == 2) *(float2*)place = make_float2(sums[a][b], sums[a][b + 1]);
        else *place = sums[a][b];
    };
    auto add = [&](int a, int b, const float* place) {
#pragma unroll
        for (int c = 0; c < DOWN_BY * ACROSS_BY; c++) sums[DOWN_BY == 4 ? a + c : a][DOWN_BY == 4 ? b : b + c] += place[c];
    };
    __syncthreads();  // the last factors are no longer read
    if (HALVES) {
        if (group >= LEFT_OVER && group < GROUPS) each_of_own(write);
        __syncthreads();
        if (group < LEFT_OVER) each_of_own(add);
        __syncthreads();
    }
    if (group < LEFT_OVER) each_of_own(write);
    __syncthreads();

    auto sum_of_groups = [&](int c) {  // of a thread's element number c
        const float* own_sums = shared + place_of(Own::row_of(c), Own::column_of(c));
        float sum = 0.0f;
#pragma unroll 8
        for (int g = 0; g < LEFT_OVER; g++) sum += own_sums[g * PADDED];
        return sum;
    };
    auto part_of = [](int c) { return Own::row_of(c) * WIDE + Own::column_of(c); };
    float* parts = at.parts + TILE.parts_at + tile * SPLIT * SIZE;
    if constexpr (SPLIT > 1) {
#pragma unroll 8
        for (int c = 0; c < Own::COUNT; c++)
            if (Own::is_in_tile(c)) parts[share * SIZE + part_of(c)] = sum_of_groups(c);
        if (Product::SUMMED_LATER || !is_last(at.arrivals + TILE.arrivals_at + tile, SPLIT)) return;
    }
#pragma unroll 1
    for (int first = 0; first < Own::COUNT; first += Own::FEW) {
        if (!Own::READS_AHEAD) own.read(of, tile, first);
        float found[Own::FEW] = {};
        if constexpr (SPLIT == 1) {
#pragma unroll
            for (int c = 0; c < Own::FEW; c++)
                if (Own::is_in_tile(first + c)) found[c] = sum_of_groups(first + c);
        } else {
#pragma unroll 16 / Own::FEW
            for (int s = 0; s < SPLIT; s++)
#pragma unroll
                for (int c = 0; c < Own::FEW; c++)
                    if (Own::is_in_tile(first + c)) found[c] += read_from_all(parts + s * SIZE + part_of(first + c));
        }
#pragma unroll
        for (int c = 0; c < Own::FEW; c++) {
            int i, j;
            if (Own::find(of, tile, first + c, i, j)) of.done(i, j, found[c], own.before[c]);
        }
    }
}

// A factor of a tile in shared memory: LENGTH rows, or columns, of DEPTH steps along k. The order is that of global
// memory: if ALONG_K, the steps of a row are adjacent, otherwise the rows of a step. All are padded.
template <int LENGTH, int DEPTH, bool ALONG_K>
struct Factor {
    static constexpr int PITCH = ALONG_K ? DEPTH + 4 : LENGTH + 8, NUMBERS = (ALONG_K ? LENGTH : DEPTH) * PITCH;

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
    // Calls load(place, row, k) for this thread's share: for FOUR numbers, in the direction in which they are adjacent.
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

#if TENSOR_CORES
// A float32 as a sum of two TF32 numbers, but for 2^-23 or so of it. It is rounded as by rounded_to_tf32(), which asks
// first whether it is a number.
__device__ void split_in_two(float number, float& large, float& small) {
    large = __uint_as_float((__float_as_uint(number) + 0x1000u) & ~0x1fffu);
    small = number - large;
}
// The sums of a warp over LENGTH steps along k from `k0` on, for 32 rows of the left factor from y on and 32 rows of the
// right one from x on. Products of large and small parts are added up, but those of two small parts, which are as small
// as float32's rounding. Tensor cores cut their sums off instead of rounding them, so each is of these steps only.
template <typename Left, typename Right, int LENGTH>
__device__ void multiply_in_warp(float* left, float* right, int y, int x, int k0, float (&sums)[4][8]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;  // see multiply_fragments()
    float z[2][4][4] = {};
#pragma unroll
    for (int k = k0; k < k0 + LENGTH; k += 8) {
        float a[2][4], small_a[2][4], b[4][2], small_b[4][2];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int m = e / 4, c = e % 4;
            split_in_two(*Left::at(left, y + 16 * m + 8 * (c % 2) + g, k + 4 * (c / 2) + t), a[m][c], small_a[m][c]);
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            split_in_two(*Right::at(right, x + 8 * (e / 2) + g, k + 4 * (e % 2) + t), b[e / 2][e % 2], small_b[e / 2][e % 2]);
#pragma unroll
        for (int e = 0; e < 8; e++) multiply_fragments(z[e / 4][e % 4], small_a[e / 4], b[e % 4]);
#pragma unroll
        for (int e = 0; e < 8; e++) multiply_fragments(z[e / 4][e % 4], a[e / 4], small_b[e % 4]);
#pragma unroll
        for (int e = 0; e < 8; e++) multiply_fragments(z[e / 4][e % 4], a[e / 4], b[e % 4]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) sums[i][j] += z[i / 2][j / 2][i % 2 * 2 + j % 2];
}
#else
template <typename Left, typename Right, int LENGTH>
__device__ void multiply_in_warp(float* left, float* right, int y, int x, int k0, float (&sums)[4][8]);
#endif

// Computes a tile: the sums over k < of.depth of left(i, k) right(k, j), for i < of.rows and j < COLUMNS. The factors pass through shared memory in STAGES stages: those of the next ones are copied meanwhile. Groups of threads
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
    constexpr int LENGTH = DEPTH / GROUPS, WARPS_ACROSS = divided_up(WIDE, 32);
    const int group = thread / MEMBERS, down = thread % MEMBERS / ACROSS, right = thread % ACROSS;
    const int warp = thread % MEMBERS / 32, y = warp / WARPS_ACROSS * 32, x = warp % WARPS_ACROSS * 32;
    float sums[ROWS][OWN_COLUMNS] = {};
    Elements<Product, HIGH, WIDE> own;
    __syncthreads();  // the tile before is no longer read
    if (Product::HAS_STEPS) {
        for (int turn = 0; turn < STAGES; turn++) prepare(turn);
        __syncthreads();
    }
#pragma unroll 1  // a kernel that outgrows the cache for instructions waits for them in every phase
    for (int turn = 0; turn < STAGES - 1; turn++) copy(turn);
    if (own.READS_AHEAD) own.read(of, tile, 0);
    for (int turn = 0; turn < turns; turn++) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();
        copy(turn + STAGES - 1);
        prepare(turn + STAGES);
        float *left_at = shared + turn % STAGES * STAGE, *right_at = left_at + Left::NUMBERS;
        if constexpr (by_warps(TILE)) {
            multiply_in_warp<Left, Right, LENGTH>(left_at, right_at, y, x, group * LENGTH, sums);
        } else {
#pragma unroll
            for (int k = 0; k < LENGTH; k += 4) {
                float l[ROWS][4], r[OWN_COLUMNS][4];
                Left::read(left_at, down, group * LENGTH + k, l);
                Right::read(right_at, right, group * LENGTH + k, r);
#pragma unroll
                for (int step = 0; step < 4; step++)
#pragma unroll
                    for (int i = 0; i < ROWS; i++)
#pragma unroll
                        for (int j = 0; j < OWN_COLUMNS; j++) sums[i][j] += l[i][step] * r[j][step];
            }
        }
    }
    wait_for_groups<0>();
    auto row_of = [&](int a) {
        return by_warps(TILE) ? y + a * 8 + thread % 32 / 4 : Left::template row_of<ROWS>(down, a);
    };
    auto column_of = [&](int b) {
        return by_warps(TILE) ? x + b / 2 * 8 + thread % 4 * 2 + b % 2 : Right::template row_of<OWN_COLUMNS>(right, b);
    };
    finish<GROUPS, HIGH, WIDE>(at, shared, of, tile, share, group, sums, own, row_of, column_of);
}

// The place of an element of a tile in the whole product; whether it is there.
template <typename Product>
__device__ bool place_in(const Product& of, int tile, int row, int column, int& i, int& j) {
    constexpr int TILES_ACROSS = divided_up(Product::COLUMNS, Product::TILE.wide);
    i = tile / TILES_ACROSS * Product::TILE.high + row;
    j = tile % TILES_ACROSS * Product::TILE.wide + column;
    return i < of.rows && j < Product::COLUMNS;
}
template <typename Product>
__device__ constexpr int tiles_of() {
    return divided_up(Product::MOST_ROWS, Product::TILE.high) * divided_up(Product::COLUMNS, Product::TILE.wide);
}

// ---- the three products of a layer: rows are samples, or their pixels; columns neurons, or filters
//
// left() and right() copy numbers to shared memory: LEFT_FOUR, or RIGHT_FOUR, adjacent ones at a time, four where all lie
// at addresses that allow it; zeros where these are not `there`.

// A number of a convolution is at row.at + input.at, unless that is outside the image. One of the two is a step along
// k, which is prepared once for all threads.
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
    static constexpr bool DOWN = !is_dense(LAYER), SUMMED_LATER = false;
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
    __device__ bool place(int tile, int row, int column, int& i, int& j) const { return place_in(*this, tile, row, column, i, j); }
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
    static constexpr bool DOWN = !is_dense(LAYER), SUMMED_LATER = false;
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
    __device__ bool place(int tile, int row, int column, int& i, int& j) const { return place_in(*this, tile, row, column, i, j); }
    __device__ Below early(int i, int j) const {
        if constexpr (is_dense(LAYER)) return look_below<LAYER - 1>(at, i, j / pixels(LAYER - 1), j % pixels(LAYER - 1));
        else return look_below<LAYER - 1>(at, i / PIXELS, j, i % PIXELS);
    }
    __device__ void done(int i, int j, float sum, Below below) const {
        if constexpr (is_dense(LAYER)) give<LAYER - 1>(at, i, j / pixels(LAYER - 1), j % pixels(LAYER - 1), sum, below);
        else give<LAYER - 1>(at, i / PIXELS, j, i % PIXELS, sum, below);
    }
};

// The gradients: rows are neurons or filters, columns their inputs. The last column is the bias, the weight of an input
// that is always 1, unless it would need a tile more in each row of tiles: biases_from() then has the biases.
template <int LAYER>
struct Weights {
    static constexpr Tile TILE = layer(LAYER).weights;
    static constexpr bool HAS_BIAS = !is_dense(LAYER) || inputs(LAYER) % TILE.wide != 0;
    static constexpr int INPUTS = inputs(LAYER), COLUMNS = INPUTS + HAS_BIAS, MOST_ROWS = layer(LAYER).channels;
    static constexpr int WHOLE = BATCH * pixels(LAYER);
    static constexpr bool HAS_STEPS = !is_dense(LAYER), LEFT_ALONG_K = !is_dense(LAYER), RIGHT_ALONG_K = !is_dense(LAYER);
    static constexpr bool DOWN = false, SUMMED_LATER = false;
    static constexpr int LEFT_FOUR = is_dense(LAYER) ? of_map_at_once(LAYER) : at_once(0, pixels(LAYER));
    static constexpr int RIGHT_FOUR = is_dense(LAYER) ? of_map_at_once(LAYER - 1) : 1;
    struct Parameter {
        float w, m, v;
    };
    const Memory& at;
    const int rows = MOST_ROWS, depth = at.rows * pixels(LAYER);
    const float mean = 1.0f / at.rows;
    const float *A = map_of<LAYER - 1>(at), *D = deltas_of<LAYER>(at);

    __device__ Step step(int k) const { return step_at(pixel_of_result<LAYER>(k)); }
    __device__ void left(float* to, bool there, int i, int k, const Step&) const {
        const int place = k / pixels(LAYER) * numbers(LAYER) + i * pixels(LAYER) + k % pixels(LAYER);
        copy<LEFT_FOUR>(to, D + (there ? place : 0), there);
    }
    __device__ void right(float* to, bool there, int j, int k, const Step& step) const {
        if (HAS_BIAS && j == INPUTS) {  // where k is not there, neither is the other factor
            to[0] = 1.0f;
            return;
        }
        there = there && j < INPUTS;
        if constexpr (is_dense(LAYER)) copy<RIGHT_FOUR>(to, A + (there ? k * INPUTS + j : 0), there);
        else copy_below<LAYER>(to, A, there, input_of_filter<LAYER>(min(j, INPUTS - 1)), step);
    }
    __device__ bool place(int tile, int row, int column, int& i, int& j) const { return place_in(*this, tile, row, column, i, j); }
    __device__ int place_of(int i, int j) const {
        return layer(LAYER).parameters_at + (j < INPUTS ? i * INPUTS + j : MOST_ROWS * INPUTS + i);
    }
    __device__ Parameter early(int i, int j) const {
        const int place = place_of(i, j);
        return {at.parameters[place], HAS_M ? at.M[place] : 0.0f, HAS_V ? at.V[place] : 0.0f};
    }
    __device__ void done(int i, int j, float sum, Parameter own) const {
        const int place = place_of(i, j);
        at.parameters[place] = moved(own.w, sum * mean, &own.m, &own.v, at.step);
        if (HAS_M) at.M[place] = own.m;
        if (HAS_V) at.V[place] = own.v;
    }
};

// The biases of a dense layer that Weights leaves out: a unit is 32 neurons, and the warps of a block divide the samples.
template <int LAYER>
__device__ constexpr int bias_units() {
    return Weights<LAYER>::HAS_BIAS || of_few<LAYER>() ? 0 : divided_up(layer(LAYER).channels, 32);
}
template <int LAYER>
__device__ void biases_from(const Memory& at, float* shared, int first_unit) {
    constexpr int NEURONS = layer(LAYER).channels, WARPS = THREADS / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int unit = first_unit; unit < bias_units<LAYER>(); unit += BLOCKS) {
        const int j = unit * 32 + lane;
        float sum = 0.0f;
        for (int i = warp; i < at.rows && j < NEURONS; i += WARPS) sum += deltas_of<LAYER>(at)[i * NEURONS + j];
        __syncthreads();  // the tile before is no longer read
        shared[threadIdx.x] = sum;
        __syncthreads();
        if (warp > 0 || j >= NEURONS) continue;
        for (int other = 1; other < WARPS; other++) sum += shared[other * 32 + lane];
        const int place = layer(LAYER).parameters_at + NEURONS * inputs(LAYER) + j;
        float *m = HAS_M ? at.M + place : nullptr, *v = HAS_V ? at.V + place : nullptr;
        at.parameters[place] = moved(at.parameters[place], sum / at.rows, m, v, at.step);
    }
}
