// convolutional_sgd_epoch and convolutional_adam_epoch in one launch: between two steps no number is handed to the host.
//
// Everything about the network is a compile-time constant: convolutional_one_kernel.py compiles this text for each
// network, and says where in memory everything lies. Work is divided among the blocks in two ways:
//
//   By samples. A block takes a sample, or some, through the convolutions and the pool, forward and backward. Every block
//   has a copy of the filters, which are small.
//
//   By neurons. Of dense layer 1, which has the most weights, a block has OWN neurons, for the whole batch. Their weights
//   never leave it, nor what Adam remembers of them. The layers above are small: every block computes them for the whole
//   batch, and updates its share of their parameters.
//
// A step. Between two lines the blocks tell each other numbers through global memory, so all wait for all:
//   convolutions and pool of its samples                                  -> the inputs of layer 1
//   layer 1, own neurons                                                  -> their activations
//   layers above; deltas, down to those of its own neurons; its part of dC/d(inputs of layer 1); dense weights -> parts
//   sum of these parts; backward through pool and convolutions            -> the gradient of the filters for its samples
//   sum of these gradients; update of the filters

constexpr int WARPS = THREADS / 32;
// TALL elements of a column are computed by one thread, because they share the weights that it reads,
constexpr int DEEP = 4;  // and so many channels, because they share the elements that it reads

// ---- the network. Convolution l reads map l and writes map l + 1; the pool, or layer 1, reads map CONVOLUTIONS.

__device__ constexpr int channels(int map) {
    constexpr int of[] = {CHANNELS};
    return of[map];
}
__device__ constexpr int height(int map) {
    constexpr int of[] = {HEIGHTS};
    return of[map];
}
__device__ constexpr int width(int map) {
    constexpr int of[] = {WIDTHS};
    return of[map];
}
__device__ constexpr int side(int l) {  // of the filters
    constexpr int of[] = {SIDES};
    return of[l];
}
__device__ constexpr int stride(int l) {
    constexpr int of[] = {STRIDES};
    return of[l];
}
__device__ constexpr int before(int l) {  // rows and columns of zeros in front of map l
    constexpr int of[] = {BEFORES};
    return of[l];
}
__device__ constexpr int neurons(int layer) {  // layer 0: the inputs of the dense layers
    constexpr int of[] = {SIZES};
    return of[layer];
}
__device__ constexpr int activation(int l) {  // of the convolutions, then of the dense layers
    constexpr int of[] = {ACTIVATIONS};
    return of[l];
}
__device__ constexpr int activation_of(int layer) { return activation(CONVOLUTIONS + layer - 1); }
__device__ constexpr int fours(int number) { return divided_up(number, 4) * 4; }
__device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__device__ constexpr int most(int a, int b) { return a > b ? a : b; }
__device__ constexpr int weights_of(int l) { return channels(l + 1) * channels(l) * side(l) * side(l); }
__device__ constexpr int filters_at(int l) {  // in the vector of parameters: W, then b
    return l == 0 ? 0 : filters_at(l - 1) + weights_of(l - 1) + channels(l);
}
__device__ constexpr int dense_at(int layer) {
    return layer == 1 ? filters_at(CONVOLUTIONS) : dense_at(layer - 1) + neurons(layer - 1) * (neurons(layer - 2) + 1);
}
constexpr int FILTER_NUMBERS = filters_at(CONVOLUTIONS), OUTPUTS = neurons(LAYERS);
constexpr bool IS_SOFTMAX = activation_of(LAYERS) == SOFTMAX;

// ---- memory: offsets in floats, into the shared memory of a block, and into meeting_place, which is global memory
//
// Around map l lies the padding of convolution l, which stays zero. A map of deltas has a border of side - 1 zeros where
// a convolution below needs it. Both have some more rows, so that a thread may compute rows past the end.

__device__ constexpr int map_at(int map) {
    constexpr int of[] = {MAPS_AT};
    return of[map];
}
__device__ constexpr int map_rows(int map) {
    constexpr int of[] = {MAP_ROWS};
    return of[map];
}
__device__ constexpr int map_pitch(int map) {
    constexpr int of[] = {MAP_PITCHES};
    return of[map];
}
__device__ constexpr int deltas_at(int l) {  // of the results of convolution l
    constexpr int of[] = {DELTAS_AT};
    return of[l];
}
__device__ constexpr int deltas_rows(int l) {
    constexpr int of[] = {DELTAS_ROWS};
    return of[l];
}
__device__ constexpr int border(int l) { return l > 0 && stride(l) == 1 ? side(l) - 1 : 0; }
__device__ constexpr int deltas_pitch(int l) { return width(l + 1) + 2 * border(l); }
__device__ constexpr int forward_at(int l) {  // filters for the way forward, [c][i][j][o]
    constexpr int of[] = {FORWARD_AT};
    return of[l];
}
__device__ constexpr int backward_at(int l) {  // and for the way back, [o][i][j][c]
    constexpr int of[] = {BACKWARD_AT};
    return of[l];
}
// Layers above the first: W with rows of fours(inputs), then b; the same offsets in shared and in global memory.
__device__ constexpr int upper_at(int layer) {
    return layer <= 2 ? 0 : upper_at(layer - 1) + neurons(layer - 1) * fours(neurons(layer - 2)) + fours(neurons(layer - 1));
}
__device__ constexpr int upper_biases_at(int layer) { return upper_at(layer) + neurons(layer) * fours(neurons(layer - 1)); }
constexpr int UPPER_NUMBERS = upper_at(LAYERS + 1);
// Activations and deltas of all samples, a row for each. Those of layer 1 come from all blocks, the unused neurons too.
__device__ constexpr int row_of(int layer) { return fours(layer == 1 ? BLOCKS * OWN : neurons(layer)); }
__device__ constexpr int activations_at(int layer) {  // layer 0: the inputs of layer 1
    return layer == 0 ? ACTIVATIONS_AT : activations_at(layer - 1) + SAMPLES * row_of(layer - 1);
}
__device__ constexpr int dense_deltas_at(int layer) {  // from layer 2 on; layer 1 only if it is the last
    return layer <= 2 ? DENSE_DELTAS_AT : dense_deltas_at(layer - 1) + SAMPLES * fours(neurons(layer - 1));
}
constexpr int OWN_FOURS = fours(OWN), INPUT_FOURS = fours(INPUTS);
constexpr int OWN_ROW = INPUT_FOURS + 4;  // W of a neuron of layer 1, then its bias

