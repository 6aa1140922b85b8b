"""Make the beginning of the front page: a network that learns, and a kernel with its verdict."""

import hashlib
from pathlib import Path
from types import ModuleType

import nnclassroom
from nncourse import language

PLAYGROUND = ("from nnclassroom import widgets", "widgets.taste()")
KERNEL = """\
extern "C" __global__ void relu(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = z[i] > 0.0f ? z[i] : 0.0f;
}"""
MENDED = KERNEL.replace("    a[i] =", "    if (i < n) a[i] =")


def beginning(playground: str, words: ModuleType, cache: Path) -> str:
    """The Markdown between the page's title and its list of notebooks; `playground` is HTML."""
    kernels = [f"```cuda\n{text}\n```\n\n```text\n{verdict(text, cache)}\n```" for text in (KERNEL, MENDED)]
    for_whom = "\n".join(f"- {line}" for line in words.FOR_WHOM)
    first, second = kernels
    parts = [
        words.SLOGAN,
        f"```{{raw}} html\n{playground}\n```",
        words.PRESS_START,
        f"## {words.YOUR_KERNEL}",
        words.KERNEL_WRONG,
        first,
        words.KERNEL_RIGHT,
        second,
        f"## {words.FOR_WHOM_TITLE}",
        for_whom,
    ]
    return "\n\n".join(parts)


def verdict(text: str, cache: Path) -> str:
    """What the judge says of a kernel of relu under the emulator; kept in the cache until the judge changes."""
    judge = sorted(Path(nnclassroom.__path__[0]).rglob("judge/*.py"))
    together = hashlib.sha256(b"".join(path.read_bytes() for path in judge) + text.encode())
    kept = cache / "verdicts" / f"{language.current()}.{together.hexdigest()[:16]}.txt"
    if not kept.is_file():
        relu = nnclassroom.find("relu")
        mine = nnclassroom.build(relu, "mine", text, {"block": [256]})
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(nnclassroom.check(relu, mine, device="emulator")), "utf-8")
    return kept.read_text("utf-8")
