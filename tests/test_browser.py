"""The widgets as a student sees them, in a real JupyterLab and a headless browser."""

import base64
import io
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image
from processes import until

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "build" / "browser"
VIEW = {"width": 1250, "height": 900}
PATIENCE = 60_000  # milliseconds, on a busy machine
SETTINGS = {  # no questions, no news, and a notebook that is drawn whole, so that what is below can be seen
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
pytestmark = pytest.mark.full
CELLS = [
    "import numpy as np\nfrom nnclassroom import widgets\nwidgets.taste()",
    "widgets.neuron()",
    "widgets.activations()",
    "widgets.descent()",
    "y = np.arange(100) % 2\nwidgets.threshold(np.random.default_rng(0).random(100) / 2 + y / 2, y)",
    "widgets.playground.playground()",
    "widgets.filter_by_hand.widget()",
    """from nncourse import choose, datasets, make_network, train
data, backend = datasets.load("digits"), choose("numpy")
network = make_network([64, 64, 10], "relu", "categorical_cross_entropy", seed=1)
train(network, data.X / 16, data.Y, backend, epochs=60, batch_size=32, learning_rate=0.2)
widgets.digit_pad.pad(lambda image: network.predict(image.reshape(1, -1), backend)[0], side=8)""",
    "import os, time\nwhile not os.path.exists('go_on'):\n    time.sleep(0.01)\nprint('the last cell ran')",
    "widgets.race.race()",
    "widgets.downpour.downpour()",
    "widgets.laws.laws()",
]
RACE = len(CELLS) - 3
BY_HAND = next(number for number, source in enumerate(CELLS) if "filter_by_hand" in source)
DRAWN = {  # cell -> a slider that is moved, and what it says at first
    1: ("weight w1", "1.0"),
    2: ("weighted sum z", "1.0"),
    3: ("learning rate", "0.05"),
    4: ("threshold", "0.50"),
    BY_HAND: ("column", "0"),
    RACE: ("momentum", "0.90"),
    RACE + 1: ("learning rate", "0.2"),
    RACE + 2: ("p", "0.950"),
}
WAITS = next(number for number, source in enumerate(CELLS) if "go_on" in source)


def write_notebook(path: Path, sources: list[str]) -> None:
    """A notebook with these cells, not yet run."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    cells = [new_code_cell(source) for source in sources]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def jupyterlab(tmp_path_factory):
    """Start a JupyterLab for the tests, on the loopback address; its folder, and the address of the notebook."""
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    write_notebook(folder / "widgets.ipynb", CELLS)
    (folder / "go_on").touch()
    settings = folder / "settings"
    settings.mkdir()
    (settings / "overrides.json").write_text(json.dumps(SETTINGS))
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as JupyterLab does: others may not listen there
    port = holder.getsockname()[1]
    token = secrets.token_hex(24)
    environment = os.environ | {"JUPYTER_TOKEN": token, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environment |= {"JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "JUPYTER_CONFIG_DIR": str(folder / "config")}
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.open_browser=False"]
    command += ["--ServerApp.allow_root=True", "--ServerApp.answer_yes=True", f"--LabApp.app_settings_dir={settings}"]
    # Should the tests be killed before they can end it, it ends itself.
    command += ["--ServerApp.shutdown_no_activity_timeout=600", "--MappingKernelManager.cull_idle_timeout=600"]
    with open(folder / "log.txt", "w") as log:
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            asked = f"http://127.0.0.1:{port}/api?token={token}"
            is_up = until(lambda: server.poll() is not None or answers(asked), 90) and server.poll() is None
            assert is_up, (folder / "log.txt").read_text()[-2000:]
            yield folder, f"http://127.0.0.1:{port}/lab/tree/widgets.ipynb?token={token}"
        finally:
            server.terminate()  # and with it its kernels
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            holder.close()


@contextmanager
def opened(browser, address: str) -> Iterator:
    """The notebook at this address, all of whose cells have been told to run."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = browser.new_page(viewport=VIEW)
    page.set_default_timeout(PATIENCE)
    try:
        page.goto(address)
        idle(page)
        choose(page, "Run", "Run All Cells")
        yield page
    finally:
        page.close()


@pytest.fixture(scope="module")
def page(browser, jupyterlab):
    """The notebook, open and run to its end."""
    with opened(browser, jupyterlab[1]) as page:
        page.locator(".jp-OutputArea-output", has_text="the last cell ran").wait_for()
        idle(page)
        yield page
        photograph(page, "at_the_end.png")


def photograph(page, name: str) -> None:
    """Save a picture of the whole notebook for people."""
    page.set_viewport_size(VIEW | {"height": 3000})
    page.locator(".jp-WindowedPanel-outer").evaluate("notebook => notebook.scrollTop = 0")
    page.screenshot(path=PICTURES / name)
    page.set_viewport_size(VIEW)


def idle(page) -> None:
    """Wait until the kernel is ready: earlier requests are dropped silently."""
    page.locator("#jp-main-statusbar", has_text="Python 3 (ipykernel) | Idle").wait_for()


def choose(page, menu: str, *items: str) -> None:
    """An item of JupyterLab's menu, by way of the submenus."""
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
    for item in items[:-1]:
        page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{item}$")).hover()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{items[-1]}$")).click()


