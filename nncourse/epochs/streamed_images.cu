// Convolutions with stride 1 for streamed.cu: a tile's part of the images lies in shared memory, where each filter finds
// all of its pixels. So every number is read from memory once, not once for each pixel of a filter.

// ---- sums over a filter's pixels: forward, and the deltas below, for which the filters are turned round

// A tile has SAMPLES × LINES lines of pixels of the result × some filters. The images' part has k − 1 more lines, and as
// many columns more; outside of the image it is 0. Lines are taken four pixels at a time: the last ones may be outside.
template <typename Product>
struct Patch {
    static constexpr Tile TILE = Product::TILE;
    static constexpr int HEIGHT = Product::HEIGHT, WIDTH = Product::WIDTH, K = Product::K, CHANNELS = TILE.part;
    static constexpr int FOURS = divided_up(WIDTH, 4), WINDOW = divided_up(K + 3, 4) * 4;
    static constexpr bool WHOLE_IMAGES = HEIGHT * FOURS * 4 <= TILE.high;
    static constexpr int LINES = WHOLE_IMAGES ? HEIGHT : TILE.high / (FOURS * 4);
    static constexpr int SAMPLES = WHOLE_IMAGES ? TILE.high / (HEIGHT * FOURS * 4) : 1;
    static constexpr int BANDS = divided_up(HEIGHT, LINES), DOWN = WHOLE_IMAGES ? divided_up(BATCH, SAMPLES) : BATCH * BANDS;
    static constexpr int PITCH = FOURS * 4 - 4 + WINDOW, PLANE = (LINES + K - 1) * PITCH, IMAGE = CHANNELS * PLANE;
    static constexpr int NUMBERS = SAMPLES * IMAGE, ROW = TILE.wide + 4;  // a row of weights, padded
    static constexpr int STAGE = NUMBERS + CHANNELS * K * K * ROW;
    static constexpr int TURNS = divided_up(Product::CHANNELS, CHANNELS), ACROSS = divided_up(Product::COLUMNS, TILE.wide);

    __device__ static int first_sample(int tile) { return tile / ACROSS / (WHOLE_IMAGES ? 1 : BANDS) * SAMPLES; }
    __device__ static int first_line(int tile) { return WHOLE_IMAGES ? 0 : tile / ACROSS % BANDS * LINES; }
};

