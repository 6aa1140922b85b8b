"""The kernels `cudnn`: a convolution and its gradients by NVIDIA's library cuDNN, which is an optional extra.

The operation is described to cuDNN as a graph of one node. For each combination of shapes cuDNN offers plans, ways to
compute it that differ in speed by factors; its own guess which is fastest is often wrong. So at the first call for some
shapes all plans are timed, which takes about a second, and the fastest is kept.

Taken are only plans that compute what the other kernels do: sums of float32 products. Tensor cores would round each
factor to 11 bits (TF32), transforms (Winograd's and Fourier's) bring errors of large pixels to small ones beside them,
and float atomics give other last digits at each call.
"""

import functools
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from nncourse.errors import CourseError
from nncourse.kernels import convolution, convolution_backpropagation

REFUSED = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "WINOGRAD", "FFT", "NONDETERMINISTIC")
MOST_WORKSPACE = 1 << 30  # bytes
CALLS = 5  # of a plan that is timed


@functools.cache
def missing() -> str:
    """Why cuDNN cannot be used: one line that says what to install; "" if it can. Asked where there is a GPU."""
    try:
        import cudnn

        cudnn.backend_version()  # the library itself is looked for at the first call
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


def refuse_missing() -> None:
    """CourseError where cuDNN cannot be used."""
    if said := missing():
        raise CourseError(said)


@dataclass(frozen=True)
class Windows:
    """A convolution's sizes, from which the shapes of images, filters and deltas follow."""

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
    """One way to compute a graph: its number there, the tensors to fill, and the bytes that it needs beside them."""

    graph: Any
    tensors: tuple[Any, ...]  # two arguments and the result
    number: int
    workspace: int

    def __call__(self, *arrays: Any) -> None:
        import cudnn
        import cupy

        handle = _handle(cupy.cuda.runtime.getDevice())
        cudnn.set_stream(handle=handle, stream=cupy.cuda.get_current_stream().ptr)
        arrays = tuple(map(cupy.ascontiguousarray, arrays))  # the result always is
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
    result.set_stride(_steps(shapes[2]))  # else cuDNN puts the channels last
    graph.validate()
    return graph, (*given.values(), result), shapes


def _steps(shape: tuple[int, ...]) -> list[int]:
    """How many elements lie between neighbours along each axis, in C order."""
    return [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]


def plans_for(kind: str, windows: Windows, refused: tuple[str, ...] = REFUSED) -> list[tuple[float, Plan]]:
    """Seconds and plan for each plan that computes this, the fastest first; [] if there is none."""
    import cudnn
    import cupy

    modes = [cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK]
    try:
        graph, tensors, shapes = graph_of(kind, windows, _handle(cupy.cuda.runtime.getDevice()))
        graph.build_operation_graph()
        graph.create_execution_plans(modes)
        graph.deselect_numeric_notes([getattr(cudnn.numerical_note, note) for note in refused])
        graph.deselect_workspace_greater_than(MOST_WORKSPACE)
    except Exception:  # of several types, differing between versions
        return []
    arrays = [cupy.zeros(shape, np.float32) for shape in shapes]
    timed: list[tuple[float, Plan]] = []
    for number in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(number)
            plan = Plan(graph, tensors, number, graph.get_workspace_size_plan_at_index(number))
            best = min((seconds for seconds, _ in timed), default=inf)
            timed.append((_seconds(plan, arrays, best), plan))
        except Exception:  # a plan that is refused, or that does not fit the GPU
            continue
    return sorted(timed, key=lambda pair: pair[0])


def _seconds(plan: Plan, arrays: list[Any], best: float) -> float:
    """The time of a call; measured with more calls unless the first is much slower than the best plan so far."""
    plan(*arrays)  # whatever is done once is done here
    once = _seconds_a_call(plan, arrays, 1)
    return once if once > 2 * best else min(_seconds_a_call(plan, arrays, CALLS) for _ in range(2))


