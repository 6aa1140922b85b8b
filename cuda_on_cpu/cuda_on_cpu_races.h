// Detection of data races. The compiler instruments a second program, made from the same .cu text, for ThreadSanitizer:
// it inserts a call before every memory access. This file defines the called functions, in place of that library. They
// keep the last accesses to each element of the arrays and of shared memory. Two accesses are a race if they are made by
// different threads, at least one writes, at least one is not atomic, and no synchronisation orders them.
//
// The same calls record every access of a launch for emulate.run(record=…); races are then not reported, and the threads
// of a warp run in lockstep: the compiler also inserts a call before each block of code, that is, where code branches.
//
// A plain read that conflicts with another thread's atomic access is no race if the reading thread then calls atomicCAS
// on the same element: the loop of CUDA's programming guide starts with such a read.
//
// Not detected: races on a struct stored as a function's return value. Synchronising with some lanes of a warp counts as
// synchronising with all.
#pragma once

#ifndef CUDA_ON_CPU_RACES

namespace cuda_on_cpu {
inline void watch_memory() {}
inline void forget_memory() {}
inline int64_t bytes_of_records() { return 0; }
inline void send_records() {}
inline int64_t bytes_of_cells() { return 0; }
void settle() {}
}  // namespace cuda_on_cpu

#else

