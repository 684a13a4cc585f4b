"""How a kernel's bytes stand for numbers."""

from dataclasses import dataclass

from ... import te


@dataclass(frozen=True, slots=True)
class Quantised:
    """How a kernel's bytes stand for numbers: `number = scale * (byte - zero_point)`.

    The kernel gets one factor per output channel: scale of the activations, times that of the
    channel's weights, divided by that of the output. Weights are int8 with zero point 0.

    A sum becomes a byte by two roundings in binary32, `round_half_even(float32(sum) * factor)`.
    That is the accelerator's rule, `isa.numbers.requantise`, wherever sums and factors are of a
    usual size; `host.integer_bounds.is_plain` tells. `guarded` follows it for all others as well,
    at three times the instructions.

    Parameters
    ----------
    dtype_in, dtype_out
        `int8` or `uint8`.
    zero_point_in, zero_point_out
        In the range of the type.
    low, high
        Limits of the output, for activations; the type's own are kept anyway.
    folded
        Whether the bias already holds `-zero_point_in * sum(w)`; padding still has that value.
    guarded
        Whether sums of 2**24 and more, and factors that are no finite numbers, are requantised as
        `isa.numbers.requantise` says.
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
    def moved(self) -> int:
        """The zero point that is still to be taken out of the sums."""
        return 0 if self.folded else self.zero_point_in

    def requantised(self, total: te.Value, scale: te.Value) -> te.Value:
        """A sum, in int32 or exactly in float32, as a byte of the output."""
        if self.guarded:
            scaled = te.requantise(total, scale)
        else:
            scaled = te.rounded((total if total.real else te.real(total)) * scale)
        return self.limited(scaled + self.zero_point_out)

    def limited(self, value: te.Value) -> te.Value:
        """A value within the limits; of two that are in the wrong order, `high` wins."""
        smallest, largest = (0, 255) if self.dtype_out == "uint8" else (-128, 127)
        return te.minimum(te.maximum(value, max(self.low, smallest)), min(self.high, largest))


@dataclass(frozen=True, slots=True)
class Residual:
    """A byte from two: requantised sum of both, each times a whole number, and a constant.

        total = own * multipliers[0] + other * multipliers[1] + constant

    The total must stay below 2**24, so that binary32 holds it exactly.

    Parameters
    ----------
    multipliers, constant, scale
        Of the sum.
    quantised
        How the total becomes a byte.
    """

    multipliers: tuple[int, int]
    constant: int
    scale: float
    quantised: Quantised

    def added(self, own: te.Value, other: te.Value) -> te.Value:
        """The byte."""
        first, second = map(float, self.multipliers)
        total = te.real(own) * first + (te.real(other) * second + float(self.constant))
        return self.quantised.requantised(total, te.constant(self.scale))