def choose_theme(page, name: str) -> None:
    choose(page, "Settings", "Theme", f"JupyterLab {name}")
    page.locator(f"body[data-jp-theme-light={str(name == 'Light').lower()}]").wait_for(state="attached")


def assert_fits(where) -> None:
    """A small screen shows the whole widget without scroll bars."""
    page = where.page
    page.set_viewport_size({"width": 1280, "height": 720})
    try:
        box, screen = where.bounding_box(), page.locator(".jp-WindowedPanel-outer").bounding_box()
        assert box["height"] < screen["height"] and box["width"] < screen["width"]
        assert where.evaluate("root => root.scrollWidth <= root.clientWidth")
    finally:
        page.set_viewport_size(VIEW)


def assert_light(words, about="") -> None:
    """The text has a light colour, as on a dark page."""
    ink = words.evaluate("words => getComputedStyle(words).color")
    assert min(map(float, re.findall(r"[\d.]+", ink)[:3])) > 128, about


def cell(page, number: int):
    return page.locator(".jp-CodeCell").nth(number)


def drawn(page, number: int):
    where = cell(page, number).locator(".nncourse-drawn")
    where.evaluate("widget => widget.scrollIntoView({ block: 'center' })")
    return where


def picture(where) -> bytes:
    return base64.b64decode(where.locator("canvas").evaluate("canvas => canvas.toDataURL()").split(",")[1])


def wait_for_another(where, before: bytes) -> None:
    assert until(lambda: picture(where) != before), "the picture stands still"


def slider(where, label: str):
    return where.get_by_role("slider", name=label, exact=True)


def turn(where, label: str, key: str, times: int = 1) -> None:
    for _ in range(times):
        slider(where, label).press(key)


def drag(where, label: str, to: float) -> None:
    """Move the handle of a slider by mouse to a share of its way."""
    box, mouse = slider(where, label).bounding_box(), where.page.mouse
    y = box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] / 2, y)
    mouse.down()
    mouse.move(box["x"] + box["width"] * to, y)
    mouse.up()


# The page itself moves the slider once a frame: a mouse moved from outside of the browser makes only 27 moves a second.
SLIDE = """async (input, seconds) => {
  const [low, high, start] = [Number(input.min), Number(input.max), performance.now()];
  for (let passed = 0; passed < seconds; passed = (performance.now() - start) / 1000) {
    input.value = low + (high - low) * (0.5 + 0.4 * Math.sin(4 * passed));
    input.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(requestAnimationFrame);
  }
}"""


def slide(where, label: str) -> None:
    slider(where, label).evaluate(f"input => ({SLIDE})(input, 1.5)")


