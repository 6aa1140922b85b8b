// Convolutions with stride 1 for streamed.cu: a tile's part of the images is in shared memory, where each filter finds
// all its pixels. So every number is read from global memory once, not once for each pixel of a filter.

__device__ constexpr int larger(int one, int other) { return one > other ? one : other; }
__device__ constexpr int smaller(int one, int other) { return one < other ? one : other; }

// ---- copies to shared memory

// The source and the destination of a number; a zero is copied unless the source is `there`.
struct Copied {
    int from, to;
    bool there;
};

// Copies PLACES numbers, AT_ONCE of them together, of each of `count` channels or filters, at most MOST. A thread copies
// the same place of one after the other. These are FROM_APART and TO_APART from each other, which are constants: only
// the place of the first is computed and compared with the edges, by find(place). Doing so for each number took 15 to
// 36 instructions, in all a quarter to half as many as the multiplications.
template <int PLACES, int MOST, int FROM_APART, int TO_APART, int AT_ONCE = 1, typename Find>
__device__ void copy_all(float* to, const float* from, int count, Find find) {
    constexpr int SHARING = larger(1, smaller(THREADS / PLACES, MOST));  // threads for a place
#pragma unroll
    for (int first = 0; first < PLACES * SHARING; first += THREADS) {
        const int number = first + threadIdx.x, begin = SHARING == 1 ? 0 : number / PLACES;
        if (number >= PLACES * SHARING) continue;
        const Copied one = find(number % PLACES);
        float* own_to = to + one.to + begin * TO_APART;
        const float* own_from = from + (one.there ? one.from + begin * FROM_APART : 0);
#pragma unroll
        for (int c = 0; c < MOST; c += SHARING)
            if (begin + c < count) copy<AT_ONCE>(own_to + c * TO_APART, own_from + c * FROM_APART, one.there);
    }
}

// The position of a thread among those of a tile, DOWN × ACROSS. Of a warp's lanes eight or more are down. Neighbours
// read the same pixels, and lanes two apart the same weights: shared memory then serves a warp in half the time.
struct Position {
    int down, across;
};
template <int DOWN, int ACROSS>
__device__ Position position_of(int thread) {
    constexpr int WIDE = smaller(4, ACROSS), HIGH = 32 / WIDE;
    const int lane = thread % 32, warp = thread / 32;
    const int across = lane % 2 + (WIDE == 4 ? lane / 16 * 2 : 0), down = lane / 2 % HIGH;
    return {warp / (ACROSS / WIDE) * HIGH + down, warp % (ACROSS / WIDE) * WIDE + across};
}

// ---- sums over a filter's pixels: forward, and the deltas below, for which the filters are rotated by half a turn

// At most `most` lines per band: an even number if that takes no more bands, so that windows of 2 × 2 are in one band.
__device__ constexpr int lines_of_band(int height, int most) {
    const int even = most / 2 * 2;
    return even && divided_up(height, even) == divided_up(height, most) ? even : most;
}
// A tile has SAMPLES × LINES lines of pixels of the result × some filters. The images' part has k − 1 more lines, and as
// many more columns; outside the image it is 0. Lines are taken four pixels at a time: the last pixels may be outside,
// and their windows end in the next line, or after the patch. No line is longer than it must be: if lines follow each
// other without a gap, eight adjacent fours are in different banks.
template <typename Product>
struct Patch {
    static constexpr Tile TILE = Product::TILE;
    static constexpr int HEIGHT = Product::HEIGHT, WIDTH = Product::WIDTH, K = Product::K, CHANNELS = TILE.part;
    static constexpr int FOURS = divided_up(WIDTH, 4), WINDOW = divided_up(K + 3, 4) * 4;
    static constexpr bool WHOLE_IMAGES = HEIGHT * FOURS * 4 <= TILE.high;
    static constexpr int LINES = WHOLE_IMAGES ? HEIGHT : lines_of_band(HEIGHT, TILE.high / (FOURS * 4));
    static constexpr int SAMPLES = WHOLE_IMAGES ? TILE.high / (HEIGHT * FOURS * 4) : 1;
    static constexpr int BANDS = divided_up(HEIGHT, LINES), DOWN = WHOLE_IMAGES ? divided_up(BATCH, SAMPLES) : BATCH * BANDS;
    static constexpr int PITCH = divided_up(larger(FOURS * 4, WIDTH + K - 1), 4) * 4;
    static constexpr int PLANE = (LINES + K - 1) * PITCH, IMAGE = CHANNELS * PLANE;
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

