"""What check() tries: the cases of every operation, whatever the seed."""

import itertools
import sys

import numpy as np
import pytest

from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.judge import cases
from nnclassroom.judge.answer import check_text
from nnclassroom.judge.check import check
from nnclassroom.judge.tolerance import references_of
from nncourse.catalogue import epochs, operations
from nncourse.errors import CourseError
from nncourse.kernels.activations import relu, sigmoid, softmax
from nncourse.kernels.backpropagation import output_delta
from nncourse.kernels.confusion import confusion_matrix
from nncourse.kernels.cost import categorical_cross_entropy
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.neuron import neuron
from nncourse.kernels.operation import Operation
from nncourse.kernels.pooling import maxpool_forward
from nncourse.kernels.trial import Trial
from nncourse.kernels.update import sgd_update

ALL = (operations() | epochs()).values()


def arrays(operation, seed=0, number=0) -> list[np.ndarray]:
    return [case.arguments[number] for case in cases.cases(operation, seed)]


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)
def test_every_case_has_a_reference_and_their_number_is_always_the_same(operation):
    counts = set()
    for seed in (1, 2):
        made = list(cases.cases(operation, seed))
        counts.add(len(made))
        for case in made:
            with np.errstate(all="ignore"):
                nan = any(np.isnan(reference).any() for reference in references_of(operation, case.arguments).values())
            assert not nan or case.not_finite
        stages = [case.large for case in made]
        assert stages == sorted(stages), "large ones come last"
    assert len(counts) == 1


def test_the_same_seed_makes_the_same_cases_and_without_one_they_differ():
    def first(seed):
        return np.concatenate([array.ravel() for array in arrays(relu, seed)])

    np.testing.assert_array_equal(first(5), first(5))
    assert not np.array_equal(first(None), first(None))


def test_all_special_values_come_with_both_signs_and_alone():
    special = [array for array in arrays(sigmoid) if set(np.unique(array)) == set(np.unique(cases.SPECIAL))]
    assert len(special) == 2
    alone = [float(array.flat[0]) for array in arrays(sigmoid) if array.size == 1 and np.isinf(array).all()]
    assert sorted(alone) == [-np.inf, np.inf]


def test_values_that_simple_mistakes_survive():
    drawn = arrays(softmax)
    assert any((array < -300).all(axis=1).any() for array in drawn), "a row large and negative throughout"
    assert any((array < 0).all() for array in drawn)
    assert any(4 < abs(value) < 20 for array in drawn for value in array.ravel())
    mixed = [array for array in drawn if (array == 0).any() and (array != 0).any()]
    assert any((array == 0).all(axis=1).any() for array in mixed), "a whole row of zeros among others"
    assert any((array == 1).all() for array in arrays(output_delta, number=1))
    infinite = [float(array[np.isinf(array)][0]) for array in arrays(dense_forward) if np.isinf(array).any()]
    assert set(infinite) == {-np.inf, np.inf}
    assert any(np.isinf(array).any() for array in arrays(dense_forward, number=1)), "the weights too"


def test_shapes_that_simple_mistakes_survive():
    shapes = {array.shape for array in arrays(relu)}
    assert {1, 2, 3, 4} <= {len(shape) for shape in shapes}
    assert any(len(shape) == 2 and shape[0] == 1 < shape[1] for shape in shapes)
    assert any(len(shape) == 2 and shape[1] == 1 < shape[0] for shape in shapes)
    for number in range(2):
        assert max(shape[number] for shape in (array.shape for array in arrays(dense_forward))) > 1 << 16
    counts = [references_of(confusion_matrix, case.arguments)["M"].max() for case in cases.cases(confusion_matrix, 0)]
    assert max(counts) > 1 << 15
    sizes = [case.arguments[2] for case in cases.cases(confusion_matrix, 0)]
    assert max(sizes) ** 2 > 1 << 16


def exercise_operations() -> list[Operation]:
    return [find(name) for name in dict.fromkeys(each.operation for each in exercises())]


