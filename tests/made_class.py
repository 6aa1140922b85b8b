"""A made class: hand-ins of every form, some of them copies, and what is to be said of each."""

import csv
import io
import json
import random
import re
import tarfile
import zipfile
from collections import defaultdict
from pathlib import Path

import nbformat
from nbformat import v4

from nnclassroom.exercises.hints import Exercise
from nnclassroom.handing_in.kernel_files import file_of
from nnclassroom.notebook.exams import is_cuda
from tests.exercise_answers import RIGHT, UNUSUAL

COPIED = "dense_forward.tiled.cu"  # a long kernel, which three students copy from ordinary_00
EARLY, IN_TIME, LATE = (f"2026-{day}T12:00:00+00:00" for day in ("11-01", "12-01", "12-02"))
# Entries of which nothing can be read, and the reason.
UNREAD = {
    "rara.rar": "expected a .zip",
    "rarb": "hand in.rar is not read",
    "empty": "nothing in it",
    "words.docx": "expected a .zip",
    "broken.zip": "cannot be read",
    "escapes.zip": "a path out of the archive",
    "blank.ipynb": "no filled-in exercise",
    "damaged.ipynb": "is not a notebook",
    "report_only": "report.pdf is not read",
}
# Entries that are read, with something to say.
SAID = {
    "linked.tar.gz": "is a link or a device",
    "notebooks": "sigmoid.numpy.py is there twice: 03b.ipynb counts",
    "renamed": "sigmoid(1).numpy.py is read as sigmoid.numpy.py",
    "texts": "sigmoid.numpy.py.txt is read as sigmoid.numpy.py",
    "twice": "of 2 hand-ins, the newest counts: second.zip",
    "latin": "softmax.numpy.py: not a text in UTF-8",
    "huge": "softmax.numpy.py: longer than 256 KB",
    "misspelt": "did you mean sigmoid.numpy.py?",
}


def right_answers() -> dict[str, list[str]]:
    """The right answers of the tests, by the name of their file."""
    found = defaultdict(list)
    for each in RIGHT + UNUSUAL:
        cuda = is_cuda(each["kernel"])
        head = f"// %%cuda {each.get('line', '{operation} {kernel}'.format(**each))}\n" if cuda else ""
        name = f"{each['operation']}.{each['kernel']}.{'cu' if cuda else 'py'}"
        found[name].append(head + each["text"].lstrip("\n"))
    return found


