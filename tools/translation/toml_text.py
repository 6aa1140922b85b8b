"""Units of hints.toml: the hints."""

import re
import tomllib

from .units import Unit

HINT = re.compile(r'^"[\w.]+" = ("""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*")$', re.MULTILINE | re.DOTALL)


def units(source: str) -> list[Unit]:
    """The hints, in order, as they are read."""
    hints = [entry for notebook in tomllib.loads(source).values() for entry in notebook.items()]
    found = list(HINT.finditer(source))
    if len(found) != len(hints):
        raise ValueError(f"expected a hint for each of {len(hints)} exercises; found {len(found)}")
    units = []
    for match, (key, hint) in zip(found, hints, strict=True):
        operation, _, kernel = key.partition(".")
        units.append(Unit(match.start(1), match.end(1), hint.strip(), "hint", _written, f"{operation} ({kernel})"))
    return units


def skeleton(source: str) -> str:
    """What a translation may not change."""
    return HINT.sub(lambda match: match[0].partition(" = ")[0], source)


def _written(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{escaped}"""'
