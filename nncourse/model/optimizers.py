"""Optimizers, which move the parameters against their gradient, and schedules of the learning rate.

An optimizer works on the network's flat vector of parameters, all layers at once. What it remembers from step to step
is in `state`, by name. It is saved with the model, so that training resumes exactly where it stopped.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from nncourse.calls import ADAM, Array, Calls
from nncourse.errors import CourseError, refuse_unknown

Schedule = Callable[[int], float]  # the learning rate of an epoch; the first epoch is 1


@dataclass(kw_only=True)
class Optimizer:
    """What all optimizers have in common. Each adds its options, as fields, and move().

    `kind` is its name on the command line, `memory` names the arrays it remembers, `rate` is its usual learning rate.
    `l2` is λ: G + λ W replaces G, for all parameters, biases included. `steps` counts the steps so far.
    """

    kind: ClassVar[str]
    memory: ClassVar[tuple[str, ...]]
    rate: ClassVar[float]

    l2: float = 0.0
    state: dict[str, Array] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            least, below = LIMITS.get(name, (0.0, 1.0))
            if not least <= value < below:
                limit = "" if below == math.inf else f" and below {below:g}"
                raise CourseError(f"expected {name} of at least {least:g}{limit}, got {value}")

    @property
    def remembers(self) -> tuple[str, ...]:
        """The names of the arrays that it keeps in `state` from the first step on."""
        return self.memory

    @property
    def usual_rate(self) -> float:
        """The learning rate if none is given."""
        return self.rate

    @property
    def options(self) -> dict[str, float]:
        """The options of its constructor, l2 last."""
        own = [each.name for each in fields(self) if each.name not in ("l2", "state", "steps")]
        return {name: getattr(self, name) for name in (*own, "l2")}

    def describe(self) -> dict[str, Any]:
        """`kind` and the options that made it."""
        return {"kind": self.kind, **self.options}

    def step(self, parameters: Array, gradient: Array, rate: float, backend: Calls) -> None:
        """Move the parameters, a flat vector, in place. The gradient may be overwritten."""
        self.steps += 1
        if self.l2:
            backend.l2_gradient(gradient, parameters, self.l2)
        state = [remembered(self.state, name, parameters) for name in self.remembers]
        self.move(parameters, gradient, state, rate, backend)

    def move(self, W: Array, G: Array, state: Sequence[Array], rate: float, backend: Calls) -> None:
        """Change the parameters W and the arrays `state` in place."""
        raise NotImplementedError


@dataclass
class SGD(Optimizer):
    """Stochastic gradient descent: W ← W − η G. With momentum μ: V ← μ V + G, W ← W − η V."""

    kind, memory, rate = "sgd", ("V",), 0.1

    momentum: float = 0.0

    @property
    def remembers(self) -> tuple[str, ...]:
        return self.memory if self.momentum else ()

    @property
    def usual_rate(self) -> float:
        return 0.01 if self.momentum else self.rate

    @property
    def is_plain(self) -> bool:
        """True without momentum and L2: the update of Algorithm 1."""
        return not (self.momentum or self.l2)

    def move(self, W: Array, G: Array, state: Sequence[Array], rate: float, backend: Calls) -> None:
        if not self.momentum:
            backend.sgd_update(W, G, rate)
            return
        (V,) = state
        backend.momentum_update(W, G, V, rate, self.momentum)


@dataclass
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): W ← W − η (M / c₁) / (√(V / c₂) + ε), with means M of G and V of G², cᵢ = 1 − βᵢᵗ."""

    kind, memory, rate = "adam", ("M", "V"), 0.001

    beta1: float = ADAM["beta1"]
    beta2: float = ADAM["beta2"]
    epsilon: float = ADAM["epsilon"]

    def move(self, W: Array, G: Array, state: Sequence[Array], rate: float, backend: Calls) -> None:
        M, V = state
        c1, c2 = 1 - self.beta1**self.steps, 1 - self.beta2**self.steps
        beta1, beta2, epsilon = own = self.beta1, self.beta2, self.epsilon
        if own == tuple(ADAM.values()):  # adam_update is an exercise with the usual β and ε as constants
            backend.adam_update(W, G, M, V, rate, c1, c2)
        else:
            backend.general_adam_update(W, G, M, V, rate, c1, c2, beta1, beta2, epsilon)


@dataclass
class RMSProp(Optimizer):
    """RMSProp (Hinton, 2012): V ← β V + (1 − β) G², W ← W − η G / (√V + ε)."""

    kind, memory, rate = "rmsprop", ("V",), 0.001

    beta: float = 0.9
    epsilon: float = 1e-8

    def move(self, W: Array, G: Array, state: Sequence[Array], rate: float, backend: Calls) -> None:
        (V,) = state
        backend.rmsprop_update(W, G, V, rate, self.beta, self.epsilon)


@dataclass
class AdaGrad(Optimizer):
    """AdaGrad (Duchi, Hazan and Singer, 2011): V ← V + G², W ← W − η G / (√V + ε)."""

    kind, memory, rate = "adagrad", ("V",), 0.01

    epsilon: float = 1e-8

    def move(self, W: Array, G: Array, state: Sequence[Array], rate: float, backend: Calls) -> None:
        (V,) = state
        backend.adagrad_update(W, G, V, rate, self.epsilon)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {each.kind: each for each in (SGD, Adam, RMSProp, AdaGrad)}
