"""Compare transformers and attention with PyTorch's: python -m benchmarks.attention, on a machine with an NVIDIA GPU.

Training: three transformers (causal, layer normalisation before each part, GELU in the form with tanh), Adam, float32
without TF32, steps on one batch of random tokens that is already on the GPU. All contenders begin with the same
weights. Before they are timed, their costs after CHECKED steps are compared. PyTorch runs eagerly, and as a recorded
CUDA graph. nncourse trains with its own choice of a plan, and with recorded steps of readable kernels.

Attention alone, forward: one sample with 8 heads of width 64. The contenders are fused_attention, with its kernels
tiled and shared; attention_forward, which stores the weights; the same steps with stored scores, by cuBLAS; and
PyTorch's scaled_dot_product_attention.

Contenders take turns; a time is the median of the rounds.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import machines
from benchmarks.saved import RESULTS, refuse_out, save
from nncourse import device as devices
from nncourse.backend import choose
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, make_network
from nncourse.model.optimizers import Adam
from nncourse.model.plans import chosen
from nncourse.model.task import Task
from nncourse.model.training import evaluate

RATE, CHECKED, TOLERANCE = 0.001, 5, 2e-3  # the tolerance is relative to the fall of the cost
OURS, READABLE, EAGER, GRAPH = "nncourse", "nncourse, readable kernels", "PyTorch eager", "PyTorch graph"
READABLE_KERNELS = dict.fromkeys(("dense_forward", "hidden_delta", "weight_gradient"), "tiled")
FUSED, SHARED, KEPT = "fused_attention", "fused_attention, shared", "attention_forward"
STORED, SDPA = "scores stored, cuBLAS", "PyTorch SDPA"
HEADS, WIDTH = 8, 64
LENGTHS = 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384
IN_TABLE = 1024, 4096, 16384
AT_ONCE = 0.002  # seconds; shorter calls are timed several at once, so that the launch of one hides behind another


class Case(NamedTuple):
    """A transformer, its batch, and how many steps are timed at a time."""

    width: int
    blocks: int
    heads: int
    length: int
    batch: int
    kinds: int
    steps: int

    @property
    def words(self) -> str:
        blocks = ",".join([f"block{self.heads}x{4 * self.width}"] * self.blocks)
        return f"tokens{self.length}x{self.kinds},embed{self.width},{blocks},layernorm,{self.kinds}"


CASES = Case(64, 2, 4, 16, 64, 14, 200), Case(128, 4, 4, 64, 32, 65, 100), Case(384, 6, 6, 256, 64, 65, 10)
Steps = Callable[[], None]  # makes all steps of a case


def tokens(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Samples and targets of a batch: a token is followed by the next kind, or by any."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, case.kinds, (case.batch, case.length + 1))
    follows = rng.random(X.shape) < 0.7
    for place in range(1, case.length + 1):
        X[:, place] = np.where(follows[:, place], (X[:, place - 1] + 1) % case.kinds, X[:, place])
    return X[:, :-1].astype(np.float32), X[:, 1:].astype(np.float32)


def network_of(case: Case) -> Network:
    return make_network(case.words, activation="gelu", cost="token_cross_entropy")


def ours(
    case: Case, network: Network, kernels: dict[str, str], plan: str | None
) -> tuple[Steps, Callable[[], float], str]:
    """An epoch of case.steps steps on the GPU, the cost of the batch, and the name of the plan."""
    backend = choose("cuda", **kernels)
    there = network.on(backend)
    X, Y = (backend.to_device(np.tile(array, (case.steps, 1))) for array in tokens(case))
    found = chosen(Task(there, Adam(), backend, X, Y, case.batch, RATE), plan)
    order, first = backend.to_device(np.arange(len(X))), slice(case.batch)

    def steps() -> None:
        found.epoch(order, RATE, StepPosition())

    return steps, lambda: evaluate(there, X[first], Y[first], backend), found.name


def pytorch(case: Case, network: Network, recorded: bool) -> tuple[Steps, Callable[[], float], str]:
    """The same on PyTorch with the same weights: eagerly, or a graph of a step."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = module_of(case, network).cuda()
    X, Y = (torch.from_numpy(array).long().cuda() for array in tokens(case))
    adam = torch.optim.Adam(model.parameters(), RATE, capturable=True)

    def cost() -> Any:
        return torch.nn.functional.cross_entropy(model(X).flatten(0, 1), Y.flatten())

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        cost().backward()
        adam.step()

    def eager() -> None:
        for _ in range(case.steps):
            step()

    if not recorded:
        return eager, lambda: float(cost().detach()), "eager"
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    model.load_state_dict(before)
    for state in adam.state.values():
        for value in state.values():
            value.zero_()

    def replay() -> None:
        for _ in range(case.steps):
            graph.replay()

    return replay, lambda: float(cost().detach()), "graph"


