"""What a wrong result shows: usual mistakes are named by what they give, and only by that."""

import re
import time
from itertools import chain

import numpy as np
import pytest

from nnclassroom.exercises import index
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.kept_kernels import TIME_LIMIT
from nnclassroom.exercises.nb08_to_10 import H200
from nnclassroom.judge.answer_process.results import UNWRITTEN
from nnclassroom.judge.cases import cases, make_case, random_case
from nnclassroom.judge.check import check
from nnclassroom.judge.compare import Wrong
from nnclassroom.judge.diagnosis import tiny
from nnclassroom.judge.diagnosis.in_the_text import not_shared, rebinding, swapped_indices, whole_division
from nnclassroom.judge.diagnosis.mistake import mistake_in
from nnclassroom.judge.diagnosis.not_a_number import kind_of_nan
from nnclassroom.judge.diagnosis.not_reached import not_reached
from nnclassroom.judge.diagnosis.tiny import MOST_SHOWN, tiny_sizes
from nnclassroom.judge.run import runner
from nnclassroom.judge.tolerance import allowed_error, by_result, float64, references_of
from nncourse.calls import OPERATIONS
from tests.exercise_answers import ALL, WRONG
from tests.test_answers import judged

IMAGES = {"batch": 2, "c_in": 3, "h_in": 7, "w_in": 9, "c_out": 4, "k": 3, "stride": 2, "before": 1, "after": 2}
NEAR_MISSES = [  # answers of tests/answers, and words that another mistake gets
    ("neuron", "numpy", "takes a negative bias for a positive one", "b is left out"),
    ("neuron", "loops", "forgets the bias", "this is b alone, without a product"),
    ("neuron", "loops", "the last input counts twice", "only the last product is in z"),
    ("neuron", "loops", "only whole hundreds of inputs beyond the first hundred", "only the first product is in z"),
    ("neuron", "tree", "bias in every warp", "b is added to each product"),
    ("neuron", "numpy", "cosine instead of the product", "this is the mean of the products plus b"),
    ("softmax", "numpy", "the sum of the whole array", "this is softmax along the columns"),
    ("softmax", "numpy", "keeps the proportion of the scores", "by the sum of the whole array"),
    ("softmax", "numpy", "a small number below the fraction", "the exponentials are not divided"),
    ("softmax", "numpy", "clipped exponents", "exp overflows for large z"),
    ("softmax", "numpy", "the mean taken away, not the largest", "the sum of the row is subtracted"),
    ("mse", "numpy", "the mean over the outputs too", "the ½ is left out"),
    ("bias_gradient", "naive", "rows as long as the batch", "this is the mean along a row"),
    ("bias_gradient", "naive", "divides by the samples that are not zero", "divides whole numbers"),
    ("bias_gradient", "naive", "rows as long as the batch", "swaps row and column"),
    ("bias_gradient", "naive", "walks along a row instead of down a column", "swaps row and column"),
    ("bias_gradient", "naive", "samples counted in 16 bits with sign", "the index is below 0"),
    ("bias_gradient", "naive", "two samples at a time, one too many", "the index is below 0"),
    ("whole_tiles", "tiled", "the row of W that is loaded is the neuron's", "row y of W_tile is read"),
    ("dense_forward", "tiled", "the bias added in every step", "each block reads b from its beginning"),
    ("maxpool_forward", "loops", "zeros around the image take part", "this is the sum of each window"),
    ("convolution_forward", "loops", "zeros in front forgotten", "counts from the other end"),
    ("convolution_forward", "loops", "the bias added for each channel", "k² times"),
    ("convolution_forward", "naive", "rows counted by the height", "is % h_out missing?"),
    ("all_reduce", "root", "the root keeps the sum to itself", "gives the name to a new array"),
    ("all_reduce", "root", "the root keeps the sum to itself", "but it is not in the vector that was passed"),
    (
        "maxpool_backward",
        "naive",
        "looks at the windows of the first image only",
        "only the first channel of the first",
    ),
    ("warm_up_cosine", "numpy", "a quarter of a wave", "the rate is 0 in the last epoch already"),
    ("least_seconds", "numpy", "launch added to the longer of the two", "this is the sum of the three"),
    ("whole_tiles", "tiled", "the same tiles in each step", "is not in shared memory"),
    ("speedup_and_efficiency", "numpy", "the median of the ratios of the runs", "the means of the runs are taken"),
    ("speedup_and_efficiency", "numpy", "speedup over the row before", "this is T_K / T_1"),
    ("scaling_laws", "numpy", "efficiencies instead of speedups", "p and 1 − p are swapped"),
    ("occupancy", "numpy", "no limit for the number of blocks", "sm.reserved_bytes are left out"),
]
SIZES = {  # square where a mistake shows only there, and all sizes that are not derived
    "softmax": {"batch": 3, "n": 4},
    "bias_gradient": {"batch": 4, "n_out": 4},
    "maxpool_forward": {"batch": 2, "c": 3, "h_in": 7, "w_in": 9, "size": 3, "stride": 2, "padding": 1},
    "maxpool_backward": {"batch": 2, "c": 3, "h_in": 7, "w_in": 9, "size": 3, "stride": 2, "padding": 1},
    "warm_up_cosine": {"n": 20, "warm": 4, "epochs": 20},
    "least_seconds": {"n": 6},
    "speedup_and_efficiency": {"n": 4, "runs": 3},
    "scaling_laws": {"n": 3},
    "occupancy": {"n": 40, "sm": H200},
    "add_bias": {"batch": 4, "n": 40},
    "one_sample": {"n_in": 128, "n_out": 128},
    "whole_tiles": {"batch": 16, "n_in": 16, "n_out": 32},
    "dense_forward": {"batch": 4, "n_in": 4, "n_out": 4},
    "hidden_delta": {"batch": 3, "n_out": 4, "n_in": 4},
    "weight_gradient": {"batch": 3, "n_out": 4, "n_in": 2},
    "residual_backward": {"batch": 6, "n": 4},
    "convolution_forward": IMAGES,
    "convolution_weight_gradient": IMAGES,
    "convolution_input_gradient": IMAGES,
    "batchnorm_statistics": {"batch": 3, "c": 4, "h": 2, "w": 5},
    "batchnorm_forward": {"batch": 3, "c": 4, "h": 2, "w": 5},
    "batchnorm_gradients": {"batch": 3, "c": 4, "h": 2, "w": 5},
    "batchnorm_backward": {"batch": 3, "c": 4, "h": 2, "w": 5},
    "momentum_update": {"n": 6},
    "l2_gradient": {"n": 6},
    "adam_update": {"n": 60},
    "corrected_mean": {"n": 8},
    "convolution_bias_gradient": {"batch": 3, "c_out": 4, "h_out": 2, "w_out": 5},
    "blur": {"n": 9},
    "amdahl_fit": {"n": 3},
}


