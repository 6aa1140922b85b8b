"""The kernels `cudnn`: a convolution and its gradients with NVIDIA's library cuDNN, which is an optional extra.

The operation is a cuDNN graph of one node. For each combination of shapes cuDNN offers plans, some of which are several
times faster than others; its guess of the fastest is often wrong. So the first call for some shapes times all plans,
which takes about a second, and uses the fastest correct one. Its name is stored on disk for later processes, which
build only this plan and check it again.

A correct plan uses no tensor cores, which round each factor to 11 bits (TF32), and no float atomics, whose last digits
change from call to call. Some plans transform the image (Winograd, Fourier and one without a name): the rounding errors
of large pixels then affect small ones near them. PyTorch uses such plans. Here they are used only for LARGE sizes, for
which they are much faster, if they are correct for numbers of one magnitude. For smaller sizes, which check() tries,
each element must be correct next to numbers of any magnitude.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from nncourse.device import Array, describe, elapsed
from nncourse.errors import CourseError
from nncourse.kernels import convolution, convolution_backpropagation
from nncourse.kernels.libraries import aligned
from nncourse.kernels.libraries.cudnn_plans import file_for, kept_or_chosen

REFUSED = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC")
LARGE = 1 << 30  # FLOPs
LARGEST_ERROR = 1e-3  # for large sizes, relative to the root mean square of the results; TF32's is larger
MOST_WORKSPACE = 1 << 30  # bytes
OF_KIND = {  # the words for each kind of graph
    "forward": "the forward of",
    "weight_gradient": "the weight_gradient of",
    "input_gradient": "the input_gradient of",
}
CALLS = 5  # of a plan that is timed
NUMBERS = 100_003  # random numbers, which are repeated; a prime, so that no two rows or images are equal


@functools.cache
def missing() -> str:
    """Why cuDNN cannot be used on this machine with a GPU: one line that says what to install; "" if it can."""
    try:
        import cudnn

        cudnn.backend_version()  # the first call loads the library itself
    except (ImportError, OSError, RuntimeError):
        return f"cuDNN is missing (pip install -e '.[cudnn{_cuda_version()}]')"
    return ""


def _cuda_version() -> int:
    """The major version of CUDA that CuPy was built for."""
    try:
        import cupy
    except ImportError:
        return 13
    return cupy.cuda.runtime.runtimeGetVersion() // 1000


@dataclass(frozen=True)
class Windows:
    """A convolution's sizes, which determine the shapes of images, filters and deltas."""

    batch: int
    c_in: int
    h_in: int
    w_in: int
    c_out: int
    k: int
    stride: int
    before: int
    after: int

    @property
    def images(self) -> tuple[int, ...]:
        return self.batch, self.c_in, self.h_in, self.w_in

    @property
    def filters(self) -> tuple[int, ...]:
        return self.c_out, self.c_in, self.k, self.k

    @property
    def deltas(self) -> tuple[int, ...]:
        more = self.before + self.after - self.k
        return self.batch, self.c_out, (self.h_in + more) // self.stride + 1, (self.w_in + more) // self.stride + 1


@dataclass(frozen=True)
class Plan:
    """One way to compute a graph: the plan's number, the tensors to fill, and the bytes of its workspace."""

    name: str  # the engine and its settings
    graph: Any
    tensors: tuple[Any, ...]  # two arguments and the result
    shapes: tuple[tuple[int, ...], ...]  # of the tensors
    number: int
    workspace: int

    def __call__(self, *arrays: Any) -> None:
        import cudnn
        import cupy

        handle = _handle(cupy.cuda.runtime.getDevice())
        cudnn.set_stream(handle=handle, stream=cupy.cuda.get_current_stream().ptr)
        arrays = tuple(map(aligned, arrays))  # the result always is
        addresses = {tensor: array.data.ptr for tensor, array in zip(self.tensors, arrays, strict=True)}
        beside = cupy.empty(max(self.workspace, 1), np.uint8)
        self.graph.execute_plan_at_index(addresses, beside.data.ptr, self.number, handle=handle)


@functools.cache
def _handle(device: int) -> Any:
    """The library's state for the GPU in use, which is number `device`."""
    import cudnn

    return cudnn.create_handle()


