"""The simulated group: its members, in one process, exchange messages in simulated time. The judge uses it too."""

from nncourse.parallel.simulation.faults import ExchangeError as ExchangeError
from nncourse.parallel.simulation.faults import count as count
from nncourse.parallel.simulation.links import Link as Link
from nncourse.parallel.simulation.links import fit_link as fit_link
from nncourse.parallel.simulation.links import ring_seconds as ring_seconds
from nncourse.parallel.simulation.links import root_seconds as root_seconds
from nncourse.parallel.simulation.links import tree_seconds as tree_seconds
from nncourse.parallel.simulation.members import SimulatedGroup as SimulatedGroup
from nncourse.parallel.simulation.members import simulate as simulate
from nncourse.parallel.simulation.records import Event as Event
from nncourse.parallel.simulation.records import Message as Message
from nncourse.parallel.simulation.records import Run as Run