namespace cuda_on_cpu {

enum Kind : uint8_t { READ, WRITE, ATOMIC, KINDS };
enum Number { DEVICE = -3, DYNAMIC_SHARED, STATIC_SHARED };  // of a memory; an array has its argument's number

struct Access {
    uint64_t thread;   // number in the grid
    uint64_t time;     // 0: no access yet
    const void* code;  // address in the program, for addr2line
    int bytes;
};
struct Cell {
    Access last[KINDS][2];  // the last, and the last by another thread: at least one is not by the thread being checked
};
struct Memory {
    char* start;
    int64_t bytes, cell_bytes;
    Cell* cells;
    const char* name;
    int number;
};

static Memory watched[MOST_ARGUMENTS + 3];
static int watched_count;
static int64_t cell_count;  // of the arrays of a launch

inline void watch(const char* name, char* start, int64_t bytes, int64_t cell_bytes, Cell* cells, int number) {
    if (bytes > 0 || launch.most_records) watched[watched_count++] = {start, bytes, cell_bytes, cells, name, number};
}

inline Cell* new_cells(int64_t count) {
    cell_count += count;
    return static_cast<Cell*>(calloc(count, sizeof(Cell)));
}
// Many cells, few of which are used: they take memory when they are first written to.
inline Cell* sparse_cells(int64_t count) {
    void* cells = mmap(nullptr, count * sizeof(Cell) + 1, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) fail("memory", 0, "of=cells");
    return static_cast<Cell*>(cells);
}
inline int64_t bytes_of_cells() { return cell_count * sizeof(Cell); }

// Shared memory and __device__ variables have one Cell per byte, because their types are not known here; an access of a
// multiple of 4 bytes uses only every fourth. These Cells need no clearing: the accesses in them precede the launch.
inline void watch_memory() {
    const int64_t device_bytes = __stop_cuda_device - __start_cuda_device;
    static Cell* const in_static = sparse_cells(static_shared_bytes());
    static Cell* const in_dynamic = sparse_cells(MOST_SHARED);
    static Cell* const in_device = sparse_cells(device_bytes);
    watched_count = 0;
    cell_count = 0;
    watch("", __start_cuda_shared, static_shared_bytes(), 1, in_static, STATIC_SHARED);
    watch("", dynamic_shared, launch.shared_bytes, 1, in_dynamic, DYNAMIC_SHARED);
    watch("", __start_cuda_device, device_bytes, 1, in_device, DEVICE);
    for (int i = 0; i < launch.arguments; i++) {
        const Argument& a = arguments[i];
        if (!a.element_bytes || a.same_as != i) continue;
        if (launch.most_records) watch(a.name, buffers[i], a.bytes, a.element_bytes, nullptr, i);
        else if (may_be_written(i))  // read-only arrays cannot race
            watch(a.name, buffers[i], a.bytes, a.element_bytes, new_cells(a.bytes / a.element_bytes), i);
    }
}

inline bool is_shared(const Memory& memory) {
    return memory.number == STATIC_SHARED || memory.number == DYNAMIC_SHARED;
}

inline void forget_memory() {
    for (int m = 0; m < watched_count; m++)
        if (watched[m].number >= 0) free(watched[m].cells);
}

[[noreturn]] inline void report_race(const Memory& memory, int64_t cell, const Access& before, const Access& after) {
    watching = false;
    static const char* const memories[] = {"device", "dynamic shared", "static shared"};
    fail("race", 0,
         "code=%p" AND "other_code=%p" AND "memory=%s" AND "bytes=%d" AND "array=%s" AND "index=%lld" AND "shared=%s" AND
         "between_blocks=%s" AND "thread=%s" AND "block=%s" AND "other_thread=%s" AND "other_block=%s",
         after.code, before.code, memory.number < 0 ? memories[memory.number + 3] : "argument", after.bytes, memory.name,
         (long long)cell, is_shared(memory) ? "true" : "false",
         after.thread / MOST_THREADS == before.thread / MOST_THREADS ? "false" : "true",
         text_of(thread_index(after.thread % MOST_THREADS)), text_of(block_index(after.thread / MOST_THREADS)),
         text_of(thread_index(before.thread % MOST_THREADS)), text_of(block_index(before.thread / MOST_THREADS)));
}

// Reads that race with an atomic access, unless the same thread goes on to atomicCAS the element before it stops.
struct Doubt {
    const Memory* memory;
    int64_t cell;
    Access before, after;
};
static Doubt doubts[16];
static int doubt_count;

void settle() {
    if (doubt_count) report_race(*doubts[0].memory, doubts[0].cell, doubts[0].before, doubts[0].after);
}

inline void doubt(const Memory& memory, int64_t cell, const Access& before, const Access& after) {
    if (doubt_count == sizeof doubts / sizeof *doubts) settle();
    doubts[doubt_count++] = {&memory, cell, before, after};
}

// The running thread calls atomicCAS on this cell, which compares it with what the thread read before: that was no
// race.
inline void trust(const Memory& memory, int64_t index, uint64_t thread) {
    int kept = 0;
    for (int i = 0; i < doubt_count; i++)
        if (doubts[i].memory != &memory || doubts[i].cell != index) doubts[kept++] = doubts[i];
    doubt_count = kept;
    for (Access& read : memory.cells[index].last[READ])
        if (read.thread == thread) read = {};
}

// ---- recording

struct Record {  // as RECORD in trace.py
    int64_t offset;  // from the memory's first byte, in bytes
    const void* code;
    uint32_t block, bytes;
    uint16_t thread;
    int8_t memory;
    Kind kind;
    uint32_t visit;
};

static Record* records;
static int64_t record_count, record_space;

inline int64_t bytes_of_records() { return launch.most_records ? record_count * sizeof *records : 0; }

inline void send_records() {
    if (!launch.most_records) return;
    send(records, record_count * sizeof *records);
    record_count = 0;
}

inline void more_space() {
    watching = false;
    if (record_count == launch.most_records)
        fail("too many", 0, "accesses=%lld", (long long)record_count);
    record_space = record_space ? 2 * record_space : 1 << 12;
    if (record_space > launch.most_records) record_space = launch.most_records;
    records = static_cast<Record*>(realloc(records, record_space * sizeof *records));
    watching = true;
}

// Is the access `before` ordered before the running thread's next access, by program order or by synchronisation?
inline bool waited_for(const Access& before, uint64_t self, bool shared) {
    if (before.thread == self || before.time < grid_time || before.time < running->acquired_time) return true;
    if (before.thread / MOST_THREADS != self / MOST_THREADS) return shared;  // each block has its own shared memory
    if (before.time < running->barrier_time) return true;
    const uint64_t warp = self / warpSize;
    return before.thread / warpSize == warp && before.time < running->warp_times[warp % (MOST_THREADS / warpSize)];
}

inline void touch_cell(const Memory& memory, int64_t index, Kind kind, const Access& access) {
    Cell& cell = memory.cells[index];
    Access* last = cell.last[kind];
    if (last->thread == access.thread && last->time == access.time) return;  // no other thread ran since: same result
    for (int other = READ; other < KINDS; other++) {
        if (other == kind && kind != WRITE) continue;
        for (const Access& before : cell.last[other])
            if (!waited_for(before, access.thread, is_shared(memory))) {
                if (kind != READ || other != ATOMIC) report_race(memory, index, before, access);
                doubt(memory, index, before, access);
            }
    }
    if (last->thread != access.thread) last[1] = last[0];
    last[0] = access;
}

inline void record(const char* address, size_t bytes, Kind kind, const void* code) {
    for (int m = 0; m < watched_count; m++) {
        // An out-of-bounds access is attributed to the array in whose surrounding gap it lies.
        const int64_t offset = address - watched[m].start, number = watched[m].number;
        const int64_t before = number < 0 ? 0 : gap(watched[m].bytes);
        const int64_t end = number == DYNAMIC_SHARED ? sizeof dynamic_shared : watched[m].bytes + before;
        if (offset < -before || offset >= end) continue;
        if (number == DEVICE && kind == READ) return;  // __constant__ arrays are among these variables
        tries += kind == ATOMIC;
        if (record_count == record_space || record_count == launch.most_records) more_space();
        records[record_count++] = {offset, code, uint32_t(running->number), uint32_t(bytes),
                                   uint16_t(current->number), int8_t(number), kind, visit};
        return;
    }
}

inline void touch(void* address, size_t bytes, Kind kind, void* code, bool exchanges = false) {
    if (!watching) return;
    if (launch.most_records) return record(static_cast<char*>(address), bytes, kind, code);
    for (int m = 0; m < watched_count; m++) {
        const Memory& memory = watched[m];
        const int64_t first = static_cast<char*>(address) - memory.start, end = first + bytes;
        if (first < 0 || end > memory.bytes) continue;
        const Access access = {running->number * MOST_THREADS + current->number, now, code, int(bytes)};
        const int64_t step = bytes % 4 == 0 && memory.cell_bytes == 1 ? 4 : memory.cell_bytes;
        for (int64_t i = first; i < end; i += step) {
            if (exchanges) trust(memory, i / memory.cell_bytes, access.thread);
            touch_cell(memory, i / memory.cell_bytes, kind, access);
        }
        return;
    }
}

// An atomic access after any thread's __threadfence() may be a flag that signals completion, so it counts as
// synchronisation with all that precedes the fence.
void touch_atomically(void* address, size_t bytes, void* code, bool exchanges) {
    touch(address, bytes, ATOMIC, code, exchanges);
    running->acquired_time = fence_time;
}

void touch_to_read(const void* address, size_t bytes, void* code) {
    touch(const_cast<void*>(address), bytes, READ, code);
}

void touch_to_write(void* address, size_t bytes, void* code) { touch(address, bytes, WRITE, code); }

}  // namespace cuda_on_cpu

