"""Words for the states of exercises and the kinds of verdicts, as pages show them; marks.csv has the names."""

STATE_WORDS = {"right": "right", "wrong": "wrong", "open": "open", "missing": "missing", "not asked": "not asked"}
KIND_WORDS = {
    # of Python, CUDA C and networks: nnclassroom/judge/words.py
    "wrong value": "wrong value",
    "not in place": "not in place",
    "nothing": "nothing",
    "type": "type",
    "shape": "shape",
    "dtype": "dtype",
    "changes an argument": "changes an argument",
    "changes what was": "changes what was",
    "shares memory": "shares memory",
    "remembers": "remembers",
    "raised": "raised",
    "name": "name",
    "forbidden": "forbidden",
    "build": "build",
    "time limit": "time limit",
    "crash": "crash",
    "compile": "compile",
    "outside": "outside",
    "cannot be checked": "cannot be checked",
    "different bits": "different bits",
    "traffic": "traffic",
    "budget": "memory traffic",
    "not asked": "not asked",
    "unfinished": "unfinished",
    # of the emulator: cuda_on_cpu/faults.py
    "race": "race",
    "bounds": "bounds",
    "barrier": "barrier",
    "warp": "warp",
    "const": "const",
    "trap": "trap",
    "assert": "assert",
    "memory": "memory",
    "too many": "too many",
    "missing in the emulator": "missing in the emulator",
    "launch": "launch",
    # of exchanges: nncourse/parallel/simulation/faults.py
    "deadlock": "deadlock",
    "lost message": "lost message",
    "doubled message": "doubled message",
    "wrong chunk": "wrong chunk",
    "wrong rank": "wrong rank",
    "mismatch": "mismatch",
    "endless exchange": "endless exchange",
    # of submissions
    "unreadable": "unreadable",
    "missing": "missing",
    "open": "open",
    "right": "right",
}


def kind_in_words(kind: str) -> str:
    """The words for a kind; the kind itself if it is unknown, as in a record by another version."""
    return KIND_WORDS.get(kind, kind)
