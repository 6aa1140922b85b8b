"""All-reduce in a ring: a member sends to the next one only, and all members carry the same load."""

import numpy as np

from nncourse.device import Array
from nncourse.group import Group


def in_a_ring(group: Group, vector: Array) -> None:
    size, rank = group.size, group.rank
    chunks = np.array_split(vector, size)  # views: changing a chunk changes the vector

    def pass_on(out: np.ndarray, into: np.ndarray) -> None:
        # to the right, from the left; if all sent first, all might wait for ever
        if rank % 2 == 0:
            group.send(out, (rank + 1) % size)
        group.receive(into, (rank - 1) % size)
        if rank % 2 == 1:
            group.send(out, (rank + 1) % size)

    for step in range(size - 1):  # reduce-scatter: a chunk goes round, and each rank adds its own
        chunk = chunks[(rank - step - 1) % size]
        part = np.empty_like(chunk)
        pass_on(chunks[(rank - step) % size], part)
        chunk += part
    for step in range(size - 1):  # all-gather: each finished chunk goes round
        pass_on(chunks[(rank + 1 - step) % size], chunks[(rank - step) % size])