def graph_of(
    kind: str, windows: Windows, handle: Any = None
) -> tuple[Any, tuple[Any, ...], tuple[tuple[int, ...], ...]]:
    """cuDNN's graph of a "forward" pass, a "weight_gradient" or an "input_gradient"; its tensors and their shapes."""
    import cudnn

    number = cudnn.data_type.FLOAT
    everywhere = {f"{use}_data_type": number for use in ("io", "intermediate", "compute")}
    graph = cudnn.pygraph(handle=handle, **everywhere)
    images, filters, deltas = windows.images, windows.filters, windows.deltas
    names, shapes, node = {
        "forward": (("image", "weight"), (images, filters, deltas), graph.conv_fprop),
        "weight_gradient": (("loss", "image"), (deltas, images, filters), graph.conv_wgrad),
        "input_gradient": (("loss", "filter"), (deltas, filters, images), graph.conv_dgrad),
    }[kind]
    given = {
        name: graph.tensor(name=name, dim=list(shape), stride=_steps(shape), data_type=number)
        for name, shape in zip(names, shapes, strict=False)
    }
    sides = {"pre_padding": windows.before, "post_padding": windows.after, "stride": windows.stride, "dilation": 1}
    result = node(**given, **{name: [value, value] for name, value in sides.items()})
    result.set_output(True)
    result.set_data_type(number)
    result.set_dim(list(shapes[2]))
    result.set_stride(_steps(shapes[2]))  # otherwise cuDNN puts the channels last
    graph.validate()
    return graph, (*given.values(), result), shapes


def _steps(shape: tuple[int, ...]) -> list[int]:
    """The distance between neighbours along each axis, in elements, in C order."""
    return [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]


@dataclass(frozen=True)
class Offer:
    """A graph with all plans that cuDNN offers for it, except refused ones; none is built yet."""

    graph: Any
    tensors: tuple[Any, ...]
    shapes: tuple[tuple[int, ...], ...]

    def built(self, number: int) -> Plan:
        """Plan `number`. Raises an exception of cuDNN if it is refused, or does not fit the GPU."""
        self.graph.build_plan_at_index(number)
        name, workspace = self.name(number), self.graph.get_workspace_size_plan_at_index(number)
        return Plan(name, self.graph, self.tensors, self.shapes, number, workspace)

    def name(self, number: int) -> str:
        return self.graph.get_plan_name_at_index(number)

    def __len__(self) -> int:
        return self.graph.get_execution_plan_count()


def offer_for(kind: str, windows: Windows, refused: tuple[str, ...] = REFUSED) -> Offer | None:
    """The plans that cuDNN offers for this computation; None if it cannot do it."""
    import cudnn
    import cupy

    modes = [cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK]
    try:
        graph, tensors, shapes = graph_of(kind, windows, _handle(cupy.cuda.runtime.getDevice()))
        graph.build_operation_graph()
        graph.create_execution_plans(modes)
        graph.deselect_numeric_notes([getattr(cudnn.numerical_note, note) for note in refused])
        graph.deselect_workspace_greater_than(MOST_WORKSPACE)
    except Exception:  # its type differs between versions
        return None
    return Offer(graph, tensors, shapes)


def plans_of(offer: Offer) -> list[tuple[float, Plan]]:
    """Seconds and plan for each plan that can be built, the fastest first."""
    import cupy

    arrays = [cupy.zeros(shape, np.float32) for shape in offer.shapes]
    timed: list[tuple[float, Plan]] = []
    for number in range(len(offer)):
        try:
            plan = offer.built(number)
            best = min((seconds for seconds, _ in timed), default=inf)
            timed.append((_seconds(plan, arrays, best), plan))
        except Exception:  # a plan that is refused, or that does not fit the GPU
            continue
    return sorted(timed, key=lambda pair: pair[0])


def plan_named(offer: Offer, name: str, is_right: Callable[[Plan], bool]) -> Plan | None:
    """The plan of that name; None if there is none, if it can no longer be built or called, or if it is wrong."""
    try:
        number = [offer.name(number) for number in range(len(offer))].index(name)
        plan = offer.built(number)
        return plan if is_right(plan) else None
    except Exception:
        return None


def _seconds(plan: Plan, arrays: list[Any], best: float) -> float:
    """The time of a call; measured with more calls unless the first is much slower than the best plan so far."""
    call = functools.partial(plan, *arrays)
    call()  # initialises, which takes time only once
    once = elapsed(call, 1, "gpu")
    return once if once > 2 * best else min(elapsed(call, CALLS, "gpu") / CALLS for _ in range(2))


def flops_of(windows: Windows) -> int:
    """FLOPs of a forward pass, and of each gradient."""
    return 2 * windows.c_in * windows.k**2 * int(np.prod(windows.deltas))


def _is_right(plan: Plan, kind: str, windows: Windows, large: bool) -> bool:
    """Whether a plan agrees with the kernel `cupy` in float64, on random numbers."""
    import cupy

    rng = np.random.default_rng(0)
    arrays = [_repeated(rng.standard_normal(NUMBERS), shape) for shape in plan.shapes[:2]]
    if not large:  # rows of very different magnitudes
        arrays[0] *= cupy.asarray(10.0 ** rng.uniform(-3, 3, (*arrays[0].shape[:3], 1)), np.float32)
    got = cupy.empty(plan.shapes[2], np.float32)
    plan(*arrays, got)
    exact = [array.astype(np.float64) for array in arrays]
    wanted = _by_cupy(kind, windows, *exact)
    error = abs(got - wanted)
    if large:
        return bool(error.max() <= LARGEST_ERROR * cupy.sqrt((wanted**2).mean()))
    return bool((error <= 16 * np.finfo(np.float32).eps * _by_cupy(kind, windows, *map(abs, exact))).all())