    constexpr bool EVEN = Product::CHANNELS % Part::CHANNELS == 0;  // then all turns have as many channels
    auto channels_of = [&](int turn) {
        return EVEN ? Part::CHANNELS : min(Part::CHANNELS, Product::CHANNELS - (first + turn) * Part::CHANNELS);
    };
    auto copy_turn = [&](int turn) {
        if (turn < turns) {
            float* stage = shared + turn % STAGES * Part::STAGE;
            const int c0 = (first + turn) * Part::CHANNELS;
            constexpr int PIXELS = Product::HIGH_BELOW * Product::WIDE_BELOW;
            copy_all<Part::SAMPLES * Part::PLANE, Part::CHANNELS, PIXELS, Part::PLANE>(
                stage, of.from + c0 * PIXELS, channels_of(turn), [&](int place) -> Copied {
                    const int s = place / Part::PLANE, of_plane = place % Part::PLANE;
                    const int y = y0 + of_plane / Part::PITCH - Product::BEFORE, x = of_plane % Part::PITCH - Product::BEFORE;
                    const bool there = s0 + s < at.rows && (unsigned)y < Product::HIGH_BELOW && (unsigned)x < Product::WIDE_BELOW;
                    return {(s0 + s) * Product::CHANNELS * PIXELS + y * Product::WIDE_BELOW + x, s * Part::IMAGE + of_plane, there};
                });
            copy_all<TILE.wide * K * K, Part::CHANNELS, Product::WEIGHTS_APART, K * K * Part::ROW>(
                stage + Part::NUMBERS, of.W + c0 * Product::WEIGHTS_APART, channels_of(turn), [&](int place) -> Copied {
                    const int j = place / (K * K), tap = place % (K * K);
                    return {of.weight(tap, j0 + j), tap * Part::ROW + j, j0 + j < Product::COLUMNS};
                });
        }
        end_group_of_copies();
    };

