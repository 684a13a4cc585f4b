"""Requantisation: the rounding of sums to bytes."""

from dataclasses import dataclass, replace

import numpy as np

from ....errors import InputError
from ...formulas import Formula
from .epilogue import BIASED, INTEGER_BIAS, SCALE, Epilogue, with_residual

MAX_PAIR = 32767 // 255
"""Maximum sum of two weights whose products with uint8 fit int16."""


@dataclass(frozen=True, slots=True)
class Requantisation:
    """The rounding of sums to bytes that stand for `number = scale * (byte - zero_point)`.

    The factor of a sum is the scale of the activations times that of the weights, divided by that
    of the output. A sum becomes a byte with two roundings in binary32,
    `round_half_even(float32(sum) * factor)`. For sums and factors of usual size this equals
    `isa.numbers.requantise`, the rule of the accelerator; `host.integer_bounds.is_plain` tells.
    `guarded` follows the rule for all others as well, with three times the instructions.

    Parameters
    ----------
    dtype
        `int8` or `uint8`.
    zero_point
        In the range of the type.
    low, high
        Limits of the output, for activations; those of the type always hold.
    guarded
        Whether sums of 2**24 and more, and factors that are not finite, are requantised exactly as
        by `isa.numbers.requantise`.
    """

    dtype: str = "uint8"
    zero_point: int = 0
    low: int = -(1 << 30)
    high: int = 1 << 30
    guarded: bool = False

    def requantised(self, total: Formula, factor: Formula) -> Formula:
        """A sum, in int32 or exactly in float32, as a byte of the output."""
        scaled = ("rounded", ("mul", ("real", total), factor))
        if self.guarded:
            scaled = ("requantise", total, factor)
        return self.limited(("add", scaled, self.zero_point))

    def limited(self, value: Formula) -> Formula:
        """A value clamped to the limits; if they are in the wrong order, `high` wins."""
        smallest, largest = (0, 255) if self.dtype == "uint8" else (-128, 127)
        return ("min", ("max", value, max(self.low, smallest)), min(self.high, largest))

    def epilogue(self, added: "Residual | None" = None) -> Epilogue:
        """The epilogue of products of bytes: a bias, a factor for each column, and a residual.

        Weights are int8 with zero point 0. The bias contains `-zero_point * sum(w)` of activations
        with a zero point.
        """
        operands = INTEGER_BIAS, SCALE
        byte = Epilogue(self.requantised(BIASED, "scale"), self.dtype, operands)
        if added is None:
            return byte
        formula, dtype = added.added(byte.formula, "residual"), added.quantised.dtype
        return replace(with_residual(byte, formula, dtype), dtype=dtype)


@dataclass(frozen=True, slots=True)
class Residual:
    """A residual addition of bytes: a weighted sum of two bytes and a constant, requantised.

        total = own * multipliers[0] + other * multipliers[1] + constant

    The total must stay below 2**24, so that binary32 holds it exactly.

    Parameters
    ----------
    multipliers, constant, scale
        Parameters of the sum.
    quantised
        Requantisation of the total.
    """

    multipliers: tuple[int, int]
    constant: int
    scale: float
    quantised: Requantisation

    def added(self, own: Formula, other: Formula) -> Formula:
        """The byte."""
        first, second = map(float, self.multipliers)
        rest = ("add", ("mul", ("real", other), second), float(self.constant))
        total = ("add", ("mul", ("real", own), first), rest)
        return self.quantised.requantised(total, self.scale)


def has_small_pairs(w: np.ndarray) -> bool:
    """Whether two products of neighbouring weights with uint8 always fit int16 together.

    Parameters
    ----------
    w : int8[KH, KW, I, O] or int8[I, O]
        Weights. Neighbours are adjacent in a row of the window, along KW and I.
    """
    rows = w.reshape(*w.shape[:-3], -1, w.shape[-1]).astype(np.int16)
    pairs = (
        np.maximum(side[..., :-1, :], 0) + np.maximum(side[..., 1:, :], 0) for side in (rows, -rows)
    )
    return all(np.all(pair <= MAX_PAIR) for pair in pairs)


def check_small_pairs(w: np.ndarray, kernel: str) -> None:
    """Check the weights of a kernel that is described with `small_pairs`; see `has_small_pairs`.

    Raises
    ------
    InputError
        When a pair is too large.
    """
    if not has_small_pairs(w):
        raise InputError(
            f"{kernel}: some neighbouring weights are too large for `small_pairs`; describe the "
            f"{kernel} without it"
        )
