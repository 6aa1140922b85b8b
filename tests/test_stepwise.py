"""The tables for backpropagation by hand: their truth against finite differences, and what they say to any answer."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from nnclassroom.figures import nb05_by_hand
from nnclassroom.figures.nb05_by_hand import TOLERANCE, Steps
from nnclassroom.figures.nb05_slips import SLIP_WORDS
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.layers import Dense
from nncourse.model.network import Network, cost_of, forward, make_network

X, Y = np.array([[2.0, -1.0], [0.5, 1.0], [-1.0, 0.25]]), np.array([[1.0], [0.0], [1.0]])


def network(cost="mse", activation="sigmoid"):
    return make_network((2, 3, 2, 1), activation, cost, "normal", seed=4)


def in_double(chosen) -> list[Dense]:
    return [Dense(np.float64(one.W), np.float64(one.b), one.activation) for one in chosen.layers]


@pytest.fixture
def steps():
    return Steps(network(), X[0], Y[0])


@pytest.fixture(autouse=True)
def unsolved(monkeypatch):
    monkeypatch.delenv("NNCOURSE_SOLVE", raising=False)


@pytest.mark.parametrize("cost", ["mse", "binary_cross_entropy"])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_truth_is_the_gradient(cost, rows):
    chosen, backend, h = network(cost), choose("numpy"), 1e-5
    there = Network(in_double(chosen), cost)
    steps = Steps(chosen, X[:rows], Y[:rows])

    def after(array, place, by):
        kept = array[place]
        array[place] = kept + by
        C = cost_of(there, *forward(there, X[:rows], backend), Y[:rows], backend)
        array[place] = kept
        return C

    assert steps["C"] == pytest.approx(after(there.layers[0].b, (0,), 0))
    for number, layer in enumerate(there.layers, 2):
        for name, array in ((f"dw{number}", layer.W), (f"db{number}", layer.b)):
            assert steps[name].shape == array.shape
            for place in np.ndindex(array.shape):
                slope = (after(array, place, h) - after(array, place, -h)) / (2 * h)
                assert steps[name][place] == pytest.approx(slope, rel=1e-6, abs=1e-9)
        assert np.allclose(np.atleast_2d(steps[f"d{number}"]).mean(axis=0), steps[f"db{number}"])
    inputs = X[:rows].copy()
    for place in np.ndindex(inputs.shape):
        costs = []
        for by in (h, -h):
            moved = inputs.copy()
            moved[place] += by
            costs.append(cost_of(there, *forward(there, moved, backend), Y[:rows], backend))
        slope = (costs[0] - costs[1]) / (2 * h)
        assert np.atleast_2d(steps["dx"])[place] / rows == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("cost", "activation"), [("mse", "relu"), ("binary_cross_entropy", "tanh")])
def test_a_line_for_each_number_with_its_own_equation(cost, activation):
    steps = Steps(network(cost, activation), X[0], Y[0])
    table = steps.check(**steps.reference)
    assert len(table.lines) == sum(value.size for value in steps.reference.values())
    lines = {line[0]: line for line in table.lines}
    assert lines["z²₃"][1] == "(1) Σₖ w²₃ₖ a¹ₖ + b²₃"
    assert lines["a³₂"][1].endswith(f"{activation}(z³₂)")
    assert lines["δ⁴₁"][1] == ("(4a) ∂C/∂a⁴₁ · σ'(z⁴₁)" if cost == "mse" else "(4a) a⁴₁ − y₁")
    assert lines["δ²₃"][1] == "(4b) (Σᵢ δ³ᵢ w³ᵢ₃) σ'(z²₃)"
    assert lines["∂C/∂w³₂₁"][1] == "(4d) δ³₂ · a²₁"
    assert lines["∂C/∂b²₂"][1] == "(4c) δ²₂"
    assert {line[-1] for line in table.lines} == {"✓"}
    text = str(table).splitlines()
    assert text[-1] == f"{len(table.lines)} right, 0 wrong, 0 open."
    assert max(map(len, text)) <= 80
    assert all(line[0] in table._repr_html_() for line in table.lines)


def marks(table):
    return [line[-1] for line in table.lines]


def test_right_wrong_open(steps):
    a = steps["a2"]
    table = steps.check(a2=[round(a[0], 4), None, a[2] * 1.01], C=-steps["C"], d4=None)
    assert marks(table) == ["✓", "○ open", "✗", "✗ sign", "○ open"]
    assert "1 right, 2 wrong, 2 open.\n✗ sign: " in str(table)


def test_the_truth_is_shown_on_request_only_and_never_where_a_number_is_open(steps):
    a = steps["a2"]
    yours = [None, a[1] * 1.01, a[2]]
    open_, wrong = f"{a[0]:.5g}", f"{a[1]:.5g}"
    table = steps.check(a2=yours)
    for text in (str(table), table._repr_html_()):
        assert open_ not in text and wrong not in text and "truth" not in text
    table = steps.check(show_truth=True, a2=yours)
    for text in (str(table), table._repr_html_()):
        assert open_ not in text and wrong in text and "truth" in text
    assert max(map(len, str(steps.check(show_truth=True, **steps.reference)).splitlines())) <= 80


def test_a_mistake_on_the_way_forward_is_named(steps):
    table = steps.check(z2=steps.network.layers[0].W @ X[0], a2=steps["z2"])
    assert marks(table) == ["✗ no bias"] * 3 + ["✗ no σ"] * 3
    assert "\n✗ no bias: what comes out without the bias.\n✗ no σ: what comes out without" in str(table)


def test_a_forgotten_slope_is_named_in_deltas_and_gradients():
    steps = Steps(network("binary_cross_entropy"), X[0], Y[0])  # its last delta is a − y: there is no slope to forget
    last, hidden = steps.network.layers[2], steps.network.layers[1]
    without = [steps["d4"][0] * w for w in np.float64(last.W[0])]
    assert marks(steps.check(d3=without, db3=without)) == ["✗ no slope"] * 4
    named = marks(steps.check(dw3=np.outer(without, steps["a2"]))).count("✗ no slope")
    assert named >= hidden.W.size - 1  # one is as large as another slip by chance
    slope = steps["a4"] * (1 - steps["a4"])
    assert marks(steps.check(d4=steps["d4"] / slope)) == ["✗"]


def test_a_slope_of_a_squared_error_is_missed_in_the_last_delta(steps):
    slope = steps["a4"] * (1 - steps["a4"])
    assert marks(steps.check(d4=steps["d4"] / slope)) == ["✗ no slope"]


def test_factors_and_the_sign(steps):
    d = steps["d3"]
    assert marks(steps.check(d3=[-d[0], 2 * d[1]], C=steps["C"] / 2)) == ["✗ sign", "✗ twice", "✗ half"]
    assert marks(steps.check(d3=[-2 * d[0], 3 * d[1]])) == ["✗", "✗"]


def test_where_two_kinds_give_the_same_number_none_is_named():
    there = network("mse", "tanh")
    layers = in_double(there)
    layers[0].b[:] = np.arctanh(np.sqrt(0.5)) - layers[0].W @ X[0]  # tanh' is 1/2 there
    steps = Steps(Network(layers, "mse"), X[0], Y[0])
    twice = 2 * steps["d2"]
    slips = [steps.lines.line("d2", (j,)).slips() for j in range(3)]
    assert np.allclose(twice, [next(value for kind, value in each if kind == "no slope") for each in slips])
    assert marks(steps.check(d2=twice)) == ["✗"] * 3


def test_a_zero_names_no_kind():
    there = network("mse", "relu")
    layers = in_double(there)
    layers[0].b[:] = 1.0 - layers[0].W @ np.float64(X[0])
    layers[0].b[0] = layers[0].b[0] - 1.0 + 0.5  # no ReLU is off
    steps = Steps(Network(layers, "mse"), np.zeros(2), Y[0])
    assert not any(dict(steps.lines.line("z2", (j,)).slips())["no bias"] for j in range(3))
    assert marks(steps.check(z2=np.zeros(3))) == ["✗"] * 3


def test_a_number_from_nowhere_is_hardly_ever_called_a_slip(steps):
    rng, found = np.random.default_rng(1), []
    names = [name for name in steps.reference if name[0] == "d"]
    for _ in range(20):
        found += marks(steps.check(**{name: steps[name] * rng.uniform(1.1, 1.4, steps[name].shape) for name in names}))
    assert found.count("✗") > 0.99 * len(found) and "✓" not in found


def test_the_equation_of_a_gradient_is_to_be_found(steps):
    """The table shows it once the number is right, or with the truth; those of the forward pass are always there."""
    yours = {"z2": None, "d2": [None, 7.0, steps["d2"][2]], "dw3": None, "db3": None}
    lines = {line[0]: line[1] for line in steps.check(**yours).lines}
    assert [lines[name] for name in ("δ²₁", "δ²₂", "∂C/∂w³₁₁", "∂C/∂b³₁")] == ["(4b)", "(4b)", "(4d)", "(4c)"]
    assert "w³ᵢ₃" in lines["δ²₃"] and "w²₁ₖ" in lines["z²₁"]
    asked = {line[0]: line[1] for line in steps.check(show_truth=True, **yours).lines}
    assert asked["δ²₁"] == "(4b)" and "w³ᵢ₂" in asked["δ²₂"]


def test_a_delta_with_one_path_has_no_sum(steps):
    (line, _) = steps.check(d3=steps["d3"]).lines
    assert line[1] == "(4b) δ⁴₁ w⁴₁₁ σ'(z³₁)"


def test_an_activation_of_a_sum_without_its_bias_is_named_so():
    weights = [[0.4, -1.0, -0.3]], [[0.5, -0.5], [-0.5, 0.5], [0.25, -1.0]]
    last = Dense(np.array(weights[0]), np.array([0.5]), "sigmoid")
    first = Dense(np.array(weights[1]), np.array([0.0, 1.0, 0.5]), "relu")
    steps = Steps(Network([first, last], "mse"), [2.0, -1.0], 1.0)
    assert marks(steps.check(a2=[1.5, 0.0, 1.5])) == ["✓", "✓", "✗ no bias"]
    assert marks(steps.check(a3=[0.5])) == ["✗"]  # the sum itself, and the sigmoid of the sum without its bias


@pytest.mark.parametrize(
    ("name", "value", "mark"),
    [
        ("a2", [1, 2], "✗"),
        ("a2", 0.5, "✗"),
        ("a2", [[1, 2], [3]], "✗"),
        ("a2", [np.zeros((2, 2)), np.zeros((2, 3))], "✗"),
        ("a2", ["x", "y", {}], "✗"),
        ("a2", [np.nan, np.inf, 1j], "✗"),
        ("dw3", np.zeros((3, 2)), "✗"),
        ("dw3", None, "○ open"),
        ("a4", [], "✗"),
        ("a4", "text", "✗"),
        ("a4", Steps(network(), X[0], Y[0])["a4"][0], "✓"),  # a single number needs no list
    ],
)
def test_no_answer_makes_it_fail(steps, name, value, mark):
    assert set(marks(steps.check(**{name: value}))) == {mark}


def test_of_a_batch_a_line_for_each_matrix():
    steps = Steps(network(), X, Y)
    worse = steps["d3"].copy()
    worse[1, 0] += 1
    table = steps.check(**steps.reference | {"d3": worse, "dw2": None, "d2": steps["d2"][:2]})
    lines = {line[0]: line for line in table.lines}
    assert len(lines) == len(steps.reference)
    assert lines["D³"] == ("D³", "(4b) (D W) ⊙ S", "1 wrong", "(3, 2)", "✗")
    assert lines["dW²"][-1] == "○ open" and lines["D²"][1] == "expected shape (3, 3)"
    assert lines["dW³"][2:] == ("all right", "(2, 3)", "✓")
    assert max(map(len, str(table).splitlines())) <= 80


def test_of_a_batch_a_kind_is_named_if_all_numbers_have_it():
    steps = Steps(network(), X, Y)
    partly = -steps["dw3"]
    partly[0, 0] *= -1
    table = steps.check(
        dw3=3 * steps["dw3"], d3=-steps["d3"], dw2=2 * steps["dw2"], db3=3 * steps["db3"], C=3 * steps["C"]
    )
    assert marks(table) == ["✗ sum", "✗ sign", "✗ twice", "✗ sum", "✗ sum"]
    assert "✗ sum: the sum over the batch" in str(table) and max(map(len, str(table).splitlines())) <= 80
    assert marks(steps.check(dw3=partly)) == ["✗"]
    pair = Steps(network(), X[:2], Y[:2])
    assert marks(pair.check(dw3=2 * pair["dw3"])) == ["✗"]  # of two samples the sum is twice the mean


def test_solved_shows_the_truth(steps, monkeypatch):
    monkeypatch.setenv("NNCOURSE_SOLVE", "all")
    assert marks(steps.check(a2=None, d3=[None, 2.0], C=7.0, a4=None)) == ["✓"] * 4 + ["✗", "✗", "✓"]


def test_unknown_steps_are_refused(steps):
    with pytest.raises(CourseError, match="z2, a2"):
        steps.check(a9=1)


# ---- the tables of notebook 05: each slip in each line gives a number of its own, and is named


def tables():
    """Each table of the notebook with the names of its numbers, made by the notebook's own cells."""
    path = Path(__file__).resolve().parents[1] / "notebooks/05_backpropagation.ipynb"
    cells = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
    here = {}
    for name in ("setup", "network", "deep-network", "softmax-first"):
        exec(cells[name].replace("%matplotlib", "# "), here)
    logarithm = Network(here["small"].layers, "binary_cross_entropy")  # the notebook's first suggestion to try
    found = {
        "small_steps": here["small_steps"],
        "deep_steps": here["deep_steps"],
        "softmax_steps": here["softmax_steps"],
        "weight_paths": nb05_by_hand.paths_of_weight(here["deep"], here["x"], here["y"], k=1, j=0),
    }
    tried = [(name, *re.findall(r"(\w+)=", said)) for name, said in CHECKED.findall("\n".join(cells.values()))]
    both = [(found[name], each) for name, *names in tried for each in names if each != "show_truth"]
    names = dict.fromkeys(each for name, *names in tried for each in names if name == "small_steps")
    return [*both, *((Steps(logarithm, here["x"], here["y"]), each) for each in names if each[0] == "d")]


