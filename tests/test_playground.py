"""The playground without a browser: its engine, its frames, its figure, and the thread that obeys the browser."""

import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from figures import fits_on_its_page, png

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.widgets import playground as play
from nnclassroom.widgets.playground import engine as playground_engine
from nnclassroom.widgets.playground import loop as playground_loop
from nnclassroom.widgets.playground import playground, still, taste, taste_still
from nnclassroom.widgets.playground.engine import FEATURES, Engine, Settings, features_of
from nnclassroom.widgets.playground.frames import GRID, as_bytes, frame, grid, scene, thinned
from nnclassroom.widgets.playground.loop import Loop
from nncourse.errors import CourseError
from nncourse.model.network import COSTS, OF_TOKENS, make_network
from nncourse.model.optimizers import SGD
from nncourse.model.training import train

PATIENCE = 30  # seconds, on a busy machine
PLACES = np.random.default_rng(0).uniform(-2, 2, (50, 2)).astype(np.float32)


def until(true, what: str = ""):
    """Wait until true() is; fail if that takes too long."""
    end = time.monotonic() + PATIENCE
    while not (result := true()):
        assert time.monotonic() < end, what or "waited too long"
        time.sleep(0.01)
    return result


def words_of(widget):
    return widget.state["words"]


def send(widget, name, value=None):
    """What the browser does."""
    widget._handle_custom_msg({"name": name, "value": value}, [])


def threads():
    return [thread for thread in threading.enumerate() if isinstance(thread, Loop)]


@pytest.fixture
def open_playground():
    """Lets a test open playgrounds whose frames are seen at once, and sees that no thread outlives it."""
    before, widgets = set(threading.enumerate()), []

    def opened(make=playground, **settings):
        widget = make(**settings)
        widget.observe(lambda change: send(widget, "seen", change["new"]["number"]), "frame")
        widgets.append(widget)
        return widget

    yield opened
    for widget in widgets:
        widget.close()
    # Threads of other tests may end meanwhile: only those that began here count.
    until(lambda: not set(threading.enumerate()) - before, "a thread is left")


# The engine


