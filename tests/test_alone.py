"""Widgets without Python: their JavaScript answers what Python answers, from frames that were recorded or by itself."""

import base64
import re

import numpy as np
import pytest
from drawn_widgets import MADE, another

from nnclassroom.widgets import alone, digit_pad, filter_by_hand, playground, widget
from nncourse import SGD, datasets, evaluate, make_network, training_step
from nncourse.backend import choose
from nncourse.errors import CourseError

QUICK = ("neuron", "activations")  # one that computes, one that was recorded
# Asks the stand-in: each message, and what its traits say then, with bytes in base64.
ASK = """([script, state, messages, traits]) => {
  const { mind, standIn } = new Function(script)();
  const model = standIn(state, mind);
  const plain = (tree) => {
    if (ArrayBuffer.isView(tree)) {
      const bytes = new Uint8Array(tree.buffer, tree.byteOffset, tree.byteLength);
      return { base64: btoa(String.fromCharCode(...bytes)) };
    }
    if (Array.isArray(tree)) return tree.map(plain);
    if (!tree || typeof tree !== "object") return tree;
    return Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, plain(part)]));
  };
  return messages.map((message) => {
    model.send(message);
    return traits.map((name) => plain(model.get(name)));
  });
}"""


@pytest.fixture(scope="module")
def page(browser):
    return browser.new_page()


def answers(page, shown, messages, traits=("frame", "words", "values")):
    return page.evaluate(ASK, [alone.script(shown), alone.state(shown), messages, list(traits)])


def assert_close(wanted, got, path=""):
    if isinstance(wanted, dict) and "bytes" in wanted:
        first, second = (
            np.frombuffer(base64.b64decode(tree["bytes"]["base64"]), tree["type"]).reshape(tree["shape"]).astype(float)
            for tree in (wanted, got)
        )
        near = 1.01 if wanted["type"] == "uint8" else 1e-4
        assert first == pytest.approx(second, rel=2e-3, abs=near, nan_ok=True), path
    elif isinstance(wanted, dict):
        assert wanted.keys() == got.keys(), path
        for key in wanted:
            assert_close(wanted[key], got[key], f"{path}/{key}")
    elif isinstance(wanted, list):
        assert len(wanted) == len(got), path
        for first, second in zip(wanted, got, strict=True):
            assert_close(first, second, f"{path}[]")
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=1e-4, abs=1e-6), path
    else:
        assert wanted == got, path


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def assert_same_words(wanted, got):
    """The same words, with numbers that are equal but for their last digit: float32 rounds in another order."""
    assert NUMBER.sub("#", wanted) == NUMBER.sub("#", got)
    first, second = ([float(number) for number in NUMBER.findall(text)] for text in (wanted, got))
    assert first == pytest.approx(second, rel=0.02)


def positions(shown):
    """What the controls say at first; then each of them is moved on its own, and stays there."""
    values = dict(shown.values)
    yield values
    for name, control in shown.by_name.items():
        if control.value is not None:
            moved = another(control, values[name])
            values = values | {name: round(moved, 2) if isinstance(moved, float) and not control.log else moved}
            if control.log == 2:
                values[name] = 2 ** round(np.log2(values[name]))
            yield values


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.full) for name in MADE if name not in QUICK)]
)
def test_the_page_answers_as_python_does(page, name):
    shown = MADE[name]()
    asked = list(positions(shown))[: 1 if name == "filter_by_hand" else None]  # that remembers where it was
    came = answers(page, shown, [{"values": values, "turn": ["view", 1]} for values in asked])
    shown = MADE[name]()  # recording has moved it
    for values, (frame, words, now) in zip(asked, came, strict=True):
        shown.set(**values)
        assert now == values
        assert_same_words(shown.words, words)
        assert_close(alone.plain(shown.frame), frame)


def test_recorded_positions_are_all_there_and_a_button_leads_on(page):
    walk = filter_by_hand.widget()
    recorded = alone.recorded(walk)
    assert list(recorded["positions"]) == ["filter", "row", "column"]
    assert len(recorded["frames"]) == 4 * 3 * 3 == len(recorded["pressed"]["next"])
    assert recorded["pressed"]["next"][:9] == [*range(1, 9), 0] and recorded["pressed"]["again"][:9] == [0] * 9
    messages = [{"values": {"row": 1, "column": 0}, "turn": ["view", 1]}, {"pressed": "next"}, {"pressed": "again"}]
    after = [values for (values,) in answers(page, filter_by_hand.widget(), messages, ["values"])]
    assert [(values["row"], values["column"]) for values in after] == [(1, 0), (1, 1), (0, 0)]
    between = [{"values": {"threshold": 0.123}, "turn": ["view", 1]}]
    ((values, turn),) = answers(page, MADE["threshold"](), between, ["values", "turn"])
    assert values == {"threshold": 0.12} and turn[:2] == ["view", 1], "a value between two positions takes the nearest"


