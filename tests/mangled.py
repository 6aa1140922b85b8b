"""Hand-ins as they come after all that can happen to a file on its way: made from a seed, the same each time."""

import io
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import v4

from tests.made_class import tarred

SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
MSE = "def mse(A, Y):\n    return np.sum((Y - A) ** 2) / (2 * len(A))\n"
CUDA = """extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1 / (1 + expf(-z[i]));
}
"""
KERNELS = {
    "sigmoid.numpy.py": SIGMOID,
    "mse.numpy.py": MSE,
    "sigmoid.naive.cu": f"// %%cuda sigmoid naive --block 64\n{CUDA}",
}
CELLS = {
    "sigmoid.numpy.py": f'@exercise("sigmoid", kernel="numpy")\n{SIGMOID}',
    "mse.numpy.py": f'@exercise("mse", kernel="numpy")\n{MSE}',
    "sigmoid.naive.cu": f"%%cuda sigmoid naive --block 64\n{CUDA}",
}
PEOPLE = [
    "Núñez Łucja", "李小龍", "Ωμέγα Άννα", "עדה לאבלייס", "नमस्ते", "مريم ميرزاخاني", "emoji 🎓", "ligature ﬃ",
    "İı dotless", "e\u0301 combining", "zero\u200bwidth", "right\u202eleft", "new\nline", "tab\there", "<b>bold",
    "\x1b[31mred\x1b[0m", "=1+1", "-rf", "a,b;c", "'quoted\"", "100 %", "two dots..", "ends with a space ", "NUL",
    "𝕬𝖉𝖆 " + "𝕬" * 40, "a\\b", "x" * 150, "Lovelace_Ada_3",
]  # fmt: skip
SPECIAL = [
    "\x0c", "\u2028", "\u2029", "\x85", "\x1c", "\x0b", "\ufeff", "\u00a0", "\x00", "\u200b", "“", "\r", "\x1b[2J",
]  # fmt: skip


def notebook(rng: random.Random) -> bytes:
    """A notebook with answers, a magic or two, and now and then without ids or with a byte-order mark."""
    sources = ["import numpy as np", *CELLS.values(), "%pwd", "sigmoid?", "!ls"]
    rng.shuffle(sources)
    book = v4.new_notebook(cells=[v4.new_markdown_cell("# Answers"), *map(v4.new_code_cell, sources)])
    for number, cell in enumerate(book["cells"]):
        cell["id"] = f"cell-{number}"
    if rng.random() < 0.3:
        for cell in book["cells"]:
            del cell["id"]
        book["nbformat_minor"] = 4
    made = json.dumps(book, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5).encode()
    return rng.choice([b"", b"", b"\xef\xbb\xbf"]) + made


def zipped(files: dict[str, bytes], mark: str = "/") -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name.replace("/", mark), (2026, 11, 2, 12, 0, 0)), content)
    return held.getvalue()


def kernels(rng: random.Random, folder: str = "my_kernels/") -> dict[str, bytes]:
    """Some kept kernels, as their files, with their record."""
    chosen = rng.sample(sorted(KERNELS), rng.randint(1, len(KERNELS)))
    record = {name.rpartition(".")[0]: {"hash": "", "date": "2026-11-01"} for name in chosen}
    files = {f"{folder}{name}": KERNELS[name].encode() for name in chosen}
    files |= {f"{folder}progress.json": json.dumps(record).encode()}
    if rng.random() < 0.5:
        victim = rng.choice(sorted(files))
        files[victim] = changed(files[victim], rng)
    return files


def deep(rng: random.Random) -> dict[str, bytes]:
    return kernels(rng, "".join(f"{rng.choice(['a', 'ñ', '目录', 'b c'])}/" for _ in range(rng.randint(3, 30))))


