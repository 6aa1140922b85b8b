"""The playground without a browser: its engine, its picture, and the thread behind the controls."""

import gc
import re
import subprocess
import sys
import threading
import time

import ipywidgets
import numpy as np
import pytest

from nncourse.classroom import playground as play
from nncourse.classroom.playground import Engine, Loop, Picture, Settings, playground, still
from nncourse.errors import CourseError
from nncourse.kernels import kept_kernels
from nncourse.kernels.catalogue import find
from nncourse.model.network import COSTS, make_network
from nncourse.model.training import train

PNG = b"\x89PNG\r\n"
PATIENCE = 30  # seconds, on a busy machine


def until(true, what: str = ""):
    """Wait until true() is; fail if that takes too long."""
    end = time.monotonic() + PATIENCE
    while not (result := true()):
        assert time.monotonic() < end, what or "waited too long"
        time.sleep(0.01)
    return result


def words_of(panel):
    return re.sub("<[^>]*>", "", panel.words.value)


def threads():
    return [thread for thread in threading.enumerate() if isinstance(thread, Loop)]


@pytest.fixture
def open_playground():
    """Lets a test open playgrounds that have drawn their first frame, and sees that no thread outlives it."""
    before, panels = threading.active_count(), []

    def opened(**settings):
        panel = playground(**settings)
        panels.append(panel)
        until(lambda: words_of(panel))
        return panel

    yield opened
    for panel in panels:
        panel.close()
    until(lambda: threading.active_count() == before, "a thread is left")


# The engine


def test_an_engine_learns_the_moons_in_a_second_or_two():
    engine = Engine(Settings())
    start = time.perf_counter()
    engine.train(epochs=100)
    engine.measure()
    assert time.perf_counter() - start < 10
    assert engine.epoch == 100 and engine.history[-1][0] == 100
    assert engine.history[-1][1] < 0.1 < engine.history[0][1]


