"""Data-parallel training in PyTorch: `python pytorch/ddp.py`. Gloo between two CPU processes, NCCL between GPUs.

Each process has a copy of the network and its own rows; DDP averages the gradients during backward(). The result is
compared with one process on whole batches. In the second part the processes have unequal numbers of batches: without
join() the longer one would wait for ever; with it, a process that has ended answers in every exchange with zeros.
"""

import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

from nncourse import datasets

BATCH, RATE, EPOCHS, SIZE = 128, 0.1, 5, 2


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = datasets.load("digits")
    rows = len(data.X) // BATCH * BATCH
    return torch.tensor(data.X[:rows] / 16), torch.tensor(data.labels[:rows]).long()


def make_network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 10))


def step(network: nn.Module, optimizer: torch.optim.Optimizer, X: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(X), labels).backward()  # with DDP the all-reduce is in here
    optimizer.step()


def train(rank: int, size: int, meeting: str, answers: str) -> None:
    """One process of `size`; alone without a group."""
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if torch.cuda.device_count() >= SIZE else torch.device("cpu")
    network = make_network().to(device)
    if size > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=size)
        network = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    X, labels = (each.to(device) for each in digits())
    seconds = float("inf")  # the shortest epoch: the first one also prepares
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for first in range(0, len(X), BATCH):
            own = slice(first + rank * BATCH // size, first + (rank + 1) * BATCH // size)
            step(network, optimizer, X[own], labels[own])
        seconds = min(seconds, time.perf_counter() - start)
    weights = torch.cat([each.detach().cpu().ravel() for each in network.parameters()])
    steps = 0
    if isinstance(network, DistributedDataParallel):
        with network.join():
            for _ in range(3 + 2 * rank):  # rank 1 has two batches more
                step(network, optimizer, X[:BATCH], labels[:BATCH])
                steps += 1
        destroy_process_group()
    torch.save((seconds, weights, steps), f"{answers}{size}-{rank}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        meeting, answers = str(Path(folder) / "meeting"), str(Path(folder) / "answer")
        train(0, 1, meeting, answers)
        torch.multiprocessing.spawn(train, (SIZE, meeting, answers), nprocs=SIZE)
        alone, *together = (torch.load(f"{answers}{name}") for name in ("1-0", "2-0", "2-1"))
    apart = max(float((weights - alone[1]).abs().max()) for _, weights, _ in together)
    print(f"the shortest epoch: {1e3 * alone[0]:.1f} ms by one process, {1e3 * together[0][0]:.1f} ms by two")
    print(f"largest difference of a parameter from one process: {apart:.0e}")
    print(f"join: the processes made {' and '.join(str(steps) for *_, steps in together)} steps, and both have ended")


if __name__ == "__main__":
    main()
