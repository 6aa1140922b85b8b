"""Every operation × kernel × device is right; contracts say what they mean; the cases are as hostile as promised."""

import numpy as np
import pytest
from refusals import refused

from cuda_on_cpu import emulate
from cuda_on_cpu.source import line_of
from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises.catalogue import exercise_topics
from nnclassroom.exercises.hints import exercises
from nnclassroom.exercises.nb06 import algorithm_1
from nnclassroom.exercises.nb12 import all_reduce
from nnclassroom.exercises.solutions import file_of
from nnclassroom.judge import check
from nncourse.catalogue import defined_in, epochs, operations
from nncourse.errors import CourseError
from nncourse.kernels import contract
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial
from tests.tiers import many

ALL = [(operation, kernel) for operation in (operations() | epochs()).values() for kernel in operation.kernels.values()]
CPU = [pair for pair in ALL if pair[1].device == "cpu"]
GPU = [pair for pair in ALL if pair[1].device == "gpu"]
CUDA = [pair for pair in GPU if pair[1].cuda]
# Seconds each under the emulator: quick takes them where their topic has changed, and a tenth. An epoch in one kernel
# is run there all the same, by tests of its own, on the smallest shapes that reach each branch.
SLOW = {(name, kernel) for name in epochs() for kernel in ("one_kernel", "streamed")}
SLOW |= {
    ("dense_forward", name)
    for name in ("tiles_2d", "vectorised", "warp_tiles", "double_buffered", "small_tiles", "stream_k", "tensor_cores")
}
SLOW |= {("convolution_weight_gradient", name) for name in ("tree", "tiles", "implicit_gemm")}
SLOW |= {(f"convolution_{name}", "implicit_gemm") for name in ("forward", "input_gradient")}
SLOW |= {(f"batchnorm_{name}", "tree") for name in ("statistics", "gradients")}
# The solved notebooks of make test check the kernels of exercises.
ELSEWHERE = SLOW | {(each.operation, each.kernel) for each in exercises()}


def name_of(pair) -> str:
    operation, kernel = pair
    return f"{operation.name}-{kernel.name}"


def kind_of(pair):
    """Every commit tries a kernel of each operation."""
    operation, kernel = pair
    return None if (operation.name, kernel.name) in ELSEWHERE else operation.name


def named(pairs):
    return pytest.mark.parametrize(("operation", "kernel"), pairs, ids=map(name_of, pairs))


@pytest.mark.parametrize("pair", many(CPU, name_of, kind_of, lambda pair: pair[0].name))
def test_cpu_kernel_is_right(pair):
    operation, kernel = pair
    if said := kernel.missing():
        pytest.skip(said)
    verdict = check.check(operation, kernel.name)
    assert verdict, str(verdict)


@pytest.mark.parametrize("pair", many(CUDA, name_of, kind_of, lambda pair: pair[0].name))
def test_cuda_kernel_is_right_under_the_emulator_in_three_thread_orders(pair):
    operation, kernel = pair
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    verdict = check.check(operation, kernel.name, device="emulator")
    assert verdict, str(verdict)


def test_cuda_kernels_take_what_their_operations_hand_them_and_name_their_lines():
    """Their texts are not read before the first launch."""
    for operation in (operations() | epochs() | defined_in(exercise_topics())).values():
        for kernel in operation.kernels.values():
            if isinstance(kernel, CudaKernel):
                kernel.refuse_other_parameters()
                assert kernel.where == f"{kernel.source.file}:{line_of(kernel.source, kernel.entry)}"


@named(GPU)
def test_gpu_kernel_is_right_on_the_gpu(operation, kernel, gpu):
    if said := kernel.missing():
        pytest.skip(said)
    verdict = check.check(operation, kernel.name, device="gpu")
    assert verdict, str(verdict)


def test_every_operation_has_kernels_for_both_devices():
    for operation in operations().values():
        assert {"loops", "numpy", "cupy"} <= operation.kernels.keys()
        assert any(isinstance(k, CudaKernel) and k.deterministic for k in operation.kernels.values()), operation.name


@pytest.mark.parametrize("operation", operations().values(), ids=operations())
def test_truth_is_nan_only_where_nan_must_come_out(operation):
    """Elsewhere a NaN in the reference would make the check accept or refuse for no reason."""
    for case in check.cases(operation):
        reference = check.references_of(operation, case.arguments)[operation.result.name]
        assert not np.isnan(reference).any() or "nan" in operation.trial.edge_cases, case.label


