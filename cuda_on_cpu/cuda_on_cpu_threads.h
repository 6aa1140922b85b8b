// The threads of a CUDA grid as fibers on one operating-system thread, and the scheduler that runs them in turn. Each
// fiber has its own stack and runs until its CUDA thread ends or waits for others.
#pragma once

namespace cuda_on_cpu {

// ---- fibers: change() saves the state of one fiber and resumes another

const size_t STACK_BYTES = 256 << 10;  // for one thread's local variables
const size_t STACK_GUARD = 4 << 10;    // the far end is poisoned, so that too large a local array is detected

#if defined(__x86_64__) && !defined(CUDA_ON_CPU_PORTABLE)

struct Fiber {
    void* stack_pointer;
};

extern "C" void cuda_on_cpu_change(Fiber* from, Fiber* to);
asm(R"(
.text
.type cuda_on_cpu_change, @function
cuda_on_cpu_change:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuda_on_cpu_change, .-cuda_on_cpu_change
)");

inline void change(Fiber& from, Fiber& to) { cuda_on_cpu_change(&from, &to); }

// The first change() to the fiber pops six registers and returns into `start`, whose return address is 0.
inline void prepare(Fiber& fiber, char* stack, void (*start)()) {
    void** top = reinterpret_cast<void**>(stack + STACK_BYTES);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(start);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.stack_pointer = top;
}

#else  // other processors: several times slower, because each change makes a system call for the signal mask

using Fiber = ucontext_t;

inline void change(Fiber& from, Fiber& to) { swapcontext(&from, &to); }

inline void prepare(Fiber& fiber, char* stack, void (*start)()) {
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = STACK_BYTES;
    fiber.uc_link = nullptr;
    makecontext(&fiber, start, 0);
}

#endif

// ---- threads, blocks, and the launch they belong to

const int MOST_THREADS = 1024, MOST_ARGUMENTS = 64;
const long long NAP_TICKS = 1 << 20;  // clock cycles that pass while threads sleep
enum State { READY, AT_BLOCK_BARRIER, AT_WARP_FUNCTION, AT_GRID_BARRIER, ASLEEP, ENDED };

struct Thread {
    Fiber fiber;
    uint3 index;  // threadIdx
    int number;   // of the thread in its block, x first
    State state;
    Call waits_at;
    unsigned mask;             // the mask argument of a warp function
    int what;                  // lane that a shuffle reads, or VOTE and the like
    uint64_t given, received;  // the value it contributes, and the result
    uint64_t place;            // only while accesses are recorded: see reach()
};

struct Block {
    uint64_t number;  // in the grid, x first
    uint3 index;
    Thread* threads;
    char* stacks;
    char* shared;  // copy of its shared memory while another block runs
    Block* next;
    uint64_t barrier_time, acquired_time, warp_times[MOST_THREADS / 32];  // see below: times of synchronisation
};

struct Launch {  // the header of a request, as LAUNCH in emulate.py
    int32_t function, order, arguments;
    uint32_t seed, grid[3], block[3];
    int64_t shared_bytes;
    double time_limit;
    int64_t most_records;  // 0: accesses are not recorded
    int64_t constants;     // how many __constant__ arrays are filled
};

const int64_t MOST_SHARED = 227 << 10;
const int MOST_TRIES = 320;     // atomic accesses of a warp for which the lanes that are ahead wait
const int MOST_OVERTAKEN = 64;  // threads of a launch that others overtake in atomicCAS
enum Order { FORWARD, REVERSE, SHUFFLED };

static Launch launch;
static void* slots[MOST_ARGUMENTS];  // the kernel's arguments: each points to a pointer or a scalar

static Fiber scheduler;
static Thread* current;
static Block* running;
static int order[MOST_THREADS];
static uint64_t random_state;
// Ended blocks for reuse, blocks that wait for the whole grid, and blocks with a sleeping thread.
static Block *spare_blocks, *waiting_blocks, *sleeping_blocks;
static uint64_t waiting_count;
static int overtaken;

inline int threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }
inline uint32_t random_number() {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

// Ends the program; see cuda_on_cpu_serve.h. A fault is reported as its kind and facts, "name=value" with AND between
// them; faults.py turns them into a message.
[[noreturn]] void fail(const char* kind, int line, const char* facts, ...);
#define ON_ANY_STACK __attribute__((no_sanitize_address))  // else a [[noreturn]] call there has AddressSanitizer complain
#define AND "\x1f"

inline const char* text_of(uint3 index) {
    static char text[4][80];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "(%u, %u, %u)", index.x, index.y, index.z);
    return text[turn];
}