    // A thread has fours of adjacent pixels, adjacent threads adjacent fours, of the same filters.
    const Position own_position = position_of<DOWN, TILE.wide / OWN_COLUMNS>(thread % MEMBERS);
    const int group = thread / MEMBERS, down = own_position.down, right = own_position.across * OWN_COLUMNS;
    int begins[ROWS / 4];
#pragma unroll
    for (int c = 0; c < ROWS / 4; c++) {
        constexpr int OF_IMAGE = Part::LINES * Part::FOURS;
        const int four = down + c * DOWN < Part::SAMPLES * OF_IMAGE ? down + c * DOWN : 0;
        begins[c] = four / OF_IMAGE * Part::IMAGE + four % OF_IMAGE / Part::FOURS * Part::PITCH + four % Part::FOURS * 4;
    }
    float sums[ROWS][OWN_COLUMNS] = {};
    Elements<Product, TILE.high, TILE.wide> own;
    __syncthreads();  // the tile before is no longer read
    for (int turn = 1 - STAGES; turn < turns; turn++) {  // before turn 0 copies only begin
        if (turn == 0 && own.READS_AHEAD) own.read(of, tile, 0);
        if (turn >= 0) {
            wait_for_groups<STAGES - 2>();
            __syncthreads();
        }
        copy_turn(turn + STAGES - 1);
        if (turn < 0) continue;
        const float* stage = shared + turn % STAGES * Part::STAGE;
        for (int line = group; line < channels_of(turn) * K; line += GROUPS) {  // a line of pixels of a filter
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
    static constexpr int WEIGHTS_APART = K * K;  // of a channel, from those of the next one
    const float* from = map_of<LAYER - 1>(this->at);

    __device__ int weight(int tap, int j) const { return j * Forward<LAYER>::WHOLE + tap; }  // of the first channel
    __device__ bool place(int tile, int row, int column, int& i, int& j) const {
        return place_in_images<ImageForward>(this->at, tile, row, column, i, j);
    }
};
template <int LAYER>
struct ImageDeltas : Deltas<LAYER> {
    static constexpr Row HERE = layer(LAYER), BELOW = layer(LAYER - 1);
    static constexpr int HEIGHT = BELOW.height, WIDTH = BELOW.width, K = HERE.k, BEFORE = HERE.k - 1 - HERE.before;
    static constexpr int CHANNELS = HERE.channels, HIGH_BELOW = HERE.height, WIDE_BELOW = HERE.width;
    static constexpr int WEIGHTS_APART = BELOW.channels * K * K;
    const float* from = deltas_of<LAYER>(this->at);

    __device__ int weight(int tap, int j) const { return j * K * K + K * K - 1 - tap; }
    __device__ bool place(int tile, int row, int column, int& i, int& j) const {
        return place_in_images<ImageDeltas>(this->at, tile, row, column, i, j);
    }
};

// ---- sums over the pixels of all samples: the weights' gradients

// Filters of a thread, which keeps k² sums for each: few if there are few threads for a tile.
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
    static constexpr int PITCH_BELOW = divided_up(larger(PITCH, HERE.width + K - 1), 4) * 4;
    // A window may end in the next line. There it meets deltas of 0, but the last line needs numbers after it.
    static constexpr int OF_LINES = (LINES + K - 1) * PITCH_BELOW + larger(0, PITCH - 4 + WINDOW - PITCH_BELOW);
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
    // The sums of a thread for filters and channels that are not there are never used.
    const int filters = HERE.channels % TILE.high == 0 ? TILE.high : HERE.channels - o0;
    const int channels = BELOW.channels % Part::CHANNELS == 0 ? Part::CHANNELS : BELOW.channels - c0;

    auto copy_turn = [&](int turn) {
        if (turn < turns) {
            float* stage = shared + turn % STAGES * Part::STAGE;
            const int s = (first + turn) / Part::BANDS, y0 = (first + turn) % Part::BANDS * Part::LINES;
            constexpr int FOUR = at_once(0, HERE.width), IN_LINE = Part::PITCH / FOUR;
            copy_all<Part::LINES * IN_LINE, TILE.high, HERE.height * HERE.width, Part::LINES * Part::PITCH, FOUR>(
                stage, of.D + (s * HERE.channels + o0) * HERE.height * HERE.width, filters, [&](int place) -> Copied {
                    const int y = y0 + place / IN_LINE, x = place % IN_LINE * FOUR;
                    return {y * HERE.width + x, place * FOUR, y < HERE.height && x < HERE.width};
                });
            copy_all<Part::OF_LINES, Part::CHANNELS, BELOW.height * BELOW.width, Part::PLANE>(
                stage + Part::NUMBERS, of.A + (s * BELOW.channels + c0) * BELOW.height * BELOW.width, channels,
                [&](int place) -> Copied {
                    const int y = y0 + place / Part::PITCH_BELOW - HERE.before, x = place % Part::PITCH_BELOW - HERE.before;
                    return {y * BELOW.width + x, place, (unsigned)y < BELOW.height && (unsigned)x < BELOW.width};
                });
        }
        end_group_of_copies();
    };

    // Neighbours have the same channel, and those two apart the same filters, as in position_of().
    constexpr int NEAR = DOWN % 2 == 0 ? 2 : 1;
    const int group = thread / MEMBERS, member = thread % MEMBERS;
    const int channel = member / NEAR % TILE.wide, down = member / NEAR / TILE.wide * NEAR + member % NEAR;
    // The biases' gradients are sums of deltas alone: PARTS threads add up those of a filter, where a tile has biases.
    constexpr int PARTS = THREADS / TILE.high;
    float sums[ROWS][K * K + 1] = {}, bias = 0.0f;
    Elements<Part, TILE.high, Part::WIDE> own;
    __syncthreads();  // the tile before is no longer read
    for (int turn = 1 - STAGES; turn < turns; turn++) {  // before turn 0 copies only begin
        if (turn == 0 && own.READS_AHEAD) own.read(of, tile, 0);
        if (turn >= 0) {
            wait_for_groups<STAGES - 2>();
            __syncthreads();
        }
        copy_turn(turn + STAGES - 1);
        if (turn < 0) continue;
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
            }
        }
        if (c0 == 0)
            for (int four = thread % PARTS; four < Part::LINES * Part::PITCH / 4; four += PARTS) {
                const float4 d = *(const float4*)(stage + thread / PARTS * Part::LINES * Part::PITCH + four * 4);
                bias += (d.x + d.y) + (d.z + d.w);
            }
    }
    wait_for_groups<0>();
    if (c0 == 0) {  // the first groups hand the parts over to finish()
        __syncthreads();
        shared[thread] = bias;
        __syncthreads();
        for (int part = channel == 0 ? group : PARTS; part < PARTS; part += GROUPS)
#pragma unroll
            for (int i = 0; i < ROWS; i++) sums[i][K * K] += shared[(i * DOWN + down) * PARTS + part];
    }
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

// The sums of the parts of all blocks, and the step of the optimizer. Adjacent warps' elements go to different blocks:
// if there are few elements with many parts, no multiprocessor has to read all of them.
template <int LAYER>
__device__ void add_parts(const Memory& at) {
    using Part = ImageWeights<LAYER>;
    constexpr int SPLIT = Part::TILE.split, SIZE = Part::TILE.high * Part::WIDE, ALL = Part::DOWN_TILES * Part::ACROSS * SIZE;
    const Part of = {{at}};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int e = (warp * BLOCKS + blockIdx.x) * 32 + lane; e < ALL; e += BLOCKS * THREADS) {
        int i, j;
        if (!of.place(e / SIZE, e % SIZE / Part::WIDE, e % Part::WIDE, i, j)) continue;
        const auto before = of.early(i, j);
        const float* parts = at.parts + Part::TILE.parts_at + e / SIZE * SPLIT * SIZE + e % SIZE;
        float sum = 0.0f;
#pragma unroll 64
        for (int s = 0; s < SPLIT; s++) sum += read_from_all(parts + s * SIZE);
        of.done(i, j, sum, before);
    }
}
