"""Answers to the exercises, right and wrong, and to other kernels of their operations: tests/answers/NN_notebook.toml.

[operation.kernel]        `text` is the right answer that notebooks are filled in with, not the package's own kernel;
                          `line` what follows %%cuda, for all answers that have no other; `signature` begins functions
[operation.kernel.right]  other right answers, written in unusual ways, each under its idea
[operation.kernel.wrong]  wrong answers, each under its mistake

An answer is a text, or has one of these: `text`; `body`, what follows the signature; or what makes it of another one,
`of` that name (without it, of the exercise's own): the text that stood there, `was`, and what takes its place, `is`; or
several such pairs, `changes`. Each replaces the first occurrence.

What the verdict on a wrong answer must be:
says, says_gpu    words in it, and others that are fair where a GPU judges first
kinds, gpu_kinds  the kinds that are fair, and further ones where a GPU judges first
counts = false    it is wrong with NaN and infinities alone
gpu = false       undefined behaviour that need not show on a real GPU: only the emulator can be expected to find it
accepted          why the judge calls it right: a known gap
"""

import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

FILES = sorted((Path(__file__).parent / "answers").glob("[0-9]*.toml"))
ORIGINS = ("text", "body", "of", "was", "is", "changes")


def answers_of(file: Path) -> Iterator[tuple[str, dict]]:
    """The answers in a file, each with "own", "right" or "wrong": its texts are whole, its names are fields."""
    for operation, kernels in tomllib.loads(file.read_text("utf-8")).items():
        for kernel, table in kernels.items():
            line = {"line": table["line"]} if "line" in table else {}
            common = {"file": file.stem, "operation": operation, "kernel": kernel} | line
            if "text" in table:
                yield "own", common | {"text": table["text"]}
            for kind, name in (("right", "idea"), ("wrong", "mistake")):
                for words, entry in table.get(kind, {}).items():
                    given = {} if isinstance(entry, str) else {k: v for k, v in entry.items() if k not in ORIGINS}
                    yield kind, common | given | {name: words, "text": text_of(table, entry)}


def text_of(table: dict, entry: dict | str) -> str:
    """The whole text of an answer to a kernel, from the table of that kernel."""
    if isinstance(entry, str):
        return entry
    if "text" in entry:
        return entry["text"]
    if "body" in entry:
        return _with_body(table["signature"], entry["body"])
    others = table.get("right", {}) | table.get("wrong", {})
    text = text_of(table, others[entry["of"]]) if "of" in entry else table["text"]
    for was, becomes in entry.get("changes") or [(entry["was"], entry["is"])]:
        assert was in text, f"{was!r} is not in the answer {entry.get('of', 'of the exercise')!r}: bring it up to date"
        text = text.replace(was, becomes, 1)
    return text


def _with_body(signature: str, body: str) -> str:
    """A body of one line is written without its indentation."""
    lines = body if body.endswith("\n") else textwrap.indent(f"{body}\n", "    ")
    return f"{signature}\n{lines}{'}' + chr(10) if signature.endswith('{') else ''}"


ALL = [answer for file in FILES for answer in answers_of(file)]
RIGHT = [answer for kind, answer in ALL if kind == "own"]
WRONG = [answer for _, answer in ALL if "says" in answer]
UNUSUAL = [answer for kind, answer in ALL if kind == "right"]
JUDGED = [answer for _, answer in ALL if "kinds" in answer]
TABLES = {
    file.stem: {
        "right": [right for right in RIGHT if right["file"] == file.stem],
        "wrong": [wrong for wrong in WRONG if wrong["file"] == file.stem],
    }
    for file in FILES
}


def in_cuda(answer: dict) -> bool:
    """Whether an answer is in CUDA C: it is judged on a GPU where there is one."""
    return "line" in answer
