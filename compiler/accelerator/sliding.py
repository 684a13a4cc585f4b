"""Windows that slide along a row: the mapping of a depthwise convolution to GEMM's taps.

The instruction streams the pixels of a row and multiplies each of the last few by one tap. A window
wider than the taps is split into groups that accumulate. Incomplete sums, and sums between two
strides, go to accumulator rows that no instruction reads.
"""

from dataclasses import dataclass

from ...isa.configuration import Configuration
from ...isa.expressions import Match
from ..tensor import Compute


@dataclass(frozen=True, slots=True)
class Window:
    """A window along the columns.

    Parameters
    ----------
    column, tap
        The data axis and the reduction axis along a row.
    stride, dilation
        Pixels per index of `column` and of `tap`.
    span
        Pixels from the window's first to its last.
    """

    column: str
    tap: str
    stride: int
    dilation: int
    span: int

    def taps(self, configuration: Configuration) -> int:
        """Taps that a group uses."""
        return min(self.span, configuration.depthwise_taps)

    def groups(self, configuration: Configuration) -> tuple[int, int]:
        """The number of groups of taps in a window, and the pixels from one group to the next."""
        rest = self.span - self.taps(configuration)
        if not rest:
            return 1, 0
        count = -(-self.span // configuration.depthwise_taps)
        while rest % (count - 1):
            count += 1
        return count, rest // (count - 1)

    def steps(self, width: int, configuration: Configuration) -> int:
        """Number of pixels to stream for a row of `width` outputs."""
        return (width - 1) * self.stride + self.taps(configuration)


def window_of(compute: Compute, found: Match) -> Window | None:
    """The window of a depthwise compute; None for other computes."""
    (_, data), (_, weights) = found.reads
    reductions = {axis.name for axis in compute.reductions}
    channel = ((compute.axes[-1].name, 1),)
    if len(data.index) < 2 or data.index[-1].terms != channel or weights.index[-1].terms != channel:
        return None
    column = compute.axes[-2].name
    terms = dict(data.index[-2].terms)
    taps = [axis for axis in terms if axis in reductions]
    if len(taps) != 1 or set(terms) != {column, taps[0]} or min(terms.values()) < 1:
        return None
    used = {axis for affine in data.index[:-2] for axis, _ in affine.terms}
    if used & set(terms) or not _reads_taps(weights, taps[0]):
        return None
    span = (compute.extents[taps[0]] - 1) * terms[taps[0]] + 1
    return Window(column, taps[0], terms[column], terms[taps[0]], span)


def _reads_taps(weights, tap: str) -> bool:
    return [affine.terms for affine in weights.index].count(((tap, 1),)) == 1


def lane_channels(configuration: Configuration) -> int:
    """Number of channels in one weight tile of a window."""
    return min(configuration.lanes_in, configuration.lanes_out)