def _seconds_a_call(plan: Plan, arrays: list[Any], calls: int) -> float:
    import cupy

    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(calls):
        plan(*arrays)
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / 1000 / calls


@functools.lru_cache(maxsize=512)
def _fastest(kind: str, windows: Windows, device: int) -> Plan | None:
    """The fastest plan on the GPU in use, which is number `device`; None if there is none."""
    timed = plans_for(kind, windows)
    return timed[0][1] if timed else None


def _ready(kind: str, windows: Windows) -> tuple[Plan, Windows]:
    """A plan, and the windows that it is for: images with their padding where cuDNN does not pad them in this way."""
    import cupy

    refuse_missing()
    device = cupy.cuda.runtime.getDevice()
    within = max(windows.before, windows.after) < windows.k
    plan = _fastest(kind, windows, device) if within else None
    if plan is None:
        more = windows.before + windows.after
        padded = {"h_in": windows.h_in + more, "w_in": windows.w_in + more, "before": 0, "after": 0}
        windows = Windows(**{**vars(windows), **padded})
        plan = _fastest(kind, windows, device)
    if plan is None:
        raise CourseError(f"cuDNN has no plan in float32 for the {kind} of {windows}: take another kernel")
    return plan, windows


def _padded(A: Any, windows: Windows, before: int) -> Any:
    """The images as the plan takes them: with their padding, or A itself."""
    import cupy

    if A.shape == windows.images:
        return A
    images = cupy.zeros(windows.images, np.float32)
    images[:, :, before : before + A.shape[2], before : before + A.shape[3]] = A
    return images


@convolution.convolution_forward.kernel("cudnn", device="gpu", missing=missing)
def forward(A, W, b, stride, before, after):
    import cupy

    plan, windows = _ready("forward", Windows(*A.shape, W.shape[0], W.shape[3], stride, before, after))
    Z = cupy.empty(windows.deltas, np.float32)
    plan(_padded(A, windows, before), W, Z)
    Z += b[:, None, None]
    return Z


@convolution_backpropagation.convolution_weight_gradient.kernel("cudnn", device="gpu", missing=missing)
def weight_gradient(D, A, k, stride, before, after):
    import cupy

    plan, windows = _ready("weight_gradient", Windows(*A.shape, D.shape[1], k, stride, before, after))
    dW = cupy.empty(windows.filters, np.float32)
    plan(D, _padded(A, windows, before), dW)
    dW /= len(D)
    return dW


@convolution_backpropagation.convolution_bias_gradient.kernel("cudnn", device="gpu", missing=missing)
def bias_gradient(D):
    """cuDNN has no such sum of its own: as the gradient of filters of one weight, which all saw the image 1."""
    import cupy

    batch, c_out, h_out, w_out = D.shape
    plan, windows = _ready("weight_gradient", Windows(batch, 1, h_out, w_out, c_out, 1, 1, 0, 0))
    db = cupy.empty(windows.filters, np.float32)
    plan(D, _ones(windows.images, cupy.cuda.runtime.getDevice()), db)
    db /= batch
    return db.reshape(c_out)


@functools.lru_cache(maxsize=8)
def _ones(shape: tuple[int, ...], device: int) -> Any:
    import cupy

    return cupy.ones(shape, np.float32)


@convolution_backpropagation.convolution_input_gradient.kernel("cudnn", device="gpu", missing=missing)
def input_gradient(D, W, h_in, w_in, stride, before, after):
    import cupy

    sizes = Windows(len(D), W.shape[1], h_in, w_in, len(W), W.shape[3], stride, before, after)
    plan, windows = _ready("input_gradient", sizes)
    G = cupy.empty(windows.images, np.float32)
    plan(D, W, G)
    inside = G[:, :, before : before + h_in, before : before + w_in]
    return G if windows == sizes else cupy.ascontiguousarray(inside)