inline uint3 thread_index(unsigned i) {
    return {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
}
inline uint3 block_index(uint64_t i) {
    return {unsigned(i % gridDim.x), unsigned(i / gridDim.x % gridDim.y), unsigned(i / gridDim.x / gridDim.y)};
}

// ---- times of synchronisation: accesses of a block before its `barrier_time` are ordered before all that it does now;
// the other times likewise. cuda_on_cpu_races.h compares the times of accesses with them.

static uint64_t now;         // incremented at every barrier, warp function and fence
static uint64_t grid_time;   // of the last grid barrier, or the start of the launch
static uint64_t fence_time;  // of the last __threadfence()
long long ticks;             // of clock64()
static bool watching;        // true while a kernel runs, false in the scheduler
static uint32_t visit;       // of a warp to a block of code, while accesses are recorded
static int tries;            // atomic accesses since a warp's lanes were together

void fence() { fence_time = ++now; }

// ---- shared memory: cuda_on_cpu.ld puts all __shared__ arrays in one section of the program, which can be filled, saved
// and restored; and all __device__ variables in another

extern "C" {
extern char __start_cuda_shared[], __stop_cuda_shared[], __start_cuda_device[], __stop_cuda_device[];
}
alignas(128) char dynamic_shared[MOST_SHARED + 4096];

// Byte by byte and without the sanitizer, because there are poisoned zones between the arrays.
__attribute__((no_sanitize_address)) inline void copy_shared(char* to, const char* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) static_cast<volatile char*>(to)[i] = from[i];
}
__attribute__((no_sanitize_address)) inline void fill_shared(char* to, size_t bytes) {
    // NaN in every float; in reverse order 3.4e38, for a text that detects NaN
    const char byte = launch.order == REVERSE ? '\x7f' : '\xff';
    for (size_t i = 0; i < bytes; i++) static_cast<volatile char*>(to)[i] = byte;
}

inline size_t static_shared_bytes() { return __stop_cuda_shared - __start_cuda_shared; }

inline void fresh_shared_memory() {
    fill_shared(__start_cuda_shared, static_shared_bytes());
    fill_shared(dynamic_shared, launch.shared_bytes);
}

inline void keep_shared_memory(Block& block) {
    if (!block.shared) block.shared = static_cast<char*>(malloc(static_shared_bytes() + MOST_SHARED));
    copy_shared(block.shared, __start_cuda_shared, static_shared_bytes());
    copy_shared(block.shared + static_shared_bytes(), dynamic_shared, launch.shared_bytes);
}

inline void restore_shared_memory(Block& block) {
    copy_shared(__start_cuda_shared, block.shared, static_shared_bytes());
    copy_shared(dynamic_shared, block.shared + static_shared_bytes(), launch.shared_bytes);
}

// ---- waiting: a thread stores what it waits for and switches to the scheduler, which resumes it when all have arrived

inline uint64_t wait(State state, Call call, uint64_t given, unsigned mask = 0, int what = 0) {
    Thread& self = *current;
    self.state = state;
    self.waits_at = call;
    self.given = given;
    self.mask = mask;
    self.what = what;
    change(self.fiber, scheduler);
    return self.received;
}

inline void run_thread() {
    cuda_on_cpu_call(launch.function, slots);
    current->state = ENDED;
    change(current->fiber, scheduler);
}

// Facts about the awaited `thread`, which does not arrive at `call`.
inline const char* absence(const Thread& thread) {
    static char text[200];
    if (thread.state == ENDED) snprintf(text, sizeof text, "absent=ended");
    else
        snprintf(text, sizeof text, "absent=waits" AND "other_line=%d" AND "other_call=%s", thread.waits_at.line,
                 thread.waits_at.function);
    return text;
}