// ---- loops over layers at compile time

template <int NUMBER>
struct Layer {
    static constexpr int number = NUMBER;
};
template <int FIRST, int LAST, typename Body>
__device__ void upwards(Body body) {
    if constexpr (FIRST <= LAST) {
        body(Layer<FIRST>());
        upwards<FIRST + 1, LAST>(body);
    }
}
template <int FIRST, int LAST, typename Body>
__device__ void downwards(Body body) {
    if constexpr (FIRST >= LAST) {
        body(Layer<FIRST>());
        downwards<FIRST - 1, LAST>(body);
    }
}

// ---- the update of one parameter

struct Rates {
    float rate, step, correction;  // of SGD; of Adam: rate / c1, and 1 / c2
};
__device__ float updated(float w, float gradient, float& m, float& v, const Rates& rates) {
    if (!ADAM) return w - rates.rate * gradient;
    m = (float)BETA_1 * m + (float)(1.0 - BETA_1) * gradient;
    v = (float)BETA_2 * v + (float)(1.0 - BETA_2) * gradient * gradient;
    const float square = v * rates.correction, root = square * rsqrtf(fmaxf(square, 1e-37f));
    return w - __fdividef(rates.step * m, root + EPSILON);
}

// ---- convolutions

// Map l + 1 of a sample from its map l.
template <int L>
__device__ void convolve(float* at, float* maps, int thread) {
    constexpr int k = side(L), by = stride(L), pitch = map_pitch(L), c_out = channels(L + 1);
    constexpr int strips = divided_up(height(L + 1), TALL), across = width(L + 1), groups = divided_up(c_out, DEEP);
    constexpr int reads = (TALL - 1) * by + k, to_pitch = map_pitch(L + 1), to_rows = map_rows(L + 1);
    const float* filters = at + forward_at(L);
    const float* biases = filters + channels(L) * k * k * fours(c_out);
    for (int item = thread; item < strips * across * groups; item += THREADS) {
        const int x = item % across, strip = item / across % strips, group = item / (across * strips);
        float z[TALL][DEEP];
        const float4 b = *(const float4*)(biases + group * DEEP);
#pragma unroll
        for (int r = 0; r < TALL; r++) z[r][0] = b.x, z[r][1] = b.y, z[r][2] = b.z, z[r][3] = b.w;
#pragma unroll
        for (int c = 0; c < channels(L); c++) {
            float4 w[k][k];
#pragma unroll
            for (int i = 0; i < k; i++)
#pragma unroll
                for (int j = 0; j < k; j++)
                    w[i][j] = *(const float4*)(filters + ((c * k + i) * k + j) * fours(c_out) + group * DEEP);
            const float* from = maps + map_at(L) + (c * map_rows(L) + strip * TALL * by) * pitch + x * by;
#pragma unroll
            for (int y = 0; y < reads; y++)
#pragma unroll
                for (int j = 0; j < k; j++) {
                    const float a = from[y * pitch + j];
#pragma unroll
                    for (int r = 0; r < TALL; r++)
                        if (y - r * by >= 0 && y - r * by < k) {
                            const float4 tap = w[y - r * by][j];
                            z[r][0] += a * tap.x, z[r][1] += a * tap.y, z[r][2] += a * tap.z, z[r][3] += a * tap.w;
                        }
                }
        }
#pragma unroll
        for (int o = 0; o < DEEP; o++)
#pragma unroll
            for (int r = 0; r < TALL; r++) {
                const int channel = group * DEEP + o, y = strip * TALL + r;
                if (channel < c_out && y < height(L + 1))
                    maps[map_at(L + 1) + (channel * to_rows + before(L + 1) + y) * to_pitch + before(L + 1) + x] =
                        activate(activation(L), z[r][o]);
            }
    }
}

