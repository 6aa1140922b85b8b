"""Where a training step goes: the table and the figure are those of the step, whatever the times are."""

from dataclasses import replace

import numpy as np
import pytest

from nnclassroom.exercises.catalogue import find
from nnclassroom.figures import nb08, overheads
from nnclassroom.timing import anatomy, profiles
from nnclassroom.timing.profiles import step_profile
from nncourse import device
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.network import make_network
from nncourse.model.optimizers import Adam

SIZES = (30, 60, 10, 1)
IMAGES = "image1x8x8,conv4x3same,batchnorm,pool2,dropout0.5,conv4x3same,batchnorm,pool2,12,3"
X, Y = overheads.samples(SIZES, 10)


@pytest.fixture
def timed(monkeypatch):
    """How often something was timed: the work is done once, and said to take 2 µs."""
    calls = []

    def seconds(work, where="cpu", **_):
        work()
        calls.append(where)
        return 2e-6

    monkeypatch.setattr(device, "seconds", seconds)
    monkeypatch.setattr(device, "limits", lambda where="cpu": {"copy": 1e11, "matrix": 1e12})
    return calls


def images(n: int = 5):
    rng = np.random.default_rng(1)
    rows = rng.random((n, 1, 8, 8), dtype=np.float32), np.eye(3, dtype=np.float32)[rng.integers(0, 3, n)]
    return make_network(IMAGES, "relu", "categorical_cross_entropy"), *rows


def rows_of(profile) -> list[str]:
    """The lines of its table, without the last two, which add up."""
    lines = str(profile).splitlines()
    assert all(len(line) <= 80 for line in lines)
    begin = next(number for number, line in enumerate(lines) if line.startswith("call ")) + 1
    return lines[begin : begin + len(profile.lines)]


def test_the_parts_are_the_calls_of_the_step(timed):
    network, optimizer = make_network(SIZES), Adam()
    before = network.flat_parameters.copy()
    profile = step_profile(network, X, Y, choose("numpy"), optimizer)
    assert np.array_equal(network.flat_parameters, before) and not (optimizer.state or optimizer.steps)
    names = [name for name, _ in anatomy.calls_of_step(network, X, Y, choose("numpy"))]
    assert [part.operation for part in profile.parts] == [*names[:-1], "adam_update"]
    first, *_, last = profile.parts
    assert first.flops == 2 * 10 * 30 * 60 and first.bytes == 4 * (10 * 30 + 60 * 30 + 60 + 10 * 60)
    assert first.least == max(first.flops / 1e12, first.bytes / 1e11)
    assert (first.shape, last.shape) == ((10, 60), (len(before),))
    dense = next(part for part in profile.by_operation if part.operation == "dense_forward")
    assert (dense.calls, dense.flops) == (3, 2 * 10 * (30 * 60 + 60 * 10 + 10)) and dense.seconds == pytest.approx(6e-6)
    assert profile.share(anatomy.PRODUCTS) == pytest.approx(8 / 20)
    assert profile.whole == pytest.approx(20 * 2e-6) and profile.between == 0, (
        "the step cannot be shorter than its calls"
    )


def test_a_recorded_step_may_take_less_than_its_calls(timed):
    profile = step_profile(make_network(SIZES), X, Y, choose("numpy"))
    assert profile.in_calls == pytest.approx(40e-6)
    texts = {recorded: str(replace(profile, recorded=recorded)) for recorded in (50e-6, 30e-6)}
    less = {recorded: "less time than its calls" in " ".join(text.split()) for recorded, text in texts.items()}
    assert less == {50e-6: False, 30e-6: True}
    assert all(len(line) <= 80 for line in texts[30e-6].splitlines())


def test_real_times_add_up():
    profile = step_profile(make_network(SIZES), X, Y, choose("numpy"))
    assert all(part.seconds > 0 and part.least > 0 for part in profile.parts)
    assert profile.between + sum(part.seconds for part in profile.parts) == pytest.approx(profile.whole)
    assert [part.seconds for part in profile.by_operation] == sorted(p.seconds for p in profile.by_operation)[::-1]


def test_equal_calls_are_timed_once(timed):
    network = make_network((30, 8, 8, 8, 1))
    profile = step_profile(network, X, Y, choose("numpy"))
    calls = anatomy.calls_of_step(network, X, Y, choose("numpy"))
    different = {(name, *(np.shape(argument) for argument in arguments)) for name, arguments in calls}
    assert len(timed) == len(different) + 1 < len(profile.parts)


def test_the_table_is_narrow_and_complete(timed, monkeypatch):
    profile = step_profile(*images(), choose("numpy"), Adam())
    assert [line.split()[0] for line in rows_of(profile)] == [part.operation for part in profile.parts]
    assert profile._repr_html_().count("<tr>") == len(profile.parts) + 3
    monkeypatch.setattr(profiles, "MOST_LINES", 5)
    (line,) = (line for line in rows_of(profile) if "convolution_forward" in line)
    assert line.split()[:4] == ["2", "×", "convolution_forward", "numpy"]


def test_yours_are_told_from_the_courses(timed):
    profile = step_profile(make_network(SIZES), X, Y, replace(choose("numpy"), yours=frozenset(["sigmoid"])))
    assert all(("yours, numpy" in line) == line.startswith("sigmoid ") for line in rows_of(profile))


def test_the_figure_has_a_bar_and_words_for_each_call(timed):
    profile = step_profile(*images(), choose("numpy"), Adam())
    figure = nb08.plot_profile(profile)
    (axes,) = figure.axes
    assert len(axes.get_yticklabels()) == len(profile.parts) + 1
    assert all(f"{part.label} 2 µs" in figure.words for part in profile.parts) and profile.title in figure.words


def test_what_cannot_be_timed_is_refused(emulator):
    with pytest.raises(CourseError, match="emulate"):
        step_profile(make_network(SIZES), X, Y, choose("cuda", emulate=True))
    with pytest.raises(CourseError, match="samples of shape"):
        step_profile(make_network((3, 1)), X, Y, choose("numpy"))


def test_on_a_gpu_calls_are_recorded(gpu):
    network = make_network((784, 32, 10))
    rows = overheads.samples((784, 32, 10), 32)
    profile = step_profile(network, *rows, choose("cuda"), Adam())
    assert profile.recorded and profile.shortest and not profile.note
    assert not any(part.launched for part in profile.parts) and "recorded" in profile.in_words
    launched = step_profile(network, *rows, choose("cuda"), record=False)
    assert (
        launched.recorded is None
        and [p.operation for p in launched.parts][:-1] == [p.operation for p in profile.parts][:-1]
    )
    by_library = step_profile(network, *rows, choose("cupy"))
    assert by_library.recorded is None and "dense_forward (cupy)" in by_library.note
    assert {p.operation for p in by_library.parts if p.launched} >= {"dense_forward", "weight_gradient"}
    assert not next(p for p in by_library.parts if p.operation == "sigmoid").launched
    assert find("dense_forward").name in str(by_library) and "* With its launch" in str(by_library)