@pytest.mark.parametrize("operation", exercise_operations(), ids=lambda operation: operation.name)
def test_no_answer_can_know_the_sizes_or_the_numbers(operation):
    """Numbers that are what the equation allows, or exact in float32, are excepted, and the three rules of 05c."""
    names, known = operation.shapes.free_names, {"perceptron_update": ("y", "a"), "corrected_mean": ("beta",)}
    first, second = (list(cases.cases(operation, seed)) for seed in (1, 2))

    def sizes(drawn):
        return {str([operation.sizes(*case.arguments)[name] for name in names]) for case in drawn}

    assert sizes(first) != sizes(second) or operation.name == "local_slopes"
    for position, argument in enumerate(operation.arguments):
        if argument.kind == "float" and not argument.dims and argument.name not in known.get(operation.name, ()):
            values = [{case.arguments[position] for case in drawn} for drawn in (first, second)]
            assert values[0] != values[1], argument.name


def test_two_sizes_at_once_need_several_tiles():
    both = [array.shape for array in arrays(dense_forward, number=1) if min(array.shape) > 256]
    assert both, "neurons and inputs"
    assert any(min(array.shape) > 256 for array in arrays(dense_forward)), "samples and inputs"


def test_by_fours_and_eights_many_terms_of_a_long_sum_are_left_over_and_show():
    long = [case.arguments[0] for case in cases.cases(neuron, 4) if case.large]
    assert [array.size % 32 for array in long] == [31]
    assert long[0][-8:].min() > 20 * np.median(long[0])


def test_one_array_may_be_two_arguments():
    twice = [case.arguments for case in cases.cases(dense_forward, 0) if case.arguments[0] is case.arguments[1]]
    assert len(twice) == 1
    text = """
def dense_forward(A, W, b):
    np.negative(A, out=A)
    Z = b - A @ W.T
    np.negative(A, out=A)
    return Z
"""
    assert check_text(dense_forward, "numpy", text, 10.0).kind == "wrong value"


def test_a_search_for_the_largest_may_not_begin_at_some_number():
    for operation in (softmax, categorical_cross_entropy):
        assert any((array < -1e11).all() for array in arrays(operation) if np.isfinite(array).all())


def test_labels_are_sometimes_all_alike_or_in_order():
    drawn = [case.arguments for case in cases.cases(confusion_matrix, 0) if case.arguments[2] > 1]
    for number in range(2):
        assert any(len(given[number]) > 32 and len(set(given[number])) == 1 for given in drawn)
    assert any(len(set(labels)) > 1 and (np.diff(labels) >= 0).all() for labels, _, _ in drawn if len(labels) > 32)


def smoothed(**more):
    """An operation on windows, whose sizes are listed."""
    return Operation(
        "smoothed",
        "b = means of three",
        "a (n,), k () int -> b (m,) where m = n - k + 1",
        reference=lambda a, k: np.convolve(a, np.ones(k) / k, "valid"),
        flops=None,
        trial=Trial(edge_cases=(), sizes_to_check=[{"n": 5, "k": 3}], **more),
    )


def test_listed_sizes_are_tried_with_drawn_and_large_ones():
    drawn = {"draw_sizes": lambda rng: {"n": int(rng.integers(1, 30)), "k": 3}}  # for n < 3 there is no window
    assert {array.size for array in arrays(smoothed())} == {5}
    for seed in range(20):
        sizes = [array.size for array in arrays(smoothed(**drawn), seed)]
        assert len(sizes) == 2 + 2 * cases.RANDOM_SIZES and min(sizes) >= 3
        assert sizes.count(5) >= 2 + len(cases.MAGNITUDES), "magnitudes are tried on the listed sizes"
    large = list(cases.cases(smoothed(**drawn, large_sizes=[{"n": 70_000, "k": 2}]), 0))
    assert [case.large for case in large] == [False] * 10 + [True]
    assert large[-1].arguments[0].size == 70_000