def test_an_engine_computes_what_train_computes():
    engine = Engine(Settings(hidden=(5,), samples=101))
    engine.train(epochs=3)
    data = engine.training
    network = make_network((2, 5, 1), "tanh", "binary_cross_entropy", seed=0)
    train(network, data.X, data.Y, engine.backend, epochs=3, batch_size=10, learning_rate=0.1, seed=0)
    for ours, theirs in zip(engine.network.parameters, network.parameters, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("data", ["moons", "blobs"])
@pytest.mark.parametrize("cost", COSTS)
def test_every_cost_can_be_trained_on_two_and_three_classes(data, cost):
    engine = Engine(Settings(data=data, cost=cost, samples=60))
    engine.train(epochs=20)
    engine.measure()
    assert engine.history[-1][1] < engine.history[0][1]
    shares = engine.shares(engine.held_out.X)
    assert shares.shape == (len(engine.held_out.X), 3 if data == "blobs" else 2)
    assert np.allclose(shares.sum(axis=1), 1)


def test_a_batch_size_of_all_samples_makes_one_step_an_epoch():
    engine = Engine(Settings(batch_size=210))
    engine.step()
    assert (engine.epoch, engine.done) == (1, 0)


def test_a_long_history_is_thinned_out_and_keeps_its_ends(monkeypatch):
    monkeypatch.setattr(play, "MOST_POINTS", 20)
    engine = Engine(Settings(samples=50, hidden=()))
    for _ in range(100):
        engine.train(epochs=1)
        engine.measure()
    epochs = [entry[0] for entry in engine.history]
    assert len(epochs) <= 20 and epochs[0] == 0 and epochs[-1] == 100 and epochs == sorted(epochs)


# The picture


@pytest.mark.parametrize(
    "settings", [{}, {"data": "blobs"}, {"hidden": ()}, {"hidden": (16,) * 4}, {"data": "spirals"}]
)
def test_a_frame_shows_the_network_as_it_is(settings):
    engine = Engine(Settings(**settings))
    picture = Picture(engine)
    first = picture.png()
    assert first == picture.png()  # nothing has changed
    engine.train(epochs=2)
    engine.measure()
    picture.update(engine)
    second = picture.png()
    assert second.startswith(PNG) and second != first
    fresh = Picture(engine)
    fresh.costs.set(xlim=picture.costs.get_xlim(), ylim=picture.costs.get_ylim())
    assert fresh.png() == second  # the kept background hides nothing


def test_the_axes_of_the_costs_grow_with_the_curves():
    engine = Engine(Settings())
    picture = Picture(engine)
    engine.history += [(7, 0.5, 0.5), (11, 0.0004, 30.0), (12, float("nan"), float("inf"))]
    picture.update(engine)
    assert picture.costs.get_xlim() == (0, 20)
    assert picture.costs.get_ylim() == pytest.approx((1e-4, 100))


def test_every_part_of_the_picture_is_labelled_and_on_the_page():
    figure = still(epochs=3, samples=60)
    assert [bool(axes.get_xlabel() and axes.get_ylabel()) for axes in figure.axes[:2]] == [True, True]
    box, page = figure.get_tightbbox().transformed(figure.dpi_scale_trans), figure.bbox
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1


def test_a_still_keeps_what_a_frame_leaves_to_move():
    import io

    figure, files = still(epochs=20, samples=60), [io.BytesIO(), io.BytesIO()]
    figure.savefig(files[0])
    for axes in figure.axes:
        for line in axes.lines:
            line.remove()
    figure.savefig(files[1])
    assert files[0].getvalue() != files[1].getvalue()


# The thread and the controls


def test_every_control_has_a_label_and_a_tooltip(open_playground):
    panel = open_playground()
    for name, control in panel.controls.items():
        assert control.description and control.tooltip, name
    assert bytes(panel.image.value).startswith(PNG)


def test_start_trains_and_pause_really_pauses(open_playground):
    panel = open_playground()
    first = panel.image.value
    assert words_of(panel).startswith("Paused: epoch 0")
    panel.controls["start"].click()
    until(lambda: panel.loop.engine.epoch >= 3 and "Running" in words_of(panel))
    assert panel.image.value != first
    panel.controls["pause"].click()
    until(lambda: "Paused" in words_of(panel))
    still_standing, epoch = panel.image.value, panel.loop.engine.epoch
    used = time.process_time()
    time.sleep(1)
    assert time.process_time() - used < 0.2  # it sleeps, and does not go round and round
    assert (panel.image.value, panel.loop.engine.epoch) == (still_standing, epoch)


def test_a_step_is_one_batch(open_playground):
    panel = open_playground()
    for done in (10, 20):
        panel.controls["step"].click()
        until(lambda: f"epoch 0 and {done} samples" in words_of(panel))  # noqa: B023
    panel.controls["start"].click()
    until(lambda: "Running" in words_of(panel))
    panel.controls["step"].click()
    until(lambda: "Paused" in words_of(panel))


def test_learning_rate_and_batch_size_act_at_once_on_the_running_training(open_playground):
    panel = open_playground()
    panel.controls["start"].click()
    until(lambda: panel.loop.engine.epoch >= 4)
    engine, before = panel.loop.engine, panel.loop.engine.epoch
    panel.controls["learning_rate"].value = 0.02
    panel.controls["batch_size"].value = 30
    until(lambda: (engine.settings.learning_rate, engine.settings.batch_size) == (0.02, 30))
    until(lambda: engine.epoch > before + 2)
    assert panel.loop.engine is engine and panel.loop.running
    epochs = [entry[0] for entry in engine.history]
    assert epochs[0] == 0 and epochs == sorted(epochs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("data", "circles"), ("noise", 0.3), ("samples", 100), ("activation", "relu"), ("cost", "mse"), ("seed", 3)],
)
def test_what_changes_the_task_restarts_and_goes_on_running(open_playground, name, value):
    panel = open_playground()
    panel.controls["start"].click()
    until(lambda: panel.loop.engine.epoch >= 2)
    before = panel.loop.engine
    panel.controls[name].value = value
    after = until(lambda: panel.loop.engine is not before and panel.loop.engine)
    until(lambda: after.epoch >= 1)
    assert getattr(after.settings, name) == value and panel.loop.running


def test_layers_are_added_removed_and_resized(open_playground):
    panel = open_playground(hidden=(3,))

    def sizes(*wanted):
        until(lambda: panel.loop.engine and panel.loop.engine.network.sizes == wanted)

    panel.controls["add_layer"].click()
    sizes(2, 3, 4, 1)
    panel.controls["layer_2"].value = 6
    sizes(2, 3, 6, 1)
    for _ in range(5):
        panel.controls["remove_layer"].click()
    sizes(2, 1)
    for _ in range(5):
        panel.controls["add_layer"].click()
    sizes(2, 3, 6, 4, 4, 1)
    assert not panel.loop.running


