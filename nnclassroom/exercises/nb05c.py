"""Operations of the exercises of notebook 05c, on graphs of numbers. No network calls them, no backend has kernels.

graph_order       the nodes in an order in which each comes after its parents; every such order is right
local_slopes      the slopes of a sum, a product and a tanh with respect to what goes in
graph_gradient    the gradient of the result with respect to every node, back along the graph
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnclassroom.judge.answer import TextProcess, process_of
from nnclassroom.judge.run import Returned, Runner, runner
from nnclassroom.judge.verdict import Case, Fault
from nncourse.kernels.contract import Sizes
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

SUM, PRODUCT = 0, 1  # the kinds of local_slopes; 2 is tanh


def _graph(rng: np.random.Generator, n: int) -> np.ndarray:
    """The parents of n nodes, −1 where there is none. All lead to node 0; the others are numbered at random."""
    parents: list[list[int]] = [[] for _ in range(n)]
    for node in reversed(range(n - 1)):
        free = [user for user in range(node + 1, n) if len(parents[user]) < 2]
        parents[rng.choice(free)].append(node)
    for node in range(1, n):  # more uses of some
        if len(parents[node]) < 2 and rng.random() < 0.5:
            parents[node].append(int(rng.integers(node)))
    number = np.array([*(1 + rng.permutation(n - 1)), 0, -1])  # the last one is that of "none"
    renumbered = np.empty((n, 2), np.int32)
    renumbered[number[:-1]] = number[[(*both, -1, -1)[:2] for both in parents]]
    return renumbered


def _draw(rng: np.random.Generator) -> Sizes:
    return {"n": int(rng.integers(1, 100)), "inputs": 2}


def _by_depth(parents: np.ndarray) -> np.ndarray:
    """By the longest way from a node without parents."""
    depth = np.zeros(len(parents) + 1, int)
    depth[-1] = -1
    for _ in parents:
        depth[:-1] = depth[parents].max(axis=1) + 1
    return np.argsort(depth[:-1], kind="stable").astype(np.int32)


# ---- the order


@dataclass(eq=False)
class OrderOperation(Operation):
    """Its result is an order; one in which each node comes after its parents is taken for that of the reference.

    `advice` gets, after the arguments, the order that came out.
    """


def _any_order(operation: Operation, run: Runner, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
    """Run a kernel; put the reference in the place of another order that is right too.

    Not `again`: its other numbers could be a circle, for which a right loop never ends.
    """
    returned, (parents,) = run(replace(case, again=0), options), case.arguments
    if isinstance(returned, Fault) or returned.arrays[0] is None or returned.arrays[0].shape != (len(parents),):
        return returned
    got = returned.arrays[0]
    returned.arguments = (*returned.arguments, got)
    if got.dtype == np.int32 and not _what_is_out_of_order((), parents, got):
        returned.arrays = [operation.reference(parents)]
    return returned


@runner.register
def _(operation: OrderOperation, kernel: Kernel, device: str) -> Runner:
    return partial(_any_order, operation, runner.dispatch(Operation)(operation, kernel, device))


@process_of.register(OrderOperation)
class OrderProcess(TextProcess):
    """A process that holds the text of an order."""

    def run(self, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
        return _any_order(self.operation, super().run, case, options)


def _what_is_out_of_order(place: tuple[int, ...], parents: np.ndarray, got: np.ndarray) -> str:
    order = got.tolist()
    if sorted(order) != list(range(len(parents))):
        missing = sorted(set(range(len(parents))) - set(order))
        return f"node {missing[0]} is missing: every node must be in the order once"
    for node, both in enumerate(parents.tolist()):
        for parent in both:
            if parent >= 0 and order.index(parent) > order.index(node):
                return f"node {node} comes before its parent {parent}: take a node only after all of its parents"
    return ""


graph_order = OrderOperation(
    "graph_order",
    "an order of all nodes in which each comes after its parents",
    contract="parents (n, inputs) int -> order (n,) int",
    reference=_by_depth,
    flops=None,
    trial=Trial(
        values={"parents": lambda rng, shape, sizes: _graph(rng, shape[0])},
        edge_cases=(),
        advice=_what_is_out_of_order,
        sizes_to_check=tuple({"n": n, "inputs": 2} for n in (3, 1, 2, 4, 5, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60)),
        draw_sizes=_draw,
    ),
)


@graph_order.kernel("loops", device="cpu")
def whoever_is_ready(parents: np.ndarray) -> np.ndarray:
    done: list[int] = []
    while len(done) < len(parents):
        for node in range(len(parents)):
            if node not in done and all(parent in done for parent in parents[node] if parent >= 0):
                done.append(node)
    return np.array(done, np.int32)


# ---- the local rules


def _slopes_of(kind: int, a: float, b: float) -> tuple[float, float]:
    if kind == SUM:
        return 1.0, 1.0
    return (b, a) if kind == PRODUCT else (float(1 / np.cosh(a) ** 2), 0.0)


def _other_slopes(place: tuple[int, ...], kind: int, a: float, b: float) -> Iterator[tuple[str, tuple[float, float]]]:
    if kind == SUM:
        yield "these are a and b themselves: a sum grows by as much as either of them, so both slopes are 1", (a, b)
        yield "these are the slopes of a product: a sum grows by as much as a or b", (b, a)
    elif kind == PRODUCT:
        yield "these two are swapped: the slope with respect to a is b, and the other is a", (a, b)
        yield "these are the slopes of a sum: those of a product are b and a", (1.0, 1.0)
        yield "this is the product itself: its slope is the other factor", (a * b, a * b)
    else:
        t = float(np.tanh(a))
        yield "this is tanh a itself: its slope is 1 − tanh² a", (t, 0.0)
        yield "this is 1 − a²: square tanh a, not a", (1 - a * a, 0.0)
        yield "this is 1 − tanh a: the square is missing", (1 - t, 0.0)
        yield "this is tanh a · (1 − tanh a), the sigmoid's rule: that of tanh is 1 − tanh² a", (t * (1 - t), 0.0)
        yield "tanh has one input: its slope with respect to b is 0", (1 - t * t, 1 - float(np.tanh(b)) ** 2)
        yield "tanh has one input: its slope with respect to b is 0", (1 - t * t, 1.0)


local_slopes = Operation(
    "local_slopes",
    "the slopes of a + b (kind 0), a b (kind 1) and tanh a (kind 2) with respect to a and b",
    contract="kind () int, a (), b () -> da (), db ()",
    reference=_slopes_of,
    flops=None,
    trial=Trial(
        error_scale=lambda kind, a, b: (max(1.0, abs(b)), max(1.0, abs(a))),
        edge_cases=(),
        mistakes=_other_slopes,
        sizes_to_check=tuple({"kind": kind} for kind in 5 * (0, 1, 2)),
    ),
)


@local_slopes.kernel("loops", device="cpu")
def three_rules(kind: int, a: float, b: float) -> tuple[float, float]:
    if kind == 0:
        return 1.0, 1.0
    if kind == 1:
        return b, a
    return 1 - np.tanh(a) ** 2, 0.0


# ---- the way back


def _graph_of(sizes: Sizes) -> np.ndarray:
    """The same one for all arguments of a case; its result has any number."""
    turn, n = sizes["turn"], sizes["n"]
    parents = _graph(np.random.default_rng((turn, n)), n)
    return np.roll(np.where(parents < 0, -1, (parents + turn) % n), turn, axis=0).astype(np.int32)


def _slopes(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    return np.where(_graph_of(sizes) < 0, 0, rng.uniform(0.3, 1.5, shape) * rng.choice([-1, 1], shape)).astype(
        np.float32
    )


def _by_equations(parents: np.ndarray, slopes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Solve g = e + S g: each gradient is the sum over the uses of slope times gradient, and the result's is 1."""
    n = len(parents)
    S = np.zeros((n + 1, n))
    np.add.at(S, (parents, np.arange(n)[:, None]), slopes)
    return np.linalg.solve(np.eye(n) - S[:n], np.arange(n) == order[-1])