// ---- the functions that instrumented code calls

extern "C" {
#define TOUCH(p, bytes, kind) cuda_on_cpu::touch(p, bytes, cuda_on_cpu::kind, __builtin_return_address(0))
#define HOOKS(bytes)                                                               \
    void __tsan_read##bytes(void* p) { TOUCH(p, bytes, READ); }                    \
    void __tsan_write##bytes(void* p) { TOUCH(p, bytes, WRITE); }                  \
    void __tsan_unaligned_read##bytes(void* p) { TOUCH(p, bytes, READ); }          \
    void __tsan_unaligned_write##bytes(void* p) { TOUCH(p, bytes, WRITE); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
#undef HOOKS
void __tsan_read_range(void* p, size_t bytes) { TOUCH(p, bytes, READ); }
void __tsan_write_range(void* p, size_t bytes) { TOUCH(p, bytes, WRITE); }
#undef TOUCH
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

void __sanitizer_cov_trace_pc() {
    cuda_on_cpu::reach(static_cast<char*>(__builtin_frame_address(0)), uint64_t(__builtin_return_address(0)));
}

// AddressSanitizer is not in this program: dummies for the functions that cuda_on_cpu_serve.h calls.
int __asan_get_report_access_type() { return 0; }
size_t __asan_get_report_access_size() { return 0; }
void* __asan_get_report_address() { return nullptr; }
void __sanitizer_print_stack_trace() {}
}

#endif