def test_reset_begins_again(open_playground):
    panel = open_playground()
    first = panel.image.value
    panel.controls["step"].click()
    until(lambda: "and 10 samples" in words_of(panel))
    panel.controls["reset"].click()
    until(lambda: "epoch 0, " in words_of(panel))
    assert panel.image.value == first


def test_a_cost_that_is_no_number_pauses_with_advice_and_reset_mends_it(open_playground):
    panel = open_playground(activation="relu", learning_rate=1e30)
    panel.controls["start"].click()
    words = until(lambda: "no number" in words_of(panel) and words_of(panel))
    assert words.startswith("Paused") and "learning rate below 1e+30" in words and not panel.loop.running
    panel.controls["learning_rate"].value = 0.1
    panel.controls["reset"].click()
    panel.controls["start"].click()
    until(lambda: panel.loop.engine and panel.loop.engine.epoch >= 3 and panel.loop.running)


def test_numba_trains_too(open_playground):
    panel = open_playground(samples=60)
    panel.controls["backend"].value = "numba"
    panel.controls["step"].click()
    until(lambda: "and 10 samples" in words_of(panel))
    assert panel.loop.engine.backend.name == "numba"


# The student's own kernels


def test_my_own_kernels_are_used_and_named(my_kernels, open_playground):
    text = "def tanh(z):\n    return np.tanh(z)\n"
    kept_kernels.keep(find("tanh"), "numpy", text)
    panel = open_playground()
    assert "kernels" not in words_of(panel)
    panel.controls["mine"].value = True
    until(lambda: "Your own kernels: tanh." in words_of(panel))
    assert panel.loop.engine.backend.kernels["tanh"].where.startswith("tanh.numpy.py")


def test_without_kept_kernels_that_is_said(my_kernels, open_playground):
    assert "No kernel of yours for the CPU" in words_of(open_playground(mine=True))


def test_an_exception_in_a_students_kernel_is_one_line_and_the_playground_lives_on(my_kernels, open_playground):
    text = "def tanh(z):\n    if z.shape == (10, 8):\n        raise RuntimeError('no\\nluck')\n    return np.tanh(z)\n"
    kept_kernels.keep(find("tanh"), "numpy", text)
    panel = open_playground(mine=True)
    panel.controls["start"].click()
    words = until(lambda: "RuntimeError" in words_of(panel) and words_of(panel))
    assert words == "Paused: RuntimeError: no luck" and not panel.loop.running
    panel.controls["mine"].value = False
    panel.controls["start"].click()
    until(lambda: panel.loop.engine and panel.loop.engine.epoch >= 2)


def test_what_cannot_be_made_is_said_and_can_be_mended(open_playground):
    panel = open_playground(backend="numpy")
    panel.loop.put("backend", "abacus")
    until(lambda: "wanted a backend" in words_of(panel))
    panel.controls["backend"].value = "numba"
    until(lambda: "epoch 0" in words_of(panel))


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError):
        playground(colour="red")
    with pytest.raises(CourseError, match="at most 4 hidden layers"):
        playground(hidden=(8,) * 5)
    with pytest.raises(CourseError):
        Engine(Settings(backend="abacus"))
    assert not threads()


# The end of the thread


def test_a_closed_playground_leaves_no_thread():
    before = threading.active_count()
    for _ in range(3):
        panel = playground()
        panel.controls["start"].click()
        until(lambda: threads())
        panel.close()
        assert not threads() and threading.active_count() <= before
    assert panel.comm is None and panel.controls["start"].comm is None


def test_a_new_playground_ends_the_one_before(open_playground):
    first, second = open_playground(), open_playground()
    assert threads() == [second.loop]
    assert "Another playground was opened" in words_of(first)


def test_a_forgotten_playground_ends_its_thread():
    """ipywidgets itself keeps a widget until it is closed; here it is closed without the playground's knowing."""
    panel = playground()
    until(lambda: threads())
    ipywidgets.VBox.close(panel)
    for control in panel.controls.values():  # an observer of a control must not keep the panel
        assert control.comm is not None
    del panel, control
    gc.collect()
    until(lambda: not threads())


def test_python_exits_at_once_while_a_playground_runs():
    code = (
        "import time\nfrom nncourse.classroom.playground import playground\n"
        "panel = playground()\npanel.controls['start'].click()\nend = time.time() + 30\n"
        "def epoch(): return getattr(panel.loop.engine, 'epoch', 0)\n"
        "while not epoch() and time.time() < end: time.sleep(0.1)\nprint(epoch() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
