// The protocol between emulate.py and this program: requests arrive on stdin, answers go to stdout; printed output of
// kernels and AddressSanitizer's reports go to stderr. After a failure the program exits, and emulate.py restarts it.
#pragma once

namespace cuda_on_cpu {

enum Outcome { DONE, FAILED, OUT_OF_TIME, RACE };

struct Argument {
    char name[48];
    int64_t bytes;          // size of the data, which follow in the request
    int32_t element_bytes;  // 0: a scalar
    int32_t written;        // the kernel may write to it: send it back
    int32_t same_as;        // number of the argument whose memory it shares; its own number if none
};

static Argument arguments[MOST_ARGUMENTS];
static char* buffers[MOST_ARGUMENTS];
static uint64_t checksums[MOST_ARGUMENTS];  // of the arrays as received

// ---- answers: one for each launch. After the answer to a failure the program exits.

inline void send(const void* data, size_t bytes) {
    if (fwrite(data, 1, bytes, stdout) != bytes) _exit(4);
}

inline void answer(int32_t outcome, int32_t line, const char* text, int32_t length) {
    const int32_t head[3] = {outcome, line, length};
    send(head, sizeof head);
    send(text, length);
}

[[noreturn]] inline void fail(int line, const char* format, ...) {
    char text[600];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    answer(FAILED, line, text, length);
    fflush(stdout);
    _exit(3);
}

// The kernels' printf: to stderr, as stdout carries the answers. Like CUDA's, it drops output beyond 1 MB per launch.
static int64_t printed;
int print(const char* format, ...) {
    if (printed > 1 << 20) return -1;
    va_list values;
    va_start(values, format);
    int length = vfprintf(stderr, format, values);
    va_end(values);
    printed += length;
    return length;
}

// ---- faults: AddressSanitizer calls __asan_on_error, then writes its report, which names the .cu line, and exits

inline int64_t gap(int64_t bytes) { return (65536 + bytes + 127) / 128 * 128; }  // poisoned zone around each array

inline int describe_fault(char* text, size_t size, char* address) {
    const char* verb = __asan_get_report_access_type() ? "writes" : "reads";
    const int bytes = __asan_get_report_access_size();
    const char* who = name_of("thread", current->index);
    const char* where = name_of("block", blockIdx);
    for (int i = 0; i < launch.arguments; i++) {
        const Argument& a = arguments[i];
        const int64_t around = gap(a.bytes);
        if (!a.element_bytes || address < buffers[i] - around || address >= buffers[i] + a.bytes + around) continue;
        const long long index = (address - buffers[i]) / a.element_bytes, elements = a.bytes / a.element_bytes;
        return snprintf(text, size, " %s %d bytes out of bounds: %s[%lld], but %s has %lld element%s; %s of %s", verb,
                        bytes, a.name, index, a.name, elements, elements == 1 ? "" : "s", who, where);
    }
    if (address >= dynamic_shared && address < dynamic_shared + sizeof dynamic_shared)
        return snprintf(text, size,
                        " %s %d bytes out of bounds: byte %lld of the dynamic shared memory, which has %lld; %s of %s",
                        verb, bytes, (long long)(address - dynamic_shared), (long long)launch.shared_bytes, who, where);
    return snprintf(text, size, " %s %d bytes out of bounds of an array; %s of %s", verb, bytes, who, where);
}

inline void out_of_time(int) {
    alarm(2);  // ends the program if the following hangs
    char text[200];
    int length = snprintf(text, sizeof text, "%s of %s", name_of("thread", current->index), name_of("block", blockIdx));
    answer(OUT_OF_TIME, 0, text, length);
    fflush(stdout);
    fputs("=================================================================\n", stderr);  // as a report begins
    __sanitizer_print_stack_trace();
    _exit(3);
}

// ---- requests: a Launch, then for each argument an Argument and its data

inline bool receive(void* data, size_t bytes) { return fread(data, 1, bytes, stdin) == bytes; }

inline uint64_t checksum(int i) {
    uint64_t sum = 0;
    for (int64_t byte = 0; byte < arguments[i].bytes; byte++) sum = sum * 31 + buffers[i][byte];
    return sum;
}

inline bool receive_argument(int i) {
    Argument& a = arguments[i];
    if (!receive(&a, sizeof a)) return false;
    if (!a.element_bytes) return receive(slots[i] = malloc(sizeof(uint64_t)), a.bytes);
    if (a.same_as == i) {
        const int64_t around = gap(a.bytes);
        char* whole = static_cast<char*>(aligned_alloc(128, 2 * around + (a.bytes + 127) / 128 * 128));
        buffers[i] = whole + around;
        if (launch.most_records) memset(whole, 0, 2 * around + a.bytes);  // for out-of-bounds reads
        ASAN_POISON_MEMORY_REGION(whole, around);
        ASAN_POISON_MEMORY_REGION(buffers[i] + a.bytes, around);
        if (!receive(buffers[i], a.bytes)) return false;
    } else {
        buffers[i] = buffers[a.same_as];
    }
    slots[i] = &buffers[i];
    checksums[i] = a.written ? 0 : checksum(i);
    return true;
}

inline void release_argument(int i) {
    if (!arguments[i].element_bytes) free(slots[i]);
    else if (arguments[i].same_as == i) free(buffers[i] - gap(arguments[i].bytes));
}

// Is this array also passed for a parameter that the kernel may write?
inline bool may_be_written(int i) {
    for (int j = 0; j < launch.arguments; j++)
        if (arguments[j].written && arguments[j].same_as == arguments[i].same_as) return true;
    return false;
}

inline void check_constants() {
    for (int i = 0; i < launch.arguments; i++)
        if (arguments[i].element_bytes && !may_be_written(i) && checksum(i) != checksums[i])
            fail(0, " writes to %s, which it declares const", arguments[i].name);
}

void watch_memory();  // see cuda_on_cpu_races.h
void forget_memory();
void send_records();

inline bool receive_launch() {
    if (!receive(&launch, sizeof launch)) return false;
    if (launch.arguments > MOST_ARGUMENTS) fail(0, " has more than the %d arguments that fit here", MOST_ARGUMENTS);
    for (int i = 0; i < launch.arguments; i++)
        if (!receive_argument(i)) return false;
    gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
    blockDim = dim3(launch.block[0], launch.block[1], launch.block[2]);
    random_state = launch.seed + 1;
    printed = 0;
    ASAN_UNPOISON_MEMORY_REGION(dynamic_shared, launch.shared_bytes);
    ASAN_POISON_MEMORY_REGION(dynamic_shared + launch.shared_bytes, sizeof dynamic_shared - launch.shared_bytes);
    return true;
}

inline void set_alarm(double seconds) {
    itimerval timer = {};
    timer.it_value.tv_sec = long(seconds);
    if (seconds > 0) timer.it_value.tv_usec = 1 + long((seconds - long(seconds)) * 999998);  // 0 would mean never
    setitimer(ITIMER_PROF, &timer, nullptr);  // CPU time, not wall time: on a busy machine a kernel may wait
}

inline int serve() {
    struct sigaction once = {};
    once.sa_handler = out_of_time;
    once.sa_flags = SA_RESETHAND | SA_NODEFER;  // a second signal ends the program
    sigaction(SIGPROF, &once, nullptr);
    while (receive_launch()) {
        set_alarm(launch.time_limit);
        watch_memory();
        run_grid();
        forget_memory();
        set_alarm(0);
        check_constants();
        answer(DONE, 0, "", 0);
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
    char text[600] = "";
    int length = 0;
    if (current && __asan_get_report_address())  // other crashes have no address
        length = describe_fault(text, sizeof text, static_cast<char*>(__asan_get_report_address()));
    answer(FAILED, 0, text, length);
    fflush(stdout);
}
}