template <typename Product>
__device__ void image_product(const Memory& at, float* shared, int unit, const Product& of) {
    using Part = Patch<Product>;
    constexpr Tile TILE = Product::TILE;
    constexpr int SPLIT = TILE.split, K = Part::K, ROWS = 8, OWN_COLUMNS = TILE.wide >= 32 ? 8 : 4;
    constexpr int DOWN = TILE.high / ROWS, MEMBERS = DOWN * (TILE.wide / OWN_COLUMNS), GROUPS = THREADS / MEMBERS;
    constexpr int SHARE = divided_up(Part::TURNS, SPLIT);
    static_assert(STAGES * Part::STAGE <= SHARED, "streamed.py reserves too little shared memory");
    const int thread = threadIdx.x, tile = unit / SPLIT, share = unit % SPLIT;
    const int s0 = Part::first_sample(tile), y0 = Part::first_line(tile), j0 = tile % Part::ACROSS * TILE.wide;
    if (s0 >= at.rows) return;  // the last batch may be smaller
    const int first = share * SHARE, turns = max(0, min(Part::TURNS - first, SHARE));

    auto copy_turn = [&](int turn) {
        if (turn < turns) {
            float* stage = shared + turn % STAGES * Part::STAGE;
            const int c0 = (first + turn) * Part::CHANNELS;
            constexpr int ALL = Part::SAMPLES * Part::IMAGE, WEIGHTS = Part::CHANNELS * K * K * TILE.wide;
            for (int number = thread; number < ALL; number += THREADS) {
                const int s = number / Part::IMAGE, c = number / Part::PLANE % Part::CHANNELS;
                const int y = y0 + number / Part::PITCH % (Part::LINES + K - 1) - Product::BEFORE;
                const int x = number % Part::PITCH - Product::BEFORE;
                const bool there = s0 + s < at.rows && c0 + c < Product::CHANNELS && (unsigned)y < Product::HIGH_BELOW &&
                                   (unsigned)x < Product::WIDE_BELOW;
                const int place = (((s0 + s) * Product::CHANNELS + c0 + c) * Product::HIGH_BELOW + y) * Product::WIDE_BELOW + x;
                copy_one_later(stage + number, of.from + (there ? place : 0), there);
            }
            for (int number = thread; number < WEIGHTS; number += THREADS) {
                constexpr int DEEP = Part::CHANNELS * K * K;
                const int j = number / DEEP, k = number % DEEP;
                const bool there = j0 + j < Product::COLUMNS && c0 + k / (K * K) < Product::CHANNELS;
                copy_one_later(stage + Part::NUMBERS + k * Part::ROW + j, of.W + (there ? of.weight(c0 * K * K + k, j0 + j) : 0), there);
            }
        }
        end_group_of_copies();
    };

    // A thread has fours of adjacent pixels, adjacent threads adjacent fours, of the same filters.
    const int group = thread / MEMBERS, down = thread % MEMBERS % DOWN, right = thread % MEMBERS / DOWN * OWN_COLUMNS;
    int begins[ROWS / 4];
#pragma unroll
    for (int c = 0; c < ROWS / 4; c++) {
        constexpr int OF_IMAGE = Part::LINES * Part::FOURS;
        const int four = down + c * DOWN < Part::SAMPLES * OF_IMAGE ? down + c * DOWN : 0;
        begins[c] = four / OF_IMAGE * Part::IMAGE + four % OF_IMAGE / Part::FOURS * Part::PITCH + four % Part::FOURS * 4;
    }
    float sums[ROWS][OWN_COLUMNS] = {};
    Elements<Product, TILE.high, TILE.wide> own;
    if (own.READS_AHEAD) own.read(of, tile, 0);
    __syncthreads();  // the tile before is no longer read
#pragma unroll
    for (int turn = 0; turn < STAGES - 1; turn++) copy_turn(turn);
    for (int turn = 0; turn < turns; turn++) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();
        copy_turn(turn + STAGES - 1);
        const float* stage = shared + turn % STAGES * Part::STAGE;
        for (int line = group; line < Part::CHANNELS * K; line += GROUPS) {  // a line of pixels of a filter
            const float* a_at = stage + line / K * Part::PLANE + line % K * Part::PITCH;
            const float* w_at = stage + Part::NUMBERS + line * K * Part::ROW + right;
            float a[ROWS / 4][Part::WINDOW];
#pragma unroll
            for (int c = 0; c < ROWS / 4; c++)
#pragma unroll
                for (int x = 0; x < Part::WINDOW; x += 4) {
                    const float4 four = *(const float4*)(a_at + begins[c] + x);
                    a[c][x] = four.x, a[c][x + 1] = four.y, a[c][x + 2] = four.z, a[c][x + 3] = four.w;
                }
#pragma unroll
            for (int x = 0; x < K; x++) {
                float w[OWN_COLUMNS];
#pragma unroll
                for (int c = 0; c < OWN_COLUMNS; c += 4) {
                    const float4 four = *(const float4*)(w_at + x * Part::ROW + c);
                    w[c] = four.x, w[c + 1] = four.y, w[c + 2] = four.z, w[c + 3] = four.w;
                }
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int j = 0; j < OWN_COLUMNS; j++) sums[i][j] += a[i / 4][i % 4 + x] * w[j];
            }
        }
    }
    wait_for_groups<0>();
    finish<GROUPS, TILE.high, TILE.wide>(
        at, shared, of, tile, share, group, sums, own, [&](int a) { return (down + a / 4 * DOWN) * 4 + a % 4; },
        [&](int b) { return right + b; });
}
// Row i of the whole product is pixel i of all samples.
template <typename Product>
__device__ bool place_in_images(const Memory& at, int tile, int row, int column, int& i, int& j) {
    using Part = Patch<Product>;
    constexpr int LINE = Part::FOURS * 4, OF_IMAGE = Part::LINES * LINE;
    const int s = Part::first_sample(tile) + row / OF_IMAGE, y = Part::first_line(tile) + row % OF_IMAGE / LINE, x = row % LINE;
    i = (s * Part::HEIGHT + y) * Part::WIDTH + x;
    j = tile % Part::ACROSS * Product::TILE.wide + column;
    return row < Part::SAMPLES * OF_IMAGE && s < at.rows && y < Part::HEIGHT && x < Part::WIDTH && j < Product::COLUMNS;
}

template <int LAYER>
struct ImageForward : Forward<LAYER> {
    static constexpr Row HERE = layer(LAYER), BELOW = layer(LAYER - 1);
    static constexpr int HEIGHT = HERE.height, WIDTH = HERE.width, K = HERE.k, BEFORE = HERE.before;
    static constexpr int CHANNELS = BELOW.channels, HIGH_BELOW = BELOW.height, WIDE_BELOW = BELOW.width;
    const float* from = map_of<LAYER - 1>(this->at);

    __device__ int weight(int k, int j) const { return j * Forward<LAYER>::WHOLE + k; }
    __device__ bool place(int tile, int row, int column, int& i, int& j) const {
        return place_in_images<ImageForward>(this->at, tile, row, column, i, j);
    }
};
template <int LAYER>
struct ImageDeltas : Deltas<LAYER> {
    static constexpr Row HERE = layer(LAYER), BELOW = layer(LAYER - 1);
    static constexpr int HEIGHT = BELOW.height, WIDTH = BELOW.width, K = HERE.k, BEFORE = HERE.k - 1 - HERE.before;
    static constexpr int CHANNELS = HERE.channels, HIGH_BELOW = HERE.height, WIDE_BELOW = HERE.width;
    const float* from = deltas_of<LAYER>(this->at);

