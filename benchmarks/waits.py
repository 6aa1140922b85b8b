"""Measure what waits for memory cost, for notebook 03b: python -m benchmarks.waits writes results/waits.json.

Copies by more and more threads, each with one read under way; and a dense layer with its weights stored either way.
"""

from functools import partial

from benchmarks import overheads

main = partial(overheads.main, "waits", __doc__)

if __name__ == "__main__":
    main()
