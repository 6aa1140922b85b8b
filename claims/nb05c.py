"""The evidence for notebook 05c: its own cells, with the course's three functions in place of the student's."""

import functools
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom import find
from nncourse import backpropagation, device, input_gradient

OWN = {name: find(name)["loops"] for name in ("graph_order", "local_slopes", "graph_gradient")}
NOTEBOOK = "05c_automatic_differentiation"
FIRST = "setup", "number", "find", "together", "neurons", "neurons-check", "array", "backward", "compare"


@functools.cache
def cells() -> dict[str, Any]:
    return defined(NOTEBOOK, *FIRST, **OWN)


def grown() -> bool:
    """With all samples the parameters are a small part of what is kept; the ratio of the times falls."""
    names, shares, ratios = cells(), [], []
    parameters, network = names["arrays_of"](names["network"]), names["network"]
    own = sum(array.value.nbytes for pair in parameters for array in pair)
    for batch in (10, len(names["X"])):
        X, Y = names["X"][:batch], names["Y"][:batch]
        nodes, _ = names["graph_of"](names["cost_graph"](parameters, X, Y))
        shares.append(own / sum(node.value.nbytes for node in nodes))
        graph = device.seconds(lambda X=X, Y=Y: names["backward"](names["cost_graph"](parameters, X, Y)))
        ratios.append(graph / device.seconds(lambda X=X, Y=Y: backpropagation(network, X, Y, names["backend"])))
    return shares[1] < 0.05 and ratios[1] < ratios[0]


def halved() -> bool:
    """Assigned in place of added: all gradients of parameters are half as large. And that of X."""
    names = cells()
    parameters, X, Y, backend = names["arrays_of"](names["network"]), names["X"], names["Y"], names["backend"]
    nodes = names["backward"](names["cost_graph"](parameters, X, Y))
    found = [array.gradient for pair in parameters for array in pair]
    (inputs,) = (node for node in nodes if node.value is X)
    of_inputs = np.allclose(
        inputs.gradient * len(X), input_gradient(names["network"], X, Y, backend), rtol=1e-3, atol=1e-6
    )
    for node in nodes:
        node.gradient = np.zeros_like(node.value)
    nodes[0].gradient = np.ones_like(nodes[0].value)
    for at in reversed(OWN["graph_order"](names["graph_of"](nodes[0])[1])):
        for parent, back in zip(nodes[at].made_of, nodes[at].back, strict=True):
            parent.gradient = back(nodes[at].gradient)
    assigned = [array.gradient for pair in parameters for array in pair]
    return of_inputs and all(np.allclose(a, f / 2, rtol=1e-4, atol=1e-7) for a, f in zip(assigned, found, strict=True))


CLAIMS = [
    Claim("neurons-words", "It has 13 parameters", why="derived: 6 + 3 + 3 + 1"),
    Claim("cost-answer", "ten times as long with 10 samples", why="source: the saved output of the cell above"),
    Claim("cost-answer", "with all samples they are nearly all of the memory", once=grown),
    Claim("cost-answer", "the ratio falls as the batch grows", once=grown),
    Claim("more-words", "compares PyTorch's autograd", why="definition: of that notebook"),
    Claim("now-try", "by the factor ½", once=halved),
    Claim("now-try", "gives the same, times the batch", once=halved),
]
