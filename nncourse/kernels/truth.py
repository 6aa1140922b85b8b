"""The float64 truth of an operation for given arguments, and the error that a float32 kernel may have."""

from typing import TYPE_CHECKING, Any

import numpy as np

from nncourse.kernels.contract import Argument

if TYPE_CHECKING:
    from nncourse.kernels.operation import Operation

EPS = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).tiny)  # below this a GPU may flush to zero


def truths_of(operation: "Operation", arguments: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The truth of each result, by its name."""
    return _by_result(operation, operation.truth(*map(_float64, arguments)))


def is_decided(operation: "Operation", arguments: tuple[Any, ...]) -> bool:
    """False where rounding alone may decide on a result, so that its truth says nothing about a kernel."""
    return operation.decided is None or operation.decided(*map(_float64, arguments))


def allowed_error(
    operation: "Operation", named: Argument, arguments: tuple[Any, ...], large: bool = False
) -> np.ndarray | float:
    """The allowed error of one result: tolerance × eps × the operation's magnitude; 0 for integers and infinities.

    In a `large` case, sums may have so many terms that the roundings of a plain float32 sum show: their error grows
    with the square root of their number.
    """
    if named.kind == "int":
        return 0
    assert operation.magnitude is not None  # Operation makes one
    magnitude = _by_result(operation, operation.magnitude(*map(_float64, arguments)))[named.name]
    longest = max((value.size for value in arguments if isinstance(value, np.ndarray)), default=1)
    tolerance = operation.tolerance + (longest**0.5 if large else 0)
    allowed = tolerance * EPS * np.abs(magnitude) + TINY
    return np.where(np.isfinite(allowed), allowed, 0)


def _by_result(operation: "Operation", values: Any) -> dict[str, np.ndarray]:
    """What a truth or a magnitude returns, for each result: a tuple where there are several."""
    several = values if len(operation.results) > 1 else (values,)
    return {named.name: np.asarray(value) for named, value in zip(operation.results, several, strict=True)}


def _float64(value: Any) -> Any:
    """Float32 arrays converted to float64; other values unchanged."""
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value
