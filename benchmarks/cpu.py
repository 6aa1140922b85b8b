"""Training steps on the CPU beside PyTorch and scikit-learn: python -m benchmarks.cpu [--rounds N] [--out FILE].

One thread each, every measurement in a process of its own, interleaved; who is timed stands in contenders.py. All raw
seconds go to results/cpu.json, with the machine, the versions and the date.
"""

from benchmarks.compare import main

if __name__ == "__main__":
    main("cpu")
