"""The network and the training of an experiment's runs in PyTorch, with DistributedDataParallel over the processes.

Initial weights, data, order, clock and counters are those of the course's own runs, so that times and accuracies can
be compared. float32 without TF32; cuDNN's kernels are chosen by timing, before the clock starts.
"""

import socket
from types import SimpleNamespace
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.group import Group, total
from nncourse.model.data_parallel import Together, parts_of_epoch
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples, in_turn
from nncourse.model.network import Network
from nncourse.model.residual import Residual
from nnexperiment.trainers.pytorch_training import flat, load, module, resnet_module
from nnexperiment.training import Training


class PyTorchNetwork:
    """A network as a PyTorch model, with the same initial weights, and the methods that a run needs.

    Raises CourseError without PyTorch or torchvision.
    """

    def __init__(self, network: Network, backend: Calls, group: Group):
        torch = pytorch()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self.network, self.group = network, group
        self.model = model_of(torch, network).to(current_device(torch, backend))
        self.trained = distributed(torch, self.model, group)

    def on(self, backend: Calls) -> "PyTorchNetwork":
        """A new model with the initial weights."""
        return PyTorchNetwork(self.network, backend, self.group)

    def outputs(self, X: Array, backend: Calls) -> Any:
        """An object whose A are the outputs before the softmax, which does not change the order of the classes."""
        torch = pytorch()
        self.model.eval()
        with torch.no_grad():
            A = self.model(torch.from_dlpack(X))
        self.model.train()
        return SimpleNamespace(A=devices.array_module(X).from_dlpack(A))

    @property
    def flat_parameters(self) -> np.ndarray:
        return flat(pytorch(), self.model)


class PyTorchTraining(Training):
    """Training with PyTorch's autograd and plain SGD: each process takes its rows of each batch."""

    network: PyTorchNetwork

    def steps(self, order: np.ndarray, rate: float, position: StepPosition) -> None:
        torch = pytorch()
        optimizer = torch.optim.SGD(self.network.model.parameters(), rate)
        there = order if isinstance(self.X, HostSamples) else self.backend.to_device(order)
        parts = parts_of_epoch(len(order), self.job.batch, Together(self.group))
        pieces = [there[part.rows] for part in parts]
        for part, rows, samples in zip(parts, pieces, in_turn(self.X, pieces), strict=True):
            if self.on_rows:
                self.on_rows(part.size)
            optimizer.zero_grad()
            outputs = self.network.trained(torch.from_dlpack(samples))
            cost = torch.nn.functional.cross_entropy(outputs, torch.from_dlpack(self.Y[rows]), reduction="sum")
            # DDP takes the mean over the processes, whose rows of the last batch may differ in number
            (cost * (self.group.size * part.weight / max(part.size, 1))).backward()
            optimizer.step()


def pytorch() -> Any:
    """The module torch. CourseError if it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise CourseError(f"expected PyTorch, for a run such as pytorch2; got: {error}; install torch") from None
    return torch


def current_device(torch: Any, backend: Calls) -> Any:
    """The device of the backend's arrays, which becomes PyTorch's current one."""
    if backend.device == "cpu":
        return torch.device("cpu")
    import cupy

    torch.cuda.set_device(cupy.cuda.Device().id)
    return torch.device("cuda", cupy.cuda.Device().id)


def distributed(torch: Any, model: Any, group: Group) -> Any:
    """The model, wrapped so that backward() averages gradients over the group; unchanged in a group of one."""
    if group.size == 1:
        return model
    if not torch.distributed.is_initialized():
        kind = "nccl" if group.device == "gpu" else "gloo"
        where = f"tcp://127.0.0.1:{shared_port(group)}"
        torch.distributed.init_process_group(kind, init_method=where, rank=group.rank, world_size=group.size)
    return torch.nn.parallel.DistributedDataParallel(model)


def shared_port(group: Group) -> int:
    """A free port of this host, which the first process finds and shares with all."""
    found = 0
    if group.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            found = free.getsockname()[1]
    return int(total(np.array([found], np.float32), group)[0])


def model_of(torch: Any, network: Network) -> Any:
    """PyTorch modules with the network's weights; torchvision's for a ResNet."""
    if not any(isinstance(layer, Residual) for layer in network.layers):
        model = module(torch, network)
        load(torch, model, network)
        return model
    try:
        return resnet_module(torch, network)
    except ImportError as error:
        raise CourseError(f"expected torchvision, for its ResNet; got: {error}; install torchvision") from None
