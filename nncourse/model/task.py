"""A training task, and a planner's answer to it: a Plan, or Refused. See plans.py."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

from nncourse.calls import Array, Calls
from nncourse.model.data_parallel import Together
from nncourse.model.layers import StepPosition
from nncourse.model.loaders import HostSamples
from nncourse.model.network import Network
from nncourse.model.optimizers import Optimizer

TrainEpoch = Callable[[Array, float, StepPosition], None]  # epoch(order, rate, position)


@dataclass(frozen=True)
class Task:
    """What to train, and how. The network and all arrays are on the backend's device.

    rate: learning rate of the first epoch; `rate_changes` says whether it changes later.
    together: the group that trains; all its members have this task.
    """

    network: Network
    optimizer: Optimizer
    backend: Calls
    X: Array | HostSamples
    Y: Array
    batch_size: int
    rate: float
    rate_changes: bool = False
    seed: int = 0
    together: Together = Together()

    def copies(self) -> tuple[Network, Optimizer]:
        """Copies of the network and the optimizer, to try a step with before the clock starts."""
        return self.network.with_flat_parameters(self.network.flat_parameters.copy()), copy.deepcopy(self.optimizer)


@dataclass(frozen=True)
class Plan:
    """epoch(order, rate, position) trains the network for one epoch. `note`: why it was chosen."""

    name: str
    epoch: TrainEpoch
    note: str = ""


@dataclass(frozen=True)
class Refused:
    """Why a planner has no plan. `is_news`: users may have expected one, so the history gives the reason."""

    reason: str
    is_news: bool = False