def wait_for_words(where, true) -> str:
    """The words of a widget, as soon as true(words)."""
    end = time.monotonic() + PATIENCE / 1000
    while not true(words := where.locator("[role=status]").inner_text()):
        assert time.monotonic() < end, words
        time.sleep(0.05)
    return words


@pytest.mark.parametrize("number", DRAWN)
def test_a_drawn_widget_is_there_whole_and_every_part_has_a_name(page, number):
    where = drawn(page, number)
    assert_fits(where)
    assert colours(where, "canvas") > 8  # the first picture is there
    assert len(where.get_by_role("img").get_attribute("aria-label")) > 20
    assert where.locator("[role=status][aria-live=polite]").inner_text() == where.locator(".words").inner_text() != ""
    sliders = where.get_by_role("slider").all()
    for one in sliders:
        name, tip = one.evaluate("""one => [
            one.labels[0].textContent, document.getElementById(one.getAttribute("aria-describedby")).textContent]""")
        assert name and re.search(r"From \S+ to \S+\.$", tip)
        assert one.get_attribute("aria-valuetext") == where.get_by_label(f"{name}, typed", exact=True).input_value()
    label, value = DRAWN[number]
    assert slider(where, label).get_attribute("aria-valuetext") == value
    for select in where.get_by_role("combobox").all():
        assert select.evaluate("select => select.labels[0].textContent")
    assert cell(page, number).locator(".nncourse-still").is_visible() is False  # it is for saved notebooks


@pytest.mark.parametrize("number", DRAWN)
def test_a_slider_moves_by_keyboard_and_draws_picture_and_words_anew(page, number):
    where, (label, value) = drawn(page, number), DRAWN[number]
    before, words = picture(where), where.locator("[role=status]").inner_text()
    turn(where, label, "ArrowRight", 2)
    said = slider(where, label).get_attribute("aria-valuetext")
    assert float(said) > float(value)
    wait_for_another(where, before)
    wait_for_words(where, lambda now: now != words)


def test_a_number_can_be_typed_and_is_kept_within_its_limits(page):
    where = drawn(page, 3)
    field = where.get_by_label("learning rate, typed", exact=True)
    for typed, said in (("0.3", "0.3"), ("7", "1"), ("much", "1"), ("0,05", "0.05")):
        field.fill(typed)
        field.press("Enter")
        assert slider(where, "learning rate").get_attribute("aria-valuetext") == field.input_value() == said
        if said == "1":
            wait_for_words(where, lambda words: "diverges" in words)
    wait_for_words(where, lambda words: "diverges" not in words)


@pytest.mark.parametrize("number", DRAWN)
def test_frames_are_drawn_while_a_slider_is_dragged(page, number):
    where, (label, _) = drawn(page, number), DRAWN[number]
    before = picture(where)
    start = frames(where)
    slide(where, label)
    assert frames(where) > start + 3
    wait_for_another(where, before)
    said = slider(where, label).get_attribute("aria-valuetext")
    wait_for_words(where, lambda words: words == where.locator(".words").inner_text())
    assert said == slider(where, label).get_attribute("aria-valuetext")  # the slider stays where it was left
    where.screenshot(path=PICTURES / f"light_{number}.png")


def play_widget(page, number: int = 5):
    where = cell(page, number).locator(".nncourse-playground")
    where.scroll_into_view_if_needed()
    return where


def frames(where) -> int:
    return int(where.get_attribute("data-frames") or 0)


def colours(where, canvas: str) -> int:
    """About how many colours a canvas shows."""
    return where.locator(canvas).evaluate("""canvas => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(Array.from({ length: data.length / 40 }, (_, i) => data.slice(40 * i, 40 * i + 3).join())).size;
    }""")


def pressed(where, name: str) -> str:
    return where.get_by_role("button", name=name, exact=True).get_attribute("aria-pressed")


def test_the_playgrounds_first_picture_is_there_whole_before_start(page):
    where = play_widget(page)
    assert_fits(where)
    assert frames(where) >= 1 and where.locator("[role=status]").inner_text().startswith("Paused: epoch 0,")
    assert colours(where, ".plane") > 20 and colours(where, ".links") > 5
    assert where.locator(".neuron").count() == 7 + 8 + 8 + 1
    assert (pressed(where, "Start"), pressed(where, "Pause")) == ("false", "false")


