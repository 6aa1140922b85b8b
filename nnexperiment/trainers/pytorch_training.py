"""Training with PyTorch: eager, with whole steps in a CUDA graph, and compiled in a CUDA graph. See training.py.

Adam is PyTorch's fused version, with one kernel; cuDNN's kernels are chosen by timing.
"""

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from nncourse.model.image_layers import AveragePool, Convolution, Flatten, GlobalAveragePool, MaxPool
from nncourse.model.layers import Dense, Layer
from nncourse.model.network import COSTS, Network
from nncourse.model.optimizers import SGD, AdaGrad, Adam, RMSProp
from nncourse.model.residual import Residual
from nncourse.model.resnet import to_torchvision
from nnexperiment.trainers.training import CHECKED, Problem, Tensor, Trainer, timed, written_out

Module = Any  # of PyTorch
Forget = Callable[[], None]
Steps = tuple[Callable[[Tensor, Tensor], None], Forget]  # step(X, targets), forget()


def eager(device: str, channels_last: bool = False, threads: int | None = None) -> Callable[[Problem], Trainer]:
    """As in PyTorch's tutorials: modules, autograd, an optimiser, a slice of the data for each batch."""

    def make(problem: Problem) -> Trainer:
        torch, network, X, targets = prepared(problem, device, channels_last)
        if threads:
            torch.set_num_threads(threads)
        step, forget = eager_step(torch, network, problem, device)
        X = as_images(X, channels_last)

        def train(steps: int) -> None:
            for start in range(0, min(len(X), steps * problem.batch), problem.batch):
                rows = slice(start, start + problem.batch)
                step(X[rows], targets[rows])
            wait(torch, device)

        return trainer(torch, network, problem, train, forget)

    return make


def graph(
    make_step: Callable[..., Steps], device: str = "cuda", channels_last: bool = False
) -> Callable[[Problem], Trainer]:
    """Whole steps, CHECKED of them in one CUDA graph; the remaining steps of an epoch in graphs of one step.

    make_step is eager_step, compiled_step or compiled_update_step. Batches are copied to a graph's input arrays before
    each replay. On the CPU, for tests, steps are executed directly.
    """

    def make(problem: Problem) -> Trainer:
        torch, network, X, targets = prepared(problem, device, channels_last)
        step, forget = make_step(torch, network, problem, device)
        batch, graphs = problem.batch, {}
        for count, size in dict.fromkeys([(1, batch), (1, len(X) % batch or batch), (CHECKED, batch)]):
            inputs, outputs = (places(torch, array, count, size) for array in (X, targets))

            def take_steps(batches: tuple[Sequence[Tensor], ...] = (inputs[1], outputs[1])) -> None:
                for x, y in zip(*batches, strict=True):
                    step(as_images(x, channels_last), y)

            graphs[count, size] = inputs[0], outputs[0], captured(torch, take_steps) if device == "cuda" else take_steps

        def train(steps: int) -> None:
            start, end = 0, min(len(X), steps * batch)
            while start < end:
                size = min(batch, end - start)
                count = CHECKED if end - start >= CHECKED * batch else 1
                rows = slice(start, start + count * size)
                *windows, replay = graphs[count, size]
                for window, array in zip(windows, (X, targets), strict=True):
                    window.copy_(array[rows].view(window.shape))
                replay()
                start = rows.stop
            wait(torch, device)

        return trainer(torch, network, problem, train, forget)

    return make


def prepared(problem: Problem, device: str, channels_last: bool = False) -> tuple[Any, Module, Tensor, Tensor]:
    """torch, the network as modules, samples (channels last if asked for) and targets on the device."""
    import torch

    torch.set_float32_matmul_precision("highest")  # no TF32, whatever the environment says
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    form = {"memory_format": torch.channels_last} if channels_last else {}
    network = module(torch, problem.network).to(device, **form)
    X = torch.from_numpy(problem.X).to(device)
    X = X.permute(0, 2, 3, 1).contiguous() if channels_last else X
    labels = problem.network.cost == "categorical_cross_entropy"  # as its cross-entropy takes them
    return torch, network, X, torch.from_numpy(problem.Y.argmax(axis=1) if labels else problem.Y).to(device)


def as_images(X: Tensor, channels_last: bool) -> Tensor:
    """Samples in the form that a convolution takes, wherever the channels are in memory."""
    return X.permute(0, 3, 1, 2) if channels_last else X


