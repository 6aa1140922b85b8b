"""Units of Python source: comments, docstrings, and strings for people."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from . import cuda_text, literals
from .units import WORD, Unit, as_it_is, flowing, joined
from .words import Words

# Arguments and calls whose strings are read by people, even a single word.
SHOWN_ARGUMENTS = {
    *("title", "suptitle", "xlabel", "ylabel", "zlabel", "label", "description", "tooltip", "alt", "caption", "help"),
    *("placeholder", "epilog", "words", "metavar"),
}
SHOWN_BY = {
    *("print", "text", "annotate", "suptitle", "title", "xlabel", "ylabel", "legend", "CourseError", "UserError"),
    *("refuse_unknown", "refuse_unwritable", "waiting", "with_progress"),
    *("set_title", "set_xlabel", "set_ylabel", "set_label", "figtext", "set_xticklabels", "set_yticklabels"),
}
NAMES_IN = {"kernel", "loc", "dest", "choices", "default", "key", "dtype", "mode", "encoding"}
# Calls whose strings are names of things or patterns, whatever they look like.
NAMED_BY = {
    *("hint", "solution", "find", "choose", "load", "generate", "exercise", "make_network", "compile", "fullmatch"),
    *("match", "search", "sub", "finditer", "findall", "split", "kernel", "cuda_kernel", "getattr"),
    *("startswith", "endswith", "add_argument_group", "einsum", "environ", "which", "import_module", "strptime"),
    *("mnist", "mnist_or_digits"),
}
FIRST_NAMES = {"Operation": 1}  # calls whose first strings only are names
CONTROLS = {"menu", "stepped", "tick"}  # of the playground: a name, the label, what it does
LABELLED = {"slider", "factors", "powers_of_two", "menu", "play", "button"}  # of a browser widget: the label is first
SHOWN_AT = {  # calls whose strings at these places are read: the names of axes, a title
    "plot_lines": (1, 2, 3),
    "plot_bars": (1, 2),
    "plot_batches": (2, 3),
    "plot_amdahl": (1,),
    "plot_timelines": (1,),
    "Question": (4,),
}
HEAD = re.compile(r"(?i)(?:^|_)(?:heads?|columns)$")
WORDS_OF = re.compile(r"(?i)(?:^|_)words$")
LOOKS_UP = {
    *("get", "pop", "setdefault", "index", "count", "startswith", "endswith", "getattr", "partition", "rpartition"),
    *("split", "rsplit", "removeprefix", "removesuffix", "find", "rfind"),
}
TWO_WORDS = re.compile(r"[^\W\d_]{2,}(?:['’]s)?[,.:;!?)\"'’]*[ \n]+(?:[–—(·×=\"'‘“]+ ?)?[^\W_]")
TAG, UNCLOSED_TAG = re.compile(r"</?\w[^<>]*>"), re.compile(r"</?\w[^<>]*$|^[^<>]*\">")
CONTRACT = re.compile(r"\w+ \([\w ,*{}\[\]/]*\)[^.;]* -> |^where \w+ = ")
PART = re.compile(r"(?:[,;:)] |\()[^\W\d_]{3,}[^{}=]*$| [^\W\d_]{2,} ?$")
LONG_WORD = re.compile(r"(?:^|[\s(])[^\W\d_]{3,}(?:[\s,.:;)]|\0e?s\0|$)")
SHORT_WORD = re.compile(r"(?:^|\0[,)]?)[ (]*(?:at|by|in|of|on|or|to) \0")  # between two holes, or before one
C_SOURCE = re.compile(r"#include|__global__|__device__|extern \"C\" [{_]|\bfloat\* |; +//|;\n")
CODE_COMMENT = re.compile(r"#!|# ?(?:noqa|type:|fmt:|pragma|nosec|ruff:|mypy:|-\*-)")
MARK = re.compile(r"#+ *(?:-{3,} *)?")
LIST_ITEM = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")
NAMED = re.compile(r"\s*\w+(?: …)? {2,}\S")  # a line of a docstring's list: a name, blanks, and what it is
PARAMETERS = re.compile(r"\s*\w+(?:, \w+)*: ")  # where a docstring says what some are; its later lines are set in
WRITTEN = ("comment", "docstring")  # kinds of units that only readers of a source see


@dataclass(frozen=True)
class Source:
    """A Python text with what places in it mean."""

    text: str
    plain: str  # as long as the text; magics are comments
    starts: tuple[int, ...]  # of the lines
    tree: ast.Module

    def at(self, line: int, column: int) -> int:
        """The place of ast's line and column, which counts bytes."""
        begin = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.plain)
        return begin + len(self.plain[begin:end].encode()[:column].decode())