def test_everything_in_the_playground_has_a_name_and_the_learning_rate_says_its_value(page):
    where = play_widget(page)
    unnamed = where.evaluate("""root => [...root.querySelectorAll("button, input, select, [role]")]
        .filter(node => !(node.getAttribute("aria-label") || node.textContent.trim())).map(node => node.outerHTML)""")
    assert unnamed == []
    assert where.locator("canvas[role=img]").count() == 2
    rate = where.get_by_role("slider", name="learning rate", exact=True)
    assert rate.get_attribute("aria-valuetext") == "0.1"
    rate.press("ArrowRight")
    rate.press("ArrowRight")
    assert rate.get_attribute("aria-valuetext") == "0.2"


def test_the_playground_starts_obeys_and_pauses(page):
    where = play_widget(page)
    where.get_by_role("button", name="Start").press("Enter")
    wait_for_words(where, lambda words: words.startswith("Running"))
    assert (pressed(where, "Start"), pressed(where, "Pause")) == ("true", "false")
    where.get_by_role("combobox", name="speed").select_option("fastest")
    slide(where, "noise")
    photograph(page, "light.png")
    where.get_by_role("button", name="Pause").click()
    words = wait_for_words(where, lambda words: words.startswith("Paused"))
    assert not words.startswith("Paused: epoch 0,")
    time.sleep(0.5)
    pause = frames(where)
    time.sleep(1)
    assert frames(where) == pause
    assert (pressed(where, "Start"), pressed(where, "Pause")) == ("false", "true")


def test_neurons_layers_and_inputs_come_and_go_by_mouse_and_keyboard(page):
    where = play_widget(page)

    def button(name):
        return where.get_by_role("button", name=name, exact=True)

    button("Add a neuron to layer 1").click()
    button("Layer 1, neuron 9").wait_for()
    button("Remove a neuron from layer 1").press("Enter")
    button("Layer 1, neuron 9").wait_for(state="detached")
    last = button("Layer 2, neuron 8")
    last.focus()
    assert "tanh(" in where.locator(".detail").inner_text()
    last.press("ArrowUp")
    page.keyboard.press("Delete")
    last.wait_for(state="detached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Layer 2, neuron")
    for key in ("Enter", "Space"):
        button("Add a hidden layer").press(key)
    button("Layer 4, neuron 4").wait_for()
    button("Add a hidden layer").click()
    where.locator("[role=status]", has_text="at most 4 hidden layers").wait_for()
    button("Remove the last hidden layer").click()
    button("Layer 4, neuron 4").wait_for(state="detached")
    square = button("Input x1²")
    assert square.get_attribute("aria-pressed") == "false"
    square.click()
    where.locator("[aria-label='Input x1²'][aria-pressed=true]").wait_for()
    square.press("Enter")
    where.locator("[aria-label='Input x1²'][aria-pressed=false]").wait_for()


def test_a_neuron_is_shown_large_with_its_weights(page):
    where = play_widget(page)
    neuron = where.get_by_role("button", name="Layer 1, neuron 3", exact=True)
    neuron.hover()
    where.locator(".title", has_text="What neuron 3 of layer 1 computes").wait_for()
    assert re.search(r"tanh\(.*·x1 .*·x2 .*\)", where.locator(".detail").inner_text())
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    where.locator(".title", has_text="The class at each place").wait_for()


def test_the_filter_moves_by_keyboard_and_mouse(page):
    where = drawn(page, BY_HAND)
    where.get_by_role("button", name="Start again").press("Enter")
    wait_for_words(where, lambda words: words.startswith("Output row 0, column 0") and "Done: 1 of 9" in words)
    turn(where, "column", "ArrowRight")
    wait_for_words(where, lambda words: "0·1 + 1·0 + 1·1 = 3. Done: 2 of 9 places." in words)
    turn(where, "row", "ArrowUp")  # up is more, as in every slider
    wait_for_words(where, lambda words: "= 4. Done: 3 of 9 places." in words)
    where.get_by_role("button", name="Next place").click()
    wait_for_words(where, lambda words: words.startswith("Output row 1, column 2"))
    assert slider(where, "column").get_attribute("aria-valuetext") == "2"