def said_of(operation, name, got, arguments):
    reference = references_of(operation, arguments)[name]
    named = next(each for each in operation.results if each.name == name)
    allowed = allowed_error(operation, named, arguments)
    wrong = ~(np.abs(got - reference) <= allowed)
    return mistake_in(operation, Wrong(named, got, reference, allowed, wrong), arguments) if wrong.any() else None


def beginning(words):
    """Without what follows from the place."""
    return words.partition(":")[0]


@pytest.mark.parametrize("name", SIZES)
def test_each_mistake_is_named_by_what_it_gives_and_nothing_else_is(name):
    operation = find(name)
    arguments = random_case(operation, SIZES[name], seed=1).arguments
    first = (0,) * references_of(operation, arguments)[operation.results[0].name].ndim
    with np.errstate(all="ignore"):
        mistakes = list(operation.trial.mistakes(first, *map(float64, arguments)))
    whole = {beginning(words): value for words, value in mistakes if not isinstance(value, float)}
    shapes = {result: right.shape for result, right in references_of(operation, arguments).items()}
    told = set()
    for words, value in whole.items():
        for result, wrong in by_result(operation, value).items():
            if wrong.shape != shapes[result]:
                continue
            found = said_of(operation, result, wrong.astype(np.float32), arguments)
            assert found is None or beginning(found) in whole, (words, result, found)
            told.add(beginning(found or ""))
    assert len(told & set(whole)) >= len(whole) / 2, set(whole) - told  # others are too small, or give the same here
    rng = np.random.default_rng(2)
    for result, right in references_of(operation, arguments).items():
        assert not said_of(operation, result, rng.standard_normal(right.shape).astype(np.float32), arguments)