def test_a_kernel_that_fails_for_few_sizes_is_refused_where_these_are_drawn_or_large():
    def wrong(a, k):
        b = np.convolve(a, np.ones(k, np.float32) / np.float32(k), "valid")
        return b + (16 < a.size < 40) + (a.size > 1 << 16)

    assert check(smoothed(), wrong)
    assert not check(smoothed(draw_sizes=lambda rng: {"n": int(rng.integers(10, 40)), "k": 3}), wrong, seed=0)
    assert not check(smoothed(large_sizes=[{"n": 70_000, "k": 2}]), wrong)


def test_drawn_sizes_need_listed_ones_beside_them():
    for more in ({"draw_sizes": lambda rng: {"n": 3}}, {"large_sizes": [{"n": 70_000}]}):
        with pytest.raises(CourseError, match="sizes_to_check"):
            Trial(**more)


def test_operations_that_compare_meet_ties_and_nan():
    drawn = arrays(maxpool_forward)
    nan = [np.signbit(array[np.isnan(array)]) for array in drawn if np.isnan(array).any()]
    assert any(signs.any() and not signs.all() for signs in nan), "NaN has both signs"
    windows = [
        np.lib.stride_tricks.sliding_window_view(array, (3, 3), (2, 3))
        for array in drawn
        if array.shape[3] > 2 < array.shape[2]
    ]
    assert any(np.isneginf(window).all(axis=(4, 5)).any() for window in windows), "nothing but −∞ in a window"
    zeros = [np.signbit(array[array == 0]) for array in drawn if (array == 0).any() and (array <= 0).all()]
    assert any(signs.any() and not signs.all() for signs in zeros), "0 and −0, and nothing larger"
    steps = [np.diff(np.unique(array)) for array in drawn if np.isfinite(array).all()]
    assert any(len(step) and (step < 2e-7).all() for step in steps), "numbers next to each other"
    assert any((array < -1e38).all() for array in drawn if np.isfinite(array).all()), "nothing but very low numbers"


def test_scalars_are_negative_and_zero_too():
    rates = [case.arguments[2] for case in cases.cases(sgd_update, 3)]
    assert min(rates) < 0 and 0.0 in rates and max(rates) > 10
    assert any(0 < rate < 1e-3 for rate in rates), "usual rates of learning"


def test_numbers_of_all_magnitudes_and_equal_sizes_are_tried():
    largest = [abs(array).max() for array in arrays(dense_forward) if array.any() and np.isfinite(array).all()]
    assert any(1e5 < each < 1e8 for each in largest)
    assert any(1e-8 < each < 1e-4 for each in largest)
    assert any(0 < each < 1e-13 for each in largest)
    beyond = [array for array in arrays(relu) if array.size > cases.LARGEST_BLOCK and abs(array).max() > 1e6]
    assert beyond, "huge ones beyond one block"
    sizes = {
        array.shape + other.shape
        for array, other in zip(arrays(dense_forward), arrays(dense_forward, number=1), strict=True)
    }
    assert any(len(set(each)) == 1 and each[0] not in (1, 16) for each in sizes)


def test_a_plain_function_must_not_remember_or_change_what_it_was_given():
    kept: list[np.ndarray] = []

    def spoils(z):
        for array in kept:
            array[...] = 0
        kept[:] = [z]
        return np.maximum(z, 0)

    results: dict[float, np.ndarray] = {}
    assert check(relu, spoils).kind == "changes what was"
    assert not check(relu, lambda z: results.setdefault(z.sum(), np.maximum(z, 0)).copy())


def test_the_same_shape_comes_with_other_values():
    drawn = arrays(dense_forward, None)
    shapes = [array.shape for array in drawn]
    assert any(shapes.count(shape) > 1 for shape in shapes)
    assert any(case.again > 50 for case in cases.cases(relu))


def test_a_plain_function_meets_the_calls_that_an_exercise_meets_and_its_verdict_says_where():
    calls = itertools.count()

    def sometimes(z):
        return np.maximum(z, 0) if next(calls) < 100 else z + 0

    assert check(relu, sometimes).kind == "wrong value" and next(calls) > 100
    assert "in this process" in check(relu, lambda z: np.maximum(z, 0)).line
    assert "in this process" not in check(relu, "numpy").line
    assert check(relu, lambda z: sys.exit(3)).kind == "raised"
