"""How parameters move along their gradient at the end of a step, and how the learning rate changes with the epochs.

An update works on the network's flat vector of parameters, all layers at once. What it remembers from step to step
lies in `state`, by name, so that it is saved with the model, and training resumes exactly where it stopped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.errors import CourseError, refuse_unknown

BETA_1, BETA_2 = 0.9, 0.999  # of Adam, as in kernels/update.py

Schedule = Callable[[int], float]  # the learning rate of an epoch; the first epoch is 1


class Update(Protocol):
    """What training asks of an update. `steps` counts those that were taken."""

    state: dict[str, Array]
    steps: int

    @property
    def remembers(self) -> tuple[str, ...]:
        """The names of what it keeps in `state` from the first step on."""

    def step(self, parameters: Array, gradient: Array, rate: float, backend: Calls) -> None:
        """Move the parameters, a flat vector, in place. The gradient may be overwritten."""

    def describe(self) -> dict[str, Any]:
        """`kind` and the options that made it."""


@dataclass
class SGD:
    """Stochastic gradient descent: W ← W − η G. With momentum μ: V ← μ V + G, W ← W − η V.

    `l2` is λ: G + λ W takes the place of G, for all parameters, biases included.
    """

    momentum: float = 0.0
    l2: float = 0.0
    state: dict[str, Array] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        _refuse_bad("momentum", self.momentum, below=1.0)
        _refuse_bad("l2", self.l2)

    @property
    def remembers(self) -> tuple[str, ...]:
        return ("V",) if self.momentum else ()

    @property
    def is_plain(self) -> bool:
        """True without momentum and L2: the update of Algorithm 1."""
        return not (self.momentum or self.l2)

    def step(self, parameters: Array, gradient: Array, rate: float, backend: Calls) -> None:
        self.steps += 1
        if self.l2:
            backend.l2_gradient(gradient, parameters, self.l2)
        if not self.momentum:
            backend.sgd_update(parameters, gradient, rate)
            return
        V = remembered(self.state, "V", parameters)
        backend.momentum_update(parameters, gradient, V, rate, self.momentum)

    def describe(self) -> dict[str, Any]:
        return {"kind": "sgd", "momentum": self.momentum, "l2": self.l2}


@dataclass
class Adam:
    """Adam (Kingma and Ba, 2015) with β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸ and bias correction; `l2` as in SGD."""

    l2: float = 0.0
    state: dict[str, Array] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        _refuse_bad("l2", self.l2)

    @property
    def remembers(self) -> tuple[str, ...]:
        return ("M", "V")

    def step(self, parameters: Array, gradient: Array, rate: float, backend: Calls) -> None:
        self.steps += 1
        if self.l2:
            backend.l2_gradient(gradient, parameters, self.l2)
        M, V = (remembered(self.state, name, parameters) for name in self.remembers)
        c1, c2 = 1 - BETA_1**self.steps, 1 - BETA_2**self.steps
        backend.adam_update(parameters, gradient, M, V, rate, c1, c2)

    def describe(self) -> dict[str, Any]:
        return {"kind": "adam", "l2": self.l2}


UPDATES: dict[str, Callable[..., Update]] = {"sgd": SGD, "adam": Adam}
RATES = {"sgd": 0.1, "momentum": 0.01, "adam": 0.001}  # the usual learning rates


def make_update(kind: str, **options: float) -> Update:
    """make_update("sgd", momentum=0.9); CourseError for an update, an option or a value that there is not."""
    refuse_unknown("an update", kind, UPDATES)
    known = UPDATES[kind]().describe()
    for name in options:
        if name not in known:
            raise CourseError(f"{name} is not for the update {kind}: wanted {', '.join(known.keys() - {'kind'})}")
    return UPDATES[kind](**options)


def usual_rate(update: Update) -> float:
    """The learning rate to take where none is given."""
    about = update.describe()
    return RATES["momentum" if about.get("momentum") else about["kind"]]


def _refuse_bad(name: str, value: float, below: float = math.inf) -> None:
    if not 0 <= value < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise CourseError(f"wanted {name} of at least 0{limit}, got {value}")


def remembered(state: dict[str, Array], name: str, parameters: Array) -> Array:
    """The array of that name in an update's state: zeros like the parameters at first."""
    if name not in state:
        state[name] = np.zeros_like(parameters)  # of CuPy, if the parameters are CuPy's
    return state[name]


