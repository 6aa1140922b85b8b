"""A .cu text as it is passed around. What it declares is read by source.py, at its first launch."""

import re
from dataclasses import dataclass
from pathlib import Path

from cuda_on_cpu.errors import UserError, decoded, reason_of

# NVRTC has no <math.h> to define these two.
PRELUDE = """#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
"""


@dataclass(frozen=True)
class CudaSource:
    """A .cu text, its file name for messages, its constants ("ALPHA=0.01f"), and texts that are placed before it.

    Device functions shared by several texts are placed `before` each of them rather than included, because a compiler's
    cache on disk does not notice when an included file changes.
    """

    text: str
    file: str
    defines: tuple[str, ...] = ()
    before: tuple["CudaSource", ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.removeprefix("\ufeff"))  # a byte-order mark, as editors leave it

    def __hash__(self) -> int:
        return hash((self.text, self.file))  # needed at every launch; fast, because Python caches a string's hash

    @staticmethod
    def read(path: Path, defines: tuple[str, ...] = (), before: tuple["CudaSource", ...] = ()) -> "CudaSource":
        """The .cu file at `path`, shown as "<its folder>/<its name>"."""
        try:
            text = decoded(path.read_bytes())
        except OSError as error:
            raise UserError(f"{path}: expected a .cu file, but {reason_of(error)}; check the path") from None
        except UnicodeDecodeError:
            raise UserError(f"{path}: expected a .cu file in UTF-8; save it in UTF-8 in your editor") from None
        return CudaSource(text, f"{path.resolve().parent.name}/{path.name}", defines, before)

    def line_of(self, function: str) -> int:
        """The line in which a function's name first stands before its parameters, counted from 1; 0 if none does."""
        found = re.search(rf"^(?!\s*//).*\b{function}\(", self.text, re.MULTILINE)
        return self.text.count("\n", 0, found.end()) + 1 if found else 0

    def compilable(self) -> str:
        """The text to compile: constants, then the texts, each after a #line so that messages give its own lines."""
        pairs = (define.partition("=") for define in self.defines)
        constants = "".join(f"#define {name} {value or 1}\n" for name, _, value in pairs)
        texts = "".join(f'#line 1 "{source.file}"\n{source.text}\n' for source in (*self.before, self))
        return PRELUDE + constants + texts
