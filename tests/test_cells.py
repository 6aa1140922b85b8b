"""What `grade` reads in the cells of a notebook is what the notebook itself keeps: IPython runs each of these cells."""

import json
import os
import subprocess
import sys
import time

import pytest
from nbformat import v4

from nnclassroom.handing_in import cells
from nnclassroom.judge.python_text import lines, tree
from nnclassroom.notebook import python_cell

HEAD = '@exercise("sigmoid", kernel="numpy")\n'
SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
CUDA = 'extern "C" __global__ void sigmoid(const float* z, float* a, int n) {\n    a[0] = z[0];\n}\n'
# Cells in which Jupyter finds an answer.
ANSWERED = {
    "plain": HEAD + SIGMOID,
    # the ends of lines
    "a form feed before a comment": f"{HEAD}def sigmoid(z):\n\x0c    # a page\n    return 1 / (1 + np.exp(-z))\n",
    "a form feed in a comment": HEAD + SIGMOID.replace(":\n", ":  # old\x0cpage\n"),
    "U+2028 at the end of a comment": HEAD + SIGMOID.replace(":\n", ":  # copied\u2028\n"),
    "U+2028 in a string": HEAD + SIGMOID.replace(":\n", ':\n    "one\u2028two"\n'),
    "U+0085 and U+001D in comments": HEAD + SIGMOID.replace(":\n", ":  # a\x85b\n    # c\x1dd\n"),
    "a vertical tab in a string": HEAD + SIGMOID.replace(":\n", ':\n    "a\x0bb"\n'),
    # magics, and what only looks like one
    "a line that begins with %": f"{HEAD}def sigmoid(z):\n    k = (7\n         % 3)\n    return k / (k + np.exp(-z))\n",
    "a line that begins with !": f"{HEAD}def sigmoid(z):\n    assert (7\n    != 3)\n    return 1 / (1 + np.exp(-z))\n",
    "a docstring with % in front": HEAD + SIGMOID.replace(":\n", ':\n    """\n%time\n!ls\n    """\n'),
    "the output of a command": f"files = !echo a\n{HEAD}{SIGMOID}",
    "a value of a magic": f"here = %pwd\n{HEAD}{SIGMOID}",
    "a question": f"{HEAD}{SIGMOID}\nsigmoid?\n",
    "a question first": f"np.exp?\n{HEAD}{SIGMOID}",
    "a magic in a block": f"if True:\n    %pwd\n{HEAD}{SIGMOID}",
    "%%time above it": f"%%time\n{HEAD}{SIGMOID}",
    "%%capture above it": f"%%capture said\n{HEAD}{SIGMOID}",
    "%%time and a question": f"%%time\nfiles = !echo a\n{HEAD}{SIGMOID}",
    "spaces in front of the cell": "".join(f"    {line}\n" for line in (HEAD + SIGMOID).split("\n")),
    "prompts of a session": ">>> @exercise('sigmoid', kernel='numpy')\n... def sigmoid(z):\n...     return z\n",
    # ways to name the exercise
    "by its module": f'@nnclassroom.exercise("sigmoid", kernel="numpy")\n{SIGMOID}',
    "by keywords": f'@exercise(operation="sigmoid", kernel="numpy")\n{SIGMOID}',
    "keywords the other way round": f'@exercise(kernel="numpy", operation="sigmoid")\n{SIGMOID}',
    "by place": f'@exercise("sigmoid", "numpy")\n{SIGMOID}',
    "by another name": f'from nnclassroom import exercise as check_it\n@check_it("sigmoid", kernel="numpy")\n{SIGMOID}',
    "on several lines": f'@exercise(\n    "sigmoid",  # σ\n    kernel="numpy",\n)\n{SIGMOID}',
    "with another decorator": f"{HEAD}@functools.lru_cache\n{SIGMOID}",
    "a function of another name": HEAD + SIGMOID.replace("def sigmoid", "def mine"),
    # where the function stands
    "in an if": f"if True:\n    {HEAD}    def sigmoid(z):\n        return 1 / (1 + np.exp(-z))\n",
    "in an if, with a text at the left edge": (
        f'if True:\n    {HEAD}    def sigmoid(z):\n        """One\nline\n    more"""\n        return 1 / np.exp(-z)\n'
    ),
    "in a try": f"try:\n    1 / 0\nexcept ZeroDivisionError:\n    {HEAD}    def sigmoid(z):\n        return z\n",
    "in a with": f"with np.errstate():\n\t{HEAD}\tdef sigmoid(z):\n\t\treturn z\n",
    "two in a cell": f'{HEAD}{SIGMOID}\n@exercise("relu", kernel="numpy")\ndef relu(z):\n    return np.maximum(z, 0)\n',
    "the same twice": f"{HEAD}def sigmoid(z):\n    return z\n\n{HEAD}{SIGMOID}",
    "empty lines first": f"\n\n  \n{HEAD}{SIGMOID}",
    "lines of Windows": (HEAD + SIGMOID).replace("\n", "\r\n"),
    "an escape that Python warns of": HEAD + SIGMOID.replace(":\n", ':\n    "the \\sigma of it"\n'),
    # CUDA C
    "%%cuda": f"%%cuda sigmoid naive --block 64\n{CUDA}",
    "%%cuda below empty lines": f"\n\n%%cuda sigmoid naive\n{CUDA}",
    "%%cuda with U+2028 in a comment": f"%%cuda sigmoid naive\n// a\u2028b\n{CUDA}",
    "%%cuda with a form feed": f"%%cuda sigmoid naive\n\x0c\n{CUDA}",
    "%%cuda with options apart": f"%%cuda   sigmoid   naive   --block  64  \n{CUDA}",
}
# Cells in which it finds none.
UNANSWERED = {
    "a comment first": f"# mine\n%%cuda sigmoid naive\n{CUDA}",
    "no Python": "this is (no Python",
    "another magic's text": f"%%writefile sigmoid.py\n{HEAD}{SIGMOID}",
    "a stub": f"{HEAD}def sigmoid(z):\n    raise NotImplementedError\n",
    "a method": "class A:\n    def sigmoid(z):\n        return z\n",
    "U+2028 before a space": HEAD + SIGMOID.replace(":\n", ":\u2028 \n"),
    "a zero byte": f"{HEAD}def sigmoid(z):\n    return z\0\n",
}
PROGRAM = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from nnclassroom.notebook import cuda_cell, exercise, python_cell

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nnclassroom")
found = {}