// Resumes all threads of the block if all wait at the same call. It is a mistake if only some do.
inline bool release_block(Block& block, State state) {
    const int count = threads_in_block();
    Thread* first = nullptr;
    for (int i = 0; i < count && !first; i++)
        if (block.threads[i].state == state) first = &block.threads[i];
    if (!first) return false;
    int arrived = 0;
    uint64_t sum = 0;
    const Thread* absent = nullptr;
    for (int i = 0; i < count; i++) {
        const Thread& thread = block.threads[i];
        if (thread.state == state && thread.waits_at.site == first->waits_at.site) {
            arrived++;
            sum += thread.given;
        } else if (!absent) {
            absent = &thread;
        }
    }
    if (absent)
        fail("barrier", first->waits_at.line, "call=%s" AND "arrived=%d" AND "threads=%d" AND "block=%s" AND "%s",
             first->waits_at.function, arrived, count, text_of(block.index), absence(*absent));
    if (state == AT_GRID_BARRIER) return false;  // run_grid() releases it when the other blocks have arrived
    block.barrier_time = ++now;
    for (int i = 0; i < count; i++) {
        block.threads[i].received = sum;
        block.threads[i].state = READY;
    }
    return true;
}

// Whether both wait at the same call of a warp function.
inline bool together(const Thread& thread, const Thread& first) {
    return thread.state == AT_WARP_FUNCTION && thread.waits_at.site == first.waits_at.site && thread.mask == first.mask;
}

// What a warp function computes from the values of the lanes in `mask`, for a lane that gave `own`.
inline uint64_t combined(const Thread* warp, int lanes, unsigned mask, int what, uint64_t own) {
    uint64_t result = what == ALL_BITS || what == LEAST || what == GREATEST || what == LEAST_UNSIGNED ? own : 0;
    for (int lane = 0; lane < lanes; lane++) {
        if (!(mask >> lane & 1)) continue;
        const uint64_t given = warp[lane].given;
        const int before = int(result), number = int(given);
        switch (what) {
            case VOTE: result |= uint64_t(given != 0) << lane; break;
            case MATCH: result |= uint64_t(given == own) << lane; break;
            case SUM: result += given; break;
            case LEAST: result = number < before ? number : before; break;
            case GREATEST: result = number > before ? number : before; break;
            case LEAST_UNSIGNED: result = unsigned(given) < unsigned(result) ? given : result; break;
            case GREATEST_UNSIGNED: result = unsigned(given) > unsigned(result) ? given : result; break;
            case ALL_BITS: result &= given; break;
            case ANY_BITS: result |= given; break;
            case ODD_BITS: result ^= given; break;
        }
    }
    return result;
}

// The product of matrices that the lanes of a warp share: see Fragments in cuda_on_cpu.h.
inline void multiply_fragments(Thread* warp) {
    const auto of = [warp](int lane) { return reinterpret_cast<Fragments*>(warp[lane].given); };
    const auto number = [](unsigned bits) { return double(same_bits<float>(bits & ~0x1fffu)); };
    double a[16][8], b[8][8];  // b by columns
    for (int lane = 0; lane < warpSize; lane++) {
        const int group = lane / 4, turn = lane % 4;
        for (int i = 0; i < 4; i++) a[group + i % 2 * 8][turn + i / 2 * 4] = number(of(lane)->a[i]);
        for (int i = 0; i < 2; i++) b[group][turn + i * 4] = number(of(lane)->b[i]);
    }
    for (int lane = 0; lane < warpSize; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = of(lane)->sums[i];
            for (int k = 0; k < 8; k++) sum += a[row][k] * b[column][k];
            of(lane)->sums[i] = float(sum);
        }
}

// Exchanges values between the lanes in `mask`, which have all arrived. A lane outside the mask is read as 0xff bytes.
inline void exchange(Thread* warp, int lanes, unsigned mask) {
    const Call& call = warp[__builtin_ctz(mask)].waits_at;
    if (warp[__builtin_ctz(mask)].what == PRODUCT) {
        if (lanes < warpSize)  // this warp has no more threads
            fail("warp", call.line, "call=%s" AND "arrived=%d" AND "threads=%d" AND "warp=%d" AND "block=%s" AND "absent=ended",
                 call.function, lanes, warpSize, warp->number / warpSize, text_of(running->index));
        multiply_fragments(warp);
    }
    for (int lane = 0; lane < lanes; lane++) {
        Thread& thread = warp[lane];
        if (!(mask >> lane & 1)) continue;
        const bool known = thread.what < lanes && mask >> thread.what & 1;
        if (thread.what == PRODUCT) thread.received = 0;  // each lane's share has been written where it lies
        else if (thread.what < warpSize) thread.received = known ? warp[thread.what].given : ~uint64_t(0);
        else thread.received = combined(warp, lanes, mask, thread.what, thread.given);
        thread.state = READY;
    }
}

