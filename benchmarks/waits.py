"""Measure what it costs to wait for memory, for notebook 03b: python -m benchmarks.waits writes results/waits.json.

Copies by more and more threads, each with one read under way; a dense layer with its weights stored in either order.
"""

from functools import partial

from benchmarks import overheads

main = partial(overheads.main, "waits", __doc__)

if __name__ == "__main__":
    main()
