"""Figures in a real JupyterLab: with their words, light on a light page and dark on a dark one."""

import io
import json
import re

import pytest
from PIL import Image
from test_browser import PATIENCE, PICTURES, VIEW, browser, idle, jupyterlab, run_all  # noqa: F401, fixtures among them

pytestmark = pytest.mark.full
CELLS = [
    "from nnclassroom.figures import images, nb00, nb02\nimport numpy as np\nfrom matplotlib import pyplot as plt",
    "nb00.plot_network((2, 3, 1))",
    "figure, axes = plt.subplots()\naxes.plot([1, 2], [3, 5])\nnb02.Described(figure, 'A line from 3 up to 5.')",
    "images.plot_images({'white': np.ones((8, 8)), 'black': np.zeros((8, 8))}, 'Two images')",
]
WORDS = ("2 inputs → 3 neurons → 1 neuron", "A line from 3 up to 5.", "Two images. Images with the range")


@pytest.fixture(scope="module")
def page(browser, jupyterlab):  # noqa: F811
    """A notebook of figures, open and run to its end."""
    folder, address = jupyterlab
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [cell | {"id": f"c{number}", "source": source} for number, source in enumerate(CELLS)]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "figures.ipynb").write_text(json.dumps(notebook))
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = browser.new_page(viewport=VIEW)
    page.set_default_timeout(PATIENCE)
    try:
        page.goto(address.replace("widgets.ipynb", "figures.ipynb"))
        idle(page)
        run_all(page)
        for words in WORDS:
            page.get_by_role("img", name=words).wait_for()
        yield page
    finally:
        page.close()


def choose_theme(page, name: str, light: bool) -> None:
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Settings$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).hover()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{name}$")).click()
    page.locator(f"body[data-jp-theme-light={str(light).lower()}]").wait_for(state="attached")


def seen(page, words: str) -> Image.Image:
    """What the browser shows of the figure with these words."""
    return Image.open(io.BytesIO(page.get_by_role("img", name=words).screenshot())).convert("RGB")


def test_each_figure_is_there_once_and_has_its_words(page):
    assert page.locator(".jp-OutputArea-output img").count() == len(WORDS)
    assert page.locator(".jp-OutputArea-output img:not([alt])").count() == 0


def test_on_a_dark_page_figures_are_dark_and_images_stay_as_they_are(page):
    choose_theme(page, "JupyterLab Light", light=True)
    light = [seen(page, words) for words in WORDS]
    assert all(picture.getpixel((2, 2)) == (255, 255, 255) for picture in light)
    choose_theme(page, "JupyterLab Dark", light=False)
    page.wait_for_function("() => getComputedStyle(document.querySelector('.nncourse-turned')).filter != 'none'")
    dark = [seen(page, words) for words in WORDS]
    assert all(max(picture.getpixel((2, 2))) < 40 for picture in dark)
    for number, picture in enumerate(dark):
        picture.save(PICTURES / f"dark_figure_{number}.png")
    middle = light[2].height // 2
    for x in (light[2].width // 4, 3 * light[2].width // 4):  # in the white image, and in the black one
        assert dark[2].getpixel((x, middle)) == light[2].getpixel((x, middle))
    assert light[2].getpixel((light[2].width // 4, middle)) > (240, 240, 240)