LIMITS = {"epsilon": (1e-30, math.inf), "l2": (0.0, math.inf)}  # other options are at least 0 and below 1


def make_optimizer(kind: str, **options: float) -> Optimizer:
    """make_optimizer("sgd", momentum=0.9). Raises CourseError for an unknown optimizer or option, or a bad value."""
    refuse_unknown("an optimizer", kind, OPTIMIZERS)
    known = OPTIMIZERS[kind]().describe()
    for name in options:
        if name not in known:
            there = ", ".join(known.keys() - {"kind"})
            raise CourseError(f"{name} is not for the optimizer {kind}: expected {there}")
    return OPTIMIZERS[kind](**options)


def remembered(state: dict[str, Array], name: str, parameters: Array) -> Array:
    """The array of that name in an optimizer's state: zeros like the parameters at first."""
    if name not in state:
        state[name] = np.zeros_like(parameters)  # CuPy's if the parameters are CuPy's
    return state[name]


# ---- schedules


def constant(rate: float) -> Schedule:
    """The same learning rate in every epoch.

    >>> constant(0.1)(7)
    0.1
    """
    return lambda epoch: rate


def step_decay(rate: float, epochs: int, factor: float) -> Schedule:
    """η · factor^⌊(epoch − 1) / epochs⌋, a function of the number of the epoch, from 1 on.

    rate: η, of the first epochs.
    epochs, factor: after this number of epochs the rate is multiplied by the factor, again and again.

    >>> [step_decay(0.8, epochs=2, factor=0.5)(epoch) for epoch in (1, 2, 3)]
    [0.8, 0.8, 0.4]
    """
    return lambda epoch: rate * factor ** ((epoch - 1) // epochs)


def exponential_decay(rate: float, factor: float) -> Schedule:
    """η · factor^(epoch − 1), a function of the number of the epoch, from 1 on.

    rate, factor: the first epoch's rate η, and the number by which the rate is multiplied after each epoch.

    >>> [exponential_decay(0.8, factor=0.5)(epoch) for epoch in (1, 2, 3)]
    [0.8, 0.4, 0.2]
    """
    return lambda epoch: rate * factor ** (epoch - 1)


def cosine_decay(rate: float, epochs: int, warm: int = 1) -> Schedule:
    """η (1 + cos(π (epoch − 1) / epochs)) / 2, a function of the number of the epoch, from 1 on.

    rate, epochs: the largest rate, η; it falls along half a wave until epoch number `epochs`, then stays.
    warm: the epoch with rate η, by default the first; until then the rate is η epoch / warm. At most `epochs`.

    >>> [round(cosine_decay(0.8, epochs=2)(epoch), 3) for epoch in (1, 2, 3)]
    [0.8, 0.4, 0.4]
    >>> [round(cosine_decay(0.8, epochs=3, warm=2)(epoch), 3) for epoch in (1, 2, 3)]
    [0.4, 0.8, 0.4]
    """
    if warm > epochs:
        raise CourseError(f"expected a warm-up of at most the {epochs} epochs of the schedule; got {warm}")

    def rate_of(epoch: int) -> float:
        if epoch < warm:
            return rate * epoch / warm
        return rate * (1 + math.cos(math.pi * (min(epoch, epochs) - warm) / (epochs - warm + 1))) / 2

    return rate_of


def warm_up(rate: float, epochs: int) -> Schedule:
    """η · epoch / epochs for the first `epochs`, then η: for a rate so large that training would diverge at once."""
    return lambda epoch: rate * min(epoch, epochs) / epochs


# Each schedule, and the types of its numbers in a text: int for epochs, float for a factor. Those with a default may be
# left out.
SCHEDULES: dict[str, tuple[Callable[..., Schedule], tuple[Callable[[str], float], ...]]] = {
    "constant": (constant, ()),
    "step": (step_decay, (int, float)),
    "exponential": (exponential_decay, (float,)),
    "cosine": (cosine_decay, (int, int)),
    "warmup": (warm_up, (int,)),
}


def make_schedule(text: str, rate: float) -> Schedule:
    """A schedule from text: constant; step,10,0.5; exponential,0.95; cosine,30; cosine,30,3; warmup,5.

    Raises CourseError for any other text.
    """
    kind, *texts = text.split(",")
    with contextlib.suppress(KeyError, ValueError):
        make, types = SCHEDULES[kind]
        given = types[: max(len(texts), len(types) - len(getattr(make, "__defaults__", None) or ()))]
        numbers = [of_type(each) for of_type, each in zip(given, texts, strict=True)]
        if all(number >= 1 if isinstance(number, int) else 0 < number <= 1 for number in numbers):
            return make(rate, *numbers)
    wanted = (
        "constant, step,EPOCHS,FACTOR, exponential,FACTOR, cosine,EPOCHS, cosine,EPOCHS,WARM or warmup,EPOCHS"
        ", with epochs of at least 1, WARM at most EPOCHS, and a factor above 0 and up to 1"
    )
    raise CourseError(f"expected a schedule, {wanted}; got {text!r}")
