"""What the operating system refuses this process from a call of `confine` on, whatever code runs in it (Linux).

- Landlock: files may be read in some folders, and written in none but those named.
- seccomp, by libseccomp: no new processes or programs, no network, no signals to others, no look into their memory, no
  changes of a file's owner, mode or times, no memory that no limit counts.
- Of root's capabilities that of reading is left, without which its own Python may lie where it cannot be read.

None of this needs rights of its own, or can be undone. Threads, memory and what is open already stay as they are.
Sources: landlock(7), seccomp(2), seccomp_rule_add(3), capabilities(7).
"""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Collection, Iterable
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls of Landlock, on all architectures
VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = (1 << bit for bit in (0, 1, 2, 3, 14))
RIGHTS = {1: 13, 2: 14}  # the number of rights to files that a version knows; later ones TRUNCATE too
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE  # what a rule for a file, not for a folder, may hold
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITIES_VERSION, CAP_DAC_READ_SEARCH = 0x20080522, 2

ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
NOT_EQUAL, MASKED_EQUAL, INT = 1, 7, 0xFFFFFFFF  # the kernel ignores what is above the 32 bits of an int
CLONE_THREAD, AF_UNIX, PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0x10000, 1, 0, 1
SHARED_BY_NAMELESS = 0x21  # MAP_SHARED | MAP_ANONYMOUS
ALL_THREADS = 4  # the filter's attribute TSYNC

# System calls that are refused whatever their arguments; an architecture may lack some. Those that want a capability,
# such as mount, are not among them: there is none.
PROCESSES = "fork vfork execve execveat unshare ptrace process_vm_readv process_vm_writev kcmp"
SIGNALS = "kill tkill rt_sigqueueinfo rt_tgsigqueueinfo migrate_pages move_pages"
SOCKETS = "socketpair connect accept accept4 sendmsg sendmmsg"
SHARED = "shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop mq_open mq_unlink"
FILES = "chmod fchmod fchmodat chown fchown lchown fchownat utime utimes utimensat futimesat truncate setxattr"
FILES += " lsetxattr fsetxattr removexattr lremovexattr fremovexattr open_by_handle_at name_to_handle_at"
FILES += " mknod mknodat inotify_init inotify_init1 inotify_add_watch fanotify_init"
SYSTEM = "bpf perf_event_open userfaultfd keyctl add_key request_key syslog seccomp"
REFUSED = " ".join((PROCESSES, SIGNALS, SOCKETS, SHARED, FILES, SYSTEM)).split()
# From 424 on, system calls have the same numbers on all architectures, and libseccomp may not know them. They do not
# exist here, but for those that the C library uses: close_range, openat2, faccessat2, epoll_pwait2.
NEWER, LEFT, OPENAT2 = 424, {436, 437, 439, 441}, 437
PR_SET_SECCOMP, BY_FILTER = 22, 2
LOAD_NUMBER, IF_EQUAL, IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # instructions of such a filter
# System calls that are refused with a certain value of an int among their arguments: its place, and the value. The
# first four name a process to which the system then sends signals; with the last this one could outlive the judge.
WITH = (("fcntl", 1, 8), ("fcntl", 1, 15), ("ioctl", 1, 0x8901), ("ioctl", 1, 0x8902), ("prctl", 0, PR_SET_PDEATHSIG))
# System calls that act on a process, which must be this one: the places of arguments, and the only value of each.
ON_ITSELF = {"prlimit64": {0: 0}, "sched_setaffinity": {0: 0}, "sched_setscheduler": {0: 0}, "sched_setparam": {0: 0}}
ON_ITSELF |= {"sched_setattr": {0: 0}, "setpgid": {0: 0}, "setpriority": {0: PRIO_PROCESS, 1: 0}}
ON_ITSELF |= {"ioprio_set": {0: IOPRIO_WHO_PROCESS, 1: 0}}


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