def _back(parents: np.ndarray, slopes: np.ndarray, nodes: Any, gradient: np.ndarray, kept: int = 1) -> np.ndarray:
    """From node to node, in float64."""
    gradient = gradient.astype(float)
    for node in nodes:
        for parent, slope in zip(parents[node], slopes[node], strict=True):
            if parent >= 0:
                gradient[parent] = kept * gradient[parent] + slope * gradient[node]
    return gradient


def _other_ways_back(
    place: tuple[int, ...], parents: np.ndarray, slopes: np.ndarray, order: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    back, one = order[::-1], np.arange(len(parents)) == order[-1]
    added = (
        f"node {place[0]} is used {(parents == place[0]).sum()} times: add a gradient for each use, do not replace it"
    )
    yield added, _back(parents, slopes, back, one, kept=0)
    yield "this goes forward: go from the end of the order to its start", _back(parents, slopes, order, one)
    for nodes in (range(len(parents)), range(len(parents))[::-1]):
        yield "this takes the nodes by their numbers: go back along `order`", _back(parents, slopes, nodes, one)
    yield "all gradients begin at 1: only that of the result does", _back(parents, slopes, back, np.ones(len(one)))
    yield "the slopes are missing: multiply by them", _back(parents, np.ones_like(slopes), back, one)
    yield "only the first parents get a share: go over both columns", _back(parents[:, :1], slopes[:, :1], back, one)
    yield "the gradient of the result is 0: begin with 1 at the last node of the order", np.zeros(len(one))


graph_gradient = Operation(
    "graph_gradient",
    "gradient of a node = Σ over its uses: slope · gradient of the node that used it; that of the result is 1",
    contract="parents (n, inputs) int, slopes (n, inputs), order (n,) int -> gradient (n,)",
    reference=_by_equations,
    flops=None,
    trial=Trial(
        tolerance=32,
        error_scale=lambda parents, slopes, order: _by_equations(parents, abs(slopes), order),
        values={
            "parents": lambda rng, shape, sizes: _graph_of(sizes),
            "slopes": _slopes,
            "order": lambda rng, shape, sizes: _by_depth(_graph_of(sizes)),
        },
        edge_cases=(),
        mistakes=_other_ways_back,
        sizes_to_check=tuple({"n": n, "inputs": 2} for n in (2, 3, 1, 4, 5, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60)),
        draw_sizes=_draw,
    ),
)


@graph_gradient.kernel("loops", device="cpu")
def added_up(parents: np.ndarray, slopes: np.ndarray, order: np.ndarray) -> np.ndarray:
    gradient = np.zeros(len(parents), np.float32)
    gradient[order[-1]] = 1
    for node in reversed(order):
        for parent, slope in zip(parents[node], slopes[node], strict=True):
            gradient[parent] += slope * gradient[node]
    return gradient