// Deltas of the results of convolution L - 1, from those of convolution L.
template <int L>
__device__ void convolve_back(float* at, const float* maps, int thread) {
    constexpr int k = side(L), by = stride(L), pitch = deltas_pitch(L), edge = border(L), c_in = channels(L);
    constexpr int strips = divided_up(height(L), TALL), across = width(L), groups = divided_up(c_in, DEEP);
    constexpr int to_pitch = deltas_pitch(L - 1), to_rows = deltas_rows(L - 1), to_edge = border(L - 1);
    const float *filters = at + backward_at(L), *deltas = at + deltas_at(L);
    for (int item = thread; item < strips * across * groups; item += THREADS) {
        const int x = item % across, strip = item / across % strips, group = item / (across * strips);
        float sums[TALL][DEEP] = {};
#pragma unroll
        for (int o = 0; o < channels(L + 1); o++) {
            float4 w[k][k];
#pragma unroll
            for (int i = 0; i < k; i++)
#pragma unroll
                for (int j = 0; j < k; j++)
                    w[i][j] = *(const float4*)(filters + ((o * k + i) * k + j) * fours(c_in) + group * DEEP);
            const float* from = deltas + o * deltas_rows(L) * pitch;
            auto add = [&](int r, int i, int j, float d) {
                const float4 tap = w[i][j];
                sums[r][0] += d * tap.x, sums[r][1] += d * tap.y, sums[r][2] += d * tap.z, sums[r][3] += d * tap.w;
            };
            if constexpr (by == 1) {
                const float* corner = from + (strip * TALL + before(L) + edge - (k - 1)) * pitch + x + before(L) + edge - (k - 1);
#pragma unroll
                for (int y = 0; y < TALL + k - 1; y++)
#pragma unroll
                    for (int j = 0; j < k; j++) {
                        const float d = corner[y * pitch + k - 1 - j];
#pragma unroll
                        for (int r = 0; r < TALL; r++)
                            if (r + k - 1 - y >= 0 && r + k - 1 - y < k) add(r, r + k - 1 - y, j, d);
                    }
            } else {
#pragma unroll
                for (int r = 0; r < TALL; r++)
#pragma unroll
                    for (int i = 0; i < k; i++)
#pragma unroll
                        for (int j = 0; j < k; j++) {
                            const int y = strip * TALL + r + before(L) - i, column = x + before(L) - j;
                            if (y >= 0 && column >= 0 && y % by == 0 && column % by == 0 && y / by < height(L + 1) &&
                                column / by < width(L + 1))
                                add(r, i, j, from[y / by * pitch + column / by]);
                        }
            }
        }
#pragma unroll
        for (int c = 0; c < DEEP; c++)
#pragma unroll
            for (int r = 0; r < TALL; r++) {
                const int channel = group * DEEP + c, y = strip * TALL + r;
                if (channel < c_in && y < height(L)) {
                    const float a = maps[map_at(L) + (channel * map_rows(L) + before(L) + y) * map_pitch(L) + before(L) + x];
                    at[deltas_at(L - 1) + (channel * to_rows + to_edge + y) * to_pitch + to_edge + x] =
                        sums[r][c] * slope(activation(L - 1), a);
                }
            }
    }
}

// Gradient of the filters of convolution L for one sample, added up over all places of the image. Each warp leaves its
// part in sums[warp][parameter].
template <int L>
__device__ void filter_sums(const float* at, const float* maps, float* sums, int warp, int lane) {
    constexpr int k = side(L), by = stride(L), pitch = map_pitch(L), c_out = channels(L + 1), c_in = channels(L);
    constexpr int strips = divided_up(height(L + 1), TALL), across = width(L + 1), reads = (TALL - 1) * by + k;
    constexpr int deep = most(1, least(least(DEEP, c_out), 64 / (k * k))), numbers = deep * (k * k + 1);
    const float* deltas = at + deltas_at(L) + border(L) * (deltas_pitch(L) + 1);
    for (int c = 0; c < c_in; c++)
        for (int first_o = 0; first_o < c_out; first_o += deep) {
            float g[numbers] = {};
            for (int item = warp * 32 + lane; item < strips * across; item += THREADS) {
                const int x = item % across, strip = item / across;
                const float* from = maps + map_at(L) + (c * map_rows(L) + strip * TALL * by) * pitch + x * by;
                float d[TALL][deep];
#pragma unroll
                for (int r = 0; r < TALL; r++)
#pragma unroll
                    for (int o = 0; o < deep; o++) {
                        const int channel = least(first_o + o, c_out - 1);
                        d[r][o] = deltas[(channel * deltas_rows(L) + strip * TALL + r) * deltas_pitch(L) + x];
                        g[deep * k * k + o] += d[r][o];
                    }
#pragma unroll
                for (int y = 0; y < reads; y++)
#pragma unroll
                    for (int j = 0; j < k; j++) {
                        const float a = from[y * pitch + j];
#pragma unroll
                        for (int r = 0; r < TALL; r++)
                            if (y - r * by >= 0 && y - r * by < k)
#pragma unroll
                                for (int o = 0; o < deep; o++) g[(o * k + y - r * by) * k + j] += a * d[r][o];
                    }
            }
            int first = 0, end = numbers;
            add_over_lanes<numbers, 32>(g, lane, first, end);
            constexpr int left = divided_up(numbers, 32);
#pragma unroll
            for (int e = 0; e < left; e++) {
                const int number = first + e, o = number < deep * k * k ? number / (k * k) : number - deep * k * k;
                if (number >= end || first_o + o >= c_out) continue;
                if (number < deep * k * k) sums[((first_o + o) * c_in + c) * k * k + number % (k * k)] = g[e];
                else if (c == 0) sums[weights_of(L) + first_o + o] = g[e];
            }
        }
}