# ---- schedules


def constant(rate: float) -> Schedule:
    """The same learning rate in every epoch.

    >>> constant(0.1)(7)
    0.1
    """
    return lambda epoch: rate


def step_decay(rate: float, epochs: int, factor: float) -> Schedule:
    """η · factor^⌊(epoch − 1) / epochs⌋.

    rate: η, of the first epochs.
    epochs, factor: after every so many epochs the rate is times the factor.

    Returns a function: the number of an epoch, from 1 on, to its rate. Raises CourseError for numbers out of range.

    >>> [step_decay(0.8, epochs=2, factor=0.5)(epoch) for epoch in (1, 2, 3)]
    [0.8, 0.8, 0.4]
    """
    return lambda epoch: rate * factor ** ((epoch - 1) // epochs)


def exponential_decay(rate: float, factor: float) -> Schedule:
    """η · factor^(epoch − 1).

    rate, factor: η, of the first epoch, and what the rate is multiplied by after each.

    Returns a function: the number of an epoch, from 1 on, to its rate. Raises CourseError for numbers out of range.

    >>> [exponential_decay(0.8, factor=0.5)(epoch) for epoch in (1, 2, 3)]
    [0.8, 0.4, 0.2]
    """
    return lambda epoch: rate * factor ** (epoch - 1)


def cosine_decay(rate: float, epochs: int) -> Schedule:
    """η (1 + cos(π (epoch − 1) / epochs)) / 2: down half a wave; after the last of the epochs it stays.

    rate, epochs: η, of the first epoch, and how many there are.

    Returns a function: the number of an epoch, from 1 on, to its rate. Raises CourseError for numbers out of range.

    >>> [round(cosine_decay(0.8, epochs=2)(epoch), 3) for epoch in (1, 2, 3)]
    [0.8, 0.4, 0.4]
    """
    return lambda epoch: rate * (1 + math.cos(math.pi * (min(epoch, epochs) - 1) / epochs)) / 2


def warm_up(rate: float, epochs: int) -> Schedule:
    """η · epoch / epochs, from the first so many epochs on η: a large rate that would leap out at the start."""
    return lambda epoch: rate * min(epoch, epochs) / epochs


def make_schedule(text: str, rate: float) -> Schedule:
    """A schedule from text: "constant", "step,10,0.5", "exponential,0.95", "cosine,30" or "warmup,5".

    CourseError for any other.
    """
    kind, *numbers = text.split(",")
    try:
        match kind, numbers:
            case "constant", []:
                return constant(rate)
            case "step", [epochs, factor]:
                return step_decay(rate, _epochs(epochs), _factor(factor))
            case "exponential", [factor]:
                return exponential_decay(rate, _factor(factor))
            case "cosine", [epochs]:
                return cosine_decay(rate, _epochs(epochs))
            case "warmup", [epochs]:
                return warm_up(rate, _epochs(epochs))
    except ValueError:
        pass
    wanted = (
        "constant, step,EPOCHS,FACTOR, exponential,FACTOR, cosine,EPOCHS or warmup,EPOCHS"
        ", with epochs of at least 1 and a factor above 0 and up to 1"
    )
    raise CourseError(f"wanted a schedule, {wanted}; got {text!r}")


def _epochs(text: str) -> int:
    if (epochs := int(text)) < 1:
        raise ValueError
    return epochs


def _factor(text: str) -> float:
    if not 0 < (factor := float(text)) <= 1:
        raise ValueError
    return factor