def step_of(words: str) -> int:
    return int(re.search(r"Step (\d+)", words)[1])


def test_the_race_plays_and_pauses_by_mouse_and_keyboard(page):
    where = drawn(page, RACE)
    now = where.locator(".now")
    where.get_by_role("button", name="Start again").press("Enter")
    wait_for_words(where, lambda words: words.startswith("Step 0."))
    first = picture(where)
    where.get_by_role("button", name="Play").press("Enter")
    assert now.inner_text() == "Playing"
    wait_for_another(where, first)
    page.wait_for_function(
        "words => parseInt(words.innerText.slice(5)) > 3", arg=where.locator(".words").element_handle()
    )
    where.get_by_role("button", name="Pause").click()
    assert now.inner_text() == "Paused"
    paused = step_of(wait_for_words(where, lambda words: words == where.locator(".words").inner_text()))
    time.sleep(0.5)
    assert 3 < step_of(where.locator(".words").inner_text()) == paused < 150
    where.get_by_role("button", name="One step").press("Space")
    words = wait_for_words(where, lambda words: step_of(words) == paused + 1)
    drag(where, "momentum", 0.6)
    wait_for_words(where, lambda now: now != words and step_of(now) == paused + 1)


def test_widgets_answer_while_a_cell_runs(page, jupyterlab):
    (jupyterlab[0] / "go_on").unlink()
    cell(page, WAITS).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.locator("#jp-main-statusbar", has_text="Busy").wait_for()
    where = drawn(page, 2)
    before = picture(where)
    turn(where, "weighted sum z", "ArrowLeft", 2)
    wait_for_another(where, before)  # the cell still runs: it waits for what comes next
    play = play_widget(page)
    before = frames(play)
    play.get_by_role("button", name="Start").press("Enter")
    wait_for_words(play, lambda words: words.startswith("Running"))
    while frames(play) < before + 30:  # more than may be under way without an answer
        time.sleep(0.05)
    play.get_by_role("button", name="Pause").press("Enter")
    wait_for_words(play, lambda words: words.startswith("Paused"))
    (jupyterlab[0] / "go_on").touch()
    idle(page)


def pad(page):
    where = page.locator(".nncourse-pad")
    where.scroll_into_view_if_needed()
    return where


def says(where, words: str):
    """Wait until the status, which screen readers read, has these words."""
    where.locator("[role=status]", has_text=words).wait_for()


def test_a_digit_drawn_with_the_mouse_is_recognised_and_cleared_away(page):
    where = pad(page)
    says(where, "Nothing is drawn yet.")
    paper = where.locator(".paper")
    box = paper.bounding_box()
    shares = ((0.3, 0.2), (0.7, 0.2), (0.46, 0.82))
    corners = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in shares]
    page.mouse.move(*corners[0])
    page.mouse.down()
    page.mouse.move(*corners[1], steps=10)
    bar = where.locator(".number").nth(7)
    page.wait_for_function("bar => bar.innerText.endsWith('%')", arg=bar.element_handle())  # while one draws
    page.mouse.move(*corners[2], steps=10)
    page.mouse.up()
    says(where, "The network says 7")
    assert float(bar.inner_text().split()[0]) > 50
    photograph(page, "pad.png")
    where.get_by_role("button", name="Clear").click()
    says(where, "Nothing is drawn yet.")
    assert bar.inner_text() == ""