def test_too_many_positions_and_factors_want_a_script_that_computes():
    many = widget.slider("a", "moves", 0, 0, 1, 1 / (alone.MOST + 1))
    factors = widget.factors("b", "moves", 1, -1, 1)
    for control, words in ((many, f"expected at most {alone.MOST}"), (factors, "expected a file in alone/")):
        shown = widget.BrowserWidget("neuron.js", {"a": control}, lambda a: ({}, "said"), "A picture.")
        with pytest.raises(CourseError, match=words):
            alone.recorded(shown)


def network():
    return make_network("image1x28x28,conv4x2same,pool4,16,10", "relu", "categorical_cross_entropy", seed=1)


scaling = datasets.fit_scaling(np.random.default_rng(0).random((5, 1, 28, 28)), "standardization")


@pytest.mark.full
def test_a_drawn_digit_is_seen_and_read_as_python_does(page):
    def reads(network):
        return lambda image: network.predict(scaling.apply(image[None, None]), choose("numpy"))[0]

    shown = digit_pad.pad(reads(network()))
    state = alone.state(shown)
    ask = """async ([script, state, inks]) => {
      const { mind, standIn } = new Function(script)();
      const model = standIn(state, mind);
      const said = [];
      for (const ink of inks) {
        model.set("ink", new DataView(Uint8Array.from(ink).buffer));
        model.save_changes();
        await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
        said.push([Array.from(model.get("seen")), model.get("shares"), model.get("words")]);
      }
      return said;
    }"""
    inks = [digit_pad.ink_of(strokes) for strokes in digit_pad.DRAWN.values()] + [np.zeros((112, 112), np.uint8)]
    came = page.evaluate(ask, [alone.script(shown), state, [ink.ravel().tolist() for ink in inks]])
    for ink, (seen, shares, words) in zip(inks, came, strict=True):
        shown.ink = ink.tobytes()
        assert words == shown.words
        assert shares == pytest.approx(shown.shares, abs=1e-4)
        assert np.abs(np.frombuffer(shown.seen, np.uint8).astype(int) - np.array(seen, int)).max(initial=0) <= 1


@pytest.mark.full
@pytest.mark.parametrize("settings", [("moons", "tanh", "mse"), ("blobs", "relu", "binary_cross_entropy")])
def test_the_pages_playground_learns_as_pythons_engine_does(page, settings):
    """The same points; and from the same weights the same step, and the same cost."""
    data, activation, cost = settings
    made = playground.playground(data=data, samples=60, hidden=(4, 3), activation=activation, cost=cost, l2=0.01)
    engine = made.loop.engine
    samples = engine.training
    ask = """async ([script, state, layers, rows, targets, settings]) => {
      const inner = new Function(script.replace("return { drawn,", "return { stepOf, forwardOf, costOf, drawn,"))();
      const { mind, standIn, stepOf, forwardOf, costOf } = inner;
      const model = standIn(state, mind);
      await Promise.resolve();
      const [points, state0] = [Array.from(model.get("scene").points.bytes), model.get("state")];
      const own = layers.map((layer) => ({ ...layer, W: Float32Array.from(layer.W), b: Float32Array.from(layer.b) }));
      const count = targets.length / layers.at(-1).to;
      stepOf(own, Float32Array.from(rows), Float32Array.from(targets), count, settings);
      const outputs = forwardOf(own, Float32Array.from(rows), count).at(-1);
      const after = own.flatMap(({ W, b }) => [...W, ...b]);
      return [points, state0.words, after, costOf(outputs, Float32Array.from(targets), count, settings.cost)];
    }"""
    sizes = engine.network.sizes
    layers = [
        {"from": n_in, "to": n_out, "activation": each.activation, "W": each.W.ravel().tolist(), "b": each.b.tolist()}
        for each, n_in, n_out in zip(engine.network.layers, sizes, sizes[1:], strict=False)
    ]
    rate = 0.5
    how = {"learning_rate": rate, "l2": 0.01, "cost": cost}
    rows = [array.ravel().tolist() for array in (samples.X, samples.Y)]
    sent = [alone.script(made), alone.state(made), layers, *rows, how]
    points, words, after, cost_after = page.evaluate(ask, sent)
    assert words.startswith("Paused: epoch 0, cost")
    places = np.concatenate([engine.training.X, engine.held_out.X])
    assert np.array(points).reshape(-1, 2) == pytest.approx(places, abs=1e-4)
    training_step(engine.network, samples.X, samples.Y, rate, choose("numpy"), SGD(l2=0.01))
    assert after == pytest.approx(engine.network.flat_parameters.tolist(), rel=1e-3, abs=1e-5)
    assert cost_after == pytest.approx(evaluate(engine.network, samples.X, samples.Y, choose("numpy")), rel=1e-3)
    made.close()