    __device__ int weight(int k, int j) const {
        return (k / (K * K) * BELOW.channels + j) * K * K + K * K - 1 - k % (K * K);
    }
    __device__ bool place(int tile, int row, int column, int& i, int& j) const {
        return place_in_images<ImageDeltas>(this->at, tile, row, column, i, j);
    }
};

// ---- sums over the pixels of all samples: the weights' gradients

// Filters of a thread, for which it keeps k² sums each: few where there are few threads for a tile.
__device__ constexpr int own_filters(Tile tile, int k, int filters = 8) {
    const bool fits = filters * k * k <= 100 && tile.high / filters * tile.wide >= 8;
    return fits || filters == 1 ? filters : own_filters(tile, k, filters / 2);
}
//
// A tile has `high` filters × `wide` channels. A thread has some filters × the k² weights of a channel. A turn is a band
// of lines of one sample; groups of threads divide its pixels, by fours.
// The parts of all blocks are added up in the next phase, by add_parts().
template <int LAYER>
struct ImageWeights : Weights<LAYER> {
    static constexpr bool SUMMED_LATER = layer(LAYER).weights.split > 1;
    static constexpr Row HERE = layer(LAYER), BELOW = layer(LAYER - 1);
    static constexpr Tile TILE = HERE.weights;
    static constexpr int K = HERE.k, LINES = TILE.part, CHANNELS = TILE.wide, BANDS = divided_up(HERE.height, LINES);
    static constexpr int PITCH = divided_up(HERE.width, 4) * 4, WINDOW = divided_up(K + 3, 4) * 4;
    static constexpr int PITCH_BELOW = PITCH - 4 + WINDOW, OF_LINES = (LINES + K - 1) * PITCH_BELOW;
    static constexpr int PLANE = OF_LINES % 8 == 0 ? OF_LINES + 4 : OF_LINES;  // adjacent channels are in other banks
    static constexpr int NUMBERS = TILE.high * LINES * PITCH, STAGE = NUMBERS + CHANNELS * PLANE;
    static constexpr int WIDE = TILE.wide * K * K + 1;  // the last one is the bias
    static constexpr int ACROSS = divided_up(BELOW.channels, CHANNELS), DOWN_TILES = divided_up(HERE.channels, TILE.high);

