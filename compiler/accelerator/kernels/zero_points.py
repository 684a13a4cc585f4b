"""Corrections of products for zero points: sums of rows and columns, as bytes that VECTOR adds.

    sum((a - za) * (b - zb)) = sum(a * b) - zb * sum(a) - za * sum(b) + depth * za * zb

VECTOR adds to a sum in ACC only bytes times a number of 16 bits. So a sum of a row or a column is
cut into a few digits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....isa.configuration import Configuration, Memory
from ... import te
from ..wide_weights import excess_of, further_counts

NEAR, HIGHEST, MAX_FACTOR = 250, 127, 32767
"""Unit of the digit before the last one, so that a rounded rest is a byte; the largest digit, and
the largest factor of VECTOR."""

DIGIT_CYCLES = 20
"""Cycles of each digit that no other work hides. With this estimate, the faster form was chosen for
nearly all of 200 products on `16x16` and `8x8`."""

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


class WeightShift(NamedTuple):
    """A number taken from weights, and how the sums of inputs that make up for it are found.

    Parameters
    ----------
    by
        The number; 0 for none.
    most
        Greatest magnitude of a sum.
    taps, width
        Columns of a window, each of which has a sum of its own, and their number in a row of the
        image; one tap if there is a sum for each window.
    """

    by: int = 0
    most: int = 0
    taps: int = 1
    width: int = 0


def shifted(
    w: np.ndarray,
    depth: int,
    outputs: int,
    result: Sequence[int],
    rows: tuple[int, int, int],
    columns: tuple[int, int, int],
    configuration: Configuration,
) -> tuple[np.ndarray, WeightShift]:
    """Take a number from weights that exceed int8, if its correction takes less than they do.

    `sum(x * w) = sum(x * (w - shift)) + shift * sum(x)`

    Parameters
    ----------
    w : int8 or int16[1, KH, KW, ci, co]
        Weights, of which the first `depth` of ci and the first `outputs` of co are not padding.
    result
        Shape of the result, [N, OH, OW, Co].
    rows, columns
        Stride, dilation and padding of the rows and columns of windows.

    Returns
    -------
    Weights without the shift, and the shift; its number is 0 if they stay as they are.
    """
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    _, kh, kw, ci, _ = w.shape
    own = w[..., :depth, :outputs]
    lowest, highest = int(own.max()) - 127, int(own.min()) + 128
    by = min(max(0, lowest), highest)
    if not excess_of(w).terms or lowest > by:
        return w, WeightShift()
    tall, blocks = kh * kw * -(-depth // lanes_in), -(-outputs // lanes_out)
    high, broad = ((size - 1) * each[1] + 1 for size, each in ((kh, rows), (kw, columns)))
    plain = further_counts(excess_of(w), w.shape, None, configuration).total
    lines, width, bank = result[0] * result[1], result[2], configuration.bank_bytes(Memory.ACT)
    best, chosen = lines * width * (tall * blocks + plain), WeightShift()
    for taps in sorted({1, kw}):
        wide = width if taps == 1 else (width - 1) * columns[0] + broad
        most = 128 * kh * kw // taps * depth
        digits = len(units_of(most, by))
        pieces = high * broad * ci, lanes_out * (1 + digits * (1 if taps == 1 else wide))
        fits = (
            sum(-(-piece // bank) for piece in pieces) <= configuration.act_banks
            and kh * kw + ci // lanes_in <= configuration.weight_tiles
            and (taps == 1 or 2 * wide <= configuration.acc_depth)
        )
        product = lines * (width * tall * blocks + wide * tall // taps)
        vector = lines * digits * (width * taps * blocks + wide)
        vector = vector * lanes_out // configuration.vector_lanes
        cycles = max(product, vector) + DIGIT_CYCLES * digits * (1 + taps)
        if fits and cycles < best:
            best, chosen = cycles, WeightShift(by, most, taps, wide)
    if not chosen.by:
        return w, chosen
    less = w.copy()
    less[..., :depth, :outputs] -= by
    return less.astype(np.int8), chosen
