"""All-reduce in a ring: each member sends only to the next one, and all members carry the same load.

It has two halves. ZeRO-1 updates a chunk of the parameters between them.

reduce_scatter  chunk (rank + 1) % size of each member becomes the sum over all; its other chunks hold partial sums
all_gather      chunk (rank + 1) % size of each member is sent round and replaces the same chunk of all others
"""

import numpy as np

from nncourse.device import Array
from nncourse.group import Group


def in_a_ring(group: Group, vector: Array) -> None:
    reduce_scatter(group, vector)
    all_gather(group, vector)


def reduce_scatter(group: Group, vector: Array) -> None:
    size, rank = group.size, group.rank
    chunks = np.array_split(vector, size)  # views: changing a chunk changes the vector
    for step in range(size - 1):  # a chunk goes round, and each rank adds its own
        chunk = chunks[(rank - step - 1) % size]
        part = np.empty_like(chunk)
        pass_on(group, chunks[(rank - step) % size], part)
        chunk += part


def all_gather(group: Group, vector: Array) -> None:
    size, rank = group.size, group.rank
    chunks = np.array_split(vector, size)
    for step in range(size - 1):  # each finished chunk goes round
        pass_on(group, chunks[(rank + 1 - step) % size], chunks[(rank - step) % size])


def pass_on(group: Group, out: Array, into: Array) -> None:
    if group.rank % 2 == 0:  # if all sent first, all might wait for ever
        group.send(out, (group.rank + 1) % group.size)
    group.receive(into, (group.rank - 1) % group.size)
    if group.rank % 2 == 1:
        group.send(out, (group.rank + 1) % group.size)
