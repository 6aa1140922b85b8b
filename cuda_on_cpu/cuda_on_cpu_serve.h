// The protocol between emulate.py and this program, a child as processes.py describes it: requests arrive on stdin,
// answers go to stdout; printed output of kernels and AddressSanitizer's reports go to stderr. After a failure the
// program exits, and emulate.py restarts it.
#pragma once

namespace cuda_on_cpu {

enum Outcome { DONE, FAILED };

inline int64_t bytes_of_cells();  // see cuda_on_cpu_races.h
inline void set_alarm(double seconds);

struct Argument {
    char name[48];
    int64_t bytes;          // size of the data, which follow in the request
    int32_t element_bytes;  // 0: a scalar
    int32_t written;        // the kernel may write to it: send it back
    int32_t same_as;        // number of the argument whose memory it shares; its own number if none
    int32_t offset;         // bytes from a multiple of 16 to its first one: 0 or 8
};

static Argument arguments[MOST_ARGUMENTS];
static char* buffers[MOST_ARGUMENTS];
static char* originals[MOST_ARGUMENTS];  // copies of the arrays that the kernel may not write to

// ---- answers: one for each launch

inline void send(const void* data, size_t bytes) {
    if (fwrite(data, 1, bytes, stdout) != bytes) _exit(4);
}

// A message of Python's multiprocessing.connection begins with its length: 4 bytes, the highest first; above 2 GiB
// they are -1, and 8 more follow.
inline void send_length(uint64_t length) {
    unsigned char head[12] = {0xff, 0xff, 0xff, 0xff};
    for (int i = 0; i < 8; i++) head[4 + i] = length >> (56 - 8 * i);
    if (length < 0x80000000u) send(head + 8, 4);
    else send(head, 12);
}

// An answer: its outcome, a line of the .cu text, and the bytes of `text`, to which the caller adds `more` bytes.
inline void answer(int32_t outcome, int32_t line, const char* text, int32_t length, int64_t more = 0) {
    const int32_t head[2] = {outcome, line};
    send_length(sizeof head + length + more);
    send(head, sizeof head);
    send(text, length);
}

// The answer to a launch that failed: the kind of fault, then its facts. Returns the length of the text.
inline int fault(char* text, size_t size, const char* kind, const char* facts, va_list values) {
    int length = snprintf(text, size, "%s" AND, kind);
    length += vsnprintf(text + length, size - length, facts, values);
    return length < int(size) ? length : int(size) - 1;
}

inline int fault(char* text, size_t size, const char* kind, const char* facts, ...) {
    va_list values;
    va_start(values, facts);
    const int length = fault(text, size, kind, facts, values);
    va_end(values);
    return length;
}

[[noreturn]] ON_ANY_STACK void fail(const char* kind, int line, const char* facts, ...) {
    watching = false;
    char text[2000];
    va_list values;
    va_start(values, facts);
    const int length = fault(text, sizeof text, kind, facts, values);
    va_end(values);
    answer(FAILED, line, text, length);
    fflush(stdout);
    _exit(3);
}

// The kernels' printf: to stderr, as stdout carries the answers. Like CUDA's, it drops output beyond 1 MB per launch.
const int MOST_PRINTED = 1 << 20;
static int64_t printed;
int print(const char* format, ...) {
    static char text[MOST_PRINTED];
    if (printed >= MOST_PRINTED) return -1;
    va_list values;
    va_start(values, format);
    const int wanted = vsnprintf(text, MOST_PRINTED - printed, format, values);
    va_end(values);
    if (wanted < 0) return -1;
    const int length = wanted < MOST_PRINTED - printed ? wanted : MOST_PRINTED - printed;
    fwrite(text, 1, length, stderr);
    printed += length;
    return length;
}

// The kernels' malloc and free: like CUDA's, from a heap of 8 MB, and a null pointer when it is used up.
const size_t HEAP_BYTES = 8 << 20, HEAP_HEAD = 16;
static size_t allocated;
void* allocate(size_t bytes) {
    if (bytes > HEAP_BYTES || allocated + bytes + HEAP_HEAD > HEAP_BYTES) return nullptr;
    allocated += bytes + HEAP_HEAD;
    size_t* head = static_cast<size_t*>(malloc(HEAP_HEAD + bytes));
    *head = bytes;
    memset(head + HEAP_HEAD / sizeof(size_t), 0xff, bytes);
    return head + HEAP_HEAD / sizeof(size_t);
}

void release(void* memory) {
    if (!memory) return;
    size_t* head = static_cast<size_t*>(memory) - HEAP_HEAD / sizeof(size_t);
    allocated -= *head + HEAP_HEAD;
    free(head);
}

// ---- faults: AddressSanitizer calls __asan_on_error, then writes its report, which names the .cu line, and exits

inline int64_t gap(int64_t bytes) { return (65536 + bytes + 127) / 128 * 128; }  // poisoned zone around each array

inline int describe_fault(char* text, size_t size, char* address) {
    char common[200];
    snprintf(common, sizeof common, "write=%s" AND "bytes=%d" AND "thread=%s" AND "block=%s",
             __asan_get_report_access_type() ? "true" : "false", int(__asan_get_report_access_size()),
             text_of(current->index), text_of(blockIdx));
    for (int i = 0; i < launch.arguments; i++) {
        const Argument& a = arguments[i];
        const int64_t around = gap(a.bytes);
        if (!a.element_bytes || address < buffers[i] - around || address >= buffers[i] + a.bytes + around) continue;
        const long long index = (address - buffers[i]) / a.element_bytes, elements = a.bytes / a.element_bytes;
        return fault(text, size, "bounds", "memory=argument" AND "%s" AND "array=%s" AND "index=%lld" AND "elements=%lld",
                     common, a.name, index, elements);
    }
    if (address >= dynamic_shared && address < dynamic_shared + sizeof dynamic_shared)
        return fault(text, size, "bounds", "memory=dynamic shared" AND "%s" AND "index=%lld" AND "elements=%lld", common,
                     (long long)(address - dynamic_shared), (long long)launch.shared_bytes);
    return fault(text, size, "bounds", "memory=other" AND "%s", common);
}

inline double cpu_seconds() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// The memory that this process takes, in KB. Not rusage's ru_maxrss: that begins with what the starting process had.
inline long resident_memory() {
    char text[64] = "";
    const int file = open("/proc/self/statm", O_RDONLY);
    if (file < 0) return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    long all = 0, resident = 0;
    if (length > 0) sscanf(text, "%ld %ld", &all, &resident);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static double started_at;      // in CPU seconds
static long memory_at_start;   // in KB
static pid_t parent;
const long MOST_MEMORY = 1 << 20;  // in KB, that a launch may take in addition

// Called every 50 ms of CPU time while a kernel runs.
ON_ANY_STACK inline void look_at_limits(int) {
    if (getppid() != parent) _exit(3);  // Python was killed: nobody waits for the answer
    const char *thread = text_of(current->index), *block = text_of(blockIdx);
    if (resident_memory() - memory_at_start > MOST_MEMORY + bytes_of_cells() / 1024)
        fail("memory", 0, "of=kernel" AND "megabytes=%ld" AND "thread=%s" AND "block=%s", MOST_MEMORY >> 10, thread, block);
    if (cpu_seconds() - started_at < launch.time_limit) return;
    set_alarm(0);
    alarm(2);  // ends the program if the following hangs
    char text[300];
    const int length = fault(text, sizeof text, "time limit", "seconds=%g" AND "thread=%s" AND "block=%s",
                             launch.time_limit, thread, block);
    answer(FAILED, 0, text, length);
    fflush(stdout);
    fputs("=================================================================\n", stderr);  // as a report begins
    __sanitizer_print_stack_trace();
    _exit(3);
}

// ---- requests: a Launch, then for each argument an Argument and its data, and for each constant a Constant and its data

inline bool receive(void* data, size_t bytes) { return fread(data, 1, bytes, stdin) == bytes; }

inline bool receive_argument(int i) {
    Argument& a = arguments[i];
    if (!receive(&a, sizeof a)) return false;
    if (!a.element_bytes) return receive(slots[i] = malloc(sizeof(uint64_t)), a.bytes);
    if (a.same_as == i) {
        const int64_t around = gap(a.bytes);
        char* whole = static_cast<char*>(aligned_alloc(128, 2 * around + (a.offset + a.bytes + 127) / 128 * 128));
        buffers[i] = whole + around + a.offset;
        if (launch.most_records) memset(whole, 0, 2 * around + a.offset + a.bytes);  // for out-of-bounds reads
        ASAN_POISON_MEMORY_REGION(whole, around + a.offset);
        ASAN_POISON_MEMORY_REGION(buffers[i] + a.bytes, around);
        if (!receive(buffers[i], a.bytes)) return false;
    } else {
        buffers[i] = buffers[a.same_as];
    }
    slots[i] = &buffers[i];
    if (!a.written) {
        originals[i] = static_cast<char*>(malloc(a.bytes + 1));
        memcpy(originals[i], buffers[i], a.bytes);
    }
    return true;
}

inline void release_argument(int i) {
    free(originals[i]);
    originals[i] = nullptr;
    if (!arguments[i].element_bytes) free(slots[i]);
    else if (arguments[i].same_as == i) free(buffers[i] - gap(arguments[i].bytes) - arguments[i].offset);
}

// Is this array also passed for a parameter that the kernel may write?
inline bool may_be_written(int i) {
    for (int j = 0; j < launch.arguments; j++)
        if (arguments[j].written && arguments[j].same_as == arguments[i].same_as) return true;
    return false;
}

inline void check_constants() {
    for (int i = 0; i < launch.arguments; i++)
        if (arguments[i].element_bytes && !may_be_written(i) && memcmp(originals[i], buffers[i], arguments[i].bytes))
            fail("const", 0, "array=%s", arguments[i].name);
}

struct Constant {
    int64_t place, bytes;  // place: in bytes from the first variable of the .cu text, as cuda_on_cpu.ld sorts them
};

inline bool receive_constant() {
    Constant constant;
    return receive(&constant, sizeof constant) && receive(__start_cuda_device + constant.place, constant.bytes);
}

void watch_memory();  // see cuda_on_cpu_races.h
void forget_memory();
int64_t bytes_of_records();
void send_records();

inline bool receive_launch() {
    unsigned char length[12];  // which the request tells too
    if (!receive(length, 4) || (length[0] == 0xff && !receive(length + 4, 8))) return false;
    if (!receive(&launch, sizeof launch)) return false;
    if (launch.arguments > MOST_ARGUMENTS) fail("too many", 0, "arguments=%d", MOST_ARGUMENTS);
    for (int i = 0; i < launch.arguments; i++)
        if (!receive_argument(i)) return false;
    for (int i = 0; i < launch.constants; i++)
        if (!receive_constant()) return false;
    gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
    blockDim = dim3(launch.block[0], launch.block[1], launch.block[2]);
    random_state = launch.seed + 1;
    printed = 0;
    ASAN_UNPOISON_MEMORY_REGION(dynamic_shared, launch.shared_bytes);
    ASAN_POISON_MEMORY_REGION(dynamic_shared + launch.shared_bytes, sizeof dynamic_shared - launch.shared_bytes);
    return true;
}

// A signal every 50 ms, or after `seconds` if that is less; none with 0.
inline void set_alarm(double seconds) {
    itimerval timer = {};
    const double first = seconds < 0.05 ? seconds : 0.05;
    timer.it_interval.tv_usec = seconds > 0 ? 50000 : 0;
    timer.it_value.tv_usec = seconds > 0 ? 1 + long(first * 999998) : 0;  // 0 would mean never
    setitimer(ITIMER_PROF, &timer, nullptr);  // CPU time, not wall time: on a busy machine a kernel may wait
}

inline void start_limits() {
    memory_at_start = resident_memory();
    started_at = cpu_seconds();
    set_alarm(launch.time_limit);
}

inline int serve() {
    parent = getppid();
    struct sigaction repeated = {};
    repeated.sa_handler = look_at_limits;
    repeated.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &repeated, nullptr);
    while (receive_launch()) {
        watch_memory();
        start_limits();
        run_grid();
        set_alarm(0);
        look_at_limits(0);  // a fast kernel may have ended between two looks
        forget_memory();
        check_constants();
        int64_t bytes = bytes_of_records();
        for (int i = 0; i < launch.arguments; i++)
            if (arguments[i].written) bytes += arguments[i].bytes;
        answer(DONE, 0, "", 0, bytes);
        for (int i = 0; i < launch.arguments; i++)
            if (arguments[i].written) send(buffers[i], arguments[i].bytes);
        send_records();
        for (int i = 0; i < launch.arguments; i++) release_argument(i);
        fflush(stdout);
    }
    return 0;
}

}  // namespace cuda_on_cpu

extern "C" {
__attribute__((used)) const char* __asan_default_options() {
    return "detect_leaks=0:quarantine_size_mb=4:print_legend=0:handle_sigill=1:handle_sigtrap=1";
}

__attribute__((used)) void __asan_on_error() {
    using namespace cuda_on_cpu;
    set_alarm(0);
    char text[1000] = "";
    int length = 0;
    if (current && __asan_get_report_address())  // other crashes have no address
        length = describe_fault(text, sizeof text, static_cast<char*>(__asan_get_report_address()));
    answer(FAILED, 0, text, length);
    fflush(stdout);
}
}
