// convolutional_sgd_epoch and convolutional_adam_epoch in one launch. Versions of one_kernel (ADAM):
//   0   plain SGD
//   1   Adam: each block also keeps M and V of the parameters that it updates
//
//   nncourse check convolutional_adam_epoch --kernel one_kernel   (--emulate without a GPU)
//   nncourse time convolutional_adam_epoch --kernel one_kernel
//   python -m benchmarks.gpu --only digits                        compared with PyTorch and JAX
//
// convolutional_one_kernel.py compiles this file for each network: all sizes and offsets are constants.
//
// A step, in each block:
//   1. Take the block's samples through the whole network, forward and backward. No block waits for another here: each
//      has a copy of all weights in shared memory.
//   2. Exchange the numbers for the gradients: inputs and deltas of the dense layers, gradients of the filters.
//   3. Update a part of the weights of each dense layer, and all filters, which are few.
//   4. Exchange the new dense weights. While they arrive, the next samples go through the convolutions.

constexpr int WARPS = THREADS / 32;
// A thread computes TALL elements of a column of a map in DEEP channels. It uses each weight it reads for all these
// elements, and each element that it reads for all these channels.
constexpr int DEEP = 4;

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
// Map l is surrounded by the padding of convolution l, which stays zero. A map of deltas has a border of side - 1 zeros
// where a convolution below needs it. Both have extra rows, so that a thread may compute rows past the end.

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
__device__ constexpr int deltas_pitch(int l) {
    constexpr int of[] = {DELTAS_PITCHES};
    return of[l];
}
__device__ constexpr int forward_at(int l) {  // filters for the forward pass, [c][i][j][o]
    constexpr int of[] = {FORWARD_AT};
    return of[l];
}
__device__ constexpr int backward_at(int l) {  // and for the backward pass, [o][i][j][c]
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
// The numbers that a block tells the others of a sample: the inputs of each dense layer, then the deltas of each.
__device__ constexpr int inputs_at(int layer) {
    constexpr int of[] = {0, LAYER_INPUTS_AT};
    return of[layer];
}
__device__ constexpr int dense_deltas_at(int layer) {
    constexpr int of[] = {0, LAYER_DELTAS_AT};
    return of[layer];
}
constexpr int SAMPLE_NUMBERS = dense_deltas_at(LAYERS) + row_of(LAYERS);
// A block updates all weights of some neurons of layer 1 and, in layers above, all weights of some inputs. A bias is
// the weight of one more input.
constexpr int SHARE = divided_up(neurons(1), BLOCKS), SHARE_FOURS = fours(SHARE);
__device__ constexpr int inputs_share(int layer) { return divided_up(neurons(layer - 1) + 1, BLOCKS); }
__device__ constexpr int updates(int layer) {
    return layer == 1 ? SHARE * (INPUTS + 1) : inputs_share(layer) * neurons(layer);
}
__device__ constexpr int updates_at(int layer) { return layer == 1 ? 0 : updates_at(layer - 1) + updates(layer - 1); }
constexpr int UPDATES = updates_at(LAYERS + 1);
// For this a block gathers from each sample: the deltas of these neurons; of each layer above, these inputs and all
// deltas.
__device__ constexpr int gathered_at(int layer) {
    return layer == 1 ? 0 : layer == 2 ? SHARE_FOURS : gathered_at(layer - 1) + inputs_share(layer - 1) + neurons(layer - 1);
}
constexpr int GATHERED = fours(gathered_at(LAYERS + 1));

// ---- the update of one parameter

struct Rates {
    float rate, step, correction;  // of SGD; of Adam: rate / c1, and 1 / c2
    float beta_1, rest_1, beta_2, rest_2, epsilon;  // rest is 1 − β
};
__device__ float updated(float w, float gradient, float& m, float& v, const Rates& rates) {
    if (!ADAM) return w - rates.rate * gradient;
    m = rates.beta_1 * m + rates.rest_1 * gradient;
    v = rates.beta_2 * v + rates.rest_2 * gradient * gradient;
    const float square = v * rates.correction, root = square * rsqrtf(fmaxf(square, 1e-37f));
    return w - __fdividef(rates.step * m, root + rates.epsilon);
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

// Gradient of the filters of convolution L for one sample, summed over the image. Each warp writes its part to
// sums[warp][parameter].
template <int L>
__device__ void filter_sums(const float* at, const float* maps, float* sums, int warp, int lane) {
    constexpr int k = side(L), by = stride(L), pitch = map_pitch(L), c_out = channels(L + 1), c_in = channels(L);
    constexpr int HIGH = 2;  // elements of a column for a thread: each takes less work than in convolve()
    constexpr int strips = divided_up(height(L + 1), HIGH), across = width(L + 1), reads = (HIGH - 1) * by + k;
    constexpr int deep = most(1, least(least(DEEP, c_out), 64 / (k * k))), numbers = deep * (k * k + 1);
    const float* deltas = at + deltas_at(L) + border(L) * (deltas_pitch(L) + 1);
    for (int c = 0; c < c_in; c++)
        for (int first_o = 0; first_o < c_out; first_o += deep) {
            float g[numbers] = {};
            for (int item = warp * 32 + lane; item < strips * across; item += THREADS) {
                const int x = item % across, strip = item / across;
                const float* from = maps + map_at(L) + (c * map_rows(L) + strip * HIGH * by) * pitch + x * by;
                float d[HIGH][deep];
#pragma unroll
                for (int r = 0; r < HIGH; r++)
#pragma unroll
                    for (int o = 0; o < deep; o++) {
                        const int channel = least(first_o + o, c_out - 1);
                        d[r][o] = deltas[(channel * deltas_rows(L) + strip * HIGH + r) * deltas_pitch(L) + x];
                        g[deep * k * k + o] += d[r][o];
                    }
#pragma unroll
                for (int y = 0; y < reads; y++)
#pragma unroll
                    for (int j = 0; j < k; j++) {
                        const float a = from[y * pitch + j];
#pragma unroll
                        for (int r = 0; r < HIGH; r++)
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

// The same for the convolution below a pool, where only the maximum of each window has a delta. PARTS threads share a
// parameter.
template <int L, int PARTS>
__device__ void filter_sums_of_winners(const float* at, const float* maps, const float* deltas, const int* corners,
                                       float* to, int thread) {
    constexpr int k = side(L), c_in = channels(L), windows = INPUTS / channels(L + 1), weights = weights_of(L);
    constexpr int numbers = weights + channels(L + 1);
    for (int base = 0; base < numbers * PARTS; base += THREADS) {
        // Start with the last threads: the first ones have more to do.
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

// Weighted sums of a layer: the warps share the neurons, the lanes of a warp the inputs. Calls done(neuron, sum).
template <int LAYER, typename Done>
__device__ void weighted_sums(const float* from, const float* dense, int warp, int lane, Done done) {
    constexpr int inputs = row_of(LAYER - 1) / 4, rounds = divided_up(inputs, 32), together = least(8, divided_up(neurons(LAYER), WARPS));
    const float4 *a = (const float4*)from, *w = (const float4*)(dense + weights_at(LAYER));
    for (int j0 = warp * together; j0 < neurons(LAYER); j0 += WARPS * together) {
        float z[together] = {};
#pragma unroll 2
        for (int r = 0; r < rounds; r++) {  // the same number of rounds in all lanes: no divergence
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

// D W of a layer: dC/da of the layer below. GROUPS threads share a number; each writes to parts[group][number].
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
                    int* arrived, int n, float rate, double beta_1, double beta_2, float epsilon, double power_1,
                    double power_2) {
    extern __shared__ __align__(16) float at[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, block = blockIdx.x;
    float *dense = at + DENSE_AT, *scratch = at + SCRATCH_AT, *targets = at + TARGETS_AT, *own = at + OWN_AT;
    float *remembered_m = at + REMEMBERED_AT, *remembered_v = remembered_m + UPDATES;
    float *filter_m = at + FILTER_MEMORY_AT, *filter_v = filter_m + FILTER_NUMBERS, *filter_gradient = filter_v + FILTER_NUMBERS;
    int *to_forward = (int*)(at + TABLES_AT), *to_backward = to_forward + FILTER_NUMBERS;  // where a filter's number is
    int *places = to_backward + FILTER_NUMBERS, *corners = places + EACH * INPUTS;         // of the pool's maxima
    float* pooled_deltas = at + POOLED_AT;
    float *all_dense = meeting_place, *all_samples = all_dense + DENSE_NUMBERS;  // [sample][number]
    float* filter_parts = all_samples + BATCH * SAMPLE_NUMBERS;                   // [block][number]

    // ---- load everything
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
    // body(number of the update, place among the dense weights, place in the vector of parameters)
    auto for_updates = [&](auto body) {
        upwards<1, LAYERS>([&](auto number) {
            constexpr int layer = number.number, n_in = neurons(layer - 1), n_out = neurons(layer);
            for (int i = thread; i < updates(layer); i += THREADS) {
                const int k = layer == 1 ? i % (n_in + 1) : block * inputs_share(layer) + i / n_out;
                const int j = layer == 1 ? block * SHARE + i / (n_in + 1) : i % n_out;
                if (j < n_out && k <= n_in)
                    body(updates_at(layer) + i, k < n_in ? weights_at(layer) + j * row_of(layer - 1) + k : biases_at(layer) + j,
                         dense_at(layer) + (k < n_in ? j * n_in + k : n_out * n_in + j));
            }
        });
    };
    for_updates([&](int here, int place, int i) {
        all_dense[place] = parameters[i];
        if (ADAM) remembered_m[here] = M[i], remembered_v[here] = V[i];
    });

    // The index among a sample's numbers of each one that this thread gathers; -1 for the bias's input, which is 1.
    constexpr int GATHERINGS = divided_up(BATCH * GATHERED, THREADS);
    int gathered_from[GATHERINGS];
#pragma unroll
    for (int g = 0; g < GATHERINGS; g++) {
        const int number = (g * THREADS + thread) % GATHERED;
        gathered_from[g] = dense_deltas_at(1) + least(block * SHARE + number, neurons(1) - 1);
        upwards<2, LAYERS>([&](auto layer_number) {
            constexpr int layer = layer_number.number, inputs = inputs_share(layer);
            const int i = number - gathered_at(layer), k = block * inputs + i;
            if (i >= 0 && i < inputs) gathered_from[g] = k < neurons(layer - 1) ? inputs_at(layer) + k : -1;
            if (i >= inputs) gathered_from[g] = dense_deltas_at(layer) + least(i - inputs, neurons(layer) - 1);
        });
    }

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
        const float mean_of = 1.0f / rows;

        // ---- forward: convolutions, while the dense weights arrive
        auto fetch_dense = [&] {  // by the second half of the threads: a convolution may keep only the first half busy
            constexpr int FETCHERS = THREADS / 2;
#ifdef CUDA_ON_CPU
            wait_grid(arrived, turn * BLOCKS);
#endif
            if (thread < THREADS - FETCHERS) return;
            wait_in_warp(arrived, turn * BLOCKS);
            for (int i = thread - (THREADS - FETCHERS); i < DENSE_NUMBERS / 4; i += FETCHERS)
                copy_four_later((float4*)dense + i, (const float4*)all_dense + i);
        };
        upwards<0, CONVOLUTIONS - 1>([&](auto number) {
            if (number.number == CONVOLUTIONS - 1) fetch_dense();
            for (int q = 0; q < EACH; q++)
                if (q < own_samples) convolve<number.number>(at, at + q * MAPS_SIZE, thread);
            __syncthreads();
        });
        if (CONVOLUTIONS == 0) fetch_dense();
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

        // ---- each sample through the dense layers, and backward through all layers
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
                numbers[dense_deltas_at(LAYERS) + o] = output_delta(outputs, targets + q * OUTPUTS, o) * mean_of;
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
                    float* sums = scratch + WARPS * filters_at(l);  // the other convolutions' sums may still be read
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

        // ---- gradients of this block's neurons, over all samples
        Rates rates = {rate, rate, 1.0f, (float)beta_1, (float)(1.0 - beta_1), (float)beta_2, (float)(1.0 - beta_2), epsilon};
        if (ADAM) {
            power_1 *= beta_1;
            power_2 *= beta_2;
            rates.step = rate / (float)(1.0 - power_1);
            rates.correction = 1.0f / (float)(1.0 - power_2);
        }
        __syncwarp();  // otherwise threads that have told everything poll already, and hold up the others of their warp
        begin_to_listen();
        constexpr int S_GROUPS = most(1, THREADS / fours(INPUTS + 1)), WIDE = THREADS / S_GROUPS;  // threads that share an input
        constexpr int EACH_GROUP = divided_up(BATCH, S_GROUPS), AHEAD = least(EACH_GROUP, 16);
        const int group = least(thread / WIDE, S_GROUPS - 1), column = thread / WIDE < S_GROUPS ? thread % WIDE : INPUTS + 1;
        auto sample = [&](int e) { return group + e * S_GROUPS; };
        auto input_of = [&](int k, int e) {
            return all_samples + least(sample(e), rows - 1) * SAMPLE_NUMBERS + inputs_at(1) + least(k, INPUTS - 1);
        };
        float inputs[AHEAD];
        listen(inputs, [&](int e) { return input_of(column, e); });
        {
            float gathered[GATHERINGS];
            auto place = [&](int g) {
                const int s = least((g * THREADS + thread) / GATHERED, rows - 1);
                return all_samples + s * SAMPLE_NUMBERS + most(gathered_from[g], 0);
            };
            listen(gathered, place);
            hear(gathered, turn, place);
#pragma unroll
            for (int g = 0; g < GATHERINGS; g++) {
                const int i = g * THREADS + thread;
                if (i < BATCH * GATHERED) own[i] = i / GATHERED >= rows ? 0.0f : gathered_from[g] < 0 ? 1.0f : gathered[g];
            }
        }
        __syncthreads();
        for (int k = column; k < fours(INPUTS + 1); k += WIDE) {
            float gradient[SHARE_FOURS] = {};
            for (int e0 = 0; e0 < EACH_GROUP; e0 += AHEAD) {
                auto place = [&](int e) { return input_of(k, e0 + e); };
                if (k != column || e0 > 0) listen(inputs, place);
                hear(inputs, turn, place);
#pragma unroll
                for (int e = 0; e < AHEAD; e++) {
                    const bool is_there = (e0 + e + 1) * S_GROUPS <= BATCH || sample(e0 + e) < BATCH;
                    const float a = !is_there ? 0.0f : k < INPUTS ? inputs[e] : 1.0f;
                    const float4* deltas = (const float4*)(own + least(sample(e0 + e), BATCH - 1) * GATHERED);
#pragma unroll
                    for (int j = 0; j < SHARE_FOURS / 4; j++) {
                        const float4 d = deltas[j];
                        gradient[4 * j] += d.x * a, gradient[4 * j + 1] += d.y * a;
                        gradient[4 * j + 2] += d.z * a, gradient[4 * j + 3] += d.w * a;
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < SHARE; j++)
                if (k <= INPUTS) scratch[group * SHARE * (INPUTS + 1) + j * (INPUTS + 1) + k] = gradient[j];
        }
        float* upper_gradients = scratch + S_GROUPS * SHARE * (INPUTS + 1);
        upwards<2, LAYERS>([&](auto number) {
            constexpr int layer = number.number, n_out = neurons(layer);
            for (int i = THREADS - 1 - thread; i < updates(layer); i += THREADS) {  // the last threads have less to do
                const float *a = own + gathered_at(layer) + i / n_out, *d = own + gathered_at(layer) + inputs_share(layer) + i % n_out;
                float sum = 0.0f;
#pragma unroll 16
                for (int s = 0; s < BATCH; s++) sum += d[s * GATHERED] * a[s * GATHERED];
                upper_gradients[updates_at(layer) - updates_at(2) + i] = sum;
            }
        });
        if (start + BATCH < n) ask(start + BATCH);

        // ---- gradients of the filters, in every block; update of this block's dense weights while they arrive
        if constexpr (CONVOLUTIONS > 0)
            wait_for_all(with_samples, turn, [&](int b) { return filter_parts + b * fours(FILTER_NUMBERS); });
        else
            __syncthreads();
        constexpr int FILTERS = most(1, FILTER_NUMBERS), F_GROUPS = most(1, least(BLOCKS, THREADS / FILTERS));
        constexpr int PARTS = divided_up(BLOCKS, F_GROUPS), PARTS_AHEAD = least(PARTS, 8);
        float* filter_sums = upper_gradients + UPDATES - updates(1);
        float parts[PARTS_AHEAD];
        auto part_of = [&](int i, int e) {
            return filter_parts + least(i / FILTERS + e * F_GROUPS, with_samples - 1) * fours(FILTER_NUMBERS) + i % FILTERS;
        };
        if (CONVOLUTIONS > 0) listen(parts, [&](int e) { return part_of(thread, e); });
        for_updates([&](int update, int place, int i) {
            float gradient = 0.0f;
            if (update < updates(1))
#pragma unroll
                for (int group = 0; group < S_GROUPS; group++) gradient += scratch[group * updates(1) + update];
            else gradient = upper_gradients[update - updates(1)];
            all_dense[place] = updated(dense[place], gradient, remembered_m[update], remembered_v[update], rates);
        });
        for (int i = thread; i < F_GROUPS * FILTER_NUMBERS; i += THREADS) {
            float sum = 0.0f;
            for (int e0 = 0; e0 < PARTS; e0 += PARTS_AHEAD) {
                auto place = [&](int e) { return part_of(i, e0 + e); };
                if (i != thread || e0 > 0) listen(parts, place);
                hear(parts, turn, place);
#pragma unroll
                for (int e = 0; e < PARTS_AHEAD; e++) sum += i / FILTERS + (e0 + e) * F_GROUPS < with_samples ? parts[e] : 0.0f;
            }
            filter_sums[i] = sum;
        }
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

    // ---- store everything, each number by the block that owns it
    if (block == 0)
        for (int i = thread; i < FILTER_NUMBERS; i += THREADS) {
            parameters[i] = at[to_forward[i]];
            if (ADAM) M[i] = filter_m[i], V[i] = filter_v[i];
        }
    for_updates([&](int here, int place, int i) {
        parameters[i] = all_dense[place];  // as this thread has written it
        if (ADAM) M[i] = remembered_m[here], V[i] = remembered_v[here];
    });
}
