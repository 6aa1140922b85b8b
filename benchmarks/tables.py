"""README.md's tables, made from the results files: python -m benchmarks.tables (with --check, only compare)."""

import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def table(name: str) -> str:
    """A results file as a Markdown table: the median over the rounds, and how many times faster than PyTorch."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    contenders = list(dict.fromkeys(contender for times in result["seconds"].values() for contender in times))
    lines = ["| µs a call | " + " | ".join(contenders) + " |", "|---|" + "---|" * len(contenders)]
    for case, times in result["seconds"].items():
        medians = {contender: statistics.median(values) for contender, values in times.items()}
        reference = medians.get("PyTorch eager")
        cells = []
        for contender in contenders:
            if contender not in medians:
                cells.append("–")
                continue
            ratio = f" ({reference / medians[contender]:.2g}×)" if reference and contender != "PyTorch eager" else ""
            cells.append(f"{medians[contender] * 1e6:,.{1 if medians[contender] < 1e-4 else 0}f}{ratio}")
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items() if key != "nncourse")
    threads = ", one thread" if result["threads"] else ""
    lines += ["", f"{result['machine']}{threads}; {result['date']}; {versions}. In brackets: times PyTorch's speed."]
    return "\n".join(lines)


def with_tables(text: str) -> str:
    """`text` with what stands between <!-- table NAME --> and <!-- end --> made anew."""

    def fill(match: re.Match) -> str:
        return f"<!-- table {match[1]} -->\n{table(match[1])}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> int:
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = with_tables(old)
    if "--check" in sys.argv:
        return int(old != new)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
