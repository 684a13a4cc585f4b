"""GELU, SiLU and other functions of one value."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..numbers import saturate8

Function = Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]]


def gelu(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """`x * (1 + erf(x / sqrt(2))) / 2`."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def gelu_tanh(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """`x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2`."""
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sigmoid(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """`1 / (1 + exp(-x))`."""
    return (1 + np.tanh(x / 2)) / 2


def silu(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """`x * sigmoid(x)`."""
    return x * sigmoid(x)


def byte_table(
    function: Function, x_scale: float, x_zero_point: int, y_scale: float, y_zero_point: int
) -> npt.NDArray[np.int8]:
    """Build the table of a function of one int8: exact, and in LUT of every machine.

    Returns
    -------
    int8[256]
        Entry `x + 128` is for x.
    """
    x = (np.arange(-128.0, 128) - x_zero_point) * x_scale
    return saturate8(np.rint(function(x) / y_scale) + y_zero_point)
