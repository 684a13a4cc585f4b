"""Requantisation: the numbers that bytes represent, and the rounding of sums to bytes."""

from dataclasses import dataclass

import numpy as np

from ....errors import InputError
from ... import te

MAX_PAIR = 32767 // 255
"""Maximum sum of two weights whose products with uint8 fit int16."""


@dataclass(frozen=True, slots=True)
class Requantisation:
    """The numbers that bytes represent, `number = scale * (byte - zero_point)`, and the rounding.

    A kernel takes one factor per output channel: the scale of the activations times that of the
    channel's weights, divided by that of the output. Weights are int8 with zero point 0.

    A sum becomes a byte with two roundings in binary32, `round_half_even(float32(sum) * factor)`.
    For sums and factors of usual size this equals `isa.numbers.requantise`, the rule of the
    accelerator; `host.integer_bounds.is_plain` tells. `guarded` follows the rule for all others as
    well, with three times the instructions.

    Parameters
    ----------
    dtype_in, dtype_out
        `int8` or `uint8`; the result `int32` stands for sums that are not requantised.
    zero_point_in, zero_point_out
        In the range of the type.
    low, high
        Limits of the output, for activations; those of the type always hold.
    folded
        Whether the bias already contains `-zero_point_in * sum(w)`; the padding is unchanged.
    guarded
        Whether sums of 2**24 and more, and factors that are not finite, are requantised exactly as
        by `isa.numbers.requantise`.
    """

    dtype_in: str = "uint8"
    dtype_out: str = "uint8"
    zero_point_in: int = 0
    zero_point_out: int = 0
    low: int = -(1 << 30)
    high: int = 1 << 30
    folded: bool = False
    guarded: bool = False

    @property
    def is_scaled(self) -> bool:
        """Whether sums are requantised, with one factor for each channel."""
        return self.dtype_out != "int32"

    @property
    def moved(self) -> int:
        """The zero point that the sums still contain."""
        return 0 if self.folded else self.zero_point_in

    def requantised(
        self, total: te.TensorExpression, scale: te.TensorExpression
    ) -> te.TensorExpression:
        """A sum, in int32 or exactly in float32, as a byte of the output."""
        if not self.is_scaled:
            return te.rounded(total) if total.real else total
        if self.guarded:
            scaled = te.requantise(total, scale)
        else:
            scaled = te.rounded((total if total.real else te.real(total)) * scale)
        return self.limited(scaled + self.zero_point_out)

    def limited(self, value: te.TensorExpression) -> te.TensorExpression:
        """A value clamped to the limits; if they are in the wrong order, `high` wins."""
        smallest, largest = (0, 255) if self.dtype_out == "uint8" else (-128, 127)
        return te.minimum(te.maximum(value, max(self.low, smallest)), min(self.high, largest))


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

    def added(self, own: te.TensorExpression, other: te.TensorExpression) -> te.TensorExpression:
        """The byte."""
        first, second = map(float, self.multipliers)
        total = te.real(own) * first + (te.real(other) * second + float(self.constant))
        return self.quantised.requantised(total, te.constant(self.scale))


def has_small_pairs(w: np.ndarray) -> bool:
    """Whether two products of neighbouring weights with uint8 always fit int16 together.

    Parameters
    ----------
    w : int8[KH, KW, I, O]
        Weights of a convolution. Neighbours are adjacent in a row of the window, along KW and I.
    """
    rows = w.reshape(w.shape[0], -1, w.shape[3]).astype(np.int16)
    pairs = (np.maximum(side[:, :-1], 0) + np.maximum(side[:, 1:], 0) for side in (rows, -rows))
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
