"""Build the web book in build/book/html: `make book`, or tools/book.py [--lang en] [--address URL]."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from book.editions import edition, languages  # noqa: E402  (needs the root on the path)
from nncourse.errors import CourseError  # noqa: E402
from nnmarking.repository import address  # noqa: E402

OUT = ROOT / "build" / "book"


def main() -> int:
    """Build every language in a process of its own, and the page that leads to them. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/book.py", description=__doc__)
    parser.add_argument(
        "--lang", action="append", help="language; give it several times for several languages (default: all)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to (default: build/book)")
    parser.add_argument(
        "--only", default="", help="notebooks and topics to make, such as 00_start_here,dense (default: all)"
    )
    parser.add_argument("--notebooks", type=Path, help="folder of the notebooks (default: that of the language)")
    parser.add_argument(
        "--texts", type=Path, help="folder with README.md, docs/ and book/ (default: that of the language)"
    )
    parser.add_argument(
        "--address", help="address of the repository, for links to it (default: the one in pyproject.toml, if any)"
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
    begin = time.monotonic()
    running = []
    for code in codes:  # side by side
        command = [sys.executable, "-m", "book.build", "--lang", code, "--languages", json.dumps(names)]
        environment = os.environ | {"NNCOURSE_LANG": code, "PYTHONPATH": str(ROOT)}
        running.append(subprocess.Popen([*command, "--out", str(asked.out), *options], cwd=ROOT, env=environment))
    failed = [status for status in [process.wait() for process in running] if status]
    if failed:
        return failed[0]
    html = asked.out / "html"
    icon = ROOT / "book" / "static" / "favicon.svg"
    shutil.copyfile(icon, html / icon.name)
    first = edition(codes[0], asked.notebooks, asked.texts).words()
    (html / "index.html").write_text(gate(names), "utf-8")
    (html / "404.html").write_text(not_found(names, first.NOT_FOUND, first.NOT_FOUND_WORDS), "utf-8")
    print(f"the book is there, after {time.monotonic() - begin:.0f} s: {html / 'index.html'}")
    return 0


def gate(names: dict[str, str]) -> str:
    """The page above the languages: it leads to the first, and has a link to each."""
    first = next(iter(names))
    head = f'<meta http-equiv="refresh" content="0; url={first}/index.html">'
    return page(first, "nncourse", head, f"<p>{links(names)}</p>")


def not_found(names: dict[str, str], title: str, words: str) -> str:
    """The page that a server shows for an address that is none; it may be shown at any depth."""
    script = (
        f"const [above] = location.pathname.split(/\\/(?:{'|'.join(names)})\\//);"
        'const root = above === location.pathname ? above.replace(/[^/]*$/, "") : `${above}/`;'
        'document.querySelectorAll("a").forEach((a) => (a.href = root + a.getAttribute("href")));'
    )
    body = f"<h1>{escape(title)}</h1><p>{escape(words)} {links(names)}</p><script>{script}</script>"
    return page(next(iter(names)), f"{title} — nncourse", "", body)


def links(names: dict[str, str]) -> str:
    """A link to the front page in each language."""
    return " ".join(f'<a href="{code}/index.html" lang="{code}">{escape(name)}</a>' for code, name in names.items())


def page(language: str, title: str, head: str, body: str) -> str:
    """A page of its own, outside Sphinx."""
    style = "body{font:1.1rem sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem}:root{color-scheme:light dark}"
    metas = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    metas += f'<link rel="icon" href="favicon.svg"><title>{escape(title)}</title><style>{style}</style>{head}'
    return f'<!DOCTYPE html>\n<html lang="{language}"><head>{metas}</head><body><main>{body}</main></body></html>\n'


if __name__ == "__main__":
    sys.exit(main())