def module_of(case: Case, network: Network) -> Any:
    """The network as a module of PyTorch, with its weights."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            n = case.width
            self.norm, self.qkv, self.out = nn.LayerNorm(n), nn.Linear(n, 3 * n), nn.Linear(n, n)
            self.norm2, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n)

        def forward(self, x: Any) -> Any:
            batch, t, n = x.shape
            parts = self.qkv(self.norm(x)).view(batch, t, 3, case.heads, n // case.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(found.transpose(1, 2).reshape(batch, t, n))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.E = nn.Embedding(case.kinds, case.width)
            self.P = nn.Parameter(torch.zeros(case.length, case.width))
            self.blocks = nn.ModuleList([Block() for _ in range(case.blocks)])
            self.norm, self.head = nn.LayerNorm(case.width), nn.Linear(case.width, case.kinds)

        def forward(self, x: Any) -> Any:
            x = self.E(x) + self.P
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Transformer()
    with torch.no_grad():
        parameters = [
            model.E.weight,
            model.P,
            *model.blocks.parameters(),
            *model.norm.parameters(),
            *model.head.parameters(),
        ]
        for there, values in zip(parameters, network.parameters, strict=True):
            there.copy_(torch.from_numpy(np.array(values)))
    return model


def trained(case: Case, rounds: int) -> dict[str, Any]:
    """Microseconds a step of each contender, and the costs after CHECKED steps on the first batch."""
    network = network_of(case)
    makers: dict[str, Callable[[Case], tuple[Steps, Callable[[], float], str]]] = {
        OURS: lambda case: ours(case, network, {}, None),
        READABLE: lambda case: ours(case, network, READABLE_KERNELS, "recorded"),
        EAGER: lambda case: pytorch(case, network, recorded=False),
        GRAPH: lambda case: pytorch(case, network, recorded=True),
    }
    costs = {}
    for name, make in makers.items():
        steps, cost, _ = make(case._replace(steps=CHECKED))
        begin = cost()
        steps()
        costs[name] = [begin, cost()]
    begin, end = costs[EAGER]
    for name, (_, reached) in costs.items():
        if not abs(reached - end) <= TOLERANCE * (begin - end):
            raise SystemExit(f"{case.words}: {name} has reached the cost {reached:.6f}, PyTorch eager {end:.6f}")
    made = {name: make(case) for name, make in makers.items()}
    times = in_turn({name: steps for name, (steps, _, _) in made.items()}, rounds)
    return {
        "words": case.words,
        "batch": case.batch,
        "parameters": network.flat_parameters.size,
        "plans": {name: plan for name, (_, _, plan) in made.items()},
        "costs": costs,
        "microseconds": {name: 1e6 * each / case.steps for name, each in times.items()},
    }


def alone(length: int, causal: bool, rounds: int) -> dict[str, Any]:
    """Milliseconds of one forward pass of attention by each contender, and the largest error beside PyTorch's."""
    import cupy
    import torch

    rng = np.random.default_rng(0)
    given = [rng.standard_normal((1, HEADS, length, WIDTH), dtype=np.float32) for _ in range(3)]
    there, torches = [cupy.asarray(each) for each in given], [torch.from_numpy(each).cuda() for each in given]
    usual, readable = choose("cuda"), choose("cuda", fused_attention="shared")

    def stored() -> Any:
        Q, K, V = there
        S = Q @ K.swapaxes(2, 3)
        S /= np.float32(WIDTH**0.5)
        if causal:
            S += mask
        S -= S.max(axis=3, keepdims=True)
        cupy.exp(S, out=S)
        S /= S.sum(axis=3, keepdims=True)
        return S @ V

    mask = cupy.triu(cupy.full((length, length), -np.inf, np.float32), 1) if causal else None
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {
        FUSED: lambda: usual.fused_attention(*there, int(causal)),
        SHARED: lambda: readable.fused_attention(*there, int(causal)),
        KEPT: lambda: usual.attention_forward(*there, int(causal))[0],
        STORED: stored,
        SDPA: lambda: sdpa(*torches, is_causal=causal),
    }
    right = cupy.asarray(calls[SDPA]())
    errors = {name: float(abs(cupy.asarray(call()) - right).max()) for name, call in calls.items()}
    times = in_turn(calls, rounds, AT_ONCE)
    milliseconds = {name: 1e3 * each for name, each in times.items()}
    return {"length": length, "causal": causal, "errors": errors, "milliseconds": milliseconds}


