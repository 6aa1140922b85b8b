"""The simulated group, where the other groups are: its parts are in nncourse/simulation/, which the judge uses too."""

from nncourse.parallel.simulation.faults import ExchangeError, count
from nncourse.parallel.simulation.links import Link, fit_link, ring_seconds, root_seconds, tree_seconds
from nncourse.parallel.simulation.members import SimulatedGroup, simulate
from nncourse.parallel.simulation.records import Event, Message, Run

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
