"""The digits CNN with PyTorch: eager, whole steps in a CUDA graph, and compiled in a CUDA graph.

Its best forms are tried: Adam fused into one kernel by PyTorch, cuDNN's kernels chosen by timing, images with the
channels first or last; behind a compiled gradient PyTorch's Adam, or Adam written out and compiled too.
"""

from collections.abc import Callable
from math import log

from benchmarks.digits import CHECKED, RATE, Problem, Trainer
from benchmarks.trainers import captured, flat, load

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def eager(device: str, channels_last: bool = False) -> Callable:
    """As in its tutorials: modules, autograd, an optimiser, a slice of the data for each batch."""

    def make(problem: Problem) -> Trainer:
        torch, network, X, labels = prepared(problem, device, channels_last)
        step, forget = eager_step(torch, network, problem, device)

        def train(steps: int) -> None:
            for start in range(0, min(len(X), steps * problem.batch), problem.batch):
                rows = slice(start, start + problem.batch)
                step(X[rows], labels[rows])
            if device == "cuda":
                torch.cuda.synchronize()

        return trainer(torch, network, problem, train, forget)

    return make


def graph(make_step: Callable, device: str = "cuda", channels_last: bool = False) -> Callable:
    """CHECKED whole steps in one CUDA graph; what is left of an epoch in graphs of one step, the last batch in its own.

    Batches are copied to a graph's input arrays before each replay. On the CPU, for tests, steps are executed directly.
    """

    def make(problem: Problem) -> Trainer:
        torch, network, X, labels = prepared(problem, device, channels_last)
        step, forget = make_step(torch, network, problem, device)
        batch, kind = problem.batch, torch.channels_last if channels_last else torch.contiguous_format
        graphs = {}
        for count, size in dict.fromkeys([(1, batch), (1, len(X) % batch or batch), (CHECKED, batch)]):
            inputs = X[: count * size].clone(memory_format=kind)
            targets = labels[: count * size].clone()

            def take_steps(inputs=inputs, targets=targets, size=size) -> None:
                for x, y in zip(inputs.split(size), targets.split(size), strict=True):
                    step(x, y)

            graphs[count, size] = inputs, targets, captured(torch, take_steps) if device == "cuda" else take_steps

        def train(steps: int) -> None:
            start, end = 0, min(len(X), steps * batch)
            while start < end:
                size = min(batch, end - start)
                count = CHECKED if end - start >= CHECKED * batch else 1
                rows = slice(start, start + count * size)
                inputs, targets, replay = graphs[count, size]
                inputs.copy_(X[rows])
                targets.copy_(labels[rows])
                replay()
                start = rows.stop
            if device == "cuda":
                torch.cuda.synchronize()

        return trainer(torch, network, problem, train, forget)

    return make


def prepared(problem: Problem, device: str, channels_last: bool) -> tuple:
    """torch, the network as modules, the images and their labels on the device."""
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")  # no TF32, whatever the environment says
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    kind = torch.channels_last if channels_last else torch.contiguous_format
    network = module(torch, problem.architecture).to(device, memory_format=kind)
    X = torch.from_numpy(problem.X).to(device, memory_format=kind)
    return torch, network, X, torch.from_numpy(problem.Y.argmax(axis=1)).to(device)


def module(torch, architecture):
    """The network as PyTorch modules; its outputs are those before softmax, as PyTorch's cross-entropy wants them."""
    layers = []
    for filters, (channels, *_) in zip(architecture.convolutions, architecture.maps, strict=False):
        before, after = filters.before, filters.after
        layers.append(torch.nn.ZeroPad2d((before, after, before, after)))
        layers += [torch.nn.Conv2d(channels, filters.count, filters.k, filters.stride), torch.nn.ReLU()]
    layers += [torch.nn.MaxPool2d(architecture.pool), torch.nn.Flatten()]
    for n_out, n_in in architecture.dense.shapes:
        layers += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def trainer(torch, network, problem: Problem, train: Callable, forget: Callable) -> Trainer:
    def begin() -> None:
        load(torch, network, problem.architecture, problem.parameters)
        forget()

    begin()
    return Trainer(begin, train, lambda: flat(torch, network))


def fused_adam(torch, network, device: str) -> tuple:
    """PyTorch's Adam in one kernel, and a function that forgets its state."""
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE, fused=True, capturable=device == "cuda")

    def forget() -> None:
        for state in optimiser.state.values():
            for tensor in state.values():
                tensor.zero_()

    return optimiser, forget


def eager_step(torch, network, problem: Problem, device: str) -> tuple[Callable, Callable]:
    """step(X, labels) with autograd and PyTorch's optimiser."""
    optimiser, forget = fused_adam(torch, network, device)

    def step(X, labels) -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(X), labels).backward()
        optimiser.step()

    return step, forget


def compiled_gradient(torch, network, problem: Problem, compiler: str) -> Callable:
    """gradient(X, labels): that of all parameters, compiled as one function; not compiled for another size of batch."""
    architecture = problem.architecture
    values = [tensor.detach() for tensor in network.parameters()]  # the same memory
    count = len(architecture.convolutions)

    def cost(values, X, labels):
        pairs, A = list(zip(values[0::2], values[1::2], strict=True)), X
        for (W, b), filters in zip(pairs, architecture.convolutions, strict=False):
            padded = torch.nn.functional.pad(A, (filters.before, filters.after) * 2)
            A = torch.relu(torch.nn.functional.conv2d(padded, W, b, filters.stride))
        A = torch.nn.functional.max_pool2d(A, architecture.pool).flatten(1)
        for W, b in pairs[count:-1]:
            A = torch.relu(torch.nn.functional.linear(A, W, b))
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(A, *pairs[-1]), labels)

    def gradient(values, X, labels):
        return torch.func.grad(cost)(values, X, labels)

    compiled = torch.compile(gradient, backend=compiler, dynamic=False)
    return lambda X, labels: (compiled if len(X) == problem.batch else gradient)(values, X, labels)


def compiled_step(torch, network, problem: Problem, device: str, compiler: str = "inductor") -> tuple:
    """The gradient compiled, then PyTorch's optimiser."""
    optimiser, forget = fused_adam(torch, network, device)
    gradient, parameters = compiled_gradient(torch, network, problem, compiler), list(network.parameters())

    def step(X, labels) -> None:
        for tensor, G in zip(parameters, gradient(X, labels), strict=True):
            tensor.grad = G
        optimiser.step()

    return step, forget


def compiled_update_step(torch, network, problem: Problem, device: str, compiler: str = "inductor") -> tuple:
    """The gradient compiled, then Adam written out, compiled too."""
    gradient = compiled_gradient(torch, network, problem, compiler)
    values = [tensor.detach() for tensor in network.parameters()]
    M, V = ([torch.zeros_like(tensor) for tensor in values] for _ in range(2))
    taken = torch.zeros((), device=device)

    def update(values, gradients, M, V, taken) -> None:
        taken.add_(1)
        c1, c2 = (-torch.expm1(taken * log(beta)) for beta in (BETA_1, BETA_2))  # 1 − βᵗ
        for p, g, m, v in zip(values, gradients, M, V, strict=True):
            m.lerp_(g, 1 - BETA_1)
            v.lerp_(g * g, 1 - BETA_2)
            p.sub_(RATE / c1 * m / ((v / c2).sqrt() + EPSILON))

    compiled = torch.compile(update, backend=compiler, dynamic=False)

    def forget() -> None:
        for tensor in (*M, *V, taken):
            tensor.zero_()

    return lambda X, labels: compiled(values, gradient(X, labels), M, V, taken), forget