@pytest.mark.parametrize(("operation", "kernel", "mistake", "words"), NEAR_MISSES)
def test_a_near_miss_is_not_called_by_the_name_of_another_mistake(operation, kernel, mistake, words):
    near = next(w for _, w in ALL if (w["operation"], w["kernel"], w.get("mistake")) == (operation, kernel, mistake))
    assert any(words in answer["says"] for answer in WRONG) and words not in judged(near).line


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("float tile[16][17]; int x = threadIdx.x, y = threadIdx.y; tile[y][x] = 0; __syncthreads();", "tile"),
        ("float tile[16]; tile[threadIdx.x] = 0; __syncthreads();", "tile"),
        ("__shared__ float tile[16]; tile[threadIdx.x] = 0; __syncthreads();", None),
        ("float sums[4][4] = {}; for (int r = 0; r < 4; r++) sums[r][0] += 1; __syncthreads();", None),
        ("float own[16]; own[threadIdx.x] = 0;", None),  # no thread waits for another
    ],
)
def test_a_tile_that_no_thread_shares(text, array):
    assert not_shared(text) == ({"unshared": array} if array else {})


@pytest.mark.parametrize(
    ("statement", "better"),
    [
        ("db[j] = sum * (1 / batch);", "1.0f / batch"),
        ("float share = 1/n_out;", "1.0f/n_out"),
        ("C[0] = 1 / 2 * sum;", "1.0f / 2"),
        ("db[j] = sum * 1 / batch;", None),
        ("db[j] = sum * (1.0f / batch);  // not 1 / batch", None),
        ("float share = 1 / (float) batch, half = 1 / 2.0f;", None),
        ("int i = (n_out - 1) / 2;", None),
    ],
)
def test_a_quotient_of_whole_numbers(statement, better):
    assert whole_division(find("bias_gradient"), statement).get("better") == better


@pytest.mark.parametrize(
    ("loop", "better"),
    [
        ("for (int i = 0; i < batch; i++) sum += D[j * n_out + i];", "D[i * n_out + j]"),
        ("for (int i = 0; i < batch; i++) sum += D[i * n_out + j];", None),
        ("for (int i = 0; i < batch; i++) sum += D[j * batch + i];", None),
        ("for (int i = 0; i < n_out; i++) sum += D[j * n_out + i];", None),
        ("for (int i = 0; i < 8; i++) sum += D[j * n_out + i];", None),
        ("for (int i = 0; i < batch; i++) sum += D[i * n_out + j];  // D[j * n_out + i]", None),
    ],
)
def test_an_index_whose_row_and_column_are_swapped(loop, better):
    text = f"if (j >= n_out) return; {loop}"
    assert swapped_indices(find("bias_gradient"), text).get("better") == better


@pytest.mark.parametrize(
    ("body", "within"),
    [
        ("vector = vector + part", "vector[:] = vector + part"),
        ("total = vector + part", None),
        ("vector = np.zeros(3)", None),
        ("own = vector; vector = vector + part; own[:] = vector", None),
    ],
)
def test_a_name_that_gets_a_new_array(body, within):
    assert rebinding(find("all_reduce"), f"def all_reduce(group, vector): {body}").get("within") == within


def test_a_rank_that_leaves_though_it_has_rows():
    text = "def weighted_gradient(group, gradient, rows):\n    if group.rank:\n        group.all_reduce(gradient)\n"
    line = judged({"operation": "weighted_gradient", "kernel": "numpy", "text": text}).line
    assert "deadlock" in line and "has no rows" not in line


