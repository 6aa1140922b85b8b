"""Build the web book in build/book/html: `make book`, or tools/book.py [--lang en] [--address URL]."""

import argparse
import json
import os
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from book.editions import edition, languages  # noqa: E402  (needs the root on the path)
from nnclassroom.handing_out.repository import address  # noqa: E402
from nncourse.errors import CourseError  # noqa: E402

OUT = ROOT / "build" / "book"


def main() -> int:
    """Build every language in a process of its own, and the page that leads to them. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/book.py", description=__doc__)
    parser.add_argument(
        "--lang", action="append", help="a language; may be given several times (default: all there are)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to (default: build/book)")
    parser.add_argument(
        "--only", default="", help="only these notebooks and topics, separated by commas: 00_start_here,dense"
    )
    parser.add_argument("--notebooks", type=Path, help="folder of the notebooks (default: that of the language)")
    parser.add_argument(
        "--texts", type=Path, help="folder with README.md, docs/ and book/ (default: that of the language)"
    )
    parser.add_argument(
        "--address", help="of the repository, for the pages to say (default: that of pyproject.toml, if any)"
    )
    asked = parser.parse_args()
    codes = asked.lang or languages()
    try:
        asked.address = address(ROOT, asked.address)
    except CourseError as error:
        print(f"book: {error}", file=sys.stderr)
        return 1
    given = [(name, getattr(asked, name)) for name in ("notebooks", "texts", "only", "address")]
    options = [option for name, value in given if value for option in (f"--{name}", str(value))]
    try:
        names = {code: edition(code, asked.notebooks, asked.texts).words().LANGUAGE for code in codes}
    except CourseError as error:
        print(f"book: {error}", file=sys.stderr)
        return 1
    for code in codes:
        command = [sys.executable, "-m", "book.build", "--lang", code, "--languages", json.dumps(names)]
        environment = os.environ | {"NNCOURSE_LANG": code, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([*command, "--out", str(asked.out), *options], cwd=ROOT, env=environment)
        if done.returncode:
            return done.returncode
    (asked.out / "html" / "index.html").write_text(gate(names), "utf-8")
    print(f"the book is there: {asked.out / 'html' / 'index.html'}")
    return 0


def gate(names: dict[str, str]) -> str:
    """The page above the languages: it leads to the first, and has a link to each."""
    first = next(iter(names))
    links = " ".join(f'<a href="{code}/index.html" lang="{code}">{escape(name)}</a>' for code, name in names.items())
    head = (
        f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={first}/index.html"><title>nncourse</title>'
    )
    return f'<!DOCTYPE html>\n<html lang="{first}"><head>{head}</head><body><p>{links}</p></body></html>\n'


if __name__ == "__main__":
    sys.exit(main())
