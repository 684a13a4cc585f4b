"""Recognise steps of states of 16 bits, as the quantiser writes them: two bytes, blended by a gate.

The state is the sum of a high byte and a low one. Integers give the sum without rounding, so that a
result may differ from float32 by 1 where that is near a tie.
"""

from dataclasses import replace

import numpy as np

from ...isa.meanings.cells import GATE_ONE, GATE_ZERO_POINT, HIGH_UNIT, MAX_MULTIPLIER
from ..graph import Quantisation
from ..graph import operators as ops
from ..rewriting import Site, constant, either, first_match, op, repeated, rule, value
from .patterns import dequantised, of_images, quantised, result_of, scale_of

GATE = Quantisation(float(np.float32(1 / GATE_ONE)), GATE_ZERO_POINT)
"""Quantisation of the factor of a state."""

STATE = either(op(ops.Binary("Add"), dequantised("high"), dequantised("low")), constant("zero"))
"""A state, or the one before the first step of a sequence."""

ZERO = 1, -128
"""High and low byte of zero, in two values, since they are two operands."""

TOTAL = op(
    ops.Binary("Add"),
    op(ops.Binary("Mul"), dequantised("gate"), STATE, commutative=True),
    dequantised("increment"),
    commutative=True,
)

SOURCE = repeated(op(ops.Reshape, value()), value("x"))
MADE = repeated(op(ops.Reshape, value()), op(ops.QBlend, ...))


def low_of(high: Quantisation) -> Quantisation:
    """Return the quantisation of the low byte of a state."""
    return Quantisation(high.scale / HIGH_UNIT, 0)


@rule(quantised(TOTAL), quantised(op(ops.Binary("Sub"), TOTAL, dequantised("result"))))
def recognise_states(
    site: Site, high: str, low: str, zero: str | None, gate: str, increment: str, result: str | None
) -> str | None:
    """Quantize(gate * state + increment) -> QBlend, and likewise for what its high byte leaves.

    Replace steps of states by QBlend.
    """
    y, limits = result_of(site)
    if zero is None:
        state, rest = scale_of(site, "high"), scale_of(site, "low")
    else:
        if site.data(zero).any():
            return None
        state = y if result is None else scale_of(site, "result")
        rest = low_of(state)
        high, low = (
            site.constant(np.full(site.shape, byte, np.int8), f"{site.root.name}.zero")
            for byte in ZERO
        )
    parts = high, low, gate, increment
    multiplier = round(scale_of(site, "increment").scale / state.scale * HIGH_UNIT * GATE_ONE)
    fits = state.zero_point == 0 and rest == low_of(state)
    fits = fits and scale_of(site, "gate") == GATE and limits == (-128, 127)
    fits = fits and all(site.shape_of(name) == site.shape for name in parts)
    if not fits or len({*parts}) < len(parts) or not 1 <= multiplier <= MAX_MULTIPLIER:
        return None
    operator = ops.QBlend(result is not None, multiplier, scale_of(site, "increment").zero_point)
    if y != (state if result is None else low_of(state)):
        return None
    if result is not None and not _is_high(site, result, replace(operator, low=False), parts):
        return None
    return of_images(site, operator, *parts, quantisation=y)


def _is_high(site: Site, result: str, operator: ops.QBlend, parts: tuple[str, ...]) -> bool:
    """Tell whether a value is the high byte of the same step."""
    made = first_match(MADE, site.view, result)
    if made is None or made.nodes[-1].attributes != operator:
        return False
    own = (first_match(SOURCE, site.view, name) for name in made.nodes[-1].inputs)
    theirs = (first_match(SOURCE, site.view, name) for name in parts)
    return [match and match["x"] for match in own] == [match and match["x"] for match in theirs]