def test_a_result_of_another_shape_is_not_that_of_the_wrong_axis():
    line = check(find("bias_gradient"), lambda D: D.max(axis=1)).line
    assert "db has the wrong shape: expected (5,), got (3,)" in line and "along a row" not in line


@pytest.mark.parametrize(
    ("epsilon", "seed", "said"),
    [
        (1e-6, 0, "expected ε = 1e-08, got 1e-06"),  # ε within the root gives nearly the same
        (1e-6, 4, "expected ε = 1e-08, got 1e-06"),
        (0, 33, "ε is left out, or far too small"),
        (1e-12, 30, "ε is left out, or far too small"),
    ],
)
def test_of_several_mistakes_the_nearest_is_named(epsilon, seed, said):
    def with_another_epsilon(W, G, M, V, rate, c1, c2):
        M[...] = 0.9 * M + 0.1 * G
        V[...] = 0.999 * V + 0.001 * G**2
        W -= rate * (M / c1) / (np.sqrt(V / c2) + epsilon)
        return W, M, V

    assert said in check(find("adam_update"), with_another_epsilon, seed=seed).line


def test_elements_that_no_thread_came_to():
    wrong = np.zeros((3, 5), bool)
    wrong[:, 4] = True
    assert not_reached(wrong, wrong, (8, 4)) and not not_reached(wrong, ~wrong, (8, 4))
    assert not not_reached(wrong, wrong, (5, 3))
    wrong[1, 2] = True
    assert not not_reached(wrong, wrong, (8, 4))
    assert not_reached(np.arange(5) >= 2, np.ones(5, bool), (2,))


def test_a_nan_tells_where_it_comes_from():
    shared = np.array(0xFFFFFFFF, np.uint32).view(np.float32)[()]
    with np.errstate(all="ignore"):
        assert kind_of_nan(np.float32(1) - UNWRITTEN * np.float32(2)) == kind_of_nan(UNWRITTEN) == "unwritten"
        assert kind_of_nan(shared + np.float32(1)) == "shared"
        assert kind_of_nan(np.float32(np.inf) - np.float32(np.inf)) == "computed"
    assert kind_of_nan(np.float32(np.inf)) == ""


def test_a_tiny_case_shows_what_every_array_became():
    def without_root(W, G, M, V, rate, c1, c2):
        M[...] = 0.9 * M + 0.1 * G
        V[...] = 0.999 * V + 0.001 * G**2
        W -= rate * (M / c1) / (V / c2 + 1e-8)
        return W, M, V

    verdict = check(find("adam_update"), without_root, seed=1)
    given, _, rest = verdict.numbers.partition(": expected W [")
    expected, _, yours = rest.partition(", got W [")
    assert given.startswith("W [") and "G [" in given and "V [" in yours and "V [" in expected
    assert str(verdict).endswith(f"\n  {verdict.numbers}") and "\n" not in verdict.line


TOO_LARGE = [  # the first case that fails has too many numbers to show them
    ("softmax", "numpy", "along the columns"),
    ("convolution_forward", "loops", "the bias added for each channel"),
    ("convolution_bias_gradient", "tree", "forgets the mean over the batch"),
]


@pytest.mark.parametrize(("operation", "kernel", "mistake"), TOO_LARGE)
def test_the_numbers_of_the_smallest_case_that_fails_are_shown(operation, kernel, mistake):
    wrong = next(w for w in WRONG if (w["operation"], w["kernel"], w["mistake"]) == (operation, kernel, mistake))
    verdict = judged(wrong)
    assert verdict.kind == "wrong value" and sum(map(np.size, verdict.case.arguments)) > MOST_SHOWN
    given, _, rest = verdict.numbers.partition(": expected ")
    expected, _, yours = rest.partition(", got ")
    assert expected != yours and given.startswith(find(operation).names[0])
    arrays = re.sub(r"\w+ [-\d.e]+(?=,|$)", "", given)  # without single numbers
    assert len(re.findall(r"[-\d.e]+(?=[],])", arrays)) <= MOST_SHOWN


