// Dense layers for batches of few samples, for streamed.cu. Each weight is read for one or two sums only, so tiles in
// shared memory would save nothing. What counts is how many weights are on their way from memory at any time.
//
// Each struct computes a product in UNITS, of which a block takes one at a time.

template <int COUNT>
__device__ void read(float (&numbers)[COUNT], const float* from) {
    if constexpr (COUNT == 4) *(float4*)numbers = *(const float4*)from;
    else numbers[0] = *from;
}

// A warp takes a neuron. Its lanes divide the inputs.
template <int LAYER>
struct ForwardOfFew : Forward<LAYER> {
    using Own = Forward<LAYER>;
    static constexpr Tile TILE = {1, THREADS / 32, 1, -1, 0, 0};
    static constexpr int UNITS = divided_up(Own::COLUMNS, TILE.wide);

    __device__ void compute(float*, int unit) const {
        constexpr int INPUTS = Own::WHOLE, FOUR = Own::LEFT_FOUR < Own::RIGHT_FOUR ? Own::LEFT_FOUR : Own::RIGHT_FOUR;
        const int lane = threadIdx.x % 32, j = unit * TILE.wide + threadIdx.x / 32, rows = this->at.rows;
        if (j >= Own::COLUMNS) return;
        float sums[BATCH] = {};
#pragma unroll 8
        for (int k = lane * FOUR; k < INPUTS; k += 32 * FOUR) {
            alignas(16) float w[FOUR], a[FOUR];
            read(w, this->W + j * INPUTS + k);
#pragma unroll
            for (int s = 0; s < BATCH; s++) {
                read(a, this->A + min(s, rows - 1) * INPUTS + k);
#pragma unroll
                for (int c = 0; c < FOUR; c++) sums[s] += a[c] * w[c];
            }
        }
        int own = 0, end = BATCH;
        add_over_lanes<BATCH, 32>(sums, lane, own, end);
        if (own < min(end, rows)) this->done(own, j, sums[0], this->early(own, j));
    }
};

// A block takes some columns of the weights. Its threads divide these, and in groups the neurons.
template <int LAYER>
struct DeltasOfFew : Deltas<LAYER> {
    using Own = Deltas<LAYER>;
    static constexpr Tile TILE = {1, 32, 1, -1, 0, 0};
    static constexpr int UNITS = divided_up(Own::COLUMNS, TILE.wide);

    __device__ void compute(float* shared, int unit) const {
        constexpr int WIDE = TILE.wide, FOUR = Own::RIGHT_FOUR, ACROSS = WIDE / FOUR, GROUPS = THREADS / ACROSS;
        static_assert(BATCH * WIDE <= THREADS && BATCH * GROUPS * WIDE <= SHARED, "a thread finishes one sum at most");
        const int column = threadIdx.x % ACROSS * FOUR, group = threadIdx.x / ACROSS, rows = this->at.rows;
        const int j0 = min(unit * WIDE + column, Own::COLUMNS - FOUR);
        float sums[BATCH][FOUR] = {};
#pragma unroll 8
        for (int k = group; k < Own::WHOLE; k += GROUPS) {
            alignas(16) float w[FOUR];
            read(w, this->W + k * Own::COLUMNS + j0);
#pragma unroll
            for (int s = 0; s < BATCH; s++)
#pragma unroll
                for (int c = 0; c < FOUR; c++) sums[s][c] += this->D[min(s, rows - 1) * Own::WHOLE + k] * w[c];
        }
        __syncthreads();  // the unit before is no longer read
#pragma unroll
        for (int s = 0; s < BATCH; s++)
#pragma unroll
            for (int c = 0; c < FOUR; c++) shared[(s * GROUPS + group) * WIDE + column + c] = sums[s][c];
        __syncthreads();
        const int s = threadIdx.x / WIDE, j = unit * WIDE + threadIdx.x % WIDE;
        if (s >= rows || j >= Own::COLUMNS) return;
        float sum = 0.0f;
#pragma unroll 8
        for (int g = 0; g < GROUPS; g++) sum += shared[(s * GROUPS + g) * WIDE + threadIdx.x % WIDE];
        this->done(s, j, sum, this->early(s, j));
    }
};

// A thread takes EACH parameters, the biases among them.
template <int LAYER>
struct WeightsOfFew : Weights<LAYER> {
    using Own = Weights<LAYER>;
    static constexpr int EACH = 8, INPUTS = Own::INPUTS, COUNT = Own::MOST_ROWS * (INPUTS + 1);
    static constexpr Tile TILE = {1, EACH * THREADS, 1, -1, 0, 0};
    static constexpr int UNITS = divided_up(COUNT, TILE.wide);

    __device__ void compute(float*, int unit) const {
        const int first = unit * TILE.wide + threadIdx.x;
        typename Own::Parameter own[EACH];
        float sums[EACH] = {};
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            const int e = first + c * THREADS, i = e / (INPUTS + 1), j = e % (INPUTS + 1);
            if (e >= COUNT) continue;
            own[c] = this->early(i, j);
#pragma unroll
            for (int s = 0; s < BATCH; s++) {
                if (s >= this->at.rows) continue;
                const float a = j < INPUTS ? this->A[s * INPUTS + j] : 1.0f;
                sums[c] += this->D[s * Own::MOST_ROWS + i] * a;
            }
        }
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            const int e = first + c * THREADS;
            if (e < COUNT) this->done(e / (INPUTS + 1), e % (INPUTS + 1), sums[c], own[c]);
        }
    }
};
