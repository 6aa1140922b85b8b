"""What benchmarks/results call things, in the words in which notebooks show them.

Results are found by their names, which stay; a translation has other words for them.
"""

WORDS = {
    # benchmarks/all_reduce.py
    "flags, inside a kernel": "flags, inside a kernel",
    "words, inside a kernel": "words, inside a kernel",
    "pieces, inside a kernel": "pieces, inside a kernel",
    "peer memory, launched": "peer memory, launched",
    "peer memory, in a graph": "peer memory, in a graph",
    "NCCL, launched": "NCCL, launched",
    "NCCL, in a graph": "NCCL, in a graph",
    # benchmarks/gpu.py
    "digits CNN": "digits CNN",
    "forward": "forward",
    "input gradient": "input gradient",
    "weight gradient": "weight gradient",
    # benchmarks/resnet.py
    "PyTorch, cuDNN by rules": "PyTorch, cuDNN by rules",
    "rest": "rest",
    # benchmarks/attention.py
    "fused_attention, shared": "fused_attention, shared",
    "scores stored, cuBLAS": "scores stored, cuBLAS",
    "PyTorch SDPA": "PyTorch SDPA",
    # benchmarks/sums.py
    "transformer": "transformer",
    "without positions": "without positions",
    "dense": "dense",
    "dense, longer": "dense, longer",
    # benchmarks/devices_gpu.py and experiments
    "energy of the CPU: not measurable here (/sys/class/powercap has no RAPL counters)": (
        "energy of the CPU: not measurable here (/sys/class/powercap has no RAPL counters)"
    ),
}


def in_words(name: str) -> str:
    """The words for a name; the name itself where it has none."""
    return WORDS.get(name, name)
