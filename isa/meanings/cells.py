"""States of 16 bits as two bytes, and their step: `gate * state + increment`, as in LSTM and GRU.

A state is `HIGH_UNIT * high + low` of its steps. ACT holds bytes, and VECTOR adds bytes times a
number of 16 bits to a sum in ACC, so that no wider memory is needed.
"""

import numpy as np
import numpy.typing as npt

from ..numbers import quantise_output

HIGH_UNIT = 128
"""Unit of the high byte in steps of the state; what rounding to it leaves fits the low byte."""

GATE_ONE, GATE_ZERO_POINT = 255, -128
"""A gate is a fraction of GATE_ONE: a byte less GATE_ZERO_POINT."""

MAX_MULTIPLIER = 32767
"""Maximum factor of VECTOR, which scales increments; `HIGH_UNIT * GATE_ONE` does not exceed it."""

Bytes = npt.NDArray[np.int8]


def blend_totals(
    state: tuple[Bytes, Bytes], gate: Bytes, increment: Bytes, multiplier: int, zero_point: int
) -> npt.NDArray[np.int32]:
    """Compute `gate * state + increment`, exactly, in 1 / GATE_ONE of the state's steps.

    Parameters
    ----------
    state : (int8[...], int8[...])
        High and low byte.
    gate, increment : int8[...]
        Factor of the state, and what is added to it.
    multiplier : int
        Units of the result in a step of the increment.
    zero_point : int
        Of the increment.

    Returns
    -------
    int32[...]
        Below 2**24 in magnitude, so that requantising them is exact.

    Notes
    -----
    1. `s = HIGH_UNIT * high + low`: ACT to ACC.
    2. `t = s * gate`: ACC and ACT to ACC.
    3. `t + high * (HIGH_UNIT * 128) + low * 128`, for the gate's zero point: two passes in ACC.
    4. `t + increment * multiplier`: ACC and ACT to ACC.
    """
    high, low = (part.astype(np.int32) for part in state)
    factor = gate.astype(np.int32) - GATE_ZERO_POINT
    added = (increment.astype(np.int32) - zero_point) * multiplier
    return (high * HIGH_UNIT + low) * factor + added


def high_byte(totals: npt.NDArray[np.int32]) -> Bytes:
    """Round the result of `blend_totals` to the high byte of a state: ACC to ACT."""
    return quantise_output(totals, 1 / (HIGH_UNIT * GATE_ONE), 0)


def low_byte(totals: npt.NDArray[np.int32]) -> Bytes:
    """Round what the high byte leaves of the result: ACC and ACT to ACT."""
    rest = totals - high_byte(totals).astype(np.int32) * (HIGH_UNIT * GATE_ONE)
    return quantise_output(rest, 1 / GATE_ONE, 0)
