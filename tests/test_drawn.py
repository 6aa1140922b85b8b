"""The base of the widgets that the browser draws: messages, frames, errors, and what a saved notebook keeps."""

import threading

import numpy as np
import pytest

from nnclassroom.widgets import alone, simple
from nnclassroom.widgets import widget as drawn
from nncourse.errors import CourseError


def sums(a: float, b: float) -> tuple[dict, str]:
    if a > 8:
        raise CourseError("expected a of at most 8\n  got more")
    return {"numbers": np.array([[a, b], [a + b, np.nan]]), "shade": np.array([1, 2], np.uint8)}, f"a + b = {a + b:g}"


@pytest.fixture
def made():
    controls = {
        "a": drawn.slider("a", "The first", 1, 0, 10, 1),
        "b": drawn.factors("b", "The second", 0.05, -3, 0),
        "more": drawn.button("More", "One more"),
    }
    widget = drawn.BrowserWidget("neuron.js", controls, sums, "Sums.", pressed=lambda name: widget.set(a=4))
    yield widget
    widget.close()


def test_values_from_the_browser_are_answered_with_a_frame_words_and_the_message_s_number(made):
    made._handle_custom_msg({"values": {"a": 3, "b": 0.5}, "turn": ["view", 7]}, [])
    numbers = np.frombuffer(made.frame["numbers"]["bytes"], np.float32).reshape(made.frame["numbers"]["shape"])
    np.testing.assert_array_equal(numbers, np.float32([[3, 0.5], [3.5, np.nan]]))
    assert made.frame["shade"] == {"shape": [2], "type": "uint8", "bytes": b"\1\2"}
    assert made.words == "a + b = 3.5" and made.turn[:2] == ["view", 7] and 0 <= made.turn[2] < 1


def test_a_press_is_told_and_unknown_ones_are_not(made):
    made._handle_custom_msg({"pressed": "more"}, [])
    assert made.values["a"] == 4 and made.words == "a + b = 4.05"
    made._handle_custom_msg({"pressed": "less"}, [])
    assert made.values["a"] == 4


def test_an_error_is_one_line_and_the_widget_lives_on(made):
    before = made.frame
    made.set(a=9)
    assert made.words == "expected a of at most 8 got more" and made.frame == before
    made.set(a=2)
    assert made.words == "a + b = 2.05"
    with pytest.raises(CourseError, match="no control is called c"):
        made.set(c=1)


def test_frames_may_be_shown_from_any_thread(made):
    def train(start: int) -> None:
        for number in range(start, start + 50):
            made.show({"number": number}, str(number))

    threads = [threading.Thread(target=train, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.words == str(made.frame["number"])


def test_a_saved_notebook_says_run_this_cell_and_shows_a_figure_with_words(monkeypatch):
    saved = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: saved.append(data))
    widget = simple.activations()
    widget._ipython_display_()
    alive, still = saved
    assert alive["text/plain"] == "Run this cell to play." and "application/vnd.jupyter.widget-view+json" in alive
    assert still["text/plain"].startswith("Run this cell to play. Figure: ") and "image/png" in still
    assert "This is a still picture." in still["text/html"] and 'alt="' in still["text/html"]
    assert "Run this cell to play." in still["text/html"]
    widget.close()
    assert widget.comm is None


def test_a_slider_reaches_its_own_value():
    assert drawn.slider("x", "", 7, 0, 5).high == 7 and drawn.learning_rate(3.0).high == 3


def test_lines_of_equal_height_lie_where_the_height_is_equal():
    x, y = np.meshgrid(np.linspace(-2, 2, 81), np.linspace(-2, 2, 81))
    lines = drawn.contours(x, y, x**2 + y**2, np.array([1.0, 2.25]))
    radius = np.hypot(*lines[np.isfinite(lines).all(axis=1)].T)
    assert np.minimum(abs(radius - 1), abs(radius - 1.5)).max() < 0.01 and np.isnan(lines).any()


# ---- in a browser

SHOW = """([script, state, css, times]) => {
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const { drawn, mind, standIn } = new Function(script)();
  const frame = () => new Promise(requestAnimationFrame);
  const show = async (number) => {
    const el = document.createElement("div");
    if (number % 2) document.body.append(el);
    const end = drawn.render({ model: standIn(state, mind), el });
    for (let waited = 0; waited < number % 3; waited++) await frame();
    document.body.append(el);
    while (!el.dataset.frames) await frame();
    const corner = [...el.querySelector("canvas").getContext("2d").getImageData(0, 0, 1, 1).data].slice(0, 3);
    end();
    if (number < times - 1) el.remove();
    return corner.join();
  };
  return Array.from({ length: times }, (_, number) => number).reduce(
    async (before, number) => [...(await before), await show(number)], Promise.resolve([]));
}"""


def shown_in(browser, width: int, times: int):
    """A page with a dark theme, where a neuron was shown this often; and the colours of the pictures' corners."""
    page, neuron = browser.new_page(viewport={"width": width, "height": 700}), simple.neuron()
    page.set_content("<body style='--jp-layout-color0: #112233'></body>")
    return page, page.evaluate(SHOW, [alone.script(neuron), alone.state(neuron), neuron._css, times])


def test_a_picture_has_the_page_s_colours_also_if_it_was_made_before_it_came_onto_the_page(browser):
    page, corners = shown_in(browser, 800, 30)
    assert corners == ["17,34,51"] * 30
    page.close()


@pytest.mark.parametrize("width, beside", [(800, False), (1000, True), (1600, True)])
def test_controls_stand_beside_the_picture_where_there_is_room(browser, width, beside):
    page, _ = shown_in(browser, width, 1)
    controls, picture = (page.locator(name).bounding_box() for name in (".controls", ".picture"))
    assert (controls["x"] + controls["width"] <= picture["x"]) == beside
    assert (controls["y"] + controls["height"] <= picture["y"]) == (not beside)
    assert controls["height"] < picture["height"] and picture["x"] + picture["width"] <= width
    page.close()