def wait(torch: Any, device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def trainer(torch: Any, network: Module, problem: Problem, train: Callable[[int], None], forget: Forget) -> Trainer:
    def begin() -> None:
        load(torch, network, problem.network)
        forget()

    begin()
    return Trainer(begin, timed(train), lambda: flat(torch, network))


def places(torch: Any, array: Tensor, count: int, size: int) -> tuple[Tensor, Sequence[Tensor]]:
    """Memory for `count` batches of `size` rows of `array`: all of it as (count, numbers), and each batch.

    Each batch begins at a multiple of 16 bytes, otherwise PyTorch's compiled code would copy it again.
    """
    numbers, unit = size * prod(array.shape[1:]), 16 // array.element_size()
    memory = array.new_zeros(count, ceil(numbers / unit) * unit)
    window = memory[:, :numbers]
    return window, window.unflatten(1, (size, *array.shape[1:])).unbind()


def captured(torch: Any, work: Callable[[], None]) -> Callable[[], None]:
    """A function that replays the launches of work(). PyTorch requires that work() runs first on a different stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


# ---- the network


def module(torch: Any, network: Network) -> Module:
    """The network as PyTorch modules, without the output's activation if the cost is computed from Z.

    Raises ValueError for a layer without a counterpart in PyTorch.
    """
    layers, last = [], network.layers[-1]
    for layer in network.layers:
        layers += modules(torch, layer)
        if layer.activation and not (layer is last and COSTS[network.cost]):
            layers.append(activation(torch, layer.activation))
    return torch.nn.Sequential(*layers)


def resnet_module(torch: Any, network: Network) -> Module:
    """torchvision's ResNet of the same depth with the network's weights. ImportError without torchvision."""
    import torchvision

    state = {name: torch.tensor(array) for name, array in to_torchvision(network).items()}
    blocks = sum(isinstance(layer, Residual) for layer in network.layers)
    make = getattr(torchvision.models, {8: "resnet18", 16: "resnet34"}[blocks])
    model = make(num_classes=len(state["fc.weight"]))
    filters, channels, size, _ = state["conv1.weight"].shape
    model.conv1 = torch.nn.Conv2d(channels, filters, size, 2, 3, bias=False)
    model.load_state_dict(state)
    return model


def modules(torch: Any, layer: Layer) -> list[Module]:
    """A layer without its activation."""
    nn = torch.nn
    match layer:
        case Dense():
            n_out, n_in = layer.W.shape
            return [nn.Linear(n_in, n_out)]
        case Convolution():
            c_out, c_in, k, _ = layer.W.shape
            before, after = layer.before, layer.after
            around = [] if before == after else [nn.ZeroPad2d((before, after, before, after))]
            padding = before if before == after else 0
            return [*around, nn.Conv2d(c_in, c_out, k, layer.stride, padding, bias=layer.b is not None)]
        case MaxPool():
            return [nn.MaxPool2d(layer.size, layer.stride, layer.padding)]
        case AveragePool():
            return [nn.AvgPool2d(layer.size, layer.stride)]
        case GlobalAveragePool():
            return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        case Flatten():
            return [nn.Flatten()]
    raise ValueError(f"no counterpart of {layer}")


def activation(torch: Any, name: str) -> Module:
    nn = torch.nn
    known = {
        "identity": nn.Identity, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU, "softplus": nn.Softplus,
        "leaky_relu": nn.LeakyReLU, "softmax": lambda: nn.Softmax(dim=1),
        "gelu": lambda: nn.GELU(approximate="tanh"),
    }  # fmt: skip
    if name not in known:
        raise ValueError(f"no counterpart of the activation {name}")
    return known[name]()


def cost_of(torch: Any, problem: Problem) -> Callable[[Tensor, Tensor], Tensor]:
    """cost(outputs, targets), for the outputs that module() computes."""
    F = torch.nn.functional
    return {
        "mse": lambda A, Y: ((A - Y) ** 2).sum() / (2 * len(A)),
        "mae": lambda A, Y: (A - Y).abs().sum() / len(A),
        "binary_cross_entropy": lambda Z, Y: F.binary_cross_entropy_with_logits(Z, Y, reduction="sum") / len(Z),
        "categorical_cross_entropy": F.cross_entropy,
    }[problem.network.cost]


def load(torch: Any, modules: Module, network: Network) -> None:
    """Copy the network's parameters into the modules' tensors."""
    with torch.no_grad():
        for tensor, value in zip(modules.parameters(), network.parameters, strict=True):
            tensor.copy_(torch.from_numpy(value))


def flat(torch: Any, network: Module) -> np.ndarray:
    """The modules' parameters as one vector."""
    return torch.cat([tensor.detach().flatten() for tensor in network.parameters()]).cpu().numpy()


# ---- steps: functions (torch, network, problem, device) -> step(X, targets), forget()


def optimiser_of(torch: Any, network: Module, problem: Problem, device: str) -> tuple[Any, Forget]:
    """PyTorch's optimiser, fit for CUDA graphs, and a function that forgets its state."""
    asked, on_gpu = problem.optimizer, device == "cuda"
    common: dict[str, Any] = {"lr": problem.rate, "weight_decay": asked.l2}
    parameters = list(network.parameters())
    match asked:
        case SGD():
            optimiser = torch.optim.SGD(parameters, momentum=asked.momentum, **common)
        case Adam():
            betas = asked.beta1, asked.beta2
            more = {"betas": betas, "eps": asked.epsilon, "fused": True, "capturable": on_gpu}
            optimiser = torch.optim.Adam(parameters, **common, **more)
        case RMSProp():
            more = {"alpha": asked.beta, "eps": asked.epsilon, "capturable": on_gpu}
            optimiser = torch.optim.RMSprop(parameters, **common, **more)
        case AdaGrad():
            optimiser = torch.optim.Adagrad(parameters, eps=asked.epsilon, **common)
        case _:
            raise ValueError(f"no counterpart of the optimizer {asked.kind}")

    def forget() -> None:
        for state in optimiser.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    return optimiser, forget


def eager_step(torch: Any, network: Module, problem: Problem, device: str) -> Steps:
    """With autograd and PyTorch's optimiser."""
    optimiser, forget = optimiser_of(torch, network, problem, device)
    cost = cost_of(torch, problem)

    def step(X: Tensor, targets: Tensor) -> None:
        optimiser.zero_grad()
        cost(network(X), targets).backward()
        optimiser.step()

    return step, forget


def gradient_of(torch: Any, network: Module, problem: Problem) -> Callable[..., Sequence[Tensor]]:
    """gradient(values, X, targets): the gradient of all parameters at these values."""
    names, cost = [name for name, _ in network.named_parameters()], cost_of(torch, problem)

    def cost_at(values: Sequence[Tensor], X: Tensor, targets: Tensor) -> Tensor:
        return cost(torch.func.functional_call(network, dict(zip(names, values, strict=True)), (X,)), targets)

    return lambda values, X, targets: torch.func.grad(cost_at)(values, X, targets)


def compiled_for_batches(torch: Any, work: Callable[..., Any], problem: Problem, compiler: str) -> Callable[..., Any]:
    """work(X, targets, …), compiled for whole batches; a smaller batch is not compiled."""
    torch.compiler.reset()  # of one function it keeps only some versions
    compiled = torch.compile(work, backend=compiler, dynamic=False)
    return lambda X, *others: (compiled if len(X) == problem.batch else work)(X, *others)


def compiled_step(torch: Any, network: Module, problem: Problem, device: str, compiler: str = "inductor") -> Steps:
    """The gradient compiled, then PyTorch's optimiser."""
    optimiser, forget = optimiser_of(torch, network, problem, device)
    gradient, parameters = gradient_of(torch, network, problem), list(network.parameters())
    values = [tensor.detach() for tensor in parameters]  # the same memory
    compiled = compiled_for_batches(torch, lambda X, Y, values: gradient(values, X, Y), problem, compiler)

    def step(X: Tensor, targets: Tensor) -> None:
        for tensor, G in zip(parameters, compiled(X, targets, values), strict=True):
            tensor.grad = G
        optimiser.step()

    return step, forget


def compiled_update_step(
    torch: Any, network: Module, problem: Problem, device: str, compiler: str = "inductor"
) -> Steps:
    """The gradient and the update, written out, compiled as one function."""
    gradient, move = gradient_of(torch, network, problem), written_out(torch, problem.optimizer, problem.rate)
    values = [tensor.detach() for tensor in network.parameters()]
    state = [[torch.zeros_like(tensor) for _ in problem.optimizer.remembers] for tensor in values]
    taken = torch.zeros((), device=device)

    def take(
        X: Tensor, targets: Tensor, values: Sequence[Tensor], state: Sequence[Sequence[Tensor]], taken: Tensor
    ) -> None:
        taken.add_(1)
        for value, G, kept in zip(values, gradient(values, X, targets), state, strict=True):
            moved, remembered = move(value, G, kept, taken)
            for old, new in zip((value, *kept), (moved, *remembered), strict=True):
                old.copy_(new)

    compiled = compiled_for_batches(torch, take, problem, compiler)

    def forget() -> None:
        taken.zero_()
        for kept in state:
            for tensor in kept:
                tensor.zero_()

    return lambda X, targets: compiled(X, targets, values, state, taken), forget