def parsed(text: str) -> Source:
    """The source, magics taken as comments."""
    plain = re.sub(r"^([%!])", "#", text, flags=re.MULTILINE)
    starts = [0]
    for line in plain.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return Source(text, plain, tuple(starts), ast.parse(plain))


def units(text: str, words: Words, width: int = 120) -> list[Unit]:
    """The units of a Python text, in order."""
    source = parsed(text)
    found = list(_strings(source, words, width))
    if words.code:
        taken = [(unit.begin, unit.end) for unit in found]
        comments = _comments(source, width)
        found += [each for each in comments if not any(begin <= each.begin < end for begin, end in taken)]
    return sorted(found, key=lambda unit: unit.begin)


def lines_shown(text: str, words: Words) -> set[int]:
    """The lines of a module whose comments and docstrings are shown in a notebook or in the book's reference.

    These are all kernels, the docstrings of what words.toml calls documented, and the module's own if it is code.
    """
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    kernels = [node for node in functions if _is_kernel(node) or node.name in words.kernels]
    documented = [node for node in tree.body if getattr(node, "name", "") in words.documented]
    docstrings = [node.body[0] for node in (*[tree] * words.code, *documented)]
    return {line for node in (*kernels, *docstrings) for line in range(node.lineno, node.end_lineno + 1)}


def _is_kernel(function: ast.FunctionDef) -> bool:
    """Whether a decorator registers it: @relu.kernel("numpy", …), @relu.array_kernel."""
    called = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return any(isinstance(each, ast.Attribute) and each.attr.endswith("kernel") for each in called)


def _comments(source: Source, width: int) -> Iterator[Unit]:
    """Comments; lines below one another are one unit."""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source.plain).readline) if t.type == tokenize.COMMENT]
    tokens = [t for t in tokens if source.text[source.starts[t.start[0] - 1]] not in "%!"]
    block: list[tokenize.TokenInfo] = []
    for token in tokens:
        if block and _goes_on(block, token):
            block.append(token)
            continue
        yield from _comment(source, block, width)
        block = [token]
    yield from _comment(source, block, width)


def _goes_on(block: list[tokenize.TokenInfo], token: tokenize.TokenInfo) -> bool:
    last = block[-1]
    below = token.start[0] == last.start[0] + 1 and token.start[1] == last.start[1]
    alone = all(not each.line[: each.start[1]].strip() for each in (last, token))
    text = token.string[1:]
    apart = any("---" in each.string for each in (last, token))
    return below and alone and not apart and text.strip() != "" and not LIST_ITEM.match(text)


def _comment(source: Source, block: list[tokenize.TokenInfo], width: int) -> Iterator[Unit]:
    while len(block) > 1 and not block[0].string.strip("# "):
        block = block[1:]
    if not block or CODE_COMMENT.match(block[0].string):
        return
    text = joined(MARK.sub("", token.string, count=1) for token in block).strip()
    if not WORD.search(text):
        return
    row, column = block[0].start
    lead = MARK.match(block[0].string).end()
    begin = source.starts[row - 1] + column + lead
    end = source.starts[block[-1].end[0] - 1] + block[-1].end[1]
    if len(block) == 1:
        end = begin + len(text)
    writer = flowing(column + lead, " " * column + "# ", width) if len(block) > 1 else as_it_is
    yield Unit(begin, end, text, "comment", writer, _place(source, row))


def _place(source: Source, line: int) -> str:
    """The function or class around a line, as in "Network.forward"."""
    names, node = [], source.tree
    while node is not None:
        inner = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.With | ast.If | ast.Try | ast.For)
            and child.lineno <= line <= (child.end_lineno or child.lineno)
        ]
        node = inner[0] if inner else None
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
    return ".".join(names)