CHECKED = re.compile(r"(\w+_(?:steps|paths))\.check\(([^)]*)\)")


def slips_at(table, name, place) -> dict[str, list[float]]:
    """The wrong numbers that each slip gives there."""
    right, found = table[name][place], {}
    for kind, value in table._slips(name, place):
        if abs(value) > 1e-9 and abs(value - right) > 1e-9:
            found.setdefault(kind, []).append(float(value))
    return found


@pytest.mark.parametrize("rounded", [lambda value: value, lambda value: float(f"{value:.3g}")], ids=["", "3 digits"])
def test_in_the_notebook_every_slip_of_every_line_is_named(rounded):
    count = 0
    for table, name in tables():
        for place in np.ndindex(table[name].shape):
            yours = np.full(table[name].shape, None)
            for kind, values in slips_at(table, name, place).items():
                for value in values:
                    yours[place], count = rounded(value), count + 1
                    wanted = f"✗ {SLIP_WORDS[kind].partition(': ')[0]}"
                    assert wanted in marks(table.check(**{name: yours})), (name, place, value)
            yours[place] = rounded(table[name][place])
            assert "✓" in marks(table.check(**{name: yours}))
    assert count > 1000


def test_in_the_notebook_no_two_slips_give_the_same_number():
    for table, name in tables():
        for place in np.ndindex(table[name].shape):
            right = float(table[name][place])
            numbers = [(value, kind) for kind, values in slips_at(table, name, place).items() for value in values]
            numbers = sorted({*numbers, (right, "right")})
            for (one, kind), (other, next_kind) in zip(numbers, numbers[1:], strict=False):
                assert kind == next_kind or other - one > 2 * TOLERANCE * max(abs(one), abs(other)), (name, place, kind)