FORMS: dict[str, Callable[[random.Random], dict[str, bytes] | bytes]] = {
    "": kernels,
    ".zip": lambda rng: zipped(kernels(rng)),
    ".ZIP": lambda rng: zipped({"submission.json": b'{"time": "2026-11-02T12:00:00+00:00"}'} | kernels(rng), "\\"),
    ".tar.gz": lambda rng: tarred(kernels(rng)),
    ".ipynb": notebook,
    " in": lambda rng: {"work.zip": zipped({"inner.zip": zipped(kernels(rng))})},
    " deep": deep,
    " both": lambda rng: {"02_activations.ipynb": notebook(rng), "ada.zip": zipped(kernels(rng))},
    "_21_assignsubmission_file_": lambda rng: {"02.ipynb": notebook(rng)},
}


def changed(content: bytes, rng: random.Random) -> bytes:
    """Bytes after an accident: changed, cut, doubled, moved, or with a character that nobody sees."""
    made = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 3])):
        place, other = sorted(rng.randrange(len(made) + 1) for _ in range(2))
        match rng.randrange(8):
            case 0 if made:
                made[rng.randrange(len(made))] = rng.randrange(256)
            case 1:
                del made[other:]
            case 2:
                del made[place : min(other, place + 40)]
            case 3:
                made[place:place] = made[place : min(other, place + 200)]
            case 4:
                made[place:place] = rng.randbytes(rng.randint(1, 8))
            case 5:
                made[place:place] = rng.choice(SPECIAL).encode()
            case 6:
                made = made.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\x0c\n"]), rng.randint(1, 3))
            case 7:
                made = made.replace(rng.choice([b'"', b"{", b"(", b"_", b" "]), b"", rng.randint(1, 3))
    return bytes(made)


def swapped(content: bytes, rng: random.Random) -> bytes:
    """A notebook in which a value somewhere has another type."""
    book = json.loads(content.decode("utf-8-sig"))
    cell = rng.choice(book["cells"])
    where = rng.choice([(book, "cells"), (book, "metadata"), (book, "nbformat"), (cell, "source"), (cell, "cell_type")])
    where[0][where[1]] = rng.choice([None, 3, "text", ["a", 1, None], {"a": []}, "\ud800", "x" * 1000])
    return json.dumps(book).encode()


def edited(content: bytes, rng: random.Random) -> bytes:
    """A notebook that is sound, with an accident in the text of one of its cells."""
    book = json.loads(content.decode("utf-8-sig"))
    cell = rng.choice(book["cells"])
    cell["source"] = changed(cell["source"].encode(), rng).decode("utf-8", rng.choice(["replace", "surrogateescape"]))
    return json.dumps(book).encode()


def hand_in(folder: Path, seed: int) -> str:
    """Write one mangled hand-in into a folder; the name of its entry."""
    rng = random.Random(seed)
    form = rng.choice(sorted(FORMS))
    content = FORMS[form](rng)
    name = f"{rng.choice(PEOPLE)} {seed}{form}"
    mangle = rng.choice([edited, edited, swapped, changed]) if form == ".ipynb" else changed
    if isinstance(content, bytes):
        is_mangled = rng.random() < (0.9 if form == ".ipynb" else 0.5)
        (folder / name).write_bytes(mangle(content, rng) if is_mangled else content)
        return name
    victim = rng.choice(sorted(content)) if rng.random() < 0.5 else ""
    (folder / name).mkdir()
    for place, held in content.items():
        path = folder / name / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(changed(held, rng) if place == victim else held)
    if rng.random() < 0.1:
        with open(os.path.join(os.fsencode(folder / name), b"Nu\xf1ez.txt"), "wb"):
            pass  # a name that is not UTF-8
    return name


def answers_that_jupyter_reads(content: bytes) -> set[str]:
    """The answers that stand in a notebook as they were written, if Jupyter can open it; by the names of the files."""
    try:
        book = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
        nbformat.validate(book)
        sources = [cell["source"] for cell in book["cells"] if cell["cell_type"] == "code"]
    except Exception:  # whatever nbformat raises, Jupyter does not open such a file
        return set()
    return {name for name, source in CELLS.items() if sources.count(source) == 1}
