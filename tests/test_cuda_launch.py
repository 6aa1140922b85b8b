"""launch(): scalars are cast as the .cu text declares, and what does not fit is refused in one clear line."""

from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.text import CudaSource
from nncourse.cuda.launch import launch, prepared
from nncourse.errors import CourseError

needs_emulator = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

SOURCE = CudaSource.read(Path(__file__).parent / "cuda" / "launched.cu")

A = np.arange(10, dtype=np.float32)


def scaled(a=A, out=None, factor=2.0, n=10, grid=(1,), block=(32,), **options):
    """Launch `scaled` with these arguments; the result."""
    out = np.zeros(10, np.float32) if out is None else out
    launch(SOURCE, "scaled", grid, block, [a, out, factor, n], **options)
    return out


@pytest.fixture(params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def xp(request):
    """NumPy, whose arrays are launched on the emulator, and CuPy."""
    request.getfixturevalue(request.param)
    return pytest.importorskip("cupy") if request.param == "gpu" else np


@pytest.mark.parametrize("n", [0, 7, 10, np.int64(10), np.uint8(10), 10.0, True])
def test_whole_numbers_of_any_type_fit_an_int(n, xp):
    assert scaled(xp.asarray(A), xp.zeros(10, xp.float32), n=n).tolist() == [2.0 * i if i < n else 0 for i in range(10)]


@needs_emulator
@pytest.mark.parametrize("factor", [-3, 0.1, np.float64(1e-50), np.float32(7), np.int32(-7), np.inf, True])
def test_any_number_fits_a_float(factor):
    assert np.array_equal(scaled(factor=factor, n=10)[1:], np.float32(factor) * A[1:])


def test_scalars_keep_sign_and_size(xp):
    out = xp.zeros(7)
    values = [-0.5, -1e300, -(2**31), 2**32 - 1, -(2**53), 255, False]
    launch(SOURCE, "scalars", (1,), (1,), [out, *values])
    assert out.tolist() == values


@needs_emulator
def test_arrays_of_every_type():
    arrays = [np.zeros(1, dtype) for dtype in ("int32", "uint32", "int64", "uint8", "bool", "float64")]
    launch(SOURCE, "types", (1,), (1,), arrays)
    assert [array[0] for array in arrays] == [-1, 2**32 - 1, -1, 255, True, -1]


def test_shapes_and_empty_arrays(xp):
    a = xp.arange(6, dtype=np.float32).reshape(2, 3)
    assert scaled(a, xp.zeros((3, 2), np.float32), n=6).tolist() == [[0, 2], [4, 6], [8, 10]]
    assert scaled(xp.zeros((0, 3), np.float32), xp.zeros(0, np.float32), n=0).shape == (0,)


@needs_emulator
@pytest.mark.parametrize("count", [1000, 227 * 256])
def test_dynamic_shared_memory_up_to_the_limit(count):
    a = np.random.default_rng(0).random(count, dtype=np.float32)
    out = np.zeros_like(a)
    launch(SOURCE, "backwards", (1,), (128,), [a, out, count], shared_bytes=4 * count)
    assert np.array_equal(out, a[::-1])


class OnGpu:
    """Stands for a CuPy array where there is none."""

    __cuda_array_interface__ = {}
    dtype, flags, shape = A.dtype, A.flags, A.shape


FLOATS = np.zeros(20, np.float32)

REFUSED = [
    (
        {"a": A.astype(np.float64)},
        r"const float\* a, got float64; declare const double\* a, or, if the array is yours, use .astype",
    ),
    ({"a": A.astype(np.int32)}, r"expected float32 for const float\* a, got int32"),
    ({"out": FLOATS[::2]}, r"contiguous numbers for out, got a view of shape \(10,\) with strides \(8,\).*ascontig"),
    ({"a": np.zeros((4, 5), np.float32).T}, r"got a view of shape \(5, 4\) with strides \(4, 20\)"),
    ({"a": 3.0}, "expected an array of float32 for a, got float 3.0"),
    ({"a": [1.0, 2.0]}, "expected an array of float32 for a, got list"),
    ({"a": None}, "expected an array of float32 for a, got NoneType None"),
    ({"a": OnGpu()}, "expected all arrays on one device, got a on the GPU and out on the CPU"),
    ({"factor": A}, r"expected a number for float factor, got an array of shape \(10,\)"),
    ({"factor": "2"}, "expected a number for float factor, got str '2'"),
    ({"factor": 2j}, "expected a number for float factor, got complex"),
    ({"factor": 1e39}, r"expected a number from -3.4\d*e\+38 to 3.4\d*e\+38 for float factor, got 1e\+39"),
    ({"factor": 10**400}, "for float factor, got 1000"),
    ({"n": 10**400}, "for int n, got 1000"),
    ({"n": 2.5}, "expected a whole number from -2147483648 to 2147483647 for int n, got 2.5"),
    ({"n": np.nan}, "expected a whole number from .* for int n, got nan"),
    ({"n": np.inf}, "expected a whole number from .* for int n, got inf"),
    ({"n": 2**31}, "expected a whole number from -2147483648 to 2147483647 for int n, got 2147483648"),
    ({"n": -(2**31) - 1}, "for int n, got -2147483649"),
    ({"grid": (0,)}, r"expected grid x from 1 to 2147483647, got 0 in \(0,\)"),
    ({"grid": (2**31,)}, "expected grid x from 1 to 2147483647"),
    ({"grid": (1, 65536)}, "expected grid y from 1 to 65535, got 65536"),
    ({"grid": (1, 1, 65536)}, "expected grid z from 1 to 65535"),
    ({"grid": (1.5,)}, "expected grid x from 1 to 2147483647, got 1.5"),
    ({"grid": (1, 1, 1, 1)}, "expected a grid of 1 to 3 numbers"),
    ({"grid": ()}, "expected a grid of 1 to 3 numbers"),
    ({"block": (1025,)}, "expected block x from 1 to 1024, got 1025"),
    ({"block": (-1,)}, "expected block x from 1 to 1024, got -1"),
    ({"block": (1, 1, 65)}, "expected block z from 1 to 64, got 65"),
    ({"block": (33, 32)}, r"expected at most 1024 threads in a block, got \(33, 32\), which are 1056"),
    ({"shared_bytes": 227 * 1024 + 1}, "expected 0 to 232448 bytes of dynamic shared memory, got 232449"),
    ({"shared_bytes": -1}, "expected 0 to 232448 bytes"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(changes, says):
    with pytest.raises(CourseError, match=r"^cuda/launched.cu: scaled: .*" + says) as caught:
        scaled(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", [[], [A, A.copy(), 1.0], [A, A.copy(), 1.0, 1, 1]])
def test_a_wrong_number_of_arguments_is_refused_with_the_list(arguments):
    says = rf"expected 4 arguments \(const float\* a, float\* out, float factor, int n\), got {len(arguments)}"
    with pytest.raises(CourseError, match=says):
        launch(SOURCE, "scaled", (1,), (1,), arguments)


@pytest.mark.parametrize(("position", "value"), [(3, -(2**31) - 1), (4, -1), (4, 2**32), (5, 2**63), (6, 256), (7, 2)])
def test_numbers_out_of_range_are_refused(position, value):
    arguments = [np.zeros(7), 0.0, 0.0, 0, 0, 0, 0, 0]
    arguments[position] = value
    with pytest.raises(CourseError, match=f"from .* to .* for .*, got {value}"):
        launch(SOURCE, "scalars", (1,), (1,), arguments)


# ---- constant memory


def looked_up(xp, a, at, **options):
    out = xp.zeros(len(at), xp.float32)
    arguments = [xp.asarray(a, xp.float32), xp.asarray(at, xp.int32), out, len(at)]
    launch(SOURCE, "looks_up", (1,), (1,), arguments, **options)
    return out.tolist()


def test_constant_memory_is_filled_from_an_argument(xp):
    """A launch fills from the argument as much as there is room for; the rest stays."""
    is_filled(xp)


@needs_emulator
def test_constant_memory_is_filled_while_the_emulator_looks_for_races():
    is_filled(np, races=True)


def is_filled(xp, **options):
    fill = {"constants": {"table": "a"}} | options
    assert looked_up(xp, range(1, 11), [0, 5, 2], **fill) == [21, 26, 23]
    assert looked_up(xp, [7, 8], [0, 1, 2], **fill) == [27, 28, 23]
    assert looked_up(xp, [0, 0], [0], **options) == [27]


@pytest.mark.parametrize("constants", [{"tables": "a"}, {"table": "b"}, {"table": "n"}, {"table": "at"}])
def test_constant_memory_that_is_not_there_is_refused(constants):
    (wrong,) = constants.items()
    with pytest.raises(CourseError, match=rf"looks_up: expected .*{wrong[0] if wrong[1] == 'a' else wrong[1]}"):
        looked_up(np, [1], [0], constants=constants)


# ---- on a GPU


@needs_emulator
@pytest.mark.parametrize(
    ("function", "block", "shared_bytes"),
    [("backwards", 128, 4000), ("backwards", 128, 227 * 1024), ("tree_sum", 256, 0)],
)
def test_gpu_and_emulator_agree(gpu, function, block, shared_bytes):
    import cupy

    count = shared_bytes // 4 or 1000
    a = np.random.default_rng(0).random(count, dtype=np.float32)
    results = []
    for xp in (np, cupy):
        out = xp.zeros(count, xp.float32)
        launch(SOURCE, function, (1,), (block,), [xp.asarray(a), out, count], shared_bytes=shared_bytes)
        results.append(cupy.asnumpy(out))
    assert np.array_equal(*results)


@needs_emulator
def test_gpu_and_emulator_agree_on_a_histogram(gpu):
    import cupy

    values = np.random.default_rng(0).integers(0, 9, 1000).astype(np.int32)
    for xp in (np, cupy):
        counts = xp.zeros(9, xp.int32)
        launch(SOURCE, "histogram", (8,), (128,), [xp.asarray(values), counts, 1000])
        assert cupy.asnumpy(counts).tolist() == np.bincount(values, minlength=9).tolist()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.astype("float64"), "got float64"),
        (lambda a: a[::2], "expected contiguous numbers for a, got a view"),
        (lambda a: a.get(), "expected all arrays on one device, got out on the GPU and a on the CPU"),
    ],
)
def test_gpu_arrays_that_do_not_fit_are_refused(gpu, change, says):
    import cupy

    with pytest.raises(CourseError, match=says):
        scaled(change(cupy.asarray(A)), cupy.zeros(10, cupy.float32))


def test_gpu_launches_take_no_emulator_options(gpu):
    import cupy

    with pytest.raises(CourseError, match="order is for the emulator"):
        scaled(cupy.asarray(A), cupy.zeros(10, cupy.float32), order="reverse")


def test_a_launch_is_prepared_for_a_gpu_only():
    with pytest.raises(CourseError, match="expected CuPy arrays, to prepare a launch"):
        prepared(SOURCE, "scaled", (1,), (32,), [A, np.zeros(10, np.float32), 2.0, 10])
    assert "expected 4 arguments" in refused(prepared, SOURCE, "scaled", (1,), (32,), [A])


def test_gpu_a_prepared_launch_is_made_again_and_again(gpu):
    import cupy

    a, out = cupy.asarray(A), cupy.zeros(A.size, cupy.float32)
    again = prepared(SOURCE, "scaled", (1,), (32,), [a, out, 2.0, A.size])
    for factor in (1, 3):
        a[...] = factor * cupy.asarray(A)
        again()
        assert np.array_equal(out.get(), 2 * factor * A)


def attributed(attributes: str, grid: tuple[int, ...], block: tuple[int, ...], xp) -> np.ndarray:
    text = f'extern "C" __global__ void {attributes} f(float* a, int n) {{ if (threadIdx.x == 0) a[blockIdx.x] = n; }}'
    a = xp.zeros(8, xp.float32)
    launch(CudaSource(f"#define MOST 128\n{text}", "f.cu"), "f", grid, block, [a, 3])
    return a


def test_a_launch_keeps_to_the_attributes_of_its_kernel(xp):
    assert attributed("__launch_bounds__(MOST, 1)", (8,), (32, 4), xp).tolist() == [3] * 8
    with pytest.raises(CourseError, match="expected at most 128 threads in a block, as __launch_bounds__ says, got"):
        attributed("__launch_bounds__(2 * (MOST / 2))", (8,), (129,), xp)
    with pytest.raises(CourseError, match="expected grid x as a multiple of 4, as __cluster_dims__ says, got 6"):
        attributed("__cluster_dims__(4, 1, 1)", (6,), (32,), xp)
    with pytest.raises(CourseError, match="expected grid y as a multiple of 2"):
        attributed("__cluster_dims__(1, 2)", (8, 3), (32,), xp)
