// confined FOLDER… -- PROGRAM: run a program that can compute, and do little else.
//
// - seccomp: memory, its own clock and signals, what is open already, and files to read. No other files, processes,
//   signals or sockets. Another program that it might become has the same limits.
// - Landlock, where there is one: of files to read, those in the folders, and the program itself.
//
// A text is kept to what a GPU has by NVRTC and by rules for texts; this is for what they miss. It needs no rights of
// its own. Sources: seccomp(2), landlock(7).
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#if defined(__clang__)  // its programs start llvm-symbolizer, which finds the line of a fault
#elif defined(__x86_64__) && __has_include(<linux/seccomp.h>)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && __has_include(<linux/seccomp.h>)
#define MACHINE AUDIT_ARCH_AARCH64
#endif

#ifdef MACHINE
#include <asm/unistd.h>  // of the same version as landlock.h, which the C library's may not be
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static const int allowed[] = {
    // memory
    __NR_brk, __NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap, __NR_madvise, __NR_futex, __NR_getrandom,
    // files that it has opened, and what there is
    __NR_read, __NR_write, __NR_readv, __NR_writev, __NR_pread64, __NR_lseek, __NR_close, __NR_fstat, __NR_newfstatat,
    __NR_readlinkat, __NR_faccessat, __NR_getcwd,
    // clocks, and signals to itself
    __NR_clock_gettime, __NR_clock_getres, __NR_gettimeofday, __NR_setitimer, __NR_rt_sigaction, __NR_rt_sigprocmask,
    __NR_rt_sigreturn, __NR_sigaltstack, __NR_restart_syscall, __NR_sched_yield,
    // how it begins and ends, and what it is
    __NR_execve, __NR_exit, __NR_exit_group, __NR_set_tid_address, __NR_set_robust_list, __NR_getpid, __NR_getppid,
    __NR_gettid, __NR_getuid, __NR_geteuid, __NR_getgid, __NR_getegid, __NR_uname, __NR_getrusage, __NR_personality,
    __NR_sched_getaffinity,
#ifdef __NR_statx
    __NR_statx,
#endif
#ifdef __NR_rseq
    __NR_rseq,
#endif
#ifdef __x86_64__
    __NR_arch_prctl, __NR_stat, __NR_lstat, __NR_access, __NR_readlink, __NR_alarm, __NR_getrlimit,
#endif
};

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ADD(...) (filter[count++] = (struct sock_filter)__VA_ARGS__)
#define LOAD(member) ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member)))
#define UNLESS_EQUAL_SKIP(value, lines) ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, lines))
#define SKIP(lines) ADD(BPF_STMT(BPF_JMP | BPF_JA, lines))
#define RETURN(action) ADD(BPF_STMT(BPF_RET | BPF_K, action))

static void limit_calls(void) {
    // Allowed if these bits of an argument have this value.
    const struct { unsigned call, argument, bits, value; } allowed_if[] = {
        {__NR_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY},
#ifdef __NR_open
        {__NR_open, 1, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY},
#endif
        {__NR_prlimit64, 0, ~0u, 0},      // its own limits
        {__NR_tgkill, 0, ~0u, getpid()},  // abort()
    };
    static struct sock_filter filter[2 * COUNT(allowed) + 6 * COUNT(allowed_if) + 6];
    unsigned short count = 0;
    LOAD(arch);
    UNLESS_EQUAL_SKIP(MACHINE, 1);
    SKIP(1);
    RETURN(SECCOMP_RET_KILL);  // the same numbers mean other calls there
    LOAD(nr);
    for (size_t i = 0; i < COUNT(allowed); i++) {
        UNLESS_EQUAL_SKIP(allowed[i], 1);
        RETURN(SECCOMP_RET_ALLOW);
    }
    for (size_t i = 0; i < COUNT(allowed_if); i++) {
        UNLESS_EQUAL_SKIP(allowed_if[i].call, 5);
        LOAD(args[allowed_if[i].argument]);
        ADD(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, allowed_if[i].bits));
        UNLESS_EQUAL_SKIP(allowed_if[i].value, 1);
        RETURN(SECCOMP_RET_ALLOW);
        RETURN(SECCOMP_RET_ERRNO | EPERM);
    }
    RETURN(SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog program = {count, filter};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>

static void allow(int rules, const char* path) {
    struct landlock_path_beneath_attr beneath = {};
    struct stat about;
    beneath.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (beneath.parent_fd < 0 || fstat(beneath.parent_fd, &about)) return;
    beneath.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_EXECUTE;
    if (S_ISDIR(about.st_mode)) beneath.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
    syscall(__NR_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    close(beneath.parent_fd);
}

static void limit_files(char** folders, const char* program) {
    struct landlock_ruleset_attr handled = {};
    handled.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
    const int rules = syscall(__NR_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (rules < 0) return;
    for (; *folders; folders++) allow(rules, *folders);
    allow(rules, program);
    syscall(__NR_landlock_restrict_self, rules, 0);
    close(rules);
}
#else
static void limit_files(char** folders, const char* program) {}
#endif
#endif

int main(int count, char** words) {
    int end = 1;
    while (end < count && strcmp(words[end], "--")) end++;
    if (end + 2 != count) return 2;
    words[end] = NULL;
#ifdef MACHINE
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit_files(words + 1, words[end + 1]);
    limit_calls();
#endif
    execv(words[end + 1], words + end + 1);
    return 127;
}
