"""What the operating system refuses this process from a call of `confine` on, whatever code runs in it (Linux).

- Landlock: files may be read in some folders, and written in none but those named.
- seccomp, by libseccomp: no new processes or programs, no network, no signals to others, no look into their memory, no
  changes of a file's owner, mode or times.

Neither needs rights of its own, and neither can be undone. Threads, memory and what is open already stay as they are.
Sources: landlock(7), seccomp(2), seccomp_rule_add(3).
"""

import ctypes
import errno
import os
import sys
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls of Landlock, on all architectures
VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = (1 << bit for bit in (0, 1, 2, 3, 14))
RIGHTS = {1: 13, 2: 14}  # the number of rights to files that a version knows; later ones TRUNCATE too
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE  # what a rule for a file, not for a folder, may hold
PR_SET_NO_NEW_PRIVS = 38

ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
NOT_EQUAL, MASKED_EQUAL = 1, 7
CLONE_THREAD, AF_UNIX = 0x10000, 1

# System calls that are refused whatever their arguments; a kernel or an architecture may lack some.
PROCESSES = "fork vfork execve execveat ptrace process_vm_readv process_vm_writev kcmp pidfd_open pidfd_getfd"
SIGNALS = "kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal process_madvise migrate_pages move_pages"
SOCKETS = "socketpair connect accept accept4 sendmsg sendmmsg io_uring_setup io_uring_enter io_uring_register"
SHARED = "shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop mq_open mq_unlink memfd_secret"
FILES = "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat truncate"
FILES += " setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat file_setattr"
FILES += " open_by_handle_at name_to_handle_at quotactl quotactl_fd acct swapon swapoff mknod mknodat"
SYSTEM = "mount umount2 move_mount open_tree fsopen fsmount fspick mount_setattr pivot_root chroot unshare setns"
SYSTEM += " bpf perf_event_open userfaultfd keyctl add_key request_key reboot kexec_load kexec_file_load init_module"
SYSTEM += " finit_module delete_module settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname"
SYSTEM += " syslog vhangup iopl ioperm fanotify_init seccomp"
REFUSED = " ".join((PROCESSES, SIGNALS, SOCKETS, SHARED, FILES, SYSTEM)).split()
# System calls that act on a process, which must be this one, by the number 0; and the place of that argument.
ON_ITSELF = {"prlimit64": 0, "sched_setaffinity": 0, "sched_setscheduler": 0, "sched_setparam": 0, "sched_setattr": 0}
ON_ITSELF |= {"setpgid": 0, "setpriority": 1, "ioprio_set": 1}


class _Comparison(ctypes.Structure):
    """A condition on an argument of a system call: struct scmp_arg_cmp."""

    _fields_ = (("at", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    """What may be done with files in a folder: struct landlock_path_beneath_attr."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def why_not() -> str:
    """Why this system cannot confine a process; "" if it can."""
    if sys.platform != "linux":
        return "only Linux can"
    if _version() < 1:
        return "Linux has no Landlock here"
    try:
        _libseccomp()
    except OSError:
        return "libseccomp is not installed"
    return ""


def ruleset(readable: Iterable[str], writable: Iterable[str] = ()) -> int:
    """A descriptor of Landlock's rules: folders and files that may be read, and folders that may be written too.

    Paths that do not exist are left out. Raises OSError.
    """
    handled = (1 << RIGHTS.get(_version(), 15)) - 1
    attributes = ctypes.c_uint64(handled)
    rules = _called(CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    for paths, rights in ((readable, READ_FILE | READ_DIR), (writable, handled & ~EXECUTE)):
        for path in paths:
            _allow(rules, path, rights & handled)
    return rules


def confine(rules: int) -> None:
    """Confine this process, now and for ever, by rules that `ruleset` made. It may have one thread. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    _called(RESTRICT_SELF, rules, 0)
    _filter()


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= OF_FILES
        _called(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(_Beneath(rights, place)), 0)
    finally:
        os.close(place)


def _filter() -> None:
    """Refuse system calls."""
    seccomp, own = _libseccomp(), os.getpid()
    context = seccomp.seccomp_init(ALLOW)
    try:
        for name in REFUSED:
            _rule(seccomp, context, name, REFUSE)
        _rule(seccomp, context, "clone", REFUSE, _Comparison(0, MASKED_EQUAL, CLONE_THREAD, 0))
        _rule(seccomp, context, "socket", REFUSE, _Comparison(0, NOT_EQUAL, AF_UNIX, 0))  # CUDA makes and binds some
        _rule(seccomp, context, "sendto", REFUSE, _Comparison(4, NOT_EQUAL, 0, 0))  # to another address
        _rule(seccomp, context, "clone3", UNKNOWN)  # its flags lie in memory; the C library then uses clone
        _rule(seccomp, context, "tgkill", REFUSE, _Comparison(0, NOT_EQUAL, own, 0))  # abort() ends itself by it
        for name, at in ON_ITSELF.items():
            _rule(seccomp, context, name, REFUSE, _Comparison(at, NOT_EQUAL, 0, 0))
        if _version() < 3:  # then Landlock does not see it
            for name, at in (("open", 1), ("openat", 2)):
                _rule(seccomp, context, name, REFUSE, _Comparison(at, MASKED_EQUAL, os.O_TRUNC, os.O_TRUNC))
            _rule(seccomp, context, "openat2", UNKNOWN)
        if status := seccomp.seccomp_load(context):
            raise OSError(-status, "seccomp_load")
    finally:
        seccomp.seccomp_release(context)


def _rule(seccomp: ctypes.CDLL, context: int, name: str, action: int, *comparisons: _Comparison) -> None:
    """Add a rule that holds where all comparisons do."""
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number < 0:  # unknown to this libseccomp, or not on this architecture
        return
    listed = (_Comparison * len(comparisons))(*comparisons)
    if status := seccomp.seccomp_rule_add_array(context, action, number, len(comparisons), listed):
        raise OSError(-status, f"seccomp_rule_add: {name}")


def _libseccomp() -> ctypes.CDLL:
    """The library. Raises OSError if it is missing."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    seccomp.seccomp_init.argtypes = (ctypes.c_uint32,)
    seccomp.seccomp_load.argtypes = seccomp.seccomp_release.argtypes = (ctypes.c_void_p,)
    listed = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison))
    seccomp.seccomp_rule_add_array.argtypes = listed
    return seccomp


def _version() -> int:
    """The version of Landlock here; 0 if there is none."""
    try:
        return _called(CREATE_RULESET, None, 0, VERSION)
    except OSError:
        return 0


def _called(number: int, *arguments) -> int:
    """A system call's result. Raises OSError."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    result = call(
        ctypes.c_long(number), *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result
