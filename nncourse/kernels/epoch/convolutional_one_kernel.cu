// convolutional_sgd_epoch and convolutional_adam_epoch in one launch: between two steps no number is handed to the host.
//
// Everything about the network is a compile-time constant: convolutional_one_kernel.py compiles this text for each
// network, and says where in memory everything lies.
//
// A block takes a sample of the batch, or some, through the whole network, forward and backward, and waits for nobody: it
// has a copy of all weights in shared memory. Then all blocks tell each other what the gradients are made of: inputs and
// deltas of the dense layers, of all samples, and the gradients of the filters for each sample. So each block updates
// some neurons of each dense layer, and all filters, which are few. At last the blocks tell each other the new weights;
// while these arrive, the next samples go through the convolutions, whose filters each block knows already.

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
// Dense layers: W with rows of fours(inputs), then b; the same offsets in shared and in global memory.
__device__ constexpr int row_of(int layer) { return fours(neurons(layer)); }
__device__ constexpr int weights_at(int layer) {
    return layer == 1 ? 0 : weights_at(layer - 1) + neurons(layer - 1) * row_of(layer - 2) + row_of(layer - 1);
}
__device__ constexpr int biases_at(int layer) { return weights_at(layer) + neurons(layer) * row_of(layer - 1); }
constexpr int DENSE_NUMBERS = weights_at(LAYERS + 1);
// What a block computes of a sample and tells: the inputs of each dense layer, then the deltas of each.
__device__ constexpr int inputs_at(int layer) {
    constexpr int of[] = {0, LAYER_INPUTS_AT};
    return of[layer];
}
__device__ constexpr int dense_deltas_at(int layer) {
    constexpr int of[] = {0, LAYER_DELTAS_AT};
    return of[layer];
}
constexpr int SAMPLE_NUMBERS = dense_deltas_at(LAYERS) + row_of(LAYERS);
// The neurons of a layer that a block updates, and what it remembers of them: for each a row of inputs, then the bias.
__device__ constexpr int share(int layer) { return divided_up(neurons(layer), BLOCKS); }
__device__ constexpr int remembered_at(int layer) {
    return layer == 1 ? 0 : remembered_at(layer - 1) + share(layer - 1) * (neurons(layer - 2) + 1);
}
constexpr int REMEMBERED = remembered_at(LAYERS + 1);
__device__ constexpr int most_share(int layer) { return layer == 0 ? 1 : most(share(layer), most_share(layer - 1)); }
__device__ constexpr int most_inputs(int layer) { return layer == 0 ? 1 : most(neurons(layer - 1), most_inputs(layer - 1)); }
constexpr int MOST_SHARE = most_share(LAYERS), MOST_INPUTS = most_inputs(LAYERS);
// Where, among the numbers of a sample, the delta of a block's own neuron is; past the layer's end, of its last neuron.
__device__ constexpr int delta_of_own(int layer, int block, int j) {
    return dense_deltas_at(layer) + least(block * share(layer) + j, neurons(layer) - 1);
}

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

// ---- dense layers, of one sample

// Weighted sums of a layer: WARPS share the neurons, and the lanes of a warp the inputs. Calls done(neuron, sum).
template <int LAYER, typename Done>
__device__ void weighted_sums(const float* from, const float* dense, int warp, int lane, Done done) {
    constexpr int inputs = row_of(LAYER - 1) / 4, rounds = divided_up(inputs, 32), together = least(8, divided_up(neurons(LAYER), WARPS));
    const float4 *a = (const float4*)from, *w = (const float4*)(dense + weights_at(LAYER));
    for (int j0 = warp * together; j0 < neurons(LAYER); j0 += WARPS * together) {
        float z[together] = {};
#pragma unroll 2
        for (int r = 0; r < rounds; r++) {  // the same number of rounds in all lanes: no branch in which only some take part
            const int k = least(r * 32 + lane, inputs - 1);
            const float there = r * 32 + lane < inputs ? 1.0f : 0.0f;
            const float4 x = a[k];
#pragma unroll
            for (int j = 0; j < together; j++) {
                const float4 v = w[least(j0 + j, neurons(LAYER) - 1) * inputs + k];
                z[j] += there * (x.x * v.x + x.y * v.y + x.z * v.z + x.w * v.w);
            }
        }
        int first = 0, end = together;
        add_over_lanes<together, 32>(z, lane, first, end);
        if (first < end && j0 + first < neurons(LAYER)) done(j0 + first, z[0] + dense[biases_at(LAYER) + j0 + first]);
    }
}