@pytest.mark.parametrize(
    "name",
    ["softplus", "sigmoid", "gelu", "gelu_derivative", "softmax", "binary_cross_entropy", "categorical_cross_entropy"],
)
@pytest.mark.parametrize("z", [1000.0, -1000.0])
@pytest.mark.parametrize("kernel", ["loops", "numpy", "numba"])
def test_no_overflow_at_a_thousand(name, z, kernel):
    operation = operations()[name]
    Z = np.array([[z, -z, 0.0]], np.float32)
    Y = np.array([[1, 0, 0]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        result = operation[kernel](Z, Y) if len(operation.arguments) == 2 else operation[kernel](Z)
    assert np.isfinite(result).all()


def test_cases_reach_one_past_a_block_and_differ_in_shape():
    shapes = [case.arguments[0].shape for case in check.cases(dense_forward)]
    assert (1, 1) in shapes and (17, 16) in shapes and (16, 16) in shapes and (16, 17) in shapes
    assert max(shapes)[0] > 1024
    assert any(np.isinf(case.arguments[0]).any() for case in check.cases(dense_forward))
    assert any(not case.arguments[0].any() for case in check.cases(dense_forward))


def test_relu_is_flat_at_its_kink_and_step_is_zero_at_zero():
    zero = np.zeros(1, np.float32)
    for kernel in ("loops", "numpy", "numba"):
        assert operations()["relu_derivative"][kernel](zero)[0] == 0
        assert operations()["step"][kernel](zero)[0] == 0


def test_contract_reads_shapes_and_kinds():
    read = contract.parse("A (batch, n_in), labels (n,) int, rate (), x (*n) -> z (*n)")
    (A, labels, rate, _), (z,) = read.arguments, read.results
    assert (A.name, A.dims, A.kind) == ("A", ("batch", "n_in"), "float")
    assert (labels.dims, labels.kind) == (("n",), "int")
    assert rate.dims == () and z.any_shape
    assert str(labels) == "labels (n,) int"


def test_contract_refuses_arguments_that_do_not_fit():
    A, W, b = np.ones((4, 3), "f"), np.ones((2, 3), "f"), np.ones(2, "f")
    assert dense_forward.sizes(A, W, b) == {"batch": 4, "n_in": 3, "n_out": 2}
    for wrong in [(A, W), (A, W.T, b), (A, W, np.ones(5, "f")), (A[0], W, b)]:
        refused(dense_forward.sizes, *wrong)


def test_printed_operation_tells_equation_shapes_and_places():
    said = str(dense_forward)
    assert "Z = A Wᵀ + b" in said and "W (n_out, n_in)" in said
    assert "kernels/dense.py:" in said and "kernels/dense.cu:" in said
    for kernel in dense_forward.kernels.values():
        line = int(kernel.where.split(":")[1])
        text = file_of(kernel.where).read_text().splitlines()[line - 1]
        assert any(word in text for word in ("def ", "@", "__global__"))


def test_a_second_kernel_of_the_same_name_is_refused():
    own = Operation("own", "b = a", "a (*n) -> b (*n)", reference=np.array, flops=lambda n: 0)
    own.kernel("numpy", device="cpu")(lambda a: a.copy())
    refused(own.kernel("numpy", device="cpu"), lambda a: a)
    assert check.check(own, "numpy")
    refused(check.check, own, "tiled")


@pytest.mark.parametrize(
    "text", ["A(n, m), b (m,)", "A, B (n,)", "rate", "A (n; m)", "A (*m)", "A (n,) float", "A (n,) b (n,)"]
)
@pytest.mark.parametrize("form", ["{} -> c (n,)", "a (n,) -> {}", "a (n,), {} -> c (n,)"])
def test_contract_refuses_text_that_it_does_not_understand(form, text):
    refused(contract.parse, form.format(text))


WRONG_OPERATIONS = {"contract": "a (n,) -> b (m,)"}, {"output": "acumulated"}
WRONG_TRIALS = {"edge_cases": ("infinit",)}, {"values": {"c": None}}


@pytest.mark.parametrize(
    ("wrong", "trial"), [*((each, {}) for each in WRONG_OPERATIONS), *(({}, each) for each in WRONG_TRIALS)]
)
def test_operation_refuses_a_contract_that_does_not_hold_together(wrong, trial):
    right = {"contract": "a (n,) -> b (n,)", "reference": np.array, "flops": lambda n: 0}
    Operation("own", "b = a", **right)
    refused(lambda: Operation("own", "b = a", trial=Trial(**trial), **(right | wrong)))


SWAPPED = """extern "C" __global__ void dense_forward_tiled(
    const float* A, const float* W, const float* b, float* Z, int n_in, int batch, int n_out) {}"""


@pytest.mark.parametrize(
    "wrong",
    [
        {"function": "dense_forward_tild"},
        {"block": (8, 8, 4)},
        {"grid": ("batchh",)},
        {"over": ("rows",)},
        {"over": ("batch",), "block": (8, 8)},
        {"source": CudaSource(SWAPPED, "own.cu")},
        {"source": CudaSource(SWAPPED.replace(", int n_out", ""), "own.cu")},
    ],
)
def test_a_launch_that_cannot_be_is_refused_before_it_is_made(wrong):
    """Sizes and blocks at the registration, parameters when the text is read."""
    own = Operation("own", "", "A (batch, n_in), W (n_out, n_in), b (n_out,) -> Z (batch, n_out)", None, None)
    right = {"source": dense_forward["tiled"].source, "function": "dense_forward_tiled", "block": (8, 8)}
    own.cuda_kernel("right", **right)
    with pytest.raises(CourseError):
        own.cuda_kernel("wrong", **(right | wrong))
        own["wrong"].refuse_other_parameters()


@pytest.mark.parametrize(
    ("kernel", "device"), [("numpy", "emulator"), ("tiled", "cpu"), ("numpy", "cuda"), ("tiled", "tpu")]
)
def test_check_refuses_a_place_where_the_kernel_cannot_run(kernel, device):
    refused(check.check, dense_forward, kernel, device=device)


@pytest.mark.parametrize(("operation", "kernel"), [(all_reduce, "ring"), (algorithm_1, "loops")])
def test_what_runs_on_the_cpu_alone_is_checked_nowhere_else(operation, kernel):
    assert check.check(operation, kernel, device="cpu", seed=1)
    for place in (kernel, lambda *arguments: None):
        assert "expected cpu to check it on, got 'gpu'" in refused(check.check, operation, place, device="gpu")


def test_a_failed_case_can_be_run_again():
    verdict = check.check(dense_forward, lambda A, W, b: A @ W.T)
    A, W, b = verdict.case.arguments
    assert not np.allclose(A @ W.T, dense_forward.reference(A, W, b))
    assert check.check(dense_forward, "numpy").case is None


def test_cuda_kernel_takes_out_and_refuses_one_of_another_shape():
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    A, W, b = np.ones((4, 3), "f"), np.ones((2, 3), "f"), np.ones(2, "f")
    out = np.zeros((4, 2), "f")
    assert dense_forward["tiled"](A, W, b, out=out) is out
    assert (out == 4).all()
    refused(dense_forward["tiled"], A, W, b, out=np.zeros((2, 4), "f"))


def test_a_size_given_as_a_number_of_numpy_is_not_taken_for_another():
    """Launches are planned once for each shape; a plan for three classes must not serve five."""
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    kernel, labels = operations()["confusion_matrix"]["atomic"], np.array([0, 1, 2], np.int32)
    for classes in (3, np.int64(4), np.int32(5), np.array(6), 7):
        assert kernel(labels, labels, classes).shape == (int(classes), int(classes))
    refused(kernel, labels, labels, 3, 3)


def test_the_place_of_a_kernel_is_where_it_is_declared():
    text = """// __global__ void own(
/* two
lines */ extern "C"
__global__ void __launch_bounds__(
    64) own(const float* a, float* b, int n) { b[0] = a[0]; }"""
    own = Operation("own", "b = a", "a (n,) -> b (n,)", reference=np.array, flops=lambda n: 0)
    own.cuda_kernel("naive", source=CudaSource(text, "own.cu"), function="own", block=64)
    assert own["naive"].where == "own.cu:5"


def test_deterministic_cuda_kernels_repeat_bit_for_bit(gpu, rng):
    for operation, kernel in CUDA:
        if not isinstance(kernel, CudaKernel) or not kernel.deterministic:
            continue
        usual = {name: 7 if name == "classes" else 700 for name in operation.size_names}
        sizes = operation.trial.sizes_to_check[-1] if operation.trial.sizes_to_check else usual
        case = check.random_case(operation, sizes)
        import cupy

        def run(case=case, kernel=kernel):
            there = [cupy.array(value) if isinstance(value, np.ndarray) else value for value in case.arguments]
            results = kernel(*there) if len(kernel.operation.results) > 1 else (kernel(*there),)
            return [result.get().tobytes() for result in results]

        assert run() == run(), f"{operation.name} ({kernel.name})"