def in_turn(calls: dict[str, Callable[[], Any]], rounds: int, at_least: float = 0.0) -> dict[str, float]:
    """Median seconds of each call; all take turns, after two. A turn repeats short calls for `at_least` seconds."""
    import cupy

    seconds: dict[str, list[float]] = {name: [] for name in calls}
    times = dict.fromkeys(calls, 1)
    for number in range(rounds + 2):
        for name, call in calls.items():
            cupy.cuda.runtime.deviceSynchronize()
            start = time.perf_counter()
            for _ in range(times[name]):
                call()
            cupy.cuda.runtime.deviceSynchronize()
            each = (time.perf_counter() - start) / times[name]
            if number > 1:
                seconds[name].append(each)
            elif number:
                times[name] = max(1, math.ceil(at_least / each))
    return {name: statistics.median(each) for name, each in seconds.items()}


def words_and_rows(result: dict[str, Any]) -> tuple[str, list[list[str]]]:
    """The networks in words, and a table: µs a step in training, then ms of attention alone."""
    trained, alone_rows = result["training"], []
    for each in [each for each in result["attention"] if each["length"] in IN_TABLE]:
        times = [f"{each['milliseconds'][name]:.3g} ms" for name in (FUSED, STORED, SDPA)]
        alone_rows.append([f"forward, t = {each['length']:,}{', causal' * each['causal']}", times[0], "", *times[1:]])
    rows = [["", OURS, READABLE, "PyTorch eager, or scores stored", "PyTorch graph, or SDPA"]]
    for each in trained:
        times = [f"{each['microseconds'][name]:,.0f} µs" for name in (OURS, READABLE, EAGER, GRAPH)]
        rows.append([f"a step of `{shortened(each['words'])}`, batch {each['batch']}", *times])
    said = (
        "Steps with Adam in float32, on one batch of random tokens. Attention alone: one sample, 8 heads of 64; ours "
        "is `fused_attention`, beside the same steps with stored scores by cuBLAS, and PyTorch's "
        "scaled_dot_product_attention."
    )
    return said, [*rows, *alone_rows]


def shortened(words: str) -> str:
    """A list of layers with `4 × block…` for four blocks."""
    counts = [(word, len(list(same))) for word, same in groupby(words.split(","))]
    return ",".join(word if count == 1 else f"{count} × {word}" for word, count in counts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results (default results/)")
    parser.add_argument("--rounds", type=int, default=5, help="times that each contender is timed (default 5)")
    options = parser.parse_args(arguments)
    path = options.out / "attention.json"
    refuse_out(parser, path)
    if not devices.gpu_available():
        parser.error(devices.why_no_gpu())
    result: dict[str, Any] = machines.about("gpu") | {"training": [], "attention": []}
    for length in LENGTHS:
        for causal in (True, False):
            result["attention"].append(alone(length, causal, options.rounds))
            print(result["attention"][-1], flush=True)
    for case in CASES:
        result["training"].append(trained(case, options.rounds))
        print(result["training"][-1], flush=True)
    save(result, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
