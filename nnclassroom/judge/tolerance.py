"""The float64 reference of an operation for given arguments, and the error allowed to a float32 kernel."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nncourse.kernels.contract import Argument
from nncourse.kernels.kernel import MANTISSA, Kernel
from nncourse.kernels.operation import Operation

EPS = float(np.finfo(np.float32).eps)
TINY_BELOW = 1e-4
LEAST = 4.0  # roundings of a plain sum, besides one for each two terms
OF_LONG_SUMS = 6  # in reverse, the large terms first, positive numbers reach 4.3 times the square root of their count
TINY = float(np.finfo(np.float32).tiny)  # below this a GPU may flush to zero
FLUSHED, MOST_FLUSHED = 8, 1e4  # numbers of a sum that are flushed, times the largest argument; and that, at most


def references_of(operation: Operation, arguments: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The reference of each result, by its name."""
    return by_result(operation, operation.reference(*map(float64, arguments)))


def rounded_as(operation: Operation, kernel: Kernel) -> Operation:
    """The operation with the tolerance for a kernel that rounds its factors, to the nearest or towards zero.

    Two factors with m bits of mantissa: their product is off by at most 2 × 2⁻ᵐ of itself.
    """
    if kernel.mantissa == MANTISSA:
        return operation
    tolerance = operation.trial.tolerance + 2 * 2.0 ** (MANTISSA - kernel.mantissa)
    return replace(operation, trial=replace(operation.trial, tolerance=tolerance))


def is_decided(operation: Operation, arguments: tuple[Any, ...]) -> bool:
    """False where rounding alone may decide a result, so that the reference says nothing about a kernel."""
    return operation.trial.well_posed is None or operation.trial.well_posed(*map(float64, arguments))


def allowed_error(
    operation: Operation, named: Argument, arguments: tuple[Any, ...], large: bool = False
) -> np.ndarray | float:
    """The allowed error of one result: tolerance × eps × the operation's magnitude; 0 for integers and infinities.

    A plain sum of few terms has few roundings, whatever the operation allows to long ones. In a `large` case, sums have
    so many terms that the roundings of a plain float32 sum matter: the error grows with the square root of their
    number. Where all terms are equal, all roundings may have the same sign, and the error grows with the number itself;
    so too where all numbers are tiny, since a bias is then far larger than products. Where an element has no terms but
    zeros, a sum in float64 of a transform, such as Fourier's, may leave some eps² of the largest one.
    """
    if named.kind == "int":
        return 0
    scale = operation.trial.error_scale or (lambda *values: operation.reference(*map(np.abs, values)))
    magnitude = np.abs(by_result(operation, scale(*map(float64, arguments)))[named.name])
    largest = np.max(magnitude, where=np.isfinite(magnitude), initial=0) if operation.shapes.reduces(named) else 0
    arrays = [value for value in arguments if isinstance(value, np.ndarray)]
    tolerance = operation.trial.tolerance
    if large:
        tolerance += OF_LONG_SUMS * max((array.size for array in arrays), default=1) ** 0.5
    elif operation.shapes.reduces(named) and not operation.trial.iterates:
        if operation.trial.sums:
            tolerance = min(tolerance, LEAST + _terms(operation, named, arguments) / 2)
        if all(map(_equal_or_tiny, arrays)):
            tolerance = max(tolerance, _roundings(operation, named, arguments) / 2)  # each of eps / 2
    # A GPU's expf may flush a weight below TINY, which other numbers multiply afterwards; a sum may have several.
    factor = max((float(np.max(np.abs(a), where=np.isfinite(a), initial=0)) for a in arrays), default=0.0)
    flushed = TINY * max(1.0, min(FLUSHED * factor, MOST_FLUSHED))
    allowed = tolerance * EPS * magnitude + max(EPS**2 * float(largest), flushed)
    return np.where(np.isfinite(allowed), allowed, 0)


def _equal_or_tiny(array: np.ndarray) -> bool:
    return bool((array == array.flat[0]).all() or (abs(array) < TINY_BELOW).all())


def _roundings(operation: Operation, named: Argument, arguments: tuple[Any, ...]) -> float:
    """About how many roundings one element of a sum takes: one for each product and one for each addition."""
    sizes = operation.sizes(*arguments)
    if operation.flops is not None:
        result = dict(zip(operation.results, operation.shapes.result_shapes(arguments, sizes), strict=True))[named]
        return operation.flops(**sizes) / max(prod(result), 1)
    return 2 * _terms(operation, named, arguments)


def _terms(operation: Operation, named: Argument, arguments: tuple[Any, ...]) -> float:
    """The most terms that one element of a sum may have: all numbers along the axes that it lacks."""
    sizes = operation.sizes(*arguments)
    of_arrays = {dim.lstrip("*") for argument in operation.arguments for dim in argument.dims}
    return float(prod(sizes[name] for name in of_arrays.difference(dim.lstrip("*") for dim in named.dims)))


def by_result(operation: Operation, values: Any) -> dict[str, np.ndarray]:
    """What a reference or an error scale returns, by result."""
    several = values if len(operation.results) > 1 else (values,)
    return {named.name: np.asarray(value) for named, value in zip(operation.results, several, strict=True)}


def float64(value: Any) -> Any:
    """Float32 arrays converted to float64; other values unchanged."""
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value
