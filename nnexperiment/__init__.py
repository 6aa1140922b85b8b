"""nnexperiment: the documents' experiments as programs. `nncourse experiment`, and `nncourse time --network`.

Nothing imports it but the command line, by the entry points in pyproject.toml, and benchmarks: the course works without
it.
"""

from pathlib import Path

import nncourse

__path__ = [str(Path(nncourse.__path__[0]).with_name("nnexperiment"))]  # in the language of nncourse