// (D W) of a layer: dC/da of the layer below. GROUPS threads share a number; each leaves its part in parts[group][number].
template <int LAYER, int GROUPS>
__device__ void sums_below(const float* deltas, const float* dense, float* parts, int thread) {
    constexpr int numbers = row_of(LAYER - 1), fours_below = numbers / 4, each = divided_up(neurons(LAYER), GROUPS);
    for (int i = thread; i < GROUPS * fours_below; i += THREADS) {
        const int k = i % fours_below, group = i / fours_below;
        const float4* w = (const float4*)(dense + weights_at(LAYER)) + k;
        float4 sum = {};
#pragma unroll 16
        for (int e = 0; e < each; e++) {
            const int o = least(group * each + e, neurons(LAYER) - 1);
            const float d = group * each + e < neurons(LAYER) ? deltas[o] : 0.0f;
            const float4 v = w[o * fours_below];
            sum.x += d * v.x, sum.y += d * v.y, sum.z += d * v.z, sum.w += d * v.w;
        }
        *(float4*)(parts + group * numbers + 4 * k) = sum;
    }
}
__device__ constexpr int groups_for(int layer) {  // how many threads share a number of sums_below()
    return most(1, least(THREADS / (row_of(layer - 1) / 4), divided_up(neurons(layer), 4)));
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
    float *dense = at + DENSE_AT, *scratch = at + SCRATCH_AT, *targets = at + TARGETS_AT, *own = at + OWN_AT;
    float *remembered_m = at + REMEMBERED_AT, *remembered_v = remembered_m + REMEMBERED;
    float *filter_m = at + FILTER_MEMORY_AT, *filter_v = filter_m + FILTER_NUMBERS, *filter_gradient = filter_v + FILTER_NUMBERS;
    int *to_forward = (int*)(at + TABLES_AT), *to_backward = to_forward + FILTER_NUMBERS;  // where a filter's number lies
    int *places = to_backward + FILTER_NUMBERS, *corners = places + EACH * INPUTS;         // of the pool's maxima
    float* pooled_deltas = at + POOLED_AT;
    float *all_dense = meeting_place, *all_samples = all_dense + DENSE_NUMBERS;  // [sample][number]
    float* filter_parts = all_samples + BATCH * SAMPLE_NUMBERS;                   // [block][number]

    // ---- everything is loaded
    for (int i = thread; i < SHARED_FLOATS; i += THREADS) at[i] = 0.0f;
    __syncthreads();
    upwards<0, CONVOLUTIONS - 1>([&](auto number) {
        constexpr int l = number.number, k = side(l), c_in = channels(l), c_out = channels(l + 1);
        for (int i = thread; i < weights_of(l) + c_out; i += THREADS) {
            const bool is_weight = i < weights_of(l);
            const int o = is_weight ? i / (c_in * k * k) : i - weights_of(l), c = i / (k * k) % c_in, tap = i % (k * k);
            const int forward = forward_at(l) + (is_weight ? (c * k * k + tap) : c_in * k * k) * fours(c_out) + o;
            to_forward[filters_at(l) + i] = forward;
            to_backward[filters_at(l) + i] = is_weight && l > 0 ? backward_at(l) + (o * k * k + tap) * fours(c_in) + c : forward;
        }
    });
    __syncthreads();
    for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
        at[to_forward[i]] = at[to_backward[i]] = parameters[i];
        if (ADAM) filter_m[i] = M[i], filter_v[i] = V[i];
    }
    // body(place among what is remembered, place among the dense weights, place in the vector of parameters)
    auto for_share = [&](auto body) {
        upwards<1, LAYERS>([&](auto number) {
            constexpr int layer = number.number, n_in = neurons(layer - 1);
            for (int i = thread; i < share(layer) * (n_in + 1); i += THREADS) {
                const int k = i % (n_in + 1), j = block * share(layer) + i / (n_in + 1);
                if (j < neurons(layer))
                    body(remembered_at(layer) + i, k < n_in ? weights_at(layer) + j * row_of(layer - 1) + k : biases_at(layer) + j,
                         dense_at(layer) + (k < n_in ? j * n_in + k : neurons(layer) * n_in + j));
            }
        });
    };
    for_share([&](int here, int place, int i) {
        all_dense[place] = parameters[i];
        if (ADAM) remembered_m[here] = M[i], remembered_v[here] = V[i];
    });

    // The next images and targets wait in registers.
    constexpr int PIXELS = channels(0) * height(0) * width(0), X_HELD = divided_up(EACH * PIXELS, THREADS);
    constexpr int Y_HELD = divided_up(EACH * OUTPUTS, THREADS);
    float x_next[X_HELD], y_next[Y_HELD];
    auto ask = [&](int start) {
        const int first = start + block * EACH, left = least(EACH, least(start + BATCH, n) - first);
#pragma unroll
        for (int h = 0; h < X_HELD; h++) {
            const int i = h * THREADS + thread;
            x_next[h] = i < left * PIXELS ? X[(size_t)first * PIXELS + i] : 0.0f;
        }
#pragma unroll
        for (int h = 0; h < Y_HELD; h++) {
            const int i = h * THREADS + thread;
            y_next[h] = i < left * OUTPUTS ? Y[(size_t)first * OUTPUTS + i] : 0.0f;
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
            if (h * THREADS + thread < EACH * OUTPUTS) targets[h * THREADS + thread] = y_next[h];
    };
    ask(0);
    put();
    arrive_grid(arrived);

    int turn = 0;
    for (int start = 0; start < n; start += BATCH) {
        turn++;
        const int rows = least(BATCH, n - start), own_samples = least(EACH, rows - block * EACH);
        const int with_samples = divided_up(rows, EACH);  // blocks

        // ---- forward: convolutions, while the dense weights arrive
        constexpr int FETCHERS = THREADS / 2;
#ifdef CUDA_ON_CPU
        wait_grid(arrived, turn * BLOCKS);
#endif
        if (thread >= THREADS - FETCHERS) {
            wait_in_warp(arrived, turn * BLOCKS);
            for (int i = thread - (THREADS - FETCHERS); i < DENSE_NUMBERS / 4; i += FETCHERS)
                copy_four_later((float4*)dense + i, (const float4*)all_dense + i);
        }
        upwards<0, CONVOLUTIONS - 1>([&](auto number) {
            for (int q = 0; q < EACH; q++)
                if (q < own_samples) convolve<number.number>(at, at + q * MAPS_SIZE, thread);
            __syncthreads();
        });
        for (int q = 0; q < EACH; q++) {
            if (q >= own_samples) break;
            constexpr int last = most(0, CONVOLUTIONS - 1), pitch = map_pitch(CONVOLUTIONS);
            const float* map = at + q * MAPS_SIZE + map_at(CONVOLUTIONS);
            for (int i = thread; i < INPUTS; i += THREADS) {
                constexpr int by = most(1, POOL), across = width(CONVOLUTIONS) / by, windows = height(CONVOLUTIONS) / by * across;
                const int c = i / windows, y = i % windows / across * by, x = i % across * by;
                const float* window = map + (c * map_rows(CONVOLUTIONS) + before(CONVOLUTIONS) + y) * pitch + before(CONVOLUTIONS) + x;
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
                at[SAMPLES_AT + q * SAMPLE_NUMBERS + inputs_at(1) + i] = top;
            }
        }
        wait_for_copies();
        __syncthreads();

        // ---- each sample through the dense layers, and all the way back
        for (int q = 0; q < EACH; q++) {
            if (q >= own_samples) break;
            float *numbers = at + SAMPLES_AT + q * SAMPLE_NUMBERS, *outputs = at + OUTPUTS_AT;
            const float* maps = at + q * MAPS_SIZE;
            upwards<1, LAYERS>([&](auto number) {
                constexpr int layer = number.number;
                float* to = layer < LAYERS ? numbers + inputs_at(layer + 1) : outputs;
                weighted_sums<layer>(numbers + inputs_at(layer), dense, warp, lane,
                                     [&](int j, float z) { to[j] = activate(activation_of(layer), z); });
                __syncthreads();
            });
            for (int o = thread; o < OUTPUTS; o += THREADS)
                numbers[dense_deltas_at(LAYERS) + o] = output_delta(outputs, targets + q * OUTPUTS, o) / rows;
            __syncthreads();
            downwards<LAYERS - 1, 1>([&](auto number) {  // (4b)
                constexpr int layer = number.number, row = row_of(layer);
                const float *deltas = numbers + dense_deltas_at(layer + 1), *weights = dense + weights_at(layer + 1);
                for (int j = thread; j < neurons(layer); j += THREADS) {
                    float sum = 0.0f;
#pragma unroll 16
                    for (int o = 0; o < neurons(layer + 1); o++) sum += deltas[o] * weights[o * row + j];
                    numbers[dense_deltas_at(layer) + j] = sum * slope(activation_of(layer), numbers[inputs_at(layer + 1) + j]);
                }
                __syncthreads();
            });
            float4* to = (float4*)(all_samples + (block * EACH + q) * SAMPLE_NUMBERS);
            for (int i = thread; i < SAMPLE_NUMBERS / 4; i += THREADS) tell(to + i, ((const float4*)numbers)[i], turn);
            if constexpr (CONVOLUTIONS > 0) {
                constexpr int last = most(0, CONVOLUTIONS - 1), groups = groups_for(1);
                sums_below<1, groups>(numbers + dense_deltas_at(1), dense, scratch, thread);
                __syncthreads();
                for (int i = thread; i < INPUTS; i += THREADS) {
                    float sum = 0.0f;
#pragma unroll
                    for (int group = 0; group < groups; group++) sum += scratch[group * row_of(0) + i];
                    const float d = sum * slope(activation(last), numbers[inputs_at(1) + i]);
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

        // ---- gradients of the own neurons, over all samples
        Rates rates = {rate, rate, 1.0f};
        if (ADAM) {
            power_1 *= BETA_1;
            power_2 *= BETA_2;
            rates.step = rate / (float)(1.0 - power_1);
            rates.correction = 1.0f / (float)(1.0 - power_2);
        }
        wait_to_hear(with_samples, turn, [&](int b) { return all_samples + (least((b + 1) * EACH, rows) * SAMPLE_NUMBERS - row_of(LAYERS)); });
        for (int i = thread; i < BATCH * MOST_SHARE; i += THREADS) {
            const int s = least(i / MOST_SHARE, rows - 1), j = i % MOST_SHARE;
            float deltas[LAYERS];
            hear(deltas, turn, [&](int l) { return all_samples + s * SAMPLE_NUMBERS + delta_of_own(l + 1, block, j); });
#pragma unroll
            for (int l = 0; l < LAYERS; l++)
                own[(l * BATCH + i / MOST_SHARE) * MOST_SHARE + j] = i / MOST_SHARE < rows ? deltas[l] : 0.0f;
        }
        __syncthreads();
        constexpr int S_GROUPS = most(1, THREADS / (fours(MOST_INPUTS + 1))), WIDE = THREADS / S_GROUPS;  // threads that share an input
        for (int k0 = 0; k0 < MOST_INPUTS + 1; k0 += WIDE) {
            const int k = k0 + thread % WIDE, group = thread / WIDE;
            constexpr int each = divided_up(BATCH, S_GROUPS), ahead = least(each, 16 / LAYERS);
            float gradient[LAYERS][MOST_SHARE] = {};
            for (int e0 = 0; e0 < each && group < S_GROUPS; e0 += ahead) {
                float a[LAYERS * ahead];
                auto sample = [&](int i) { return group + (e0 + i / LAYERS) * S_GROUPS; };
                hear(a, turn, [&](int i) {
                    return all_samples + least(sample(i), rows - 1) * SAMPLE_NUMBERS + inputs_at(i % LAYERS + 1) +
                           least(k, neurons(i % LAYERS) - 1);
                });
#pragma unroll
                for (int i = 0; i < LAYERS * ahead; i++) {
                    const float input = k < neurons(i % LAYERS) ? a[i] : 1.0f;
#pragma unroll
                    for (int j = 0; j < MOST_SHARE; j++)
                        gradient[i % LAYERS][j] += own[(i % LAYERS * BATCH + least(sample(i), BATCH - 1)) * MOST_SHARE + j] *
                                                   (sample(i) < BATCH ? input : 0.0f);
                }
            }
            upwards<1, LAYERS>([&](auto number) {
                constexpr int layer = number.number, n_in = neurons(layer - 1);
                if (k > n_in || group >= S_GROUPS) return;
#pragma unroll
                for (int j = 0; j < share(layer); j++)
                    scratch[group * REMEMBERED + remembered_at(layer) + j * (n_in + 1) + k] = gradient[layer - 1][j];
            });
        }
        if (start + BATCH < n) ask(start + BATCH);

        // ---- gradients of the filters, in every block
        if constexpr (CONVOLUTIONS > 0)
            wait_to_hear(with_samples, turn, [&](int b) { return filter_parts + b * fours(FILTER_NUMBERS); });
        else
            __syncthreads();
        float* filter_sums = scratch + S_GROUPS * REMEMBERED;
        constexpr int F_GROUPS = most(1, least(BLOCKS, THREADS / most(1, FILTER_NUMBERS)));
        for (int i = thread; i < F_GROUPS * FILTER_NUMBERS; i += THREADS) {
            const int group = i / most(1, FILTER_NUMBERS);
            const float* from = filter_parts + i % most(1, FILTER_NUMBERS);
            constexpr int parts = divided_up(BLOCKS, F_GROUPS), ahead = least(parts, 8);
            float sum = 0.0f;
            for (int e0 = 0; e0 < parts; e0 += ahead) {
                float numbers[ahead];
                auto from_block = [&](int e) { return group + (e0 + e) * F_GROUPS; };
                hear(numbers, turn, [&](int e) { return from + least(from_block(e), with_samples - 1) * fours(FILTER_NUMBERS); });
#pragma unroll
                for (int e = 0; e < ahead; e++) sum += from_block(e) < with_samples ? numbers[e] : 0.0f;
            }
            filter_sums[i] = sum;
        }

        // ---- update
        for_share([&](int here, int place, int i) {
            float gradient = 0.0f;
#pragma unroll
            for (int group = 0; group < S_GROUPS; group++) gradient += scratch[group * REMEMBERED + here];
            all_dense[place] = updated(dense[place], gradient, remembered_m[here], remembered_v[here], rates);
        });
        put();
        __syncthreads();
        for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
            float gradient = 0.0f;
#pragma unroll
            for (int group = 0; group < F_GROUPS; group++) gradient += filter_sums[group * FILTER_NUMBERS + i];
            const float w = updated(at[to_forward[i]], gradient, filter_m[i], filter_v[i], rates);
            at[to_forward[i]] = at[to_backward[i]] = w;
        }
        arrive_grid(arrived);
    }

    // ---- everything is stored, by the block that has it
    if (block == 0)
        for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
            parameters[i] = at[to_forward[i]];
            if (ADAM) M[i] = filter_m[i], V[i] = filter_v[i];
        }
    for_share([&](int here, int place, int i) {
        parameters[i] = all_dense[place];  // as this thread has written it
        if (ADAM) M[i] = remembered_m[here], V[i] = remembered_v[here];
    });
}
