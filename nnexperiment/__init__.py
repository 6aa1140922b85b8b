"""nnexperiment repeats the experiments of the theses: `nncourse experiment`, and `nncourse time --network`.

Only the command line (through the entry points in pyproject.toml) and the benchmarks import it. The course works
without it.
"""

from pathlib import Path

import nncourse

__path__ = [str(Path(nncourse.__path__[0]).with_name("nnexperiment"))]  # in the language of nncourse