def _repeated(numbers: np.ndarray, shape: tuple[int, ...]) -> Any:
    """An array on the GPU filled with these numbers again and again, because drawing all of them takes a second."""
    import cupy

    size = int(np.prod(shape))
    return cupy.tile(cupy.asarray(numbers, np.float32), -(-size // len(numbers)))[:size].reshape(shape)


def _by_cupy(kind: str, windows: Windows, first: Any, second: Any) -> Any:
    """What a graph of that kind computes, by the kernels `cupy`."""
    sides = windows.stride, windows.before, windows.after
    if kind == "forward":
        return convolution.array(first, second, second[:, 0, 0, 0] * 0, *sides)
    if kind == "weight_gradient":
        return convolution_backpropagation.weight_gradient_array(first, second, windows.k, *sides) * windows.batch
    return convolution_backpropagation.input_gradient_array(first, second, windows.h_in, windows.w_in, *sides)


@functools.lru_cache(maxsize=512)
def fastest(kind: str, windows: Windows, device: int) -> Plan | None:
    """The fastest right plan on the GPU in use, which is number `device`; None if there is none."""
    import cudnn

    offer = offer_for(kind, windows)
    if offer is None:
        return None

    def is_right(plan: Plan) -> bool:
        return _is_right(plan, kind, windows, flops_of(windows) >= LARGE)

    def chosen() -> Plan | None:
        return next((plan for _, plan in plans_of(offer) if is_right(plan)), None)

    versions = cudnn.backend_version(), cudnn.__version__
    file = file_for(kind, windows, describe("gpu"), versions, REFUSED, LARGE, LARGEST_ERROR, MOST_WORKSPACE)
    return kept_or_chosen(file, lambda name: plan_named(offer, name, is_right), chosen)


def _ready(kind: str, windows: Windows) -> tuple[Plan, Windows]:
    """A plan and its sizes: those of padded images if cuDNN itself cannot pad them this way."""
    import cupy

    if said := missing():
        raise CourseError(said)
    device = cupy.cuda.runtime.getDevice()
    within = max(windows.before, windows.after) < windows.k
    plan = fastest(kind, windows, device) if within else None
    if plan is None:
        more = windows.before + windows.after
        padded = {"h_in": windows.h_in + more, "w_in": windows.w_in + more, "before": 0, "after": 0}
        windows = Windows(**{**vars(windows), **padded})
        plan = fastest(kind, windows, device)
    if plan is None:
        raise CourseError(f"cuDNN has no plan in float32 for {OF_KIND[kind]} {windows}: use a different kernel")
    return plan, windows


def _padded(A: Any, windows: Windows, before: int) -> Any:
    """The images as the plan takes them: with their padding, or A itself."""
    import cupy

    if A.shape == windows.images:
        return A
    images = cupy.zeros(windows.images, np.float32)
    images[:, :, before : before + A.shape[2], before : before + A.shape[3]] = A
    return images


@convolution.convolution_forward.kernel("cudnn", device="gpu", missing=missing, optional=("b",))
def forward(A: Array, W: Array, b: Array | None, stride: int, before: int, after: int) -> Array:
    import cupy

    n, c_in, h_in, w_in = A.shape
    plan, windows = _ready("forward", Windows(n, c_in, h_in, w_in, W.shape[0], W.shape[3], stride, before, after))
    Z = cupy.empty(windows.deltas, np.float32)
    plan(_padded(A, windows, before), W, Z)
    if b is not None:  # another pass over memory
        Z += b[:, None, None]
    return Z


@convolution_backpropagation.convolution_weight_gradient.kernel("cudnn", device="gpu", missing=missing)
def weight_gradient(D: Array, A: Array, k: int, stride: int, before: int, after: int) -> Array:
    import cupy

    n, c_in, h_in, w_in = A.shape
    plan, windows = _ready("weight_gradient", Windows(n, c_in, h_in, w_in, D.shape[1], k, stride, before, after))
    dW = cupy.empty(windows.filters, np.float32)
    plan(D, _padded(A, windows, before), dW)
    dW /= len(D)
    return dW


@convolution_backpropagation.convolution_input_gradient.kernel("cudnn", device="gpu", missing=missing)
def input_gradient(D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int) -> Array:
    import cupy

    sizes = Windows(len(D), W.shape[1], h_in, w_in, len(W), W.shape[3], stride, before, after)
    plan, windows = _ready("input_gradient", sizes)
    G = cupy.empty(windows.images, np.float32)
    plan(D, W, G)
    inside = G[:, :, before : before + h_in, before : before + w_in]
    return G if windows == sizes else cupy.ascontiguousarray(inside)
