"""Print the points of the exercises, as `nncourse grade` gives them, in a table: `python tools/points.py`.

With --write it writes the table into docs/instructors.md, between <!-- points --> and <!-- end -->.
"""

import re
import sys
from collections.abc import Sequence

from nnclassroom.exercises.hints import exercises
from nncourse.language import ROOT
from nnmarking.marks import SUGGESTED, read_weights

PAGE = ROOT / "docs" / "instructors.md"
PLACE = re.compile(r"<!-- points -->\n.*?<!-- end -->", re.DOTALL)


def table() -> str:
    """A row for each notebook: its exercises, and what their right answers give together."""
    weights = read_weights(SUGGESTED, exercises(), {})
    rows = ["| notebook | exercises | points |", "|---|---|---|"]
    for notebook in dict.fromkeys(each.notebook for each in exercises()):
        own = [weights[each.key] for each in exercises() if each.notebook == notebook]
        rows.append(f"| {notebook} | {len(own)} | {sum(own):g} |")
    rows.append(f"| together | {len(exercises())} | {sum(weights.values()):g} |")
    return "\n".join(rows)


def written(text: str) -> str:
    """The page with the table in its place."""
    return PLACE.sub(f"<!-- points -->\n{table()}\n<!-- end -->", text)


def main(arguments: Sequence[str]) -> int:
    """Print the table, or write it; the exit status."""
    if "--write" in arguments:
        PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
