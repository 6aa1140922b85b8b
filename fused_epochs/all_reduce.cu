// peer_sum: the sum of the vectors of several GPUs, inside kernels that run on all of them at the same time. GPUs of
// one host read and write each other's memory like their own, only more slowly: no kernel has to end to send a message.
//   flags    each device stores its vector with all others, raises a flag there, waits for their flags, and adds
//   words    the same without flags: each number is sent with its turn; the fastest for few numbers
//   pieces   each device adds one piece of all vectors, and writes the sum to all others; for many numbers
//   python -m pytest tests/test_peer.py       against the sum in NumPy, bit for bit
//   python -m benchmarks.all_reduce           on several GPUs, compared with NCCL
//
// Block b of a device exchanges with blocks b of the other devices, and all of these handle the same elements: blocks
// of one device do not wait for each other. The numbers are added in the order of the devices, so all devices get the
// same bits. The turn, a number that only grows, distinguishes new contents of memory from those of the last exchange:
// nothing has to be set back to 0.
//
// One launch may hold several devices: the first `blocks` blocks are the first device, and so on. In this way the CPU
// emulator, or a single GPU, simulates several devices. Constants of the text: DEVICES, MOST_BLOCKS, PATIENCE; and for
// launches of several rounds SCALE and OWNERS_CHANGE, see below.

// A device's memory begins with the last turn, the number of blocks that have ended, and 1 + the device that was
// missing; then follow a flag for each block and each device, and the buffers.
enum { TURN, ENDED, MISSED, HEAD = 32 };

struct Exchange {
    float* memory[DEVICES];  // of each device
    float* base;
    const long long* distances;  // of each device's memory from `base`, in floats
    int rank, block, blocks;
    int most;  // numbers in a buffer
    int turn;

    // The elements of this thread: first(), first() + stride() …
    __device__ int first() const { return block * blockDim.x + threadIdx.x; }
    __device__ int stride() const { return blocks * blockDim.x; }

    __device__ int* head() const { return (int*)(base + distances[rank]); }
    // The flag in the memory of device `of` that device `from` raises for this block.
    __device__ int* flag(int of, int from) const {
        return (int*)(base + distances[of]) + HEAD + block * DEVICES + from;
    }
    // There are two buffers, for odd and for even turns: while the others fill one, this device may still read the other.
    // Nobody is two turns ahead, since each turn waits for all.
    __device__ float* buffer(float* of, int from) const {
        return of + HEAD + MOST_BLOCKS * DEVICES + (long long)((turn & 1) * DEVICES + from) * most;
    }
    // After these, buffers with twice the room.
    __device__ unsigned long long* words(float* of, int from) const {
        float* start = of + HEAD + MOST_BLOCKS * DEVICES + 2LL * DEVICES * most;
        return (unsigned long long*)(start + 2LL * ((turn & 1) * DEVICES + from) * most);
    }
};

__device__ Exchange enter(float* memory, const long long* distances, int first, int blocks, int most) {
    Exchange at;
    at.base = memory;
    at.distances = distances;
    at.rank = first + blockIdx.x / blocks;
    at.block = blockIdx.x % blocks;
    at.blocks = blocks;
    at.most = most;
#pragma unroll
    for (int d = 0; d < DEVICES; d++) at.memory[d] = memory + distances[d];
    at.turn = at.head()[TURN];
    return at;
}

// The last block to end stores the turn: by then all blocks have read the old one.
__device__ void leave(const Exchange& at) {
    __syncthreads();
    if (threadIdx.x > 0) return;
    int* head = at.head();
    __threadfence();
    if (atomicAdd(head + ENDED, 1) < at.blocks - 1) return;
    head[ENDED] = 0;
    head[TURN] = at.turn;
}

// ---- waiting, for a limited time: a kernel that hangs blocks its GPU

__device__ bool may_wait(long long since) {
#ifdef CUDA_ON_CPU
    __nanosleep(0);  // the emulator runs one thread at a time
#endif
    return clock64() - since < PATIENCE;
}

__device__ void give_up(const Exchange& at, int on) { atomicExch(at.head() + MISSED, on + 1); }

// After a device was missed the turns no longer agree: later launches return at once.
__device__ bool has_given_up(const Exchange& at) {
    return __syncthreads_or(threadIdx.x == 0 && atomicAdd(at.head() + MISSED, 0) != 0);
}

// Because of the fence, a thread that sees the flag also sees what was written before it, on any device.
__device__ void raise_flag(int* flag, int turn) {
    __threadfence_system();
#ifdef CUDA_ON_CPU
    atomicExch(flag, turn);
    __nanosleep(0);  // so that a flag raised too early is noticed: the others continue now
#else
    asm volatile("st.relaxed.sys.global.s32 [%0], %1;" ::"l"(flag), "r"(turn) : "memory");
#endif
}

