"""The simulated group, where the other groups are: its parts are in nncourse/simulation/, which the judge uses too."""

from nncourse.simulation.faults import ExchangeError, count
from nncourse.simulation.links import Link, fit_link, ring_seconds, root_seconds, tree_seconds
from nncourse.simulation.members import Run, SimulatedGroup, simulate
from nncourse.simulation.world import Event, Message

__all__ = [
    "Event",
    "ExchangeError",
    "Link",
    "Message",
    "Run",
    "SimulatedGroup",
    "count",
    "fit_link",
    "ring_seconds",
    "root_seconds",
    "simulate",
    "tree_seconds",
]