// The same for the convolution below a pool: of each window only one element has a delta. PARTS threads share a parameter.
template <int L, int PARTS>
__device__ void filter_sums_of_winners(const float* at, const float* maps, const float* deltas, const int* corners,
                                       float* to, int thread) {
    constexpr int k = side(L), c_in = channels(L), windows = INPUTS / channels(L + 1), weights = weights_of(L);
    constexpr int numbers = weights + channels(L + 1);
    for (int base = 0; base < numbers * PARTS; base += THREADS) {
        // From the last thread on, since the first ones have more to do.
        const int item = base + THREADS - 1 - thread, number = least(item / PARTS, numbers - 1), part = item % PARTS;
        const bool is_weight = number < weights;
        const int o = is_weight ? number / (c_in * k * k) : number - weights, c = number / (k * k) % c_in;
        const int shift = (c * map_rows(L) + number / k % k) * map_pitch(L) + number % k;
        const float *from = maps + map_at(L) + shift, *d = deltas + o * windows;
        const int* corner = corners + o * windows;
        float sum = 0.0f;
#pragma unroll 8
        for (int e = 0; e < divided_up(windows, PARTS); e++) {
            const int window = least(e * PARTS + part, windows - 1);
            const float product = d[window] * (is_weight ? from[corner[window]] : 1.0f);
            sum += e * PARTS + part < windows ? product : 0.0f;
        }
#pragma unroll
        for (int distance = PARTS / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        if (part == 0 && item / PARTS < numbers) to[number] = sum;
    }
}

// ---- dense layers. A warp takes a pair of samples through them, and waits for no other warp.

// All loops over the inputs have the same number of rounds in all lanes: a branch in which only some lanes take part would
// wait for memory once more.

// Hears the inputs of a pair of samples, of which the second may not be there. Each thread keeps what it will read itself.
template <int NUMBER_OF_INPUTS>
__device__ void hear_pair(const float* from, float* to, int samples, int turn, int lane) {
    constexpr int inputs = fours(NUMBER_OF_INPUTS) / 4, rounds = divided_up(inputs, 32), ahead = least(rounds, 4);
    for (int r0 = 0; r0 < rounds; r0 += ahead) {
        float4 a[2 * ahead];
        auto number = [&](int i) { return least((r0 + i / 2) * 32 + lane, inputs - 1); };
        hear(
            a, turn, [&](int i) { return (const float4*)from + (i % 2 < samples ? i % 2 * inputs : 0) + number(i); },
            [&](int i) { return NUMBER_OF_INPUTS - 4 * number(i); });
#pragma unroll
        for (int i = 0; i < 2 * ahead; i++)
            if ((r0 + i / 2) * 32 + lane < inputs) ((float4*)to)[i % 2 * inputs + number(i)] = a[i];
    }
}

// Weighted sums of NEURONS neurons for a pair of samples, at most 16. Calls done(number in the pair, neuron, sum).
template <int NEURONS, int NUMBER_OF_INPUTS, typename Done>
__device__ void weighted_sums(const float* inputs_of_pair, int inputs_row, const float* weights, int row, int lane,
                              Done done) {
    constexpr int inputs = fours(NUMBER_OF_INPUTS) / 4, rounds = divided_up(inputs, 32);
    const float4 *a = (const float4*)inputs_of_pair, *w = (const float4*)weights;
    float z[2 * NEURONS] = {};
#pragma unroll 2
    for (int r = 0; r < rounds; r++) {
        const int k = least(r * 32 + lane, inputs - 1);
        const float there = r * 32 + lane < inputs ? 1.0f : 0.0f;
        float4 first = a[k], second = a[inputs_row / 4 + k];
        first = make_float4(first.x * there, first.y * there, first.z * there, first.w * there);
        second = make_float4(second.x * there, second.y * there, second.z * there, second.w * there);
#pragma unroll
        for (int j = 0; j < NEURONS; j++) {
            const float4 v = w[j * (row / 4) + k];
            z[j] += first.x * v.x + first.y * v.y + first.z * v.z + first.w * v.w;
            z[NEURONS + j] += second.x * v.x + second.y * v.y + second.z * v.z + second.w * v.w;
        }
    }
    int first = 0, end = 2 * NEURONS;
    add_over_lanes<2 * NEURONS, 32>(z, lane, first, end);
    if (first < end) done(first / NEURONS, first % NEURONS, z[0]);
}

// The delta of output o of a sample, from all z (softmax) or a of the sample. (4a)
__device__ float output_delta(const float* outputs, const float* y, int o) {
    const float own = outputs[o];
    if (!IS_SOFTMAX) {
        const float g = cost_gradient(COST, own, y[o]);
        return COST == CROSS_ENTROPY ? g : g * slope(activation_of(LAYERS), own);
    }
    float top = own, total = 0.0f, mean = 0.0f;
#pragma unroll 10
    for (int i = 0; i < OUTPUTS; i++) top = fmaxf(top, outputs[i]);
#pragma unroll 10
    for (int i = 0; i < OUTPUTS; i++) total += __expf(outputs[i] - top);
    const float a = __fdividef(__expf(own - top), total), g = cost_gradient(COST, a, y[o]);
    if (COST == CROSS_ENTROPY) return g;
    for (int i = 0; i < OUTPUTS; i++) {
        const float other = __fdividef(__expf(outputs[i] - top), total);
        mean += cost_gradient(COST, other, y[i]) * other;
    }
    return a * (g - mean);
}

// ---- the kernel

extern "C" __global__ void __launch_bounds__(THREADS, 1)
convolutional_epoch(float* parameters, float* M, float* V, const float* X, const float* Y, float* meeting_place,
                    int* arrived, int n, float rate, double power_1, double power_2) {
    extern __shared__ __align__(16) float at[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, block = blockIdx.x;
    const int first_own = block * OWN;  // neuron of layer 1
    float *own_w = at + OWN_AT, *own_m = own_w + OWN * OWN_ROW, *own_v = own_m + OWN * OWN_ROW;
    float *upper = at + UPPER_AT, *scratch = at + SCRATCH_AT, *targets = at + TARGETS_AT;
    float *own_deltas = at + OWN_DELTAS_AT;  // [sample][own neuron]
    float *filter_m = at + FILTER_MEMORY_AT, *filter_v = filter_m + FILTER_NUMBERS, *filter_gradient = filter_v + FILTER_NUMBERS;
    int *to_forward = (int*)(at + TABLES_AT), *to_backward = to_forward + FILTER_NUMBERS;  // where a filter's number lies
    int *places = to_backward + FILTER_NUMBERS, *corners = places + EACH * INPUTS;         // of the pool's maxima
    float *pooled = at + POOLED_AT, *pooled_deltas = pooled + EACH * INPUTS;
    float *all_pooled = meeting_place, *all_activations = all_pooled + SAMPLES * INPUT_FOURS;  // [sample][number]
    float *input_deltas = all_activations + SAMPLES * row_of(1);           // [block][sample][input]
    float *filter_parts = input_deltas + BLOCKS * SAMPLES * INPUT_FOURS;   // [block][number]
    float *all_upper = filter_parts + BLOCKS * fours(FILTER_NUMBERS);

    // ---- everything is loaded
    for (int i = thread; i < SHARED_FLOATS; i += THREADS) at[i] = 0.0f;
    __syncthreads();
    upwards<0, CONVOLUTIONS - 1>([&](auto number) {
        constexpr int l = number.number, k = side(l), c_in = channels(l), c_out = channels(l + 1);
        for (int i = thread; i < weights_of(l) + c_out; i += THREADS) {
            const bool is_weight = i < weights_of(l);
            const int o = is_weight ? i / (c_in * k * k) : i - weights_of(l), c = i / (k * k) % c_in, tap = i % (k * k);
            to_forward[filters_at(l) + i] = forward_at(l) + (is_weight ? (c * k * k + tap) : c_in * k * k) * fours(c_out) + o;
            to_backward[filters_at(l) + i] = is_weight && l > 0 ? backward_at(l) + (o * k * k + tap) * fours(c_in) + c : to_forward[filters_at(l) + i];
        }
    });
    __syncthreads();
    for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
        at[to_forward[i]] = at[to_backward[i]] = parameters[i];
        if (ADAM) filter_m[i] = M[i], filter_v[i] = V[i];
    }
    auto for_own = [&](auto body) {  // body(place among the own, place in the vector of parameters)
        for (int i = thread; i < OWN * (INPUTS + 1); i += THREADS) {
            const int j = i / (INPUTS + 1), k = i % (INPUTS + 1), neuron = first_own + j;
            if (neuron < neurons(1))
                body(j * OWN_ROW + (k < INPUTS ? k : INPUT_FOURS),
                     dense_at(1) + (k < INPUTS ? neuron * INPUTS + k : neurons(1) * INPUTS + neuron));
        }
    };
    for_own([&](int own, int i) {
        own_w[own] = parameters[i];
        if (ADAM) own_m[own] = M[i], own_v[own] = V[i];
    });
    // The share of the layers above: UPDATERS lanes for each number.
    constexpr int UPPER_HELD = most(1, divided_up(UPPER_NUMBERS / 4, THREADS));
    constexpr int SHARE = divided_up(UPPER_NUMBERS, BLOCKS), UPDATERS = 4, HELD = most(1, divided_up(SHARE * UPDATERS, THREADS));
    int upper_place[HELD], upper_from[HELD], upper_delta[HELD], upper_below[HELD];
    int upper_delta_row[HELD], upper_below_row[HELD];  // in upper; in parameters; in shared memory
    float upper_w[HELD], upper_m[HELD], upper_v[HELD];
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const int item = h * THREADS + THREADS - 1 - thread, mine = item / UPDATERS, place = block * SHARE + mine;
        upper_from[h] = -1;
        upper_place[h] = place;
        upper_delta[h] = upper_below[h] = upper_delta_row[h] = upper_below_row[h] = 0;
        upwards<2, LAYERS>([&](auto number) {
            constexpr int layer = number.number, n_in = neurons(layer - 1), row = fours(n_in);
            if (mine >= SHARE || place < upper_at(layer) || place >= upper_at(layer + 1)) return;
            const bool is_weight = place < upper_biases_at(layer);
            const int j = is_weight ? (place - upper_at(layer)) / row : place - upper_biases_at(layer);
            const int k = is_weight ? (place - upper_at(layer)) % row : 0;
            if (j >= neurons(layer) || k >= n_in) return;
            upper_from[h] = dense_at(layer) + (is_weight ? j * n_in + k : neurons(layer) * n_in + j);
            upper_delta[h] = dense_deltas_at(layer) + j;
            upper_delta_row[h] = fours(neurons(layer));
            upper_below[h] = is_weight ? activations_at(layer - 1) + k : -1;
            upper_below_row[h] = row_of(layer - 1);
        });
        upper_m[h] = ADAM && upper_from[h] >= 0 ? M[upper_from[h]] : 0.0f;
        upper_v[h] = ADAM && upper_from[h] >= 0 ? V[upper_from[h]] : 0.0f;
        upper_w[h] = upper_from[h] >= 0 ? parameters[upper_from[h]] : 0.0f;
        if (mine >= SHARE || place >= UPPER_NUMBERS) upper_place[h] = -1;  // others, with no parameter, are padding
        else if (item % UPDATERS == 0) tell(all_upper + place, upper_w[h], 1);
    }

    // The next images and targets wait in registers.
    constexpr int PIXELS = channels(0) * height(0) * width(0), X_HELD = divided_up(EACH * PIXELS, THREADS);
    constexpr int Y_HELD = divided_up(BATCH * OUTPUTS, THREADS);
    float x_next[X_HELD], y_next[Y_HELD];
    auto ask = [&](int start) {
#pragma unroll
        for (int h = 0; h < X_HELD; h++) {
            const int i = h * THREADS + thread, s = start + block * EACH + i / PIXELS;
            x_next[h] = i < EACH * PIXELS && block * EACH + i / PIXELS < BATCH && s < n ? X[(size_t)s * PIXELS + i % PIXELS] : 0.0f;
        }
#pragma unroll
        for (int h = 0; h < Y_HELD; h++) {
            const int i = h * THREADS + thread;
            y_next[h] = i < BATCH * OUTPUTS && start + i / OUTPUTS < n ? Y[(size_t)start * OUTPUTS + i] : 0.0f;
        }
    };
    auto put = [&] {
#pragma unroll
        for (int h = 0; h < X_HELD; h++) {
            const int i = h * THREADS + thread, pixel = i % PIXELS, c = pixel / (height(0) * width(0));
            const int y = pixel / width(0) % height(0), x = pixel % width(0);
            if (i < EACH * PIXELS)
                at[i / PIXELS * MAPS_SIZE + map_at(0) + (c * map_rows(0) + before(0) + y) * map_pitch(0) + before(0) + x] = x_next[h];
        }
#pragma unroll
        for (int h = 0; h < Y_HELD; h++)
            if (h * THREADS + thread < BATCH * OUTPUTS) targets[h * THREADS + thread] = y_next[h];
    };
    ask(0);
    put();
    __syncthreads();

    int turn = 0;
    for (int start = 0; start < n; start += BATCH) {
        turn++;
        const int rows = least(BATCH, n - start), own_samples = least(EACH, rows - block * EACH);
        const int with_samples = divided_up(rows, EACH);  // blocks

        // ---- by samples: convolutions and pool
        upwards<0, CONVOLUTIONS - 1>([&](auto number) {
            for (int q = 0; q < EACH; q++)
                if (q < own_samples) convolve<number.number>(at, at + q * MAPS_SIZE, thread);
            __syncthreads();
        });
        for (int q = 0; q < EACH; q++) {
            if (q >= own_samples) break;
            constexpr int rows_in = map_rows(CONVOLUTIONS), pitch = map_pitch(CONVOLUTIONS), last = most(0, CONVOLUTIONS - 1);
            const float* map = at + q * MAPS_SIZE + map_at(CONVOLUTIONS);
            const int s = block * EACH + q;
            for (int i = thread; i < INPUTS; i += THREADS) {
                constexpr int by = most(1, POOL), across = width(CONVOLUTIONS) / by, windows = height(CONVOLUTIONS) / by * across;
                const int c = i / windows, y = i % windows / across * by, x = i % across * by;
                const float* window = map + (c * rows_in + y) * pitch + x;
                float top = window[0];
                int winner = 0;
#pragma unroll
                for (int e = 1; e < by * by; e++) {
                    const float a = window[e / by * pitch + e % by];
                    if (a > top) top = a, winner = e;
                }
                const int row = y + winner / by, column = x + winner % by;
                if constexpr (CONVOLUTIONS > 0) {
                    places[q * INPUTS + i] = (c * deltas_rows(last) + border(last) + row) * deltas_pitch(last) + border(last) + column;
                    corners[q * INPUTS + i] = row * stride(last) * map_pitch(last) + column * stride(last);
                }
                pooled[q * INPUTS + i] = top;
                tell(all_pooled + s * INPUT_FOURS + i, top, turn);
            }
        }
        wait_to_hear(with_samples, turn, [&](int b) { return all_pooled + b * EACH * INPUT_FOURS + INPUTS - 1; });

        // ---- by neurons: layer 1
        if constexpr (UPPER_NUMBERS > 0) {
            float4 fours_of_upper[UPPER_HELD];
            auto number = [&](int h) { return least(h * THREADS + thread, UPPER_NUMBERS / 4 - 1); };
            hear(fours_of_upper, turn, [&](int h) { return (const float4*)all_upper + number(h); }, [](int h) { return 4; });
#pragma unroll
            for (int h = 0; h < UPPER_HELD; h++)
                if (h * THREADS + thread < UPPER_NUMBERS / 4) ((float4*)upper)[h * THREADS + thread] = fours_of_upper[h];
        }
        for (int s = 2 * warp; s < rows; s += 2 * WARPS) {
            float* inputs = at + activations_at(0) + s * INPUT_FOURS;
            hear_pair<INPUTS>(all_pooled + s * INPUT_FOURS, inputs, rows - s, turn, lane);
            weighted_sums<OWN, INPUTS>(inputs, INPUT_FOURS, own_w, OWN_ROW, lane, [&](int second, int j, float z) {
                const float a = activate(activation_of(1), z + own_w[j * OWN_ROW + INPUT_FOURS]);
                if (s + second < rows)
                    tell(all_activations + (s + second) * row_of(1) + first_own + j, first_own + j < neurons(1) ? a : 0.0f, turn);
            });
        }
        wait_to_hear(BLOCKS, turn, [&](int b) { return all_activations + (rows - 1) * row_of(1) + b * OWN + OWN - 1; });

        // ---- the layers above, and back to the own neurons and their inputs
        const float mean_of = 1.0f / rows;
        for (int s = 2 * warp; s < rows; s += 2 * WARPS) {
            hear_pair<BLOCKS * OWN>(all_activations + s * row_of(1), at + activations_at(1) + s * row_of(1), rows - s, turn, lane);
            __syncwarp();
            upwards<2, LAYERS>([&](auto number) {
                constexpr int layer = number.number, below = fours(neurons(layer - 1)), here = row_of(layer);
                constexpr int together = least(neurons(layer), TOGETHER);
                const float *weights = upper + upper_at(layer), *biases = upper + upper_biases_at(layer);
                for (int group = 0; group < neurons(layer); group += together) {
                    const int first = least(group, neurons(layer) - together);  // the last group overlaps the one before
                    weighted_sums<together, neurons(layer - 1)>(
                        at + activations_at(layer - 1) + s * row_of(layer - 1), row_of(layer - 1), weights + first * below, below, lane,
                        [&](int second, int j, float z) {
                            at[activations_at(layer) + (s + second) * here + first + j] =
                                activate(activation_of(layer), z + biases[first + j]);
                        });
                }
                __syncwarp();
            });
            constexpr int output_row = fours(OUTPUTS);
            for (int i = lane; i < 2 * OUTPUTS; i += 32) {
                const int own = s + i / OUTPUTS, o = i % OUTPUTS;
                const float d = output_delta(at + activations_at(LAYERS) + own * row_of(LAYERS), targets + least(own, BATCH - 1) * OUTPUTS, o);
                at[dense_deltas_at(LAYERS) + own * output_row + o] = own < rows ? d * mean_of : 0.0f;
            }
            __syncwarp();
            auto delta_below = [&](auto above, int j, int s) {  // (4b), for neuron j of the layer below `above`
                constexpr int layer = above.number, row = fours(neurons(layer - 1));
                const float *weights = upper + upper_at(layer) + j, *deltas = at + dense_deltas_at(layer) + s * fours(neurons(layer));
                float sum = 0.0f;
#pragma unroll 16
                for (int o = 0; o < neurons(layer); o++) sum += deltas[o] * weights[o * row];
                return sum * slope(activation_of(layer - 1), at[activations_at(layer - 1) + s * row_of(layer - 1) + j]);
            };
            downwards<LAYERS - 1, 2>([&](auto number) {
                constexpr int layer = number.number, row = fours(neurons(layer));
                for (int i = lane; i < 2 * neurons(layer); i += 32) {
                    const int own = s + i / neurons(layer), j = i % neurons(layer);
                    at[dense_deltas_at(layer) + own * row + j] = delta_below(Layer<layer + 1>(), j, own);
                }
                __syncwarp();
            });
            for (int i = lane; i < 2 * OWN; i += 32) {
                const int own = s + i / OWN, j = i % OWN, neuron = least(first_own + j, neurons(1) - 1);
                float d;
                if constexpr (LAYERS == 1) d = at[dense_deltas_at(1) + own * fours(OUTPUTS) + neuron];
                else d = delta_below(Layer<2>(), neuron, own);
                own_deltas[own * OWN_FOURS + j] = first_own + j < neurons(1) ? d : 0.0f;
            }
            __syncwarp();
            if constexpr (CONVOLUTIONS > 0) {
                float d[2][OWN];
#pragma unroll
                for (int j = 0; j < OWN; j++) d[0][j] = own_deltas[s * OWN_FOURS + j], d[1][j] = own_deltas[(s + 1) * OWN_FOURS + j];
                float4* to = (float4*)(input_deltas + (block * SAMPLES + s) * INPUT_FOURS);
#pragma unroll 2
                for (int r = 0; r < divided_up(INPUT_FOURS / 4, 32); r++) {
                    const int k = least(r * 32 + lane, INPUT_FOURS / 4 - 1);
                    float4 sums[2] = {};
#pragma unroll
                    for (int j = 0; j < OWN; j++) {
                        const float4 w = *(const float4*)(own_w + j * OWN_ROW + 4 * k);
#pragma unroll
                        for (int q = 0; q < 2; q++)
                            sums[q].x += d[q][j] * w.x, sums[q].y += d[q][j] * w.y, sums[q].z += d[q][j] * w.z, sums[q].w += d[q][j] * w.w;
                    }
                    if (r * 32 + lane < INPUT_FOURS / 4) {
                        tell(to + k, sums[0], turn);
                        if (s + 1 < rows) tell(to + INPUT_FOURS / 4 + k, sums[1], turn);
                    }
                }
            }
        }
        for (int s = 2 * warp; s < SAMPLES; s += 2 * WARPS)  // of samples that are not there
            for (int i = lane; i < 2 * OWN_FOURS; i += 32)
                if (s + i / OWN_FOURS >= rows) own_deltas[s * OWN_FOURS + i] = 0.0f;
        __syncthreads();

        // ---- while the others come so far: update of the own weights
        Rates rates = {rate, rate, 1.0f};
        if (ADAM) {
            power_1 *= BETA_1;
            power_2 *= BETA_2;
            rates.step = rate / (float)(1.0 - power_1);
            rates.correction = 1.0f / (float)(1.0 - power_2);
        }
        constexpr int SOME = divided_up(OWN, 2);  // neurons for which a thread updates the weight of an input
        for (int i = thread; i < divided_up(OWN, SOME) * (INPUTS + 1); i += THREADS) {
            const int k = i % (INPUTS + 1), j0 = least(i / (INPUTS + 1) * SOME, OWN - SOME);
            const bool is_weight = k < INPUTS;
            const float *below = at + activations_at(0) + least(k, INPUTS - 1), *deltas = own_deltas + j0;
            float gradient[SOME] = {};
#pragma unroll 16
            for (int s = 0; s < SAMPLES; s++) {
                const float a = is_weight ? below[s * INPUT_FOURS] : 1.0f;
#pragma unroll
                for (int j = 0; j < SOME; j++) gradient[j] += deltas[s * OWN_FOURS + j] * a;
            }
#pragma unroll
            for (int j = 0; j < SOME; j++) {
                if (OWN % SOME > 0 && i / (INPUTS + 1) > 0 && j0 + j < SOME) continue;  // has been updated already
                const int own = (j0 + j) * OWN_ROW + (is_weight ? k : INPUT_FOURS);
                own_w[own] = updated(own_w[own], gradient[j], own_m[own], own_v[own], rates);
            }
        }
        if constexpr (CONVOLUTIONS > 0)
            wait_to_hear(BLOCKS, turn, [&](int b) {
                return input_deltas + (b * SAMPLES + least(block * EACH, rows - 1)) * INPUT_FOURS + INPUTS - 1;
            });

        // ---- by samples: the deltas of the inputs, then backward through the pool and the convolutions
        if constexpr (CONVOLUTIONS > 0) {
            constexpr int last = most(0, CONVOLUTIONS - 1), GROUPS = most(1, least(BLOCKS, THREADS / INPUTS));
            for (int q = 0; q < EACH; q++) {
                if (q >= own_samples) break;
                const int s = block * EACH + q;
                const float* maps = at + q * MAPS_SIZE;
                for (int i = thread; i < GROUPS * INPUTS; i += THREADS) {
                    const int first = i / INPUTS;
                    const float* from = input_deltas + s * INPUT_FOURS + i % INPUTS;
                    constexpr int parts = divided_up(BLOCKS, GROUPS), ahead = least(parts, 16);
                    float sum = 0.0f;
                    for (int e0 = 0; e0 < parts; e0 += ahead) {
                        float numbers[ahead];
                        auto from_block = [&](int e) { return first + (e0 + e) * GROUPS; };
                        hear(numbers, turn, [&](int e) { return from + least(from_block(e), BLOCKS - 1) * SAMPLES * INPUT_FOURS; });
#pragma unroll
                        for (int e = 0; e < ahead; e++) sum += from_block(e) < BLOCKS ? numbers[e] : 0.0f;
                    }
                    scratch[i] = sum;
                }
                __syncthreads();
                for (int i = thread; i < INPUTS; i += THREADS) {
                    float sum = 0.0f;
#pragma unroll
                    for (int group = 0; group < GROUPS; group++) sum += scratch[group * INPUTS + i];
                    const float d = sum * slope(activation(last), pooled[q * INPUTS + i]);
                    pooled_deltas[i] = d;
                    at[deltas_at(last) + places[q * INPUTS + i]] = d;
                }
                __syncthreads();
                downwards<last, 0>([&](auto number) {
                    constexpr int l = number.number, numbers = weights_of(l) + channels(l + 1);
                    float* sums = scratch + WARPS * filters_at(l);  // those of the other convolutions may still be read
                    if constexpr (l == last && POOL > 0) {
                        constexpr int fitting = THREADS / numbers;
                        constexpr int parts = fitting >= 32 ? 32 : fitting >= 16 ? 16 : fitting >= 8 ? 8 : fitting >= 4 ? 4 : fitting >= 2 ? 2 : 1;
                        filter_sums_of_winners<l, parts>(at, maps, pooled_deltas, corners + q * INPUTS, sums, thread);
                    } else {
                        filter_sums<l>(at, maps, sums + warp * numbers, warp, lane);
                    }
                    if constexpr (l > 0) convolve_back<l>(at, maps, thread);
                    __syncthreads();
                    for (int i = thread; i < numbers; i += THREADS) {
                        float sum = q == 0 ? 0.0f : filter_gradient[filters_at(l) + i];
                        if constexpr (l == last && POOL > 0) sum += sums[i];
                        else
#pragma unroll
                            for (int w = 0; w < WARPS; w++) sum += sums[w * numbers + i];
                        if (q == own_samples - 1) tell(filter_parts + block * fours(FILTER_NUMBERS) + filters_at(l) + i, sum, turn);
                        else filter_gradient[filters_at(l) + i] = sum;
                    }
                });
                if (POOL > 0)
                    for (int i = thread; i < INPUTS; i += THREADS) at[deltas_at(last) + places[q * INPUTS + i]] = 0.0f;
                if (EACH > 1) __syncthreads();
            }
        }

        // ---- while the others come so far: update of the layers above
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            float gradient = 0.0f;
#pragma unroll 8
            for (int s = (THREADS - 1 - thread) % UPDATERS; s < rows; s += UPDATERS)
                gradient += at[upper_delta[h] + s * upper_delta_row[h]] *
                            (upper_below[h] < 0 ? 1.0f : at[upper_below[h] + s * upper_below_row[h]]);
#pragma unroll
            for (int distance = UPDATERS / 2; distance > 0; distance /= 2) gradient += __shfl_xor_sync(~0u, gradient, distance);
            if (upper_from[h] >= 0) upper_w[h] = updated(upper_w[h], gradient, upper_m[h], upper_v[h], rates);
        }
        if (start + BATCH < n) ask(start + BATCH);
        if constexpr (CONVOLUTIONS > 0)
            wait_to_hear(with_samples, turn, [&](int b) { return filter_parts + b * fours(FILTER_NUMBERS); });

        // ---- update of the filters, the same in every block
        if (FILTER_NUMBERS > 0) {
            constexpr int FILTER_NUMBERS = most(1, ::FILTER_NUMBERS), GROUPS = most(1, least(BLOCKS, THREADS / FILTER_NUMBERS));
            for (int i = thread; i < GROUPS * FILTER_NUMBERS; i += THREADS) {
                const float* from = filter_parts + i % FILTER_NUMBERS;
                constexpr int parts = divided_up(BLOCKS, GROUPS), ahead = least(parts, 8);
                float sum = 0.0f;
                for (int e0 = 0; e0 < parts; e0 += ahead) {
                    float numbers[ahead];
                    auto from_block = [&](int e) { return i / FILTER_NUMBERS + (e0 + e) * GROUPS; };
                    hear(numbers, turn, [&](int e) { return from + least(from_block(e), with_samples - 1) * fours(FILTER_NUMBERS); });
#pragma unroll
                    for (int e = 0; e < ahead; e++) sum += from_block(e) < with_samples ? numbers[e] : 0.0f;
                }
                scratch[i] = sum;
            }
            put();
            __syncthreads();
            for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
                float gradient = 0.0f;
#pragma unroll
                for (int group = 0; group < GROUPS; group++) gradient += scratch[group * FILTER_NUMBERS + i];
                const float w = updated(at[to_forward[i]], gradient, filter_m[i], filter_v[i], rates);
                at[to_forward[i]] = at[to_backward[i]] = w;
            }
        } else {
            put();
            meet_grid(arrived, turn * BLOCKS);  // nobody waits for the others elsewhere
        }
        // All blocks have computed the layers above, since all have told the deltas of their inputs.
#pragma unroll
        for (int h = 0; h < HELD; h++)
            if (upper_place[h] >= 0 && (THREADS - 1 - thread) % UPDATERS == 0) tell(all_upper + upper_place[h], upper_w[h], turn + 1);
        __syncthreads();
    }

    // ---- everything is stored, by the block that has it
    if (block == 0)
        for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
            parameters[i] = at[to_forward[i]];
            if (ADAM) M[i] = filter_m[i], V[i] = filter_v[i];
        }
    for_own([&](int own, int i) {
        parameters[i] = own_w[own];
        if (ADAM) M[i] = own_m[own], V[i] = own_v[own];
    });
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (upper_from[h] >= 0 && (THREADS - 1 - thread) % UPDATERS == 0) {
            parameters[upper_from[h]] = upper_w[h];
            if (ADAM) M[upper_from[h]] = upper_m[h], V[upper_from[h]] = upper_v[h];
        }
}
