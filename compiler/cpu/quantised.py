"""How a kernel's bytes stand for numbers."""

from dataclasses import dataclass

from .. import te


@dataclass(frozen=True, slots=True)
class Quantised:
    """How a kernel's bytes stand for numbers: `number = scale * (byte - zero_point)`.

    The kernel gets one factor per output channel: scale of the activations, times that of the
    channel's weights, divided by that of the output. Weights are int8 with zero point 0.

    Parameters
    ----------
    dtype_in, dtype_out
        `int8` or `uint8`.
    zero_point_in, zero_point_out
        In the range of the type.
    low, high
        Limits of the output, for activations; the type's own are kept anyway.
    """

    dtype_in: str = "uint8"
    dtype_out: str = "uint8"
    zero_point_in: int = 0
    zero_point_out: int = 0
    low: int = -(1 << 30)
    high: int = 1 << 30

    def requantised(self, total: te.Value, scale: te.Value) -> te.Value:
        """A sum in int32 as a byte of the output."""
        value = te.rounded(te.real(total) * scale) + self.zero_point_out
        smallest, largest = (0, 255) if self.dtype_out == "uint8" else (-128, 127)
        return te.minimum(te.maximum(value, max(self.low, smallest)), min(self.high, largest))
