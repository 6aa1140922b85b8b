"""In a notebook's kernel: the data that matplotlib draws, printed, since a picture cannot be compared in two languages.

Of each figure: the lines, patches, collections and pictures of its axes with their colours, and the limits of the axes.
Left out is what follows from words: texts, legends, ticks, and the size of the axes.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MARK = "▤ "  # before a figure's data


def watch() -> None:
    """From now on each figure that is drawn prints its data."""
    draw = Figure.draw

    def drawn(self: Figure, *arguments: Any, **options: Any) -> Any:
        result = draw(self, *arguments, **options)
        print(f"\n{MARK}{json.dumps(data(self))}")
        return result

    Figure.draw = drawn


def data(figure: Figure) -> list[list]:
    """What a figure shows, an artist each: where it stands, its kind, how many values it has, and a hash of them."""
    found = [_shown("limits", place, _limits(axes)) for place, axes in _axes(figure.axes, "axes")]
    for place, axes in [("figure", figure), *_axes(figure.axes, "axes")]:
        found += [_shown("line", place, [line.get_xydata(), _colour(line.get_color())]) for line in axes.lines]
        found += [_shown("patch", place, [_outline(each), each.get_facecolor()]) for each in axes.patches]
        found += [_shown("image", place, [image.get_array(), image.get_clim()]) for image in axes.images]
        if isinstance(axes, Axes):
            found += [_shown("collection", place, _of_collection(each)) for each in axes.collections]
    return found


def _axes(all_axes: Iterable[Any], place: str) -> Iterator[tuple[str, Any]]:
    """Axes and the axes in them, each with a name."""
    for number, axes in enumerate(all_axes, 1):
        yield f"{place} {number}", axes
        yield from _axes(axes.child_axes, f"{place} {number}, inner")


def _limits(axes: Any) -> list:
    scales = [sum(axes.get_xscale().encode()), sum(axes.get_yscale().encode())]
    return [axes.get_xlim(), axes.get_ylim(), scales, [axes.axison]]


def _colour(colour: Any) -> Any:
    from matplotlib.colors import to_rgba

    return to_rgba(colour)


def _outline(patch: Any) -> Any:
    """Its corners; of an arrow its ends, since its outline depends on the size of the axes."""
    ends = getattr(patch, "_posA_posB", None)
    return patch.get_patch_transform().transform(patch.get_path().vertices) if ends is None else ends


def _of_collection(each: Any) -> list:
    values = each.get_array()
    corners = [path.vertices for path in each.get_paths()]
    return [each.get_offsets(), each.get_facecolor(), [] if values is None else values, *corners]


def _shown(kind: str, place: str, parts: Iterable[Any]) -> list:
    """The hash is of the values as float32: more digits than a figure shows."""
    flat = [np.ma.filled(np.ma.asarray(part, np.float64), np.nan).ravel() for part in parts]
    values = np.concatenate(flat).astype(np.float32)
    return [place, kind, values.size, hashlib.sha256(values.tobytes()).hexdigest()[:12]]
