"""Corrections of products for zero points: sums of rows and columns, as bytes that VECTOR adds.

    sum((a - za) * (b - zb)) = sum(a * b) - zb * sum(a) - za * sum(b) + depth * za * zb

VECTOR adds to a sum in ACC only bytes times a number of 16 bits. So a sum of a row or a column is
cut into a few digits.
"""

from collections.abc import Sequence

import numpy as np

from ... import te

NEAR, HIGHEST, MAX_FACTOR = 250, 127, 32767
"""Unit of the digit before the last one, so that a rounded rest is a byte; the largest digit, and
the largest factor of VECTOR."""

Correction = tuple[te.DeclaredTensor, int]
"""Bytes, and the factor with which they are added."""


def units_of(largest: int, factor: int) -> tuple[int, ...]:
    """Units of the digits that add up to any number of at most this size, the last one 1."""
    units: list[int] = []
    top = min(HIGHEST * NEAR, MAX_FACTOR // abs(factor))
    while largest > HIGHEST * NEAR:
        units.append(top)
        largest = max(largest - HIGHEST * top, top // 2 + 1)
    return (*units, NEAR, 1) if largest > HIGHEST else (*units, 1)


def corrections(
    name: str, rest: te.TensorExpression, axes: tuple[te.Index, ...], largest: int, factor: int,
    constants: dict[str, np.ndarray]
) -> list[Correction]:  # fmt: skip
    """Digits int8[axes] of sums, each with its share of `factor`.

    Parameters
    ----------
    name
        Begins the names of the stages.
    rest
        A sum, in terms of `axes`; the last axis is that of the lanes.
    largest
        Greatest magnitude of a sum.
    constants
        Receives the scales of the digits.
    """
    found: list[Correction] = []
    *units, _ = units_of(largest, factor)
    lane = axes[-1]
    (size,) = (use.extent for use in lane.uses.values())
    for position, unit in enumerate(units):
        scale = te.tensor(f"{name} scale {position}", "float32", (size,))
        constants[scale.tensor.name] = np.full(size, 1 / unit, np.float32)
        near = te.clamp(te.requantise(rest, scale[lane]), -HIGHEST, HIGHEST)
        digit = te.compute(f"{name} digit {position}", "int8", axes, near)
        found.append((digit, factor * unit))
        less = rest + digit[axes] * -unit
        if position < len(units) - 1:
            rest = te.compute(f"{name} rest {position}", "int32", axes, less)[axes]
        else:
            rest = less
    last = te.compute(f"{name} digit", "int8", axes, te.clamp(rest, -128, 127))
    return [*found, (last, factor)]


def corrected(
    total: te.TensorExpression,
    axes: tuple[te.Index, ...],
    terms: Sequence[tuple[te.TensorExpression, int]],
) -> te.TensorExpression:
    """A sum and its corrections; all but the last one are added in ACC."""
    for position, (digit, factor) in enumerate(terms):
        total = total + digit * factor
        if position < len(terms) - 1:
            total = te.compute(f"corrected {position}", "int32", axes, total)[axes]
    return total