inline int lanes_of_warp(int start) {
    const int rest = threads_in_block() - start;
    return rest < warpSize ? rest : warpSize;
}

// A thread of the warp that is in the mask of `first` but does not wait at the same call; null if all have arrived.
inline const Thread* missing(const Thread* warp, int lanes, const Thread& first) {
    for (int lane = 0; lane < lanes; lane++)
        if (first.mask >> lane & 1 && !together(warp[lane], first)) return &warp[lane];
    return nullptr;
}

// Resumes the threads of every warp function that all lanes in its mask have reached.
inline bool release_warps(Block& block) {
    bool released = false;
    for (int start = 0; start < threads_in_block(); start += warpSize) {
        Thread* warp = block.threads + start;
        const int lanes = lanes_of_warp(start);
        for (int lane = 0; lane < lanes; lane++) {
            const Thread& thread = warp[lane];
            if (thread.state != AT_WARP_FUNCTION) continue;
            if (!(thread.mask >> lane & 1))
                fail("warp", thread.waits_at.line, "call=%s" AND "outside_mask=true" AND "thread=%s" AND "block=%s",
                     thread.waits_at.function, text_of(thread.index), text_of(block.index));
            if (missing(warp, lanes, thread)) continue;
            exchange(warp, lanes, thread.mask);
            block.warp_times[start / warpSize] = ++now;
            released = true;
        }
    }
    return released;
}

// Called when no thread can run: a thread that still waits for its warp would wait for ever.
inline void check_no_warp_waits(Block& block) {
    for (int i = 0; i < threads_in_block(); i++) {
        const Thread& first = block.threads[i];
        if (first.state != AT_WARP_FUNCTION) continue;
        const int start = i - i % warpSize, lanes = lanes_of_warp(start);
        int named = 0, arrived = 0;
        for (int lane = 0; lane < lanes; lane++) {
            named += first.mask >> lane & 1;
            arrived += first.mask >> lane & 1 && together(block.threads[start + lane], first);
        }
        const Thread* absent = missing(block.threads + start, lanes, first);
        fail("warp", first.waits_at.line,
             "call=%s" AND "arrived=%d" AND "threads=%d" AND "warp=%d" AND "block=%s" AND "%s", first.waits_at.function,
             arrived, named, start / warpSize, text_of(block.index), absence(*absent));
    }
}

// ---- the scheduler

