// The layers of a network, as streamed.cu sees them: sizes as constants, where their numbers are, and how dC/dA goes
// down to the layer below. TABLE has a Row for the samples and for each layer.

enum Kind { DENSE, CONVOLUTION, POOL };

// How a product is divided. `split` blocks share the sums of a tile: their parts begin at `parts_at`, the counters of
// those that have arrived at `arrivals_at`. If `part` is 0, a tile has `high` × `wide` elements. Otherwise it is of a
// product of streamed_images.cu, and `part` channels, or rows of pixels, are in shared memory together.
struct Tile {
    int high, wide, split, part, parts_at, arrivals_at;
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

// Whether a dense layer's products are those of streamed_few.cu.
constexpr int FEW = 4;
template <int LAYER>
__device__ constexpr bool of_few() { return is_dense(LAYER) && BATCH <= FEW; }

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

// Handing dC/dA of a number of map LAYER down: to the deltas of that layer, through pools to the largest of each window.
// look_below() reads what give() needs: the activation, or the largest one, and its place in its window.
struct Below {
    float a;
    int largest;
};
template <int LAYER>
__device__ int corner_of(int pixel) {  // the first pixel of a pool's window
    constexpr Row here = layer(LAYER);
    return (pixel / here.width * layer(LAYER - 1).width + pixel % here.width) * here.k;
}
template <int LAYER>
__device__ Below look_below(const Memory& at, int sample, int channel, int pixel) {
    if constexpr (LAYER < FIRST) return {};
    else if constexpr (has_weights(LAYER)) {
        return {map_of<LAYER>(at)[sample * numbers(LAYER) + channel * pixels(LAYER) + pixel], 0};
    } else {
        constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
        const int begin = sample * numbers(LAYER - 1) + channel * pixels(LAYER - 1);
        const float* map = map_of<LAYER - 1>(at) + begin + corner_of<LAYER>(pixel);
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
__device__ void give(const Memory& at, int sample, int channel, int pixel, float gradient, Below seen) {
    if constexpr (LAYER < FIRST) return;
    else if constexpr (has_weights(LAYER)) {
        const int place = sample * numbers(LAYER) + channel * pixels(LAYER) + pixel;
        deltas_of<LAYER>(at)[place] = gradient * slope(layer(LAYER).activation, seen.a);
    } else {
        constexpr Row here = layer(LAYER), below = layer(LAYER - 1);
        const int corner = corner_of<LAYER>(pixel);
#pragma unroll
        for (int p = 0; p < here.k * here.k; p++) {
            const int its_pixel = corner + p / here.k * below.width + p % here.k;
            Below its = {seen.a, 0};
            if constexpr (!has_weights(LAYER - 1)) its = look_below<LAYER - 1>(at, sample, channel, its_pixel);
            give<LAYER - 1>(at, sample, channel, its_pixel, p == seen.largest ? gradient : 0.0f, its);
        }
    }
}