ENDLESS_IF_TINY = """
def softmax(z):
    while 1 < z.size < 10:
        pass
    return z if z.size > 1 else z - z + 1
"""


def test_a_tiny_case_that_never_ends_changes_no_verdict():
    start = time.perf_counter()
    verdict = judged({"operation": "softmax", "kernel": "numpy", "text": ENDLESS_IF_TINY})
    assert verdict.kind == "wrong value" and not verdict.numbers
    assert time.perf_counter() - start < 0.7 * TIME_LIMIT


def test_a_result_that_is_a_number_is_shown_too():
    verdict = check(find("neuron"), lambda x, w, b: float((x * w).sum()), seed=1)
    assert verdict.numbers.startswith("x [") and ", b " in verdict.numbers and ": expected z " in verdict.numbers


@pytest.mark.parametrize("name", dict.fromkeys(chain(*(OPERATIONS | index.OPERATIONS).values())))
def test_every_operation_has_tiny_cases_or_none_and_a_right_kernel_is_right_in_them(name, monkeypatch):
    operation = find(name)
    first = next(cases(operation, seed=1))
    kernel = next((each for each in operation.kernels.values() if each.device == "cpu"), None)
    for sizes in tiny_sizes(operation, first):
        made = make_case(operation, sizes, "random", np.random.default_rng(0))
        assert sum(np.size(each) for each in made.arguments if isinstance(each, np.ndarray)) <= MOST_SHOWN
        if kernel:
            monkeypatch.setattr(tiny, "tiny_sizes", lambda *_, sizes=sizes: [sizes])
            assert tiny.smaller(operation, first, runner(operation, kernel, "cpu"), {}) == {}


def test_a_kernel_for_whole_tiles_gets_no_smaller_case():
    assert not any(tiny_sizes(find(name), next(cases(find(name)))) for name in ("one_sample", "whole_tiles"))


def test_cases_of_whole_numbers_are_not_called_random_values():
    operation = find("confusion_matrix")
    assert "values" not in random_case(operation, {"n": 5, "classes": 3}).label


def test_a_size_is_named_beside_a_factor_only_if_other_cases_agree():
    def exchanged(costs, patience):
        stop, best = find("stop_early")["loops"](costs, patience)
        return best, stop

    def summed(D):
        return D.sum(axis=0)

    def without_two(M):
        return find("f1")["numpy"](M) / np.float32(2)

    said = [check(find("stop_early"), exchanged, seed=seed).line for seed in range(4)]
    assert not any("times what it should be" in line or "±" in line for line in said)
    assert all("and batch is" in check(find("bias_gradient"), summed, seed=seed).line for seed in range(4))
    assert not any("classes is" in check(find("f1"), without_two, seed=seed).line for seed in range(4))


def test_what_is_right_to_three_digits_is_said_to_be():
    def in_half(A, mean, variance, gamma, beta, epsilon):
        scale, shift, middle = (value[:, None, None] for value in (gamma / np.sqrt(variance + epsilon), beta, mean))
        return ((A - middle) * scale.astype(np.float16) + shift).astype(np.float32)

    verdict = check(find("batchnorm_forward"), in_half, seed=1)
    assert "right to about three digits" in verdict.line and "ε" not in verdict.line


def test_threads_of_three_axes_are_not_said_to_lack_an_index_of_four():
    wrong = np.zeros((1, 3, 19, 35), bool)
    wrong[..., 32:] = True
    assert not not_reached(wrong, wrong, (48, 32, 3)) and not_reached(wrong, wrong, (32, 32, 3))


def test_advice_on_arrays_that_are_right_is_left_out():
    def uphill(W, G, V, rate, momentum):
        V[...] = momentum * V + G
        W += 3 * rate * V
        return W, V

    verdict = check(find("momentum_update"), uphill, seed=1)
    assert "your V is right" in verdict.line and "must become" not in verdict.line