    __device__ bool place(int tile, int row, int column, int& i, int& j) const {
        i = tile / ACROSS * TILE.high + row;
        j = tile % ACROSS * CHANNELS * K * K + column;
        const bool is_bias = column == TILE.wide * K * K;
        if (is_bias) j = this->INPUTS;
        return i < this->rows && (is_bias ? tile % ACROSS == 0 : j < this->INPUTS);
    }
};
template <int LAYER>
__device__ void image_product(const Memory& at, float* shared, int unit, const ImageWeights<LAYER>& of) {
    using Part = ImageWeights<LAYER>;
    constexpr Row HERE = Part::HERE, BELOW = Part::BELOW;
    constexpr Tile TILE = Part::TILE;
    constexpr int SPLIT = TILE.split, K = Part::K, ROWS = own_filters(TILE, K), DOWN = TILE.high / ROWS;
    constexpr int MEMBERS = DOWN * TILE.wide, MOST = SHARED / (TILE.high * Part::WIDE);
    constexpr int GROUPS = THREADS / MEMBERS < MOST ? THREADS / MEMBERS : MOST;
    static_assert(STAGES * Part::STAGE <= SHARED && GROUPS > 0, "streamed.py reserves too little shared memory");
    const int thread = threadIdx.x, tile = unit / SPLIT, share = unit % SPLIT;
    const int o0 = tile / Part::ACROSS * TILE.high, c0 = tile % Part::ACROSS * Part::CHANNELS;
    constexpr int SHARE = divided_up(BATCH * Part::BANDS, SPLIT);
    const int first = share * SHARE, turns = max(0, min(at.rows * Part::BANDS - first, SHARE));

    auto copy_turn = [&](int turn) {
        if (turn < turns) {
            float* stage = shared + turn % STAGES * Part::STAGE;
            const int s = (first + turn) / Part::BANDS, y0 = (first + turn) % Part::BANDS * Part::LINES;
            constexpr int FOUR = at_once(0, HERE.width), IN_LINE = Part::PITCH / FOUR, ALL = Part::NUMBERS / FOUR;
            for (int number = thread; number < ALL; number += THREADS) {
                const int o = number / (Part::LINES * IN_LINE), y = number / IN_LINE % Part::LINES, x = number % IN_LINE * FOUR;
                const bool there = o0 + o < HERE.channels && y0 + y < HERE.height && x < HERE.width;
                const int place = ((s * HERE.channels + o0 + o) * HERE.height + y0 + y) * HERE.width + x;
                copy<FOUR>(stage + number * FOUR, of.D + (there ? place : 0), there);
            }
            for (int number = thread; number < Part::CHANNELS * Part::PLANE; number += THREADS) {
                const int c = number / Part::PLANE, of_plane = number % Part::PLANE;
                const int y = y0 + of_plane / Part::PITCH_BELOW - HERE.before, x = of_plane % Part::PITCH_BELOW - HERE.before;
                const bool there = c0 + c < BELOW.channels && (unsigned)y < BELOW.height && (unsigned)x < BELOW.width;
                const int place = ((s * BELOW.channels + c0 + c) * BELOW.height + y) * BELOW.width + x;
                copy_one_later(stage + Part::NUMBERS + number, of.A + (there ? place : 0), there);
            }
        }
        end_group_of_copies();
    };

    const int group = thread / MEMBERS, channel = thread % MEMBERS % TILE.wide, down = thread % MEMBERS / TILE.wide;
    float sums[ROWS][K * K + 1] = {};
    Elements<Part, TILE.high, Part::WIDE> own;
    if (own.READS_AHEAD) own.read(of, tile, 0);
    __syncthreads();  // the tile before is no longer read
#pragma unroll
    for (int turn = 0; turn < STAGES - 1; turn++) copy_turn(turn);
    for (int turn = 0; turn < turns; turn++) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();
        copy_turn(turn + STAGES - 1);
        const float* stage = shared + turn % STAGES * Part::STAGE;
        const float* below = stage + Part::NUMBERS + channel * Part::PLANE;
        for (int four = group < GROUPS ? group : Part::NUMBERS; four < Part::LINES * Part::PITCH / 4; four += GROUPS) {
            const int y = four / (Part::PITCH / 4), x = four % (Part::PITCH / 4) * 4;
            float a[K][Part::WINDOW];
#pragma unroll
            for (int line = 0; line < K; line++)
#pragma unroll
                for (int c = 0; c < Part::WINDOW; c += 4) {
                    const float4 found = *(const float4*)(below + (y + line) * Part::PITCH_BELOW + x + c);
                    a[line][c] = found.x, a[line][c + 1] = found.y, a[line][c + 2] = found.z, a[line][c + 3] = found.w;
                }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float4 d = *(const float4*)(stage + ((i * DOWN + down) * Part::LINES + y) * Part::PITCH + x);
#pragma unroll
                for (int tap = 0; tap < K * K; tap++) {
                    const float* from = a[tap / K] + tap % K;
                    sums[i][tap] += d.x * from[0];
                    sums[i][tap] += d.y * from[1];
                    sums[i][tap] += d.z * from[2];
                    sums[i][tap] += d.w * from[3];
                }
                if (channel == 0) sums[i][K * K] += (d.x + d.y) + (d.z + d.w);
            }
        }
    }
    wait_for_groups<0>();
    finish<GROUPS, TILE.high, Part::WIDE>(
        at, shared, of, tile, share, group, sums, own, [&](int a) { return a * DOWN + down; },
        [&](int b) { return b < K * K ? channel * K * K + b : channel == 0 ? TILE.wide * K * K : -1; });
}

template <typename Product>
struct Tiles {
    static constexpr int COUNT = Patch<Product>::DOWN * Patch<Product>::ACROSS;
};
template <int LAYER>
struct Tiles<ImageWeights<LAYER>> {
    static constexpr int COUNT = ImageWeights<LAYER>::DOWN_TILES * ImageWeights<LAYER>::ACROSS;
};

// The sums of the parts of all blocks, and the step of the optimizer.
template <int LAYER>
__device__ void add_parts(const Memory& at) {
    using Part = ImageWeights<LAYER>;
    constexpr int SPLIT = Part::TILE.split, SIZE = Part::TILE.high * Part::WIDE, ALL = Part::DOWN_TILES * Part::ACROSS * SIZE;
    const Part of = {{at}};
    for (int e = blockIdx.x * THREADS + threadIdx.x; e < ALL; e += BLOCKS * THREADS) {
        int i, j;
        if (!of.place(e / SIZE, e % SIZE / Part::WIDE, e % Part::WIDE, i, j)) continue;
        const auto before = of.early(i, j);
        const float* parts = at.parts + Part::TILE.parts_at + e / SIZE * SPLIT * SIZE + e % SIZE;
        float sum = 0.0f;
#pragma unroll 16
        for (int s = 0; s < SPLIT; s++) sum += read_from_all(parts + s * SIZE);
        of.done(i, j, sum, before);
    }
}