@pytest.mark.parametrize("l2", [0, 0.01])
def test_an_engine_computes_what_train_computes(l2):
    engine = Engine(Settings(hidden=(5,), samples=101, l2=l2))
    engine.train(epochs=3)
    data = engine.training
    network = make_network((2, 5, 1), "tanh", "binary_cross_entropy", seed=0)
    options = {"epochs": 3, "batch_size": 10, "learning_rate": 0.1, "seed": 0, "optimizer": SGD(l2=l2)}
    options["plan"] = "operations"  # as the engine takes its steps
    train(network, data.X, data.Y, engine.backend, **options)
    for ours, theirs in zip(engine.network.parameters, network.parameters, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("data", ["moons", "blobs"])
@pytest.mark.parametrize("cost", [cost for cost in COSTS if cost != OF_TOKENS])
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
    monkeypatch.setattr(playground_engine, "MOST_POINTS", 20)
    engine = Engine(Settings(samples=50, hidden=()))
    for _ in range(100):
        engine.train(epochs=1)
        engine.measure()
    epochs = [entry[0] for entry in engine.history]
    assert len(epochs) <= 20 and epochs[0] == 0 and epochs[-1] == 100 and epochs == sorted(epochs)


def test_features_are_what_their_names_say():
    X = np.array([[0.5, -2.0]], np.float32)
    wanted = [0.5, -2, 0.25, 4, -1, 1, 0]
    assert features_of(X, list(FEATURES))[0] == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(CourseError, match="input feature"):
        features_of(X, ["x3"])


def test_one_neuron_learns_the_circles_with_squares_and_not_without():
    costs = []
    for features in (("x1", "x2"), ("x1²", "x2²")):
        engine = Engine(Settings(data="circles", noise=0.05, hidden=(), features=features, learning_rate=1))
        engine.train(epochs=40)
        engine.measure()
        costs.append(engine.history[-1][1])
    assert costs[0] > 0.6 and costs[1] < 0.2


# Another shape


def trained() -> Engine:
    engine = Engine(Settings(hidden=(5, 4), samples=60))
    engine.train(epochs=10.4)
    return engine


def test_a_neuron_or_a_feature_that_is_added_changes_nothing_at_first_and_then_learns():
    engine = trained()
    before, epochs = engine.shares(PLACES), engine.progress
    engine.resize(0, 6)
    engine.resize(1, 5)
    engine.choose_features(("x1", "x2", "x1·x2"))
    assert engine.network.sizes == (3, 6, 5, 1) and engine.settings.hidden == (6, 5)
    assert np.allclose(engine.shares(PLACES), before, atol=1e-6) and engine.progress == epochs
    engine.train(epochs=2)
    assert np.abs(engine.network.layers[1].W[:, 5]).min() > 0 and np.abs(engine.network.layers[0].W[:, 2]).min() > 0


def test_a_neuron_that_is_removed_leaves_the_others_their_weights():
    engine = trained()
    below, above = (layer.W.copy() for layer in engine.network.layers[:2])
    engine.remove(0, 1)
    left = [0, 2, 3, 4]
    assert np.array_equal(engine.network.layers[0].W, below[left])
    assert np.array_equal(engine.network.layers[1].W, above[:, left])
    engine.resize(0, 2)
    assert np.array_equal(engine.network.layers[1].W, above[:, [0, 2]])
    engine.train(epochs=1)


def test_layers_are_added_and_removed_before_the_output():
    engine = trained()
    kept = [layer.W.copy() for layer in engine.network.layers[:2]]
    engine.add_layer()
    assert engine.network.sizes == (2, 5, 4, playground_engine.NEW_LAYER, 1)
    assert all(np.array_equal(old, layer.W) for old, layer in zip(kept, engine.network.layers, strict=False))
    assert np.abs(engine.network.layers[-1].W).min() > 0
    for sizes in ((2, 5, 4, 1), (2, 5, 1), (2, 1)):
        engine.remove_layer()
        assert engine.network.sizes == sizes
        engine.train(epochs=1)
    with pytest.raises(CourseError, match="no hidden layer left"):
        engine.remove_layer()


@pytest.mark.parametrize(
    "change",
    [
        lambda engine: engine.resize(0, 17),
        lambda engine: engine.resize(0, 0),
        lambda engine: engine.resize(2, 3),
        lambda engine: [engine.add_layer() for _ in range(3)],
        lambda engine: engine.choose_features(()),
    ],
)
def test_what_is_too_large_or_empty_is_refused_and_the_network_stays(change):
    engine = trained()
    with pytest.raises(CourseError):
        change(engine)
    engine.train(epochs=1)
    assert engine.network.sizes[1] == 5 and len(engine.settings.features) == 2


# What the browser gets


@pytest.mark.parametrize(
    "settings", [{}, {"data": "blobs"}, {"hidden": ()}, {"hidden": (16,) * 4}, {"features": ("x2", "x1·x2")}]
)
def test_a_frame_says_what_the_network_computes(settings):
    engine = Engine(Settings(**settings))
    engine.train(epochs=2)
    fixed, drawn = scene(engine), frame(engine)
    sizes, places = engine.network.sizes, grid(engine)
    assert fixed["sizes"] == list(sizes) and len(places) == GRID * GRID
    classes = len(engine.training.classes)
    shares = engine.shares(places)[:, 1:]
    assert np.abs(drawn["plane"].reshape(-1, classes - 1) / 255 - shares).max() < 0.01
    activities = engine.activities(places)
    assert drawn["neurons"].shape == (sum(sizes[1:]), fixed["small"] ** 2)
    assert np.array_equal(drawn["neurons"][-1], thinned(as_bytes(activities[-1], engine.network.activation))[-1])
    low, high = drawn["ranges"][-1]
    assert (low, high) == (activities[-1][:, -1].min(), activities[-1][:, -1].max())
    assert np.array_equal(drawn["weights"], engine.network.flat_parameters)


def test_a_neuron_that_is_looked_at_is_sent_large():
    engine = Engine(Settings(hidden=(3,)))
    drawn = frame(engine, [1, 2])
    assert drawn["look"] == [1, 2]
    said = engine.activities(grid(engine))[0][:, 2]
    assert np.abs((drawn["large"][:, 0] - 128.0) / 127 - said).max() < 0.01
    for gone in ([1, 3], [3, 0], None):
        assert frame(engine, gone)["look"] == []


def test_the_middle_of_a_picture_is_the_middle_of_the_activation():
    values = np.array([[-1.0], [0.0], [0.5], [1.0], [np.nan]])
    assert as_bytes(values, "tanh")[:, 0].tolist() == [1, 128, 191, 255, 128]
    assert as_bytes(values, "sigmoid")[1:4, 0].tolist() == [1, 128, 255]
    assert as_bytes(3 * values, "relu")[:4, 0].tolist() == [1, 128, 191, 255]


def test_a_still_is_labelled_says_what_it_shows_and_is_on_the_page():
    described = still(epochs=3, samples=60, features=("x1", "x2²"), hidden=(16, 3))
    figure = described.figure
    assert [bool(axes.get_xlabel() and axes.get_ylabel()) for axes in figure.axes[:2]] == [True, True]
    assert "2-16-3-1" in described.words and "x2²" in described.words and "epoch 3" in described.words
    assert len(figure.axes[2].images) == 2 + 16 + 3 + 1  # of each neuron one
    assert png(figure) and fits_on_its_page(figure)


def test_the_still_of_a_taste_has_its_order_and_its_words():
    described = taste_still(epochs=3)
    network, plane, costs = sorted(described.figure.axes, key=lambda axes: axes.get_position().x0)
    assert network.images and "not seen" in plane.get_title() and costs.get_xlabel() == "rounds"
    assert "round 3" in described.words and "epoch" not in described.words
    assert fits_on_its_page(described.figure)


# The thread and the widget


def test_the_first_picture_is_there_before_start_and_a_saved_notebook_says_what_to_do(open_playground):
    for make in (playground, taste):
        widget = open_playground(make)
        assert widget.frame["number"] == 1 and len(widget.frame["plane"]["bytes"]) == GRID * GRID
        assert words_of(widget).startswith("Paused: ") and not widget.state["running"]
        assert repr(widget) == "Run this cell to play."
        assert widget._repr_mimebundle_()[0]["text/plain"] == "Run this cell to play."


def test_every_control_has_a_label_a_tip_and_the_value_it_begins_with(open_playground):
    widget = open_playground(noise=0.123, learning_rate=0.33, seed=4567)
    now = widget.state["settings"]
    for control in widget.controls:
        assert control["label"] and control["tip"]
        values = control.get("values") or [value for value, _ in control.get("options", [])]
        assert not values or now[control["name"]] in values, control["name"]


def test_start_trains_and_pause_really_pauses(open_playground):
    widget = open_playground()
    first = widget.frame["plane"]
    send(widget, "start")
    until(lambda: widget.loop.engine.epoch >= 3 and widget.state["running"])
    until(lambda: words_of(widget).startswith("Running"))
    assert widget.frame["plane"] != first
    send(widget, "pause")
    until(lambda: "Paused" in words_of(widget))
    number, epoch = widget.frame["number"], widget.loop.engine.epoch
    used = time.process_time()
    time.sleep(1)
    assert time.process_time() - used < 0.2  # it sleeps, and does not go round and round
    assert (widget.frame["number"], widget.loop.engine.epoch) == (number, epoch)


def test_a_step_is_one_batch_and_reset_begins_again(open_playground):
    widget = open_playground()
    first = widget.frame["plane"]
    for done in (10, 20):
        send(widget, "step")
        until(lambda: f"epoch 0 and {done} samples" in words_of(widget))  # noqa: B023
    send(widget, "start")
    until(lambda: "Running" in words_of(widget))
    send(widget, "step")
    until(lambda: "Paused" in words_of(widget))
    assert widget.frame["plane"] != first
    send(widget, "reset")
    until(lambda: "epoch 0, " in words_of(widget))
    assert widget.frame["plane"] == first


def test_the_speed_is_in_epochs_a_second():
    pace = playground_loop.Pace()
    pace.begin(0)
    pace.since -= 0.05  # as long ago was the last frame
    assert pace.epochs(0, 20) == pytest.approx(1, rel=0.1)
    assert pace.epochs(1, 20) < 0.1
    assert pace.epochs(1, 0) == float("inf")


def test_learning_rate_l2_and_batch_size_act_at_once_on_the_running_training(open_playground):
    widget = open_playground()
    send(widget, "start")
    until(lambda: widget.loop.engine.epoch >= 4)
    engine, before = widget.loop.engine, widget.loop.engine.epoch
    for name, value in (("learning_rate", 0.02), ("batch_size", 30), ("l2", 0.01)):
        send(widget, name, value)
        until(lambda: getattr(engine.settings, name) == value)  # noqa: B023
    until(lambda: engine.epoch > before + 2)
    assert widget.loop.engine is engine and widget.loop.running
    epochs = [entry[0] for entry in engine.history]
    assert epochs[0] == 0 and epochs == sorted(epochs)


@pytest.mark.parametrize(
    ("name", "value"),
    [("data", "circles"), ("noise", 0.3), ("samples", 100), ("activation", "relu"), ("cost", "mse"), ("seed", 3)],
)
def test_what_changes_the_task_restarts_and_goes_on_running(open_playground, name, value):
    widget = open_playground()
    send(widget, "start")
    until(lambda: widget.loop.engine.epoch >= 2)
    before = widget.loop.engine
    send(widget, name, value)
    after = until(lambda: widget.loop.engine is not before and widget.loop.engine)
    until(lambda: after.epoch >= 1 and widget.state["settings"][name] == value)
    assert getattr(after.settings, name) == value and widget.loop.running


def test_neurons_layers_and_features_change_while_it_trains(open_playground):
    widget = open_playground(hidden=(3,))
    send(widget, "start")
    engine = until(lambda: widget.loop.engine.epoch and widget.loop.engine)
    for name, value, sizes in (
        ("add_layer", None, [2, 3, 4, 1]),
        ("resize", [1, 6], [2, 3, 6, 1]),
        ("remove", [0, 1], [2, 2, 6, 1]),
        ("features", ["x1", "x2", "sin πx1"], [3, 2, 6, 1]),
        ("remove_layer", None, [3, 2, 1]),
    ):
        send(widget, name, value)
        until(lambda: widget.scene["sizes"] == sizes)  # noqa: B023
    assert widget.loop.engine is engine and widget.loop.running
    assert widget.state["settings"]["hidden"] == [2]
    send(widget, "reset")
    until(lambda: widget.loop.engine not in (engine, None))
    assert widget.loop.engine.network.sizes == (3, 2, 1)


def test_a_browser_that_does_not_keep_up_misses_frames_and_then_gets_the_newest(monkeypatch):
    monkeypatch.setattr(playground_loop, "PATIENCE", float("inf"))  # however slow the machine
    shown = []
    loop = Loop(Settings(speed=0), shown.append)
    loop.turn([("start", None)])
    for _ in range(3 * playground_loop.MOST_AHEAD):
        loop.turn([])
    assert len(shown) == playground_loop.MOST_AHEAD
    loop.turn([("seen", loop.number)])
    assert shown[-1].frame["number"] == playground_loop.MOST_AHEAD + 1
    assert shown[-1].frame["history"][-1, 0] == pytest.approx(loop.engine.progress)


def test_of_many_values_on_the_way_only_the_newest_is_computed():
    loop = Loop(Settings(), lambda shown: None)
    loop.turn([])
    before = loop.engine
    loop.turn([("noise", value / 100) for value in range(40)])
    assert loop.engine is not before and loop.settings.noise == 0.39 and loop.number == 2


def test_the_points_of_other_data_are_drawn_although_the_new_engine_may_lie_where_the_old_one_lay():
    shown = []
    loop = Loop(Settings(), shown.append)
    for data in ("circles", "xor", "moons"):
        loop.turn([("data", data)])
        assert shown[-1].scene is not None


def test_a_cost_that_is_no_number_pauses_with_advice_and_reset_mends_it(open_playground):
    widget = open_playground(activation="relu", learning_rate=1e30)
    send(widget, "start")
    words = until(lambda: "no longer a number" in words_of(widget) and words_of(widget))
    assert words.startswith("Paused") and "learning rate below 1e+30" in words and not widget.loop.running
    send(widget, "learning_rate", 0.1)
    send(widget, "reset")
    send(widget, "start")
    until(lambda: widget.loop.engine and widget.loop.engine.epoch >= 3 and widget.loop.running)


def test_what_the_browser_may_not_ask_for_is_ignored(open_playground):
    widget = open_playground(taste)
    for name in ("backend", "nonsense", "end"):
        send(widget, name, "abacus")
    send(widget, "step")
    until(lambda: widget.frame["number"] == 2)
    assert widget.loop.engine.backend.name == "numpy" and widget.loop.is_alive()


def test_a_taste_has_two_data_sets_and_two_sliders_and_grows(open_playground):
    widget = open_playground(taste)
    kinds = [control["kind"] for control in widget.controls]
    assert sorted(kinds) == ["menu", "slider", "slider"] and len(widget.controls[0]["options"]) == 2
    send(widget, "resize", [0, 5])
    until(lambda: widget.scene["sizes"] == [2, 5, 1])
    send(widget, "start")
    until(lambda: widget.loop.engine.epoch >= 5 and words_of(widget).startswith("Running: round "))


# The student's own kernels


def test_my_own_kernels_are_used_and_named_if_the_training_calls_them(my_kernels, open_playground):
    kept_kernels.keep(find("tanh"), "numpy", "def tanh(z):\n    return np.tanh(z)\n")
    kept_kernels.keep(find("softplus"), "numpy", "def softplus(z):\n    return np.log1p(np.exp(z))\n")
    widget = open_playground()
    assert "kernels" not in words_of(widget)
    send(widget, "mine", True)
    until(lambda: "Your own kernels: tanh." in words_of(widget))
    assert widget.loop.engine.backend.kernels["tanh"].where.startswith("tanh.numpy.py")


def test_l2_and_features_are_trained_with_the_students_kernels_too(my_kernels):
    kept_kernels.keep(find("l2_gradient"), "numpy", "def l2_gradient(G, W, l2):\n    G += l2 * W\n")
    engine = Engine(Settings(mine=True, l2=0.01, features=("x1", "x1·x2"), samples=60))
    assert "l2_gradient" in engine.used() and "l2_gradient" in engine.yours()
    assert "l2_gradient" not in Engine(Settings(mine=True, samples=60)).yours()


def test_without_kept_kernels_that_is_said(my_kernels, open_playground):
    assert "No kernel of yours for the CPU" in words_of(open_playground(mine=True))


def test_an_exception_in_a_students_kernel_is_one_line_and_the_playground_lives_on(my_kernels, open_playground):
    text = "def tanh(z):\n    if z.shape == (10, 8):\n        raise RuntimeError('no\\nluck')\n    return np.tanh(z)\n"
    kept_kernels.keep(find("tanh"), "numpy", text)
    widget = open_playground(mine=True)
    send(widget, "start")
    words = until(lambda: "RuntimeError" in words_of(widget) and words_of(widget))
    assert words == "Paused: RuntimeError: no luck" and not widget.loop.running
    send(widget, "mine", False)
    send(widget, "start")
    until(lambda: widget.loop.engine and widget.loop.engine.epoch >= 2)


def test_a_kernel_that_fails_at_once_leaves_a_widget_that_says_so(my_kernels, open_playground):
    text = "def tanh(z):\n    if len(z) == 3600:\n        raise RuntimeError('no luck')\n    return np.tanh(z)\n"
    kept_kernels.keep(find("tanh"), "numpy", text)
    widget = open_playground(mine=True)
    assert words_of(widget) == "Paused: RuntimeError: no luck" and not widget.frame
    send(widget, "mine", False)
    until(lambda: widget.frame)


def test_what_cannot_be_made_is_said_and_can_be_mended(open_playground):
    widget = open_playground(backend="numpy")
    send(widget, "backend", "abacus")
    until(lambda: "expected a backend" in words_of(widget))
    send(widget, "backend", "numba")
    send(widget, "step")
    until(lambda: "and 10 samples" in words_of(widget))
    assert widget.loop.engine.backend.name == "numba"


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError):
        playground(colour="red")
    with pytest.raises(CourseError, match="at most 4 hidden layers"):
        playground(hidden=(8,) * 5)
    with pytest.raises(CourseError, match="input feature"):
        playground(features=("x3",))
    with pytest.raises(CourseError):
        Engine(Settings(backend="abacus"))
    assert not threads()


# The end of the thread


def test_a_closed_playground_leaves_no_thread():
    before = threading.active_count()
    for _ in range(3):
        widget = playground()
        send(widget, "start")
        until(lambda: threads())
        widget.close()
        assert not threads() and threading.active_count() <= before
    assert widget.comm is None


def test_a_new_playground_ends_the_one_before(open_playground):
    first, second = open_playground(), open_playground(taste)
    assert threads() == [second.loop]
    assert "Another playground was opened" in words_of(first)


def test_a_forgotten_playground_ends_its_thread():
    """ipywidgets itself keeps a widget until it is closed; here it is closed without the playground's knowing."""
    widget = playground()
    until(lambda: threads())
    super(play.Playground, widget).close()
    del widget
    gc.collect()
    until(lambda: not threads())


def test_python_exits_at_once_while_a_playground_runs():
    code = (
        "import time\nfrom nnclassroom.widgets.playground import playground\n"
        "widget = playground()\nwidget.loop.put('start')\nend = time.time() + 30\n"
        "def epoch(): return getattr(widget.loop.engine, 'epoch', 0)\n"
        "while not epoch() and time.time() < end: time.sleep(0.1)\nprint(epoch() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
