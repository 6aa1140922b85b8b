from . import engines as engines
from . import report as report
from . import speedup as speedup
