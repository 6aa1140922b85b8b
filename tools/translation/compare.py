"""What a translation may not change: holes, code, formulas, links, tags, and the code around the words."""

import ast
import re
from collections import Counter

from . import literals

CODE = re.compile(r"`[^`]+`")
SAID_IN_CODE = {"`my_notebooks/`": "`mis_cuadernos/`"}  # folders whose names are words
FORMULA = re.compile(r"\$\$?[^$]+\$\$?")
LINK = re.compile(r"\]\(([^)]*)\)")
TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
JAVASCRIPT_HOLE = re.compile(r"\$\{[^{}]*\}")
TEMPLATE_HOLE = re.compile(r"\{\w*[^{}\s]*\}")
PERCENT_HOLE = re.compile(r"%(?:\(\w+\))?[srd](?!\w)")
IN_CODE = {"string", "f-string", "template", "alternative text"}


def differs(text: str, said: str, kind: str) -> dict[str, str]:
    """What differs and how, by its name: "holes", "code", "formulas", "links", "tags", "cells", "blanks"."""
    found = {}
    for what, ours, theirs in _parts(text, said, kind):
        if ours != theirs:
            gone, come = list((ours - theirs).elements()), list((theirs - ours).elements())
            found[what] = f"{what}: expected {', '.join(gone) or 'none'}; got {', '.join(come) or 'none'}"
    if kind in IN_CODE and _blanks(text) != _blanks(said):
        found["blanks"] = "blanks: expected the same ones at the beginning and at the end"
    return found


def _parts(text: str, said: str, kind: str) -> list[tuple[str, Counter, Counter]]:
    both = (text, said)
    if kind == "f-string":
        return [("holes", *(Counter(_holes(each)) for each in both))]
    if kind == "template":
        return [("holes", *(Counter(re.sub(r'"[^"]*"', '""', h) for h in JAVASCRIPT_HOLE.findall(e)) for e in both))]
    parts = [("code", _counted_code(text), _counted_code(said))]
    if kind == "string":
        return [*parts, ("holes", *(Counter(_template_holes(each)) for each in both))]
    bare = [CODE.sub("", each) for each in both]
    parts += [("formulas", *(Counter(_without_words(each)) for each in bare))]
    parts += [("links", *(Counter(LINK.findall(each)) for each in both))]
    parts += [("tags", *(Counter(TAG.findall(each)) for each in bare))]
    if kind == "table row":
        parts += [("cells", *(Counter(re.findall(r"(?<!\\)\|", FORMULA.sub("", each))) for each in bare))]
    return parts


def _counted_code(text: str) -> Counter:
    """The code of a text; a folder has its English name."""
    english = {said: code for code, said in SAID_IN_CODE.items()}
    return Counter(english.get(code, code) for code in CODE.findall(text))


def _template_holes(text: str) -> list[str]:
    """The holes of a string that is no f-string: {…}, and %s or %(…)s."""
    return TEMPLATE_HOLE.findall(text) + PERCENT_HOLE.findall(text)


def _blanks(text: str) -> tuple[str, str]:
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


def _without_words(text: str) -> list[str]:
    """The formulas of a text, without the words in them."""
    return [re.sub(r"\\text\{[^{}]*\}", r"\\text{}", formula) for formula in FORMULA.findall(text)]


def _holes(text: str) -> list[str]:
    """The holes of an f-string, without the words in them; a hole that is no Python stays as it is."""
    try:
        return [_bare(each) for kind, each in literals.segments(text) if kind == "hole"]
    except ValueError:
        return ["a brace that is not closed"]


def _bare(hole: str) -> str:
    try:
        tree = ast.parse(f"f'''{hole}'''", mode="eval")
    except SyntaxError:
        return hole
    for node in literals.word_nodes(tree):
        node.value = ""
    return ast.unparse(tree)


def skeleton(source: str) -> str:
    """Python's code without its words, magics and comments."""
    tree = ast.parse(re.sub(r"^[%!].*", "", source, flags=re.MULTILINE))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for word in literals.word_nodes(node):
                word.value = ""
            holes = (each for each in node.values if isinstance(each, ast.FormattedValue))
            node.values = sorted(holes, key=ast.dump)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)
