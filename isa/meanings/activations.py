"""GELU, SiLU and other functions of one value, and SwiGLU."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..numbers import quantise_output, saturate8
from ..row_statistics import wide
from .steps import PRODUCT, integer_table, look_up, sum_of_products

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


def swiglu(
    gate: npt.NDArray[np.int8],
    gate_scale: float,
    gate_zero_point: int,
    up: npt.NDArray[np.int8],
    up_scale: float,
    up_zero_point: int,
    y_scale: float,
    y_zero_point: int,
) -> npt.NDArray[np.int8]:
    """`silu(gate) * up` without an int8 between.

    Notes
    -----
    1. `s = table[gate]`, with 16 bits for the largest value of SiLU: ACT to ACC.
    2. `y = requantise(s * (up - zero point)) + zero point`: `PRODUCT`, ACC and ACT to ACT.
    """
    bound = float(np.abs(gate_scale * (np.array([-128, 127]) - gate_zero_point)).max())
    unit = bound / 32767
    table = integer_table(lambda x: silu((x - gate_zero_point) * gate_scale) / unit, np.int16)
    found = look_up(wide(gate, 1), table)
    totals = sum_of_products(PRODUCT, [(found, up)], -up_zero_point)
    return quantise_output(totals, unit * up_scale / y_scale, y_zero_point)