def keep(operation, name, text, is_open, launch=None):
    if not is_open:
        kept[f"{operation.name}.{name}.{'cu' if launch else 'py'}"] = text

exercise._answer = keep
shell.run_cell("import functools, numpy as np, nnclassroom; from nnclassroom import exercise", store_history=True)
for form, source in json.load(sys.stdin).items():
    kept = {}
    shell.run_cell(source, store_history=True)
    found[form] = kept
print("\\n@" + json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> dict[str, dict[str, str]]:
    """What the notebook keeps of each cell, by the names of the files."""
    folder = tmp_path_factory.mktemp("ipython")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "IPYTHONDIR": str(folder)}
    command = [sys.executable, "-c", PROGRAM]
    given = json.dumps(ANSWERED | UNANSWERED)
    done = subprocess.run(command, input=given, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.rpartition("\n@")[2])


@pytest.mark.parametrize("form", ANSWERED)
def test_grade_reads_the_answer_that_the_notebook_keeps(form, kept):
    assert kept[form] and cells.in_cell(ANSWERED[form]) == kept[form]


@pytest.mark.parametrize("form", UNANSWERED)
def test_grade_reads_no_answer_where_the_notebook_keeps_none(form, kept):
    assert cells.in_cell(UNANSWERED[form]) == kept[form] == {}


@pytest.mark.parametrize("form", ANSWERED)
def test_a_kept_text_is_what_python_reads(form):
    for name, text in cells.in_cell(ANSWERED[form]).items():
        if name.endswith(".py"):
            assert tree(text).body and len(lines(text)) == text.count("\n")


def test_warnings_that_are_errors_elsewhere_change_no_answer(monkeypatch):
    source = ANSWERED["an escape that Python warns of"]
    code = f"from nnclassroom.handing_in import cells; print(len(cells.in_cell({source!r})))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "error"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).stdout == b"1\n"


LONG = {
    "empty lines": "\n" * 400_000 + HEAD + SIGMOID,
    "magics": "%time\n" * 100_000,
    "magics before it": "x?\n!ls\n" * 100_000 + HEAD + SIGMOID,
    "CUDA": "%%cuda sigmoid naive\n" + "__global__ void a(" * 14_000,
    "CUDA with empty lines": "%%cuda sigmoid naive\n" + "\n" * 250_000 + CUDA,
    "open brackets": "(" * 100_000,
    "deep blocks": "if 1:\n" * 90 + HEAD,
    "magics in magics": "%%time\n" * 10_000 + HEAD + SIGMOID,
}


@pytest.mark.parametrize("form", LONG)
def test_a_long_cell_is_read_in_seconds(form):
    began = time.process_time()
    book = json.dumps(v4.new_notebook(cells=[v4.new_code_cell(LONG[form])])).encode()
    assert set(cells.answers(book)) <= {"sigmoid.numpy.py", "sigmoid.naive.cu"}
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b"null", b'{"cells": 3}', b'{"cells": [3]}', b'{"cells": [{"cell_type": "code"}]}',
        b'{"cells": [{"cell_type": "code", "source": [1, null, "x"]}]}', b'{"cells": {"a": 1}}', b'{"worksheets": 2}',
        b'{"worksheets": [{"cells": 4}]}', b"[" * 100_000, b"\xff\xfe\x00", b'{"cells": [{"source": "\\ud800"}]}',
    ],
)  # fmt: skip
def test_a_damaged_notebook_has_no_answer_and_raises_one_kind_of_error(content):
    try:
        assert cells.answers(content) == {}
    except ValueError as error:
        assert "is not a notebook" in str(error)


def test_a_half_character_in_a_cell_does_no_harm():
    cell = {"cell_type": "code", "source": [HEAD, SIGMOID.replace(":\n", ":  # \ud83d\n")]}
    (text,) = cells.answers(json.dumps({"cells": [cell]}).encode()).values()
    assert text.encode() and tree(text)


def test_cells_of_the_older_format_are_read():
    cell = {"cell_type": "code", "input": [HEAD, SIGMOID]}
    assert set(cells.answers(json.dumps({"worksheets": [{"cells": [cell]}]}).encode())) == {"sigmoid.numpy.py"}


def test_the_text_of_a_function_in_a_file_is_read_by_the_same_rules():
    if True:

        def sigmoid(z):
            said = """A text
at the left edge"""
            return z, said

    text = python_cell.text_of(sigmoid, "sigmoid")
    assert text.startswith("def sigmoid(z):\n    ") and "\nat the left edge" in text