# ---- several paths, and a softmax


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_the_paths_of_a_weight_add_up_to_its_slope(activation):
    network, backend, h = make_network((2, 3, 4, 1), activation, "mse", "normal", seed=4), choose("numpy"), 1e-5
    network = network.with_flat_parameters(np.float64(network.flat_parameters))
    X, Y, W = np.array([[2.0, -1.0]]), np.array([[1.0]]), network.layers[0].W
    found, kept, costs = nb05_by_hand.paths_of_weight(network, X[0], 1.0, k=1, j=2), W[2, 1], []
    for step in (h, -h):
        W[2, 1] = kept + step
        costs.append(cost_of(network, *forward(network, X, backend), Y, backend))
    paths = [float(found[f"path_{number}"]) for number in (1, 2, 3, 4)]
    assert sum(paths) == pytest.approx((costs[0] - costs[1]) / (2 * h), rel=1e-6)
    assert sum(paths) == pytest.approx(float(found["slope"])) and min(map(abs, paths)) > 0
    lines = found.check(path_1=paths[0], path_2=paths[0], slope=None).lines
    assert [line[-1] for line in lines] == ["✓", "✗", "○ open"]


def test_a_path_with_another_weight_is_not_called_a_factor_2():
    """W³₁₂ is often taken for W³₂₁; that one is the double of the other is chance."""
    layers = [
        Dense(np.array([[1.0], [1.0]]), np.zeros(2), "sigmoid"),
        Dense(np.array([[1.0, 2.0], [1.0, 1.0]]), np.zeros(2), "sigmoid"),
    ]
    network = Network([*layers, Dense(np.array([[1.0, 1.0]]), np.zeros(1), "sigmoid")])
    found = nb05_by_hand.paths_of_weight(network, [1.0], 1.0, k=0, j=0)
    yours = {"path_2": 2 * found["path_2"], "slope": found["slope"] / 2}
    assert [line[-1] for line in found.check(**yours).lines] == ["✗", "✗ half"]


