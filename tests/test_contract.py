"""Contracts: sizes that follow from others, what is refused, and that check(), tables and pictures know such sizes."""

import numpy as np
import pytest
from refusals import refused

from cuda_on_cpu import emulate
from cuda_on_cpu.text import CudaSource
from nnclassroom import commands, timing
from nnclassroom.figures import picture
from nnclassroom.judge import check
from nncourse.catalogue import topics
from nncourse.kernels import contract
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

needs_emulator = pytest.mark.skipif(emulate.why_not() is not None, reason=str(emulate.why_not()))


def array(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# ---- derived sizes

CONVOLUTION = contract.parse(
    "x (batch, h_in), w (k,), stride () int, padding () int -> z (batch, h_out)"
    " where h_out = (h_in + 2 * padding - k) // stride + 1"
)


@pytest.mark.parametrize(
    ("h_in", "k", "stride", "padding", "h_out"), [(10, 3, 1, 0, 8), (10, 3, 2, 0, 4), (5, 5, 3, 2, 2), (1, 3, 1, 1, 1)]
)
def test_derived_sizes_are_computed(h_in, k, stride, padding, h_out):
    values = (array(2, h_in), array(k), stride, padding)
    sizes = CONVOLUTION.sizes(values, "own")
    assert sizes == {"batch": 2, "h_in": h_in, "k": k, "stride": stride, "padding": padding, "h_out": h_out}
    assert CONVOLUTION.result_shapes(values, sizes) == ((2, h_out),)


def test_names_of_sizes_derived_ones_last():
    assert CONVOLUTION.size_names == ("batch", "h_in", "k", "stride", "padding", "h_out")
    assert CONVOLUTION.free_names == ("batch", "h_in", "k", "stride", "padding")
    stated = contract.parse("D (m,), x (n,) -> G (n,) where m = n // 2")
    assert (stated.size_names, stated.free_names) == (("n", "m"), ("n",))
    assert contract.parse("z (*n), rate () -> a (*n)").size_names == ("n",)


def test_a_derived_size_below_one_and_a_division_by_zero_are_refused():
    assert CONVOLUTION.sizes((array(2, 3), array(3), 1, 0), "own")["h_out"] == 1
    assert "h_out" in refused(CONVOLUTION.sizes, (array(2, 2), array(3), 1, 0), "own")
    assert "h_out" in refused(CONVOLUTION.sizes, (array(2, 2), array(5), 1, 0), "own")
    said = refused(CONVOLUTION.sizes, (array(2, 9), array(3), 0, 0), "own")
    assert "zero" in said and "stride 0" in said


def test_a_size_that_an_argument_states_is_checked_against_its_formula():
    backward = contract.parse("D (batch, m), x (batch, n), k () int -> G (batch, n) where m = n - k + 1")
    assert backward.sizes((array(2, 4), array(2, 6), 3), "own") == {"batch": 2, "n": 6, "k": 3, "m": 4}
    for m in (3, 5, 6):
        assert "m is" in refused(backward.sizes, (array(2, m), array(2, 6), 3), "own")


def test_a_derived_size_may_be_a_whole_number_that_is_given():
    given = contract.parse("x (n,), half () int -> y (half,) where half = n // 2")
    assert given.sizes((array(7), 3), "own") == {"n": 7, "half": 3}
    refused(given.sizes, (array(7), 4), "own")


def test_derived_sizes_may_follow_from_derived_ones():
    chained = contract.parse("x (n,), k () int -> y (m,), z (p, m) where m = n - k + 1, p = -(-m // 2) * 3")
    sizes = chained.sizes((array(9), 3), "own")
    assert (sizes["m"], sizes["p"]) == (7, 12)
    assert chained.result_shapes((array(9), 3), sizes) == ((7,), (12, 7))
    assert chained.free_names == ("n", "k")


@pytest.mark.parametrize(
    "formula",
    ["q", "m", "n + later", "n ** 2", "n / 2", "n % 2", "n < 2", "n == 2", "n >= 2", "2.5 * n", "n * True", "'n' * n"]
    + ["abs(n)", "n.real", "n[0]", "(n", "n +", "", "n if n else 1", "n and n", "not n", "~n", "[n]", "lambda: n"]
    + ["n; n", "(k := n)", "n << 40", "n @ n", "None", "n m", "__import__('os')"],
)
def test_what_is_no_formula_is_refused(formula):
    refused(contract.parse, f"x (n,) -> y (m,), z (later,) where m = {formula}, later = n")


INCOMPLETE = ["", "a (n,)", "a (n,) ->", "-> b (n,)", "a (n,) -> b (n,), c (m,)", "a (n,) -> b (n,),"]
INCOMPLETE += ["a (n,), -> b (n,)", *(f"a (n,) -> b (m,) {end}" for end in ("where", "where m", "where m = n,"))]
CONTRADICTORY = ["x (n,) -> y (m,) where m = n, m = n + 1", "x (n,), x (n,) -> y (n,)", "x (n,) -> y (n,), y (n,)"]
CONTRADICTORY += ["x (n,), k () int -> x (k,)", "x (n,) -> x (n,) int", "x (n,) where m = n -> y (m,)"]
CONTRADICTORY += ["x (n,) -> y (p,) where m = n", "x (n,) -> y (*n)", "x (*n) -> y (*m) where m = n // 2"]


@pytest.mark.parametrize("text", INCOMPLETE + CONTRADICTORY)
def test_contracts_that_are_incomplete_or_contradict_themselves_are_refused(text):
    refused(contract.parse, text)


# ---- shapes that must agree


def test_one_letter_twice_is_a_square():
    square = contract.parse("M (classes, classes) -> p (classes,)")
    assert square.sizes((array(3, 3),), "own") == {"classes": 3}
    assert "classes" in refused(square.sizes, (array(2, 3),), "own")


def test_arrays_of_any_shape_have_the_same_shape():
    pair = contract.parse("W (*n), rate (), G (*n) -> W (*n)")
    assert pair.sizes((array(2, 6), 0.1, array(2, 6)), "own") == {"n": 12}
    for shape in ((3, 4), (12,), (6, 2), (2, 6, 1), (2, 5)):
        refused(pair.sizes, (array(2, 6), 0.1, array(*shape)), "own")


def test_a_result_of_any_shape_has_that_of_the_first_argument_of_its_kind():
    scaled = contract.parse("rate (), row (m,), a (*n), b (*n) -> c (*n), d (m,)")
    values = (0.5, array(7), array(2, 3), array(2, 3))
    assert scaled.result_shapes(values, scaled.sizes(values, "own")) == ((2, 3), (7,))


@pytest.mark.parametrize("wrong", [2.5, np.ones(1), np.ones((1, 1)), [2], np.nan, np.inf, None, "2"], ids=repr)
def test_a_whole_number_is_wanted_as_one(wrong):
    repeated = contract.parse("x (n,), k () int -> y (k, n)")
    for right in (2, np.int32(2), np.int64(2), np.array(2), 2.0):
        assert repeated.sizes((array(3), right), "own")["k"] == 2
    assert "whole number" in refused(repeated.sizes, (array(3), wrong), "own")


@needs_emulator
def test_a_launch_that_was_planned_for_a_whole_number_serves_no_other_number():
    own, x, w = with_convolution(**PRODUCT), array(1, 6), array(2)
    assert own["naive"](x, w, 2).tolist() == [[2, 2, 2]]
    for wrong in (2.5, np.array([2]), np.nan):
        refused(own["naive"], x, w, wrong)


def test_several_results_are_read():
    read = contract.parse("W (*n), G (*n), V (*n), rate () -> W (*n), V (*n), norm (), count () int")
    kinds = {result.name: result.kind for result in read.results}
    assert list(kinds.items()) == [("W", "float"), ("V", "float"), ("norm", "float"), ("count", "int")]
    assert [result.name for result in read.in_place] == ["W", "V"]
    assert [result.name for result in read.new] == ["norm", "count"]
    values = (array(2, 3), array(2, 3), array(2, 3), 0.1)
    assert read.result_shapes(values, read.sizes(values, "own")) == ((2, 3), (2, 3), (), ())


# ---- an operation with a derived size, from contract to picture

CONVOLVE = """
extern "C" __global__ void convolve(const float* x, const float* w, float* z,
                                    int batch, int n, int k, int stride, int n_out) {
    int i = blockIdx.x / n_out, j = blockIdx.x % n_out;
    if (threadIdx.x > 0) return;
    float sum = 0.0f;
    for (int t = 0; t < k; t++) sum += w[t] * x[i * n + j * stride + t];
    z[i * n_out + j] = sum;
}
"""
WRONG = {
    "border": ("t < k;", "t < k - (j == n_out - 1 && n_out > 1);"),
    "no_stride": ("j * stride + t", "j + t"),
    "row_of_the_result": ("i * n + j * stride", "i * n_out * stride + j * stride"),
    "one_too_many": ("t < k;", "t <= k;"),
    "last_left_out": ("if (threadIdx.x > 0)", "if (threadIdx.x > 0 || j == n_out - 1)"),
}
MUTANTS = [CONVOLVE.replace("convolve(", f"{name}(").replace(*change) for name, change in WRONG.items()]
ALL = CudaSource(CONVOLVE + "".join(MUTANTS), "tests/convolve.cu")  # one text, which is compiled once
TRUE_SIZES = "x (batch, n), w (k,), stride () int -> z (batch, n_out) where n_out = (n - k) // stride + 1"


def with_convolution(function: str = "convolve", **launch) -> Operation:
    """A convolution along the rows with one CUDA kernel, one block for each output."""

    def reference(x, w, stride):
        windows = np.lib.stride_tricks.sliding_window_view(x, len(w), axis=1)[:, ::stride]
        return np.einsum("bok,k->bo", windows, w)

    own = Operation(
        "convolve",
        "z = x ⋆ w",
        TRUE_SIZES,
        reference,
        flops=lambda batch, n, k, stride, n_out: 2 * batch * n_out * k,
        trial=Trial(
            error_scale=lambda x, w, stride: reference(abs(x), abs(w), stride),
            edge_cases=("zeros", "large"),
            sizes_to_check=[
                {"batch": 1, "n": 1, "k": 1, "stride": 1},
                {"batch": 2, "n": 6, "k": 3, "stride": 1},
                {"batch": 3, "n": 9, "k": 2, "stride": 3},
                {"batch": 2, "n": 8, "k": 3, "stride": 2},
            ],
        ),
    )
    own.cuda_kernel("naive", ALL, function, **launch)
    return own


PRODUCT = {"grid": ("batch * n_out",), "block": 4}


def convolve(x, w, stride):
    n_out = (x.shape[1] - len(w)) // stride + 1
    starts = stride * np.arange(n_out)
    return np.stack([x[:, start : start + len(w)] @ w for start in starts], axis=1)


def off_by_one(x, w, stride):
    return convolve(x[:, :-1] if (x.shape[1] - len(w)) % stride else np.roll(x, 1, 1), w, stride)


def test_check_knows_derived_sizes():
    own = with_convolution(**PRODUCT)
    assert check.check(own, convolve)
    assert not check.check(own, off_by_one)
    assert not check.check(own, lambda x, w, stride: convolve(x, w, 1))
    assert not check.check(own, lambda x, w, stride: convolve(x, w, stride)[:, :-1])
    labels = [case.label for case in check.cases(own)]
    assert len(labels) > 6 and all("x (" in label for label in labels)


def test_check_completes_usual_sizes_and_leaves_out_those_that_do_not_fit():
    def shortened(x, k):
        return x[:, : x.shape[1] - k + 1].copy()

    own = Operation("shortened", "", "x (batch, n), k () int -> y (batch, m) where m = n - k + 1", shortened, None)
    shapes = [(case.arguments[0].shape[1], case.arguments[1]) for case in check.cases(own)]
    assert len(shapes) > 10 and all(n >= k for n, k in shapes)
    assert check.check(own, shortened)
    assert not check.check(own, lambda x, k: x[:, k - 1 :].copy())
    impossible = Operation("own", "", "x (n,) -> y (m,) where m = n - n", lambda x: x, None)
    refused(check.check, impossible, lambda x: x)


@needs_emulator
def test_a_grid_may_be_a_product_of_sizes():
    own = with_convolution(**PRODUCT)
    x, w = np.random.default_rng(1).normal(size=(3, 10)).astype(np.float32), np.array([1, -2], np.float32)
    np.testing.assert_allclose(own["naive"](x, w, 3), convolve(x, w, 3), rtol=1e-5, atol=1e-6)
    assert check.check(own, "naive", device="emulator")


@needs_emulator
@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_kernels_with_derived_sizes_are_rejected(mistake):
    verdict = check.check(with_convolution(mistake, **PRODUCT), "naive", device="emulator")
    assert not verdict and "compile" not in verdict.line


def test_each_mistake_was_put_into_the_text():
    assert len({text.split("(", 1)[1] for text in [CONVOLVE, *MUTANTS]}) == 1 + len(WRONG)


@pytest.mark.parametrize(
    "launch",
    [
        {"grid": ("batch * rows",)},
        {"grid": ("batch", "n_outs")},
        {"grid": ("batch / 2",)},
        {"grid": ("batch ** 2",)},
        {"grid": ("max(batch, n)",)},
        {"grid": ("1.5",)},
        {"over": ("batch", "rows")},
        {"over": ("batch * n_out",)},
    ],
    ids=str,
)
def test_unknown_sizes_of_a_launch_are_refused(launch):
    with_convolution(grid=("batch * n_out - 1 + 1",))
    with_convolution(over=("batch", "n_out"))
    refused(with_convolution, **launch)


@needs_emulator
@pytest.mark.parametrize(("given", "n_out"), [({}, 2), ({"n": 9, "k": 2, "stride": 1}, 8)])
def test_a_picture_counts_with_derived_sizes(given, n_out):
    own = with_convolution(**PRODUCT)
    seen = picture.show(own, "naive", **given)
    k = given.get("k", 4)
    assert seen.accesses.fault is None
    assert seen.accesses["z"].writes == 4 * n_out
    assert seen.accesses["x"].reads == seen.accesses["w"].reads == 4 * n_out * k
    assert f"n_out {n_out}" in str(seen)
    wanted, _, got = refused(picture.show, own, "naive", n_out=3).partition("; got ")
    assert "stride" in wanted and "n_out" not in wanted and got == "n_out"
    assert picture.show(with_convolution("no_stride", **PRODUCT), "naive").accesses.fault


def test_times_are_of_free_sizes():
    own = with_convolution(**PRODUCT)
    own.kernel("numpy", device="cpu")(convolve)
    assert set(timing.default_sizes(own, "cpu")) == {"batch", "n", "k", "stride"}
    sizes = {"batch": 2, "n": 11, "k": 3, "stride": 2}
    (row,) = timing.time_kernels(own, sizes, ["numpy"])
    assert row.flops == 2 * 2 * 5 * 3
    assert row.bytes == 4 * (2 * 11 + 3 + 2 * 5)
    assert row.seconds > 0
    assert "batch, n, k, stride" in refused(timing.time_kernels, own, sizes | {"n_out": 5}, ["numpy"])


def test_the_command_line_takes_free_sizes_only(monkeypatch, capsys):
    own = with_convolution(**PRODUCT)
    own.kernel("numpy", device="cpu")(convolve)
    monkeypatch.setattr(topics()[0], "convolve", own, raising=False)
    sizes = {"batch": 2, "n": 9, "k": 3, "stride": 2}
    asked = ["time", "convolve", "--kernel", "numpy", *(f"--size={name}={size}" for name, size in sizes.items())]
    assert commands.main(asked) == 0
    assert "stride 2" in capsys.readouterr().out
    assert commands.main([*asked, "--size=n_out=4"]) == 2
    assert "batch, n, k, stride" in capsys.readouterr().err
    assert commands.main([*asked, "--size=k=10"]) == 2
    assert "n_out of at least 1" in capsys.readouterr().err


def averages(A, k, stride):
    """The mean of each window of a row."""
    return np.lib.stride_tricks.sliding_window_view(A, k, axis=1)[:, ::stride].mean(axis=2, dtype=A.dtype)


def windows(**more) -> Operation:
    return Operation(
        "averages",
        "Z = mean of each window",
        "A (batch, n), k () int, stride () int -> Z (batch, n_out) where n_out = (n - k) // stride + 1",
        reference=averages,
        flops=None,
        **more,
    )


def test_windows_that_overlap_are_tried_in_several_cases():
    tried = [case.arguments for case in check.cases(windows())]
    assert sum(stride < k < A.shape[1] // 2 for A, k, stride in tried) >= 10
    assert any(k == A.shape[1] > 1 for A, k, stride in tried), "a window as long as the row"
    assert check.check(windows(), averages)

    def side_by_side(A, k, stride):
        return averages(A, k, max(k, stride) if A.shape[1] > 18 else stride)

    assert not check.check(windows(), side_by_side)


def test_sizes_to_check_need_not_state_what_is_derived():
    halves = Operation(
        "double",
        "G = each of D twice",
        "D (batch, n_out), n () int -> G (batch, n) where n_out = n // 2",
        reference=lambda D, n: np.repeat(D, 2, axis=1),
        flops=None,
        trial=Trial(sizes_to_check=({"batch": 2, "n": 4}, {"batch": 1, "n": 10})),
    )
    assert [case.arguments[0].shape for case in check.cases(halves)][:2] == [(2, 2), (1, 5)]
    assert check.check(halves, lambda D, n: np.repeat(D, 2, axis=1))


def test_whole_numbers_below_zero_are_refused():
    assert "at least 0" in refused(windows().sizes, np.zeros((2, 8), np.float32), -1, 1)
