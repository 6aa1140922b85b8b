"""Write only the files that change, so that Sphinx reads again only what is new."""

from collections.abc import Mapping
from pathlib import Path


class Tree:
    """A folder that is written anew: at the end it holds the files of this time and no others."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.written: set[Path] = set()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file by its path in the folder; one that holds this content already is left alone."""
        path, data = self.folder / name, content.encode() if isinstance(content, str) else content
        self.written.add(path)
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def write_all(self, prefix: str, texts: Mapping[str, str]) -> None:
        """Write several files, whose names stand behind `prefix`."""
        for name, text in texts.items():
            self.write(prefix + name, text)

    def remove_others(self) -> None:
        """Remove every file that was not written this time."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path not in self.written:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