__device__ int read_flag(int* flag) {
#ifdef CUDA_ON_CPU
    return atomicAdd(flag, 0);
#else
    int turn;
    asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(turn) : "l"(flag) : "memory");
    return turn;
#endif
}

// Tells the same blocks of all devices that this block has done its part of the turn, and waits for them. False if one
// of them is missing.
__device__ bool meet(const Exchange& at) {
    __syncthreads();  // all threads have done their part
    const int other = threadIdx.x;
    bool missed = false;
    if (other < DEVICES && other != at.rank) {
        raise_flag(at.flag(other, at.rank), at.turn);
        const long long since = clock64();
        while (!missed && read_flag(at.flag(at.rank, other)) - at.turn < 0) missed = !may_wait(since);
        if (missed) give_up(at, other);
    }
    return !__syncthreads_or(missed);
}

// ---- sums

__device__ float plus(float a, float b) { return a + b; }
__device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// Makes a device's next number from a sum. In the last round the sum is the result. Between the rounds of a launch,
// which only checks and timing use, the number differs between devices: otherwise a wrong exchange would not show.
struct Use {
    bool last;
    int round;
    __device__ float operator()(float sum, int device) const {
        return last ? sum : sum * SCALE + float(device + 1 + round % 5);
    }
    __device__ float4 operator()(float4 sum, int device) const {
        return make_float4((*this)(sum.x, device), (*this)(sum.y, device), (*this)(sum.z, device), (*this)(sum.w, device));
    }
};

// ---- 1. flags

template <typename T>
__device__ void send_to_all(const Exchange& at, const T* own, int begin, int end) {
    for (int i = begin + at.first(); i < end; i += at.stride()) {
        const T number = own[i];
#pragma unroll
        for (int d = 0; d < DEVICES; d++)
            if (d != at.rank) ((T*)at.buffer(at.memory[d], at.rank))[i] = number;
    }
}

template <typename T>
__device__ void add_what_came(const Exchange& at, T* own, int begin, int end, Use use) {
    float* mine = (float*)at.head();
    for (int i = begin + at.first(); i < end; i += at.stride()) {
        T sum = {};
#pragma unroll
        for (int d = 0; d < DEVICES; d++) {
            const T number = d == at.rank ? own[i] : ((T*)at.buffer(mine, d))[i];
            sum = d == 0 ? number : plus(sum, number);
        }
        own[i] = use(sum, at.rank);
    }
}

// V: this device's vector of n numbers; rows[d]: the distance from V to the vector of device d, in floats. The numbers
// move four at a time, the last n % 4 one by one.
extern "C" __global__ void __launch_bounds__(1024)
    flags(float* V, const long long* rows, float* memory, const long long* distances, int n, int first, int blocks,
          int most, int rounds) {
    Exchange at = enter(memory, distances, first, blocks, most);
    if (has_given_up(at)) return;
    float* own = V + rows[at.rank];
    const int fours = n / 4;
    for (int round = 0; round < rounds; round++) {
        at.turn++;
        send_to_all(at, (float4*)own, 0, fours);
        send_to_all(at, own, 4 * fours, n);
        if (!meet(at)) break;
        const Use use = {round == rounds - 1, round};
        add_what_came(at, (float4*)own, 0, fours, use);
        add_what_came(at, own, 4 * fours, n, use);
    }
    leave(at);
}

// ---- 2. words. A number and its turn are one word of 8 bytes, which arrives as a whole; the receiver reads the word
// until the turn is right. That is twice as much to send, but there is no second message, and no fence between the two.

struct alignas(16) Pair {
    unsigned long long a, b;
};

__device__ unsigned long long with_turn(float number, int turn) {
    return (unsigned long long)(unsigned)turn << 32 | __float_as_uint(number);
}
__device__ float number_in(unsigned long long word) { return __uint_as_float((unsigned)word); }
__device__ bool is_of(unsigned long long word, int turn) { return int(word >> 32) == turn; }

__device__ void tell(Pair* place, Pair pair) {
#ifdef CUDA_ON_CPU
    atomicExch(&place->a, pair.a);
    atomicExch(&place->b, pair.b);
#else
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(place), "l"(pair.a), "l"(pair.b) : "memory");
#endif
}
__device__ Pair listen(Pair* place) {
#ifdef CUDA_ON_CPU
    return {atomicOr(&place->a, 0), atomicOr(&place->b, 0)};
#else
    Pair pair;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(pair.a), "=l"(pair.b) : "l"(place) : "memory");
    return pair;
#endif
}