def confine(rules: int, for_cuda: bool = False) -> None:
    """Confine this process, now and for ever, by rules that `ruleset` made; they are closed. Raises OSError.

    It may have one thread: Landlock does not hold for others.

    for_cuda: leave what CUDA uses: shared memory, which RLIMIT_DATA does not count, and sockets, which reach nobody.
    """
    empties = _version() < 3  # a file that is opened with O_TRUNC, which Landlock then does not see
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    _called(RESTRICT_SELF, rules, 0)
    os.close(rules)
    _drop_capabilities()
    _refuse_newer(LEFT - {OPENAT2} if empties else LEFT)
    _filter(for_cuda, empties)


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


def _drop_capabilities() -> None:
    """Give up all but CAP_DAC_READ_SEARCH, which others than root do not have either."""
    library, header = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    if library.capget(header, sets) == 0:
        kept = sets[1] & 1 << CAP_DAC_READ_SEARCH
        sets[:] = [kept, kept, 0, 0, 0, 0]
        if library.capset(header, sets) == 0:
            return
    raise OSError(ctypes.get_errno(), "capset")


def _refuse_newer(left: Collection[int]) -> None:
    """Let the system calls from NEWER on be unknown but for some: the C library makes older ones in their place."""
    lines = [(LOAD_NUMBER, 0, 0, 0), (IF_AT_LEAST, 0, len(left) + 1, NEWER)]  # operation, lines to skip if so, if not
    lines += [(IF_EQUAL, len(left) - at, 0, number) for at, number in enumerate(left)]
    lines += [(RETURN, 0, 0, UNKNOWN), (RETURN, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    about = struct.pack("HP", len(lines), ctypes.addressof(program))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, BY_FILTER, about, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _filter(for_cuda: bool, empties: bool) -> None:
    """Refuse system calls."""
    seccomp, own = _libseccomp(), os.getpid()
    context = seccomp.seccomp_init(ALLOW)
    try:
        seccomp.seccomp_attr_set(context, ALL_THREADS, 1)
        for name in REFUSED:
            _rule(seccomp, context, name, REFUSE)
        for name, at, value in WITH:
            _rule(seccomp, context, name, REFUSE, _Comparison(at, MASKED_EQUAL, INT, value))
        for name, only in ON_ITSELF.items():
            for at, value in only.items():
                _rule(seccomp, context, name, REFUSE, _Comparison(at, NOT_EQUAL, value, 0))
        _rule(seccomp, context, "clone", REFUSE, _Comparison(0, MASKED_EQUAL, CLONE_THREAD, 0))
        _rule(seccomp, context, "socket", REFUSE, *([_Comparison(0, NOT_EQUAL, AF_UNIX, 0)] if for_cuda else []))
        _rule(seccomp, context, "sendto", REFUSE, _Comparison(4, NOT_EQUAL, 0, 0))  # to another address
        _rule(seccomp, context, "tgkill", REFUSE, _Comparison(0, NOT_EQUAL, own, 0))  # abort() ends itself by it
        if not for_cuda:
            _rule(seccomp, context, "memfd_create", REFUSE)
            nameless = _Comparison(3, MASKED_EQUAL, SHARED_BY_NAMELESS, SHARED_BY_NAMELESS)
            _rule(seccomp, context, "mmap", REFUSE, nameless)
        if empties:
            for name, at in (("open", 1), ("openat", 2)):
                _rule(seccomp, context, name, REFUSE, _Comparison(at, MASKED_EQUAL, os.O_TRUNC, os.O_TRUNC))
        if status := seccomp.seccomp_load(context):
            raise OSError(-status, "seccomp_load")
    finally:
        seccomp.seccomp_release(context)


def _rule(seccomp: ctypes.CDLL, context: int, name: str, action: int, *comparisons: _Comparison) -> None:
    """Add a rule that holds where all comparisons do, unless the architecture lacks this system call."""
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number < 0:
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
    seccomp.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    listed = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison))
    seccomp.seccomp_rule_add_array.argtypes = listed
    return seccomp


def _version() -> int:
    """The version of Landlock here; 0 if there is none."""
    try:
        return _called(CREATE_RULESET, None, 0, VERSION)
    except OSError:
        return 0


def _called(number: int, *arguments: Any) -> int:
    """A system call's result. Raises OSError."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    result: int = call(
        ctypes.c_long(number), *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    )
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result