def _strings(source: Source, words: Words, width: int) -> Iterator[Unit]:
    parents = {child: parent for parent in ast.walk(source.tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.JoinedStr) or isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        above = list(_ancestors(node, parents))
        if any(isinstance(each, ast.JoinedStr) for each in above):
            continue
        begin, end = source.at(node.lineno, node.col_offset), source.at(node.end_lineno, node.end_col_offset)
        place = _place(source, node.lineno)
        if isinstance(parents[node], ast.Expr):
            if words.code:
                yield from _docstring(source, begin, end, place, width)
            continue
        pieces = literals.pieces(source.text, begin, end)
        text = literals.text_of(pieces)
        if C_SOURCE.search(text):
            if len(pieces) == 1 and "\\" not in source.text[begin:end] and not pieces[0].is_f:
                body = pieces[0].body
                for unit in cuda_text.units(source.text[body[0] : body[1]], width):
                    yield Unit(unit.begin + body[0], unit.end + body[0], unit.text, "comment in C", unit.write, place)
            continue
        if _is_for_people(node, text, above, words):
            kind = "f-string" if any(piece.is_f for piece in pieces) else "string"
            column = begin - source.starts[node.lineno - 1]
            yield Unit(begin, end, text, kind, literals.writer(pieces, column, width), place)


def _ancestors(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def _is_for_people(node: ast.expr, text: str, above: list[ast.AST], words: Words) -> bool:
    """Whether somebody reads it: two words or more, or a single one where words are shown; no name of anything."""
    bare = UNCLOSED_TAG.sub(" ", TAG.sub(" ", literals.words_of(text)))
    if CONTRACT.search(text) or words.is_name(text) or _is_key_of_words(node, above):
        return False
    if text in words.also and not _is_looked_up(node, above):
        return True
    if not WORD.search(bare):
        return False
    parent = above[0]
    shown = _reads_as_text(bare, "\0" in bare) and text not in words.names
    if _is_head(node, above) or _is_label(node, parent) or _are_words(node, above):
        return True
    if _is_read_from(parent, node):
        return False
    if isinstance(parent, ast.Compare):
        return False
    for up in above:  # what is chosen or put together, is shown where the whole is
        if isinstance(up, ast.keyword):
            return up.arg in SHOWN_ARGUMENTS or (shown and up.arg not in NAMES_IN)
        if isinstance(up, ast.Call):
            name = getattr(up.func, "attr", getattr(up.func, "id", ""))
            if node in up.args and (name in NAMED_BY or node in up.args[: FIRST_NAMES.get(name, 0)]):
                return False
            return shown or (name in SHOWN_BY and node in up.args)
        if isinstance(up, ast.stmt):
            break
    return shown


def _is_looked_up(node: ast.expr, above: list[ast.AST]) -> bool:
    """Whether it is a name here, whatever it is elsewhere: a key in brackets, what is compared, a name of a call."""
    parent = above[0]
    if _is_read_from(parent, node):
        return True
    if isinstance(parent, ast.Call) and parent.args and parent.args[0] is node:
        return getattr(parent.func, "attr", getattr(parent.func, "id", "")) in NAMED_BY
    return isinstance(parent, ast.Compare)


def _is_read_from(parent: ast.AST, node: ast.AST) -> bool:
    """Whether something is looked up by this key; under a key that is written to, something is shown."""
    return isinstance(parent, ast.Subscript) and parent.slice is node and not isinstance(parent.ctx, ast.Store)


def _of_words(above: list[ast.AST]) -> ast.Dict | None:
    """The dictionary of words around a string, which is called words, WORDS or …_words: its keys are names."""
    if len(above) < 2 or not isinstance(above[0], ast.Dict) or not isinstance(above[1], ast.Assign | ast.AnnAssign):
        return None
    names = above[1].targets if isinstance(above[1], ast.Assign) else [above[1].target]
    return above[0] if any(isinstance(name, ast.Name) and WORDS_OF.search(name.id) for name in names) else None


def _is_key_of_words(node: ast.expr, above: list[ast.AST]) -> bool:
    table = _of_words(above)
    return table is not None and node in table.keys


def _are_words(node: ast.expr, above: list[ast.AST]) -> bool:
    """Whether it is read, even a single word: a value of a dictionary of words, a name of an axis, a choice."""
    if _of_words(above):
        return True
    whole, call = (above[0], above[1]) if isinstance(above[0], ast.Tuple) and above[1:] else (node, above[0])
    name = getattr(call.func, "attr", getattr(call.func, "id", "")) if isinstance(call, ast.Call) else ""
    return any(whole is call.args[place] for place in SHOWN_AT.get(name, ()) if place < len(call.args))


def _is_head(node: ast.expr, above: list[ast.AST]) -> bool:
    """Whether it is the head of a table's column: an element of what is called head, heads or …COLUMNS."""
    if len(above) < 2 or not isinstance(above[0], ast.Tuple | ast.List) or not isinstance(above[1], ast.Assign):
        return False
    return any(isinstance(name, ast.Name) and HEAD.search(name.id) for name in above[1].targets)


def _is_label(node: ast.expr, parent: ast.AST) -> bool:
    """Whether it is the label of a control: widget.slider("rate", …); in the playground the name comes first."""
    if not isinstance(parent, ast.Call) or node not in parent.args:
        return False
    if isinstance(parent.func, ast.Attribute):
        return parent.func.attr in LABELLED and parent.args[0] is node
    return isinstance(parent.func, ast.Name) and parent.func.id in CONTROLS and node in parent.args[1:3]


def _reads_as_text(bare: str, has_holes: bool) -> bool:
    """Whether there are two words, or one that is part of a sentence: with a hole, or behind a comma."""
    if TWO_WORDS.search(bare) or PART.match(bare):
        return True
    return has_holes and bool(LONG_WORD.search(bare) or SHORT_WORD.search(bare)) and " " in bare.strip()


def names_in(texts: Iterable[str]) -> frozenset[str]:
    """The strings that these sources take for names: they compare them, or look something up with them.

    So does a dictionary whose key stands elsewhere too, or in another dictionary of the same source.
    """
    names: set[str] = set()
    keys: set[str] = set()
    elsewhere: set[str] = set()
    for text in texts:
        nodes = list(ast.walk(parsed(text).tree))
        names |= {each for node in nodes for each in names_at(node)}
        own = {key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if key and _is_text(key)}
        values = Counter(key.value for key in own)
        names |= {value for value, times in values.items() if times > 1}
        keys.update(values)
        elsewhere |= {node.value for node in nodes if _is_text(node) and node not in own}
    return frozenset(names | keys & elsewhere)


def names_at(node: ast.AST) -> Iterator[str]:
    """The strings that this node compares or looks up."""
    parts: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Store):
        parts = [node.slice]
    elif isinstance(node, ast.MatchValue):
        parts = [node.value]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LOOKS_UP:
        parts = list(node.args[:1])
    yield from (each.value for part in parts for each in ast.walk(part) if _is_text(each))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _docstring(source: Source, begin: int, end: int, place: str, width: int) -> Iterator[Unit]:
    """The paragraphs and list items of a docstring; examples, indented or typed at >>>, are left as they are."""
    (piece,) = literals.pieces(source.text, begin, end) or (None,)
    lines = []  # (place, text without its line break)
    at = piece.body[0]
    for line in source.text[slice(*piece.body)].splitlines(keepends=True):
        lines.append((at, line.rstrip("\n")))
        at += len(line)
    rest = [len(line) - len(line.lstrip()) for _, line in lines[1:] if line.strip()]
    base = min(rest, default=0)
    block: list[tuple[int, str]] = []
    example = False
    for number, (at, line) in enumerate(lines):
        indent = base if number == 0 else len(line) - len(line.lstrip())
        listed = bool(block) and bool(LIST_ITEM.match(block[0][1]) or PARAMETERS.match(block[0][1]))
        session = line.lstrip().startswith(">>>") or (example and indent == base and bool(line.strip()))
        example = session or (indent >= base + 4 and not listed)
        begins = LIST_ITEM.match(line) or NAMED.match(line) or (indent == base and listed and PARAMETERS.match(line))
        if block and (not line.strip() or begins or example):
            yield from _paragraph(block, source, place, width)
            block = []
        if line.strip() and not example:
            block.append((at, line))
    if block:
        yield from _paragraph(block, source, place, width)


def _paragraph(block: list[tuple[int, str]], source: Source, place: str, width: int) -> Iterator[Unit]:
    mark = LIST_ITEM.match(block[0][1])
    lead = mark.end() if mark else len(block[0][1]) - len(block[0][1].lstrip())
    begin = block[0][0] + lead
    end = block[-1][0] + len(block[-1][1].rstrip())
    text = joined([block[0][1][lead:], *(line for _, line in block[1:])])
    if not WORD.search(text):
        return
    column = begin - (source.text.rfind("\n", 0, begin) + 1)
    indent = " " * (len(block[1][1]) - len(block[1][1].lstrip())) if len(block) > 1 else " " * _base(source, begin)
    writer: Callable[[str], str] = flowing(column, indent, width) if len(block) > 1 else as_it_is
    yield Unit(begin, end, text, "docstring", writer, place)


def _base(source: Source, place: int) -> int:
    line = source.text[source.text.rfind("\n", 0, place) + 1 :].partition("\n")[0]
    return len(line) - len(line.lstrip())