def test_one_path_is_no_table_of_paths():
    with pytest.raises(CourseError, match="two hidden layers"):
        nb05_by_hand.paths_of_weight(make_network((2, 3, 1)), [1.0, 2.0], 1.0, 0, 0)


def test_every_step_of_the_softmax_is_a_slope():
    z, y, h = np.array([1.0, -2.0, 0.5]), np.array([0.2, 0.0, 0.8]), 1e-6
    steps = nb05_by_hand.softmax_by_hand(z, y)

    def outputs(z):
        return np.exp(z) / np.exp(z).sum()

    moves = h * np.eye(3)
    J = np.stack([(outputs(z + move) - outputs(z - move)) / (2 * h) for move in moves], axis=1)
    costs = [(-y @ np.log(outputs(z + move)) + y @ np.log(outputs(z - move))) / (2 * h) for move in moves]
    assert np.allclose(steps["a"], outputs(z)) and np.allclose(steps["J"], J) and np.allclose(steps["delta"], costs)
    assert np.allclose(steps["short"], costs) and np.allclose(steps["g"] * outputs(z), -y)
    table = steps.check(a=None, J=J.tolist(), delta=[0.0, *costs[1:]])
    assert [line[0] for line in table.lines[3:6]] == ["∂a₁/∂z₁", "∂a₁/∂z₂", "∂a₁/∂z₃"]
    assert [line[-1][0] for line in table.lines] == ["○"] * 3 + ["✓"] * 9 + ["✗", "✓", "✓"]


@pytest.mark.parametrize(("z", "y"), [([1.0, 2.0], [0.5, 0.6]), ([1.0, 2.0], [1.0]), ([[1.0]], [[1.0]])])
def test_targets_that_are_none_are_refused(z, y):
    with pytest.raises(CourseError, match="expected"):
        nb05_by_hand.softmax_by_hand(z, y)