def test_a_digit_drawn_by_keyboard_is_recognised_and_the_notebook_does_not_run_away(page):
    where = pad(page)
    paper = where.locator(".paper")
    paper.focus()
    for key, times in (("ArrowUp", 10), ("Space", 1), ("ArrowDown", 20), ("Space", 1)):
        for _ in range(times):
            paper.press(key)
    says(where, "The network says 1")
    assert where.locator(".place").inner_text() == "Cursor: row 25, column 15 of 28; pen up."
    assert paper.evaluate("paper => document.activeElement === paper")
    photograph(page, "pad_by_keyboard.png")
    paper.press("Delete")
    says(where, "Nothing is drawn yet.")


def test_a_taste_of_the_playground_learns_and_grows(page):
    cell(page, 0).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")  # again: another playground has ended it
    where = play_widget(page, 0)
    wait_for_words(where, lambda words: words.startswith("Paused: round 0."))
    neurons = where.get_by_role("slider", name="neurons", exact=True)
    neurons.press("ArrowRight")
    where.get_by_role("button", name="Layer 1, neuron 4").wait_for()
    where.get_by_role("button", name="Start").click()
    wait_for_words(where, lambda words: words.startswith("Running: round "))
    start = frames(where)
    page.wait_for_timeout(1000)
    assert frames(where) > start
    where.get_by_role("button", name="Pause").click()
    wait_for_words(where, lambda words: words.startswith("Paused"))
    where.screenshot(path=PICTURES / "taste.png")


def test_a_saved_notebook_opened_anew_shows_stills_and_what_to_do_and_no_error(page, jupyterlab):
    folder, address = jupyterlab
    choose(page, "File", "Save Notebook")
    page.locator("#jp-main-statusbar", has_text="Saving completed").wait_for()
    shutil.copy(folder / "widgets.ipynb", folder / "saved.ipynb")  # a kernel of its own, which has no widgets
    anew = page.context.browser.new_page(viewport=VIEW)
    try:
        anew.goto(address.replace("/lab/tree/widgets.ipynb", "/lab/workspaces/anew/tree/saved.ipynb"))
        idle(anew)
        anew.locator(".jp-OutputArea-output", has_text="Error displaying widget").first.wait_for(state="attached")
        photograph(anew, "saved.png")
        for number in range(len(CELLS)):
            outputs = cell(anew, number).locator(".jp-OutputArea-output:visible")
            if number == WAITS:
                continue
            assert outputs.count() == 1 and "Run this cell to play." in outputs.inner_text(), number
            assert outputs.locator("img").count() == (number in DRAWN), number
    finally:
        anew.close()


def test_axe_finds_nothing_serious_in_the_widgets(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here: the extra test brings it")
    widgets = ".nncourse-drawn, .nncourse-playground, .nncourse-pad"
    found = axe.Axe().run(page, context=widgets, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []


def test_nothing_went_wrong_in_the_notebook(page):
    for kind in ("stderr", "error"):
        assert page.locator(f".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.{kind}']").count() == 0
    assert page.locator(".jp-OutputArea-output", has_text="Error displaying widget").count() == 0


def test_the_dark_theme_is_readable(page):
    choose_theme(page, "Dark")
    photograph(page, "dark.png")
    darkest = (
        "canvas => Math.min(...canvas.getContext('2d').getImageData(0, 0, 20, 20).data.filter((_, i) => i % 4 < 3))"
    )
    assert play_widget(page).locator(".neuron canvas").first.evaluate(darkest) < 60  # the page's own dark ground
    assert_light(cell(page, 5).locator("[role=status]"))
    assert_light(pad(page).locator("[role=status]"))
    assert_light(pad(page).locator(".number").first)


@pytest.mark.parametrize("number", DRAWN)
def test_a_drawn_widget_is_light_on_a_dark_page(page, number):
    assert page.locator("body[data-jp-theme-light=false]").count() == 1
    where = drawn(page, number)
    with Image.open(io.BytesIO(picture(where))) as shown:
        grey = sorted(shown.convert("L").tobytes())
    assert grey[0] < 40 and grey[-1] > 200
    assert grey[len(grey) // 3] < 110  # most of it is ground
    for part in (".words", ".slider label", ".field"):
        assert_light(where.locator(part).first, part)
    where.screenshot(path=PICTURES / f"dark_{number}.png")
