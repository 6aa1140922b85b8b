"""Give images the descriptions of a notebook's figures as text alternatives, and mark those that turn dark."""

import hashlib
import json
from binascii import a2b_base64
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

PNG = "image/png"
AS_IT_IS = "dark-light"  # the theme's class for images that it must not lay on white
FIGURE, TURNED = "nncourse-figure", "nncourse-turned"


def register(app: Sphinx) -> None:
    app.add_transform(Words)


class Words(SphinxTransform):
    """myst-nb names an image's file by the hash of its content, but drops the words that the notebook has for it."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        source = Path(self.document["source"])
        described = figures_of(source) if source.suffix == ".ipynb" else {}
        for image in self.document.findall(nodes.image):
            about = described.get(Path(image["uri"]).stem)
            if about is not None:
                image["alt"] = " ".join(about.get("alt", "").split())
                image["classes"] += [FIGURE, *([TURNED] if about.get("turned") else ())]
            if FIGURE in image["classes"]:
                image["classes"].append(AS_IT_IS)


def figures_of(path: Path) -> dict[str, dict[str, Any]]:
    """What a notebook's metadata say of each PNG image, by the hash of its content."""
    found = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            if PNG in output.get("data", {}):
                data = "".join(output["data"][PNG])
                found[hashlib.sha256(a2b_base64(data)).hexdigest()] = output["metadata"].get(PNG, {})
    return found
