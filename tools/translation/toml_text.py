"""Units of hints.toml: the hints."""

import re
import tomllib

from .units import Unit

HINT = re.compile(r'^hint = ("""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*")$', re.MULTILINE | re.DOTALL)


def units(source: str) -> list[Unit]:
    """The hints, in order, as they are read."""
    entries = tomllib.loads(source)["exercise"]
    found = list(HINT.finditer(source))
    if len(found) != len(entries):
        raise ValueError(f"wanted a hint for each of {len(entries)} exercises; found {len(found)}")
    return [
        Unit(
            match.start(1),
            match.end(1),
            entry["hint"].strip(),
            "hint",
            _written,
            f"{entry['operation']} ({entry['kernel']})",
        )
        for match, entry in zip(found, entries, strict=True)
    ]


def skeleton(source: str) -> str:
    """What a translation may not change."""
    return HINT.sub("hint", source)


def _written(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{escaped}"""'
