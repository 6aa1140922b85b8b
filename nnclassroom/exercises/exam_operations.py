"""Operations defined by an instructor's file: those of an examination, which are not in the package.

    [[operation]]
    name = "running_mean"
    formula = "m_i = (x_i + … + x_{i+k-1}) / k"
    contract = "x (n,), k () int -> m (n_out,) where n_out = n - k + 1"
    reference = '''
    def reference(x, k):
        return np.convolve(x, np.full(k, 1 / k), "valid")
    '''
    sizes = [{ n = 1, k = 1 }, { n = 7, k = 3 }]        # other keys: OPTIONS

No edge cases are tried but those that `edge_cases` names. The Python text `reference` may define the other functions of
an Operation too: `error_scale`, `advice`, and `values_x` for an argument x. The file is trusted: its text runs in the
judge's process. Students never get it.
"""

import functools
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnclassroom.exercises import catalogue
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

TEXTS = ("name", "formula", "contract", "reference")
OPTIONS = ("equation", "output", "tolerance", "edge_cases", "sizes")
EXAMPLES = {
    "equation": 'equation = "(2)"',
    "output": 'output = "n_out"',
    "tolerance": "tolerance = 8",
    "edge_cases": 'edge_cases = ["zeros", "large"]',
    "sizes": "sizes = [{ n = 7, k = 3 }]",
}
TOP = ("title", "minutes", "operation", "exercise")  # what the file may hold


def find(name: str, definitions: str = "") -> Operation:
    """The operation of that name: one that the text `definitions` defines, else one of the package."""
    defined = operations_of(definitions) if definitions else {}
    return defined[name] if name in defined else catalogue.find(name)


@functools.lru_cache(maxsize=8)
def operations_of(text: str) -> dict[str, Operation]:
    """The operations that a TOML text defines, by name. CourseError says what is missing or wrong."""
    found: dict[str, Operation] = {}
    for entry in entries(text, "operation"):
        made = _operation(entry)
        if made.name in found:
            raise CourseError(f"expected each operation once; {made.name} is defined twice")
        if _is_known(made.name):
            raise CourseError(f"expected a name that the package does not use; {made.name} is one of its operations")
        found[made.name] = made
    return found


def entries(text: str, kind: str) -> list[dict[str, Any]]:
    """The tables [[kind]] of a TOML text. CourseError if the text is not TOML, or `kind` is something else."""
    found = _parsed(text).get(kind, [])
    if not (isinstance(found, list) and all(isinstance(entry, dict) for entry in found)):
        raise CourseError(f"expected tables [[{kind}]]; got {kind} = {str(found)[:60]}")
    return found


def title_of(text: str) -> str:
    """The title that a TOML text gives to the examination; "" without one."""
    title = _parsed(text).get("title", "")
    if not isinstance(title, str):
        raise CourseError(f"expected title as text; got {title!r}")
    return title.strip()


def minutes_of(text: str) -> float:
    """The minutes that a TOML text gives to the examination; 0 without a limit. CourseError for an unknown setting."""
    for key in _parsed(text):
        refuse_unknown("a setting of the examination", key, TOP)
    minutes = _parsed(text).get("minutes", 0)
    if type(minutes) not in (int, float) or not 0 <= minutes < 10_000:
        raise CourseError(f"expected minutes as a number such as 90; got {minutes!r}")
    return float(minutes)


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"expected TOML, but it cannot be read: {error}") from None


def texts_in(entry: Mapping[str, Any], wanted: tuple[str, ...], allowed: tuple[str, ...], what: str) -> None:
    """CourseError for a table that lacks one of the wanted texts, or has an unknown key."""
    for key in entry:
        refuse_unknown(f"in {what} a key", key, (*wanted, *allowed))
    for key in wanted:
        if not (isinstance(entry.get(key), str) and entry[key].strip()):
            raise CourseError(f"{what}: expected {key} as text; got {entry.get(key)!r}")


def _is_known(name: str) -> bool:
    try:
        catalogue.find(name)
    except CourseError:
        return False
    return True


def _operation(entry: dict[str, Any]) -> Operation:
    """The operation that one table defines."""
    name = str(entry.get("name", "without a name"))
    texts_in(entry, TEXTS, OPTIONS, f"operation {name}")
    if not name.isidentifier():
        raise CourseError(f"expected an operation's name of letters, digits and _; got {name!r}")
    _refuse_options(entry, name)
    functions = _functions(name, entry["reference"])
    trial: dict[str, Any] = {key: functions[key] for key in ("error_scale", "advice") if key in functions}
    if "tolerance" in entry:
        trial["tolerance"] = entry["tolerance"]
    trial["edge_cases"] = tuple(entry.get("edge_cases", ()))
    options = {option: entry[option] for option in ("equation", "output") if option in entry}
    values = {key.removeprefix("values_"): made for key, made in functions.items() if key.startswith("values_")}
    formula, contract = entry["formula"].strip(), entry["contract"].strip()
    try:
        tried = Trial(sizes_to_check=entry.get("sizes", ()), values=values, **trial)
        operation = Operation(name, formula, contract, functions["reference"], None, trial=tried, **options)
        for sizes in operation.trial.sizes_to_check:
            operation.shapes.complete(sizes, name)
    except (TypeError, AttributeError) as error:
        raise CourseError(f"operation {name}: {error}") from None
    return operation


def _refuse_options(entry: Mapping[str, Any], name: str) -> None:
    """CourseError for a setting of another type than its own."""

    def is_number(value: Any) -> bool:
        return type(value) in (int, float)

    def is_list(value: Any, of: Callable[[Any], bool]) -> bool:
        return isinstance(value, list) and all(map(of, value))

    def is_table(value: Any) -> bool:
        return isinstance(value, dict) and all(map(is_number, value.values()))

    right: dict[str, Callable[[Any], bool]] = {
        "equation": lambda value: isinstance(value, str),
        "output": lambda value: isinstance(value, str),
        "tolerance": lambda value: is_number(value) and value > 0,
        "edge_cases": lambda value: is_list(value, lambda each: isinstance(each, str)),
        "sizes": lambda value: is_list(value, is_table),
    }
    for key in OPTIONS:
        if key in entry and not right[key](entry[key]):
            raise CourseError(f"operation {name}: expected {key} as in {EXAMPLES[key]}; got {str(entry[key])[:60]}")


def _functions(name: str, text: str) -> dict[str, Any]:
    """What the Python text defines; NumPy is there as np."""
    namespace: dict[str, Any] = {"np": np}
    try:
        exec(compile(text, f"reference of {name}", "exec"), namespace)
    except Exception as error:  # the instructor's text may raise anything
        said = f"{type(error).__name__}: {error}"
        raise CourseError(f"operation {name}: its reference cannot be run: {said}") from None
    if not callable(namespace.get("reference")):
        raise CourseError(f"operation {name}: expected a function reference in its text, found none")
    return {key: value for key, value in namespace.items() if callable(value)}
