"""A page of HTML, taken apart for tests."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img"}


class Page(HTMLParser):
    """What stands on a page; it refuses elements that are not well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.links, self.alts, self.rows, self.lines, self.words = [], [], [], [], [], [], ""
        self.found: dict[str, list[str]] = {}  # texts by their tag
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.links += [given[name] for name in ("src", "href", "action", "data") if name in given]
        if tag == "img":
            self.alts.append(given["alt"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "li":
            self.lines.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data
        inner = self.open[-1] if self.open else ""
        self.found.setdefault(inner, []).append(data)
        if inner in ("td", "th"):
            self.rows[-1][-1] += data
        if inner == "li":
            self.lines[-1] += data

    def row(self, *start: str) -> list[str]:
        (found,) = [row for row in self.rows if row[: len(start)] == list(start)]
        return found
