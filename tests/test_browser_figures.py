"""Figures in a real JupyterLab: with their words, light on a light page and dark on a dark one."""

import io

import pytest
from PIL import Image
from test_browser import PICTURES, choose_theme, jupyterlab, opened, write_notebook  # noqa: F401, fixtures too

pytestmark = pytest.mark.full
CELLS = [
    "from nnclassroom.figures import images, nb00, nb02\nimport numpy as np\nfrom matplotlib import pyplot as plt",
    "nb00.plot_network((2, 3, 1))",
    "figure, axes = plt.subplots()\naxes.plot([1, 2], [3, 5])\nnb02.Described(figure, 'A line from 3 up to 5.')",
    "nb02.Described(nb00.plot_network((2, 3, 1)), 'In words of its own.')",
    "images.plot_images({'white': np.ones((8, 8)), 'black': np.zeros((8, 8))}, 'Two images')",
]
WORDS = ("2 inputs → 3 neurons → 1 neuron", "A line from 3 up to 5.", "In words of its own.", "Two images. Images with")


@pytest.fixture(scope="module")
def page(browser, jupyterlab):  # noqa: F811
    """A notebook of figures, open and run to its end."""
    folder, address = jupyterlab
    write_notebook(folder / "figures.ipynb", CELLS)
    with opened(browser, address.replace("widgets.ipynb", "figures.ipynb")) as page:
        for words in WORDS:
            page.get_by_role("img", name=words).wait_for()
        yield page


def seen(page, words: str) -> Image.Image:
    """What the browser shows of the figure with these words."""
    return Image.open(io.BytesIO(page.get_by_role("img", name=words).screenshot())).convert("RGB")


def test_each_figure_is_there_once_and_has_its_words(page):
    assert page.locator(".jp-OutputArea-output img").count() == len(WORDS)
    assert page.locator(".jp-OutputArea-output img:not([alt])").count() == 0


def test_on_a_dark_page_figures_are_dark_and_images_stay_as_they_are(page):
    choose_theme(page, "Light")
    light = [seen(page, words) for words in WORDS]
    assert all(picture.getpixel((2, 2)) == (255, 255, 255) for picture in light)
    choose_theme(page, "Dark")
    page.wait_for_function("() => getComputedStyle(document.querySelector('.nncourse-turned')).filter != 'none'")
    dark = [seen(page, words) for words in WORDS]
    assert all(max(picture.getpixel((2, 2))) < 40 for picture in dark)
    for number, picture in enumerate(dark):
        picture.save(PICTURES / f"dark_figure_{number}.png")
    by_day, at_night, middle = light[-1], dark[-1], light[-1].height // 2
    for x in (by_day.width // 4, 3 * by_day.width // 4):  # in the white image, and in the black one
        assert at_night.getpixel((x, middle)) == by_day.getpixel((x, middle))
    assert by_day.getpixel((by_day.width // 4, middle)) > (240, 240, 240)
