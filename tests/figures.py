"""What tests check in figures."""

from nnclassroom.figures import described


def png(figure) -> bytes:
    return described.png(figure)[0]


def fits_on_its_page(figure) -> bool:
    """Nothing of the figure, labels included, is cut off by more than a pixel."""
    page, box = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    return box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1


def assert_whole(figure, axes_need=all) -> None:
    """It can be drawn, nothing of it is cut off, and all (or `any`) of each axes' two labels are there."""
    assert png(figure).startswith(b"\x89PNG\r\n")
    assert all(axes_need((axes.get_xlabel(), axes.get_ylabel())) for axes in figure.axes)
    assert fits_on_its_page(figure)