extern "C" __global__ void __launch_bounds__(1024)
    words(float* V, const long long* rows, float* memory, const long long* distances, int n, int first, int blocks,
          int most, int rounds) {
    Exchange at = enter(memory, distances, first, blocks, most);
    if (has_given_up(at)) return;
    float *own = V + rows[at.rank], *mine = (float*)at.head();
    const int pairs = (n + 1) / 2;  // an odd number has a 0 beside it
    bool missed = false;
    for (int round = 0; round < rounds && !missed; round++) {
        at.turn++;
        for (int i = at.first(); i < pairs; i += at.stride()) {
            const float a = own[2 * i], b = 2 * i + 1 < n ? own[2 * i + 1] : 0.0f;
            const Pair pair = {with_turn(a, at.turn), with_turn(b, at.turn)};
#pragma unroll
            for (int d = 0; d < DEVICES; d++)
                if (d != at.rank) tell((Pair*)at.words(at.memory[d], at.rank) + i, pair);
        }
        const Use use = {round == rounds - 1, round};
        const long long since = clock64();
        for (int i = at.first(); i < pairs; i += at.stride()) {
            Pair came[DEVICES];
#pragma unroll
            for (int d = 0; d < DEVICES; d++)  // all loads are in flight before the first is used
                if (d != at.rank) came[d] = listen((Pair*)at.words(mine, d) + i);
            float a = 0.0f, b = 0.0f;
#pragma unroll
            for (int d = 0; d < DEVICES; d++) {
                float next_a = own[2 * i], next_b = 2 * i + 1 < n ? own[2 * i + 1] : 0.0f;
                if (d != at.rank) {
                    while (!missed && !(is_of(came[d].a, at.turn) && is_of(came[d].b, at.turn))) {
                        missed = !may_wait(since);
                        if (missed) give_up(at, d);
                        came[d] = listen((Pair*)at.words(mine, d) + i);
                    }
                    next_a = number_in(came[d].a);
                    next_b = number_in(came[d].b);
                }
                a = d == 0 ? next_a : a + next_a;
                b = d == 0 ? next_b : b + next_b;
            }
            own[2 * i] = use(a, at.rank);
            if (2 * i + 1 < n) own[2 * i + 1] = use(b, at.rank);
        }
    }
    leave(at);
}

// ---- 3. pieces. A device reads its piece of all vectors and writes the sum into all vectors: nothing is sent twice,
// and no buffer is needed. But there are two meetings: before the first read all vectors must be there, and after the
// last write all pieces.

template <typename T>
__device__ void add_piece(const Exchange& at, float* V, const long long* rows, int begin, int end, Use use) {
    constexpr int AHEAD = 4;  // loads in flight: reads from another device take long
    T* vectors[DEVICES];
#pragma unroll
    for (int d = 0; d < DEVICES; d++) vectors[d] = (T*)(V + rows[d]);
    for (int i0 = begin + at.first(); i0 < end; i0 += AHEAD * at.stride()) {
        T sums[AHEAD];
#pragma unroll
        for (int d = 0; d < DEVICES; d++) {
            T numbers[AHEAD] = {};
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (i0 + k * at.stride() < end) numbers[k] = vectors[d][i0 + k * at.stride()];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) sums[k] = d == 0 ? numbers[k] : plus(sums[k], numbers[k]);
        }
#pragma unroll
        for (int d = 0; d < DEVICES; d++)
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int i = i0 + k * at.stride();
                if (i < end) vectors[d][i] = OWNERS_CHANGE ? sums[k] : use(sums[k], d);
            }
    }
}

// For checks each device changes its own vector between rounds, as a kernel that continues with it would: then a
// missing meeting is noticed. For timing the writer of a sum does so, which takes no time.
template <typename T>
__device__ void change_own(const Exchange& at, T* own, int begin, int end, Use use) {
    for (int i = begin + at.first(); i < end; i += at.stride()) own[i] = use(own[i], at.rank);
}

extern "C" __global__ void __launch_bounds__(512, 1)
    pieces(float* V, const long long* rows, float* memory, const long long* distances, int n, int first, int blocks,
           int most, int rounds) {
    Exchange at = enter(memory, distances, first, blocks, most);
    if (has_given_up(at)) return;
    const int fours = n / 4, each = (fours + DEVICES - 1) / DEVICES, begin = at.rank * each;
    for (int round = 0; round < rounds; round++) {
        const Use use = {round == rounds - 1, round};
        at.turn++;
        if (!meet(at)) break;
        add_piece<float4>(at, V, rows, begin, min(begin + each, fours), use);
        if (at.rank == DEVICES - 1) add_piece<float>(at, V, rows, 4 * fours, n, use);
        at.turn++;
        if (!meet(at)) break;
        if (OWNERS_CHANGE) {
            float* own = V + rows[at.rank];
            for (int start = 0; start < fours; start += each)
                change_own(at, (float4*)own, start, min(start + each, fours), use);
            change_own(at, own, 4 * fours, n, use);
        }
    }
    leave(at);
}