def zipped(files: dict[str, str | bytes] | dict[zipfile.ZipInfo, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def tarred(files: dict[str, str | bytes], link: str = "", form: str = "gz") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=f"w:{form}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
        if link:
            about = tarfile.TarInfo("neuron.loops.py")
            about.type, about.linkname = tarfile.SYMTYPE, link
            archive.addfile(about)
    return held.getvalue()


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files into a folder, by their paths in it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def table(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows of a .csv file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def packed(kernels: dict[str, str], time: str = IN_TIME) -> bytes:
    """As `nncourse submit` packs them."""
    inside = {f"my_kernels/{name}": text for name, text in kernels.items()}
    return zipped({"submission.json": json.dumps({"name": "", "time": time}), **inside})


def notebook(kernels: dict[str, str], printed: str = "") -> bytes:
    """A notebook with these answers in its cells, and an output."""
    outputs = [v4.new_output("stream", text=printed)]
    cells = [v4.new_markdown_cell("# Answers"), v4.new_code_cell("import numpy as np", outputs=outputs)]
    for name, text in kernels.items():
        operation, kernel, ending = name.split(".")
        if ending == "cu":
            cells.append(v4.new_code_cell(text.removeprefix("// ")))
        else:
            cells.append(v4.new_code_cell(f'@exercise("{operation}", kernel="{kernel}")\n{text}'))
    return nbformat.writes(v4.new_notebook(cells=cells)).encode()


def without_ids(notebook: bytes) -> bytes:
    """As Google Colab writes it."""
    book = json.loads(notebook)
    for cell in book["cells"]:
        del cell["id"]
    return json.dumps(book | {"nbformat_minor": 0}).encode()


def copies(text: str) -> dict[str, str]:
    """The ways in which a kernel is copied."""
    names = dict.fromkeys(re.findall(r"\b(?:int|float) (\w+) =", text))
    renamed = text.replace(";\n", ";  // mine\n")
    for name in names:
        renamed = re.sub(rf"(?<!\.)\b{name}\b", f"{name}_mine", renamed)
    dead = re.sub(r"(\n +)(?=(?:int|float) \w+ =)", r"\1int unused_ = 0;\1", text, count=1)
    lines = text.splitlines(keepends=True)
    declared = [re.match(r" +(?:int|float) (\w+) = [^;]*;\s*(?://.*)?$", line) for line in lines]
    first = next(
        n
        for n, (one, two) in enumerate(zip(declared, declared[1:], strict=False))
        if one and two and not re.search(rf"\b{one[1]}\b", lines[n + 1])
    )
    lines[first : first + 2] = reversed(lines[first : first + 2])
    return {"copy_names": renamed, "copy_dead": dead, "copy_order": "".join(lines)}


def make(folder: Path, exercises: list[Exercise], ordinary: int = 4) -> None:
    """Write the class's entries into a folder: `ordinary` ones, and 67 others."""
    pool, rng = right_answers(), random.Random(31)
    wanted = [file_of(each) for each in exercises]

    def answers() -> dict[str, str]:
        """A student's, of which some are missing."""
        return {name: rng.choice(pool[name]) for name in wanted if name != COPIED and rng.random() < 0.9}

    honest = answers() | {COPIED: pool[COPIED][-1]}
    entries: dict[str, bytes | dict[str, bytes | str]] = {"ordinary_00": honest}
    for name, text in copies(honest[COPIED]).items():
        entries[name] = {"sigmoid.numpy.py": pool["sigmoid.numpy.py"][0], COPIED: text}
    for number in range(1, ordinary + 1):
        own = answers()
        if number < len(pool[COPIED]):
            own[COPIED] = pool[COPIED][number - 1]  # an honest one, of which two are like the course's
        entries[f"ordinary_{number:02}"] = {f"my_kernels/{name}": text for name, text in own.items()}
    for number in range(10):
        entries[f"zip_{number:02}.zip"] = packed(answers(), LATE if number == 0 else IN_TIME)
    for number in range(6):
        entries[f"tar_{number:02}.tar.gz"] = tarred({f"./my_kernels/{n}": text for n, text in answers().items()})
    for number in range(8):
        entries[f"Moodle {number}_{1000 + number}_assignsubmission_file_"] = {"hand in.zip": packed(answers())}
    for number in range(8):
        entries[f"canvas{'abcdefgh'[number]}_{2000 + number}_{9000 + number}_kernels.zip"] = packed(answers())
    blank = "def relu(z):\n    raise NotImplementedError  # your code here\n"
    sigmoid = pool["sigmoid.numpy.py"][0]
    entries |= {
        "rara.rar": b"Rar!\x1a\x07",
        "rarb": {"hand in.rar": b"Rar!\x1a\x07"},
        "empty": {},
        "words.docx": b"PK\x03\x04 words",
        "broken.zip": packed(honest)[:100],
        "escapes.zip": zipped({"../../sigmoid.numpy.py": sigmoid}),
        "linked.tar.gz": tarred({"sigmoid.numpy.py": sigmoid}, "/etc/passwd"),
        "two_folders.zip": zipped({"a/sigmoid.numpy.py": sigmoid, "b/sigmoid.numpy.py": sigmoid}),
        "blank.ipynb": notebook({"relu.numpy.py": blank}),
        "damaged.ipynb": b'{"cells": [',
        "report_only": {"report.pdf": b"%PDF-1.7"},
        "beatriz.ipynb": notebook(answers() | {"sigmoid.numpy.py": sigmoid}),
        "notebooks": {
            "02_activations.ipynb": notebook({"sigmoid.numpy.py": sigmoid}),
            "03b.ipynb": notebook(answers() | {"sigmoid.numpy.py": pool["sigmoid.numpy.py"][1]}),
        },
        "zipped_notebooks.zip": zipped({"my/02.ipynb": notebook({"sigmoid.numpy.py": sigmoid})}),
        "renamed": {"sigmoid(1).numpy.py": sigmoid},
        "texts": {"sigmoid.numpy.py.txt": sigmoid},
        "twice": {
            "second.zip": packed({"sigmoid.numpy.py": sigmoid}),
            "a.zip": packed({"sigmoid.numpy.py": "older"}, EARLY),
        },
        "latin": {"sigmoid.numpy.py": sigmoid, "softmax.numpy.py": "# ñ".encode("latin-1")},
        "huge": {"sigmoid.numpy.py": sigmoid, "softmax.numpy.py": "#" * (300 << 10)},
        "misspelt": {"sigmoid.numpy.py": sigmoid, "sigmoyd.numpy.py": sigmoid},
        # What Windows, Jupyter, Google Colab and Moodle make.
        "UPPER.ZIP": packed({"sigmoid.numpy.py": sigmoid}),
        "environment.zip": zipped({f".venv/{n}.py": "" for n in range(12_001)} | {"sigmoid.numpy.py": sigmoid}),
        "clone.tar.gz": tarred(
            {
                "nn/.git/HEAD": "ref: refs/heads/main",
                "nn/nncourse/kernels/relu.cu": "// the course's",
                "nn/notebooks/02_activations.ipynb": notebook({"relu.numpy.py": blank}),
                "nn/my_kernels/sigmoid.numpy.py": sigmoid,
            }
        ),
        "checkpoints": {
            "02.ipynb": notebook({"sigmoid.numpy.py": sigmoid}),
            ".ipynb_checkpoints/02-checkpoint.ipynb": notebook({"sigmoid.numpy.py": "older"}),
        },
        "outputs.ipynb": notebook({"sigmoid.numpy.py": sigmoid}, "." * (30 << 20)),
        "colab": {"Copia de 02_activations.ipynb": without_ids(notebook({"sigmoid.numpy.py": sigmoid})), "a.png": "x"},
        "exported": {"02_a.py": f'@exercise("sigmoid", kernel="numpy")\n{sigmoid}', "02_a.html": "<p>"},
        "Maria Garcia_31_assignsubmission_file_": {"sigmoid.numpy.py": sigmoid},
        "Maria Garcia_32_assignsubmission_file_": {"sigmoid.numpy.py": sigmoid},
        "Nu\udcf1ez": {"sigmoid.numpy.py": sigmoid},  # in the code page of Windows
        "macos.zip": zipped({"my_kernels/sigmoid.numpy.py": sigmoid, "__MACOSX/my_kernels/._sigmoid.numpy.py": "x"}),
    }
    for entry, content in entries.items():
        if isinstance(content, dict):
            (folder / entry).mkdir(parents=True, exist_ok=True)
            put(folder / entry, content)
        else:
            put(folder, {entry: content})