inline void shuffle_order(int count) {
    for (int i = count - 1; i > 0; i--) {
        int j = random_number() % (i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

void settle();  // called whenever a thread has stopped; see cuda_on_cpu_races.h

inline bool has_sleepers(const Block& block) {
    for (int i = 0; i < threads_in_block(); i++)
        if (block.threads[i].state == ASLEEP) return true;
    return false;
}

inline void resume(Thread& thread) {
    current = &thread;
    threadIdx = thread.index;
    watching = true;
    change(scheduler, thread.fiber);
    watching = false;
    settle();
}

// Runs the lanes of a warp in lockstep until none can run. Each visit to a block of code runs the lanes that are there:
// first those in called functions, then those at the lowest address. g++ lays out unoptimised code in the order of the
// text, so lanes that diverge in a branch or a loop meet again after it. Lanes that are ahead may hold a lock for which
// the others spin: after many tries they come first.
inline void run_warp(Thread* warp, int lanes) {
    const uint64_t nowhere = ~uint64_t(0);
    uint64_t place = nowhere;
    do {
        uint64_t first = nowhere, last = 0;
        visit++;
        for (int lane = 0; lane < lanes; lane++) {
            Thread& thread = warp[lane];
            if (thread.state == READY && thread.place == place) resume(thread);
            if (thread.state != READY) continue;
            if (thread.place < first) first = thread.place;
            if (thread.place > last) last = thread.place;
        }
        const bool spins = first < last && tries > MOST_TRIES;
        place = spins ? last : first;
        if (spins || first == last) tries = 0;
    } while (place != nowhere);
}

// Called before each block of code: the running thread lets the other lanes of its warp catch up. Its place consists of
// the bytes left on its stack, fewer in a called function, and the address of the code.
void reach(const char* frame, uint64_t code) {
    if (!launch.most_records) return;
    const uint64_t room = frame - running->stacks - current->number * STACK_BYTES;
    current->place = room << 44 | code;
    change(current->fiber, scheduler);
}

// Runs the threads of a block until all have ended, or all wait for the other blocks, or none can run while some sleep.
// Returns which: ENDED, AT_GRID_BARRIER or ASLEEP.
inline State run_block(Block& block) {
    const int count = threads_in_block();
    blockIdx = block.index;
    running = &block;
    for (;;) {
        if (launch.order == SHUFFLED) shuffle_order(count);
        for (int i = 0; i < count; i++) {
            Thread& thread = block.threads[order[i]];
            if (thread.state != READY) continue;
            const int start = thread.number - thread.number % warpSize;
            if (launch.most_records) run_warp(block.threads + start, lanes_of_warp(start));
            else resume(thread);
        }
        if (release_warps(block)) continue;
        if (has_sleepers(block)) return ASLEEP;  // waiting threads may wait for these
        check_no_warp_waits(block);
        if (!release_block(block, AT_BLOCK_BARRIER)) break;
    }
    release_block(block, AT_GRID_BARRIER);
    return block.threads[0].state;
}

// If the compiler cannot set uninitialised variables to a pattern, stacks are filled with one, so that they are not 0.
#ifdef CUDA_ON_CPU_PAINTS_STACKS
const size_t PAINTED_BYTES = 2 << 10;
__attribute__((no_sanitize_address)) inline void paint(char* stack) {
    for (size_t i = 0; i < PAINTED_BYTES; i++) static_cast<volatile char*>(stack)[i] = '\xfe';
}
#else
const size_t PAINTED_BYTES = 0;
inline void paint(char*) {}
#endif

inline Block* new_block(uint64_t number) {
    Block* block = spare_blocks;
    if (block) {
        spare_blocks = block->next;
    } else {
        block = static_cast<Block*>(calloc(1, sizeof(Block)));
        block->threads = static_cast<Thread*>(calloc(MOST_THREADS, sizeof(Thread)));
        block->stacks = static_cast<char*>(mmap(nullptr, MOST_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (block->stacks == MAP_FAILED) fail("memory", 0, "of=stacks");
    }
    block->number = number;
    block->index = block_index(number);
    block->acquired_time = 0;  // the other times, left from the last use, are older than all accesses of this launch
    for (unsigned i = 0; i < unsigned(threads_in_block()); i++) {
        Thread& thread = block->threads[i];
        char* stack = block->stacks + i * STACK_BYTES;
        ASAN_POISON_MEMORY_REGION(stack, STACK_GUARD);
        paint(stack + STACK_BYTES - PAINTED_BYTES);
        thread.number = i;
        thread.index = thread_index(i);
        thread.state = READY;
        thread.place = 0;
        prepare(thread.fiber, stack, run_thread);
    }
    return block;
}

// Runs a block, then adds it to waiting_blocks, sleeping_blocks or spare_blocks.
inline void advance(Block* block) {
    const State state = run_block(*block);
    if (state != ENDED) keep_shared_memory(*block);
    if (state == AT_GRID_BARRIER) waiting_count++;
    Block*& list = state == AT_GRID_BARRIER ? waiting_blocks : state == ASLEEP ? sleeping_blocks : spare_blocks;
    block->next = list;
    list = block;
}

inline Block* reversed(Block* list) {
    Block* turned = nullptr;
    while (Block* block = list) {
        list = block->next;
        block->next = turned;
        turned = block;
    }
    return turned;
}

// Called when all blocks that have not ended wait or sleep: the sleepers continue, in the order in which they fell
// asleep. In shuffled order each may sleep longer, so that blocks overtake one another. Meanwhile clock64() advances.
inline void wake_sleepers() {
    Block* woken = reversed(sleeping_blocks);
    sleeping_blocks = nullptr;
    ticks += NAP_TICKS;
    while (Block* block = woken) {
        woken = block->next;
        if (launch.order == SHUFFLED && random_number() % 2) {
            block->next = sleeping_blocks;
            sleeping_blocks = block;
            continue;
        }
        for (int i = 0; i < threads_in_block(); i++)
            if (block->threads[i].state == ASLEEP) block->threads[i].state = READY;
        restore_shared_memory(*block);
        advance(block);
    }
}

// Called when no block can run and some wait for the grid: resumes them, if all blocks wait at the same line.
inline void release_grid(uint64_t count) {
    const Thread& first = waiting_blocks->threads[0];
    for (Block* block = waiting_blocks; block; block = block->next)
        if (waiting_count != count || block->threads[0].waits_at.site != first.waits_at.site)
            fail("barrier", first.waits_at.line, "call=%s" AND "blocks=%llu", first.waits_at.function,
                 (unsigned long long)count);
    Block* released = waiting_blocks;
    waiting_blocks = nullptr;
    waiting_count = 0;
    grid_time = ++now;
    while (Block* block = released) {
        released = block->next;
        for (int i = 0; i < threads_in_block(); i++) block->threads[i].state = READY;
        restore_shared_memory(*block);
        advance(block);
    }
}

inline uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}

// Runs the blocks one after the other: each until it has ended, waits for the whole grid, or sleeps.
inline void run_grid() {
    const uint64_t count = uint64_t(gridDim.x) * gridDim.y * gridDim.z;
    uint64_t number = 0, stride = 1;  // the first block, and the distance from one to the next
    if (launch.order == REVERSE) number = stride = count - 1;
    if (launch.order == SHUFFLED) {
        number = random_number() % count;
        stride = random_number() % count + 1;
        while (greatest_common_divisor(stride, count) != 1) stride++;  // so that every block runs once
    }
    grid_time = ++now;
    overtaken = 0;
    const int threads = threads_in_block();
    for (int i = 0; i < threads; i++) order[i] = launch.order == REVERSE ? threads - 1 - i : i;
    for (uint64_t i = 0; i < count; i++, number = (number + stride) % count) {
        Block* block = new_block(number);
        fresh_shared_memory();
        advance(block);
    }
    while (sleeping_blocks || waiting_blocks) {
        if (sleeping_blocks) wake_sleepers();
        else release_grid(count);
    }
}

// ---- helpers for CUDA's functions

int lane() { return current->number % warpSize; }

// The lanes of this warp that have not ended. A GPU returns the lanes active at the call, which may be any subset.
unsigned lanes_alive() {
    const int start = current->number - current->number % warpSize;
    unsigned alive = 0;
    const Thread* warp = current - current->number % warpSize;
    for (int i = 0; i < lanes_of_warp(start); i++) alive |= unsigned(warp[i].state != ENDED) << i;
    return alive;
}

unsigned long long exchanged(Call call, unsigned mask, unsigned long long value, int what) {
    return wait(AT_WARP_FUNCTION, call, value, mask, what);
}

int block_sum(Call call, int yes) { return wait(AT_BLOCK_BARRIER, call, yes != 0); }

// A barrier of all blocks. It replaces the barrier that a .cu text builds from atomics on a GPU.
void grid_barrier(int line) { wait(AT_GRID_BARRIER, {"grid_barrier", line, __builtin_return_address(0)}, 0); }

// A thread that sleeps lets all other threads run, including those of other blocks: so a thread that polls what another
// block writes must call __nanosleep() between two reads.
void nap(int line) { wait(ASLEEP, {"__nanosleep", line, __builtin_return_address(0)}, 0); }

// Called by atomicCAS before it compares. In shuffled order other threads may then change the element since this thread
// has read it, as on a GPU: a kernel that does not try again loses its change. Only so often in a launch, since all
// threads may want one element. Not where races are looked for: the access has a time already.
void let_others_first() {
#ifdef CUDA_ON_CPU_RACES
    return;
#endif
    if (launch.order != SHUFFLED || overtaken == MOST_OVERTAKEN || random_number() % 2) return;
    overtaken++;
    nap(0);
}

ON_ANY_STACK void trap(int line) { fail("trap", line, "thread=%s" AND "block=%s", text_of(current->index), text_of(blockIdx)); }

ON_ANY_STACK void failed_assertion(const char* condition, int line) {
    fail("assert", line, "condition=%s" AND "thread=%s" AND "block=%s", condition, text_of(current->index),
         text_of(blockIdx));
}

}  // namespace cuda_on_cpu
