"""Windows that slide over an image: the mapping of a depthwise convolution to GEMM's taps.

The instruction streams the pixels of a row and multiplies each of the last few by one tap. On a
machine that keeps lines, it also multiplies the pixels above them in the two rows before. A window
wider than the taps is split into groups that accumulate. Incomplete sums, and sums between two
strides, go to accumulator rows that no instruction reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...isa.configuration import Configuration
from ...isa.expressions import Match, Read
from ...isa.pipeline import LINE_STEPS
from ..tensor import Compute

MAX_SHARE = 0.75
"""Maximum share of the steps without lines at which the compiler uses lines. Their tiles have fewer
rows, and every tile costs some cycles of its own."""


@dataclass(frozen=True, slots=True)
class Slide:
    """A window along one dimension.

    Parameters
    ----------
    axis, tap
        The data axis and the reduction axis along the dimension.
    stride, dilation
        Pixels per index of `axis` and of `tap`.
    span
        Pixels from the window's first to its last.
    """

    axis: str
    tap: str
    stride: int
    dilation: int
    span: int

    def groups(self, taps: int) -> tuple[int, int]:
        """The number of groups of taps in a window, and the pixels from one group to the next."""
        rest = self.span - self.used(taps)
        if not rest:
            return 1, 0
        count = -(-self.span // taps)
        while rest % (count - 1):
            count += 1
        return count, rest // (count - 1)

    def used(self, taps: int) -> int:
        """Number of taps in a group, on a machine that has `taps` of them."""
        return min(self.span, taps)

    def steps(self, extent: int, taps: int) -> int:
        """Number of pixels to stream for this number of outputs."""
        return (extent - 1) * self.stride + self.used(taps)


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the rows and columns of an image.

    Parameters
    ----------
    columns
        The window along a row.
    lines
        The window along a column; None if the rows of the image are not read one after another.
    height, width
        Rows of outputs, and outputs of a row.
    """

    columns: Slide
    lines: Slide | None
    height: int
    width: int

    def slides(self, configuration: Configuration) -> tuple[tuple[Slide, int], ...]:
        """The dimensions along which one instruction slides, the innermost last, each with the
        number of taps that the machine has for it.

        The rows of the image are one of them if the machine keeps lines and lines save steps.
        """
        along = self.columns, configuration.depthwise_taps
        if self.lines is None or not self._saves_steps(self.lines, configuration):
            return (along,)
        return (self.lines, configuration.window_lines), along

    def _saves_steps(self, lines: Slide, configuration: Configuration) -> bool:
        """Whether lines save enough steps in the tallest tile of full width that ACC can hold."""
        columns, taps, kept = self.columns, configuration.depthwise_taps, configuration.window_lines
        if kept == 1 or columns.used(taps) == 1 or lines.used(kept) == 1:
            return False
        streamed = self._streamed(self.width, columns, taps)
        rows = configuration.acc_depth // streamed - lines.used(kept)
        if rows < 0:
            return False
        outputs = min(self.height, rows // lines.stride + 1)
        with_lines = lines.groups(kept)[0] * lines.steps(outputs, kept) * streamed
        taps_of_column = (lines.span - 1) // lines.dilation + 1
        alone = taps_of_column * outputs * columns.steps(self.width, taps)
        return with_lines < MAX_SHARE * alone

    def block(self, columns: int, configuration: Configuration) -> int:
        """Outputs that are streamed as one line, of a row with this number of them.

        Lines are short, so a wide row is cut into several equal ones.
        """
        *outer, (slide, taps) = self.slides(configuration)
        return _block(columns, slide, taps) if outer else columns

    @staticmethod
    def _streamed(columns: int, slide: Slide, taps: int) -> int:
        """Pixels to stream for a row of outputs, in lines of equal length."""
        block = _block(columns, slide, taps)
        return columns // block * slide.steps(block, taps)

    def steps(self, sizes: Mapping[str, int], configuration: Configuration) -> dict[str, int]:
        """Number of pixels to stream along each axis that slides, for a tile of these sizes."""
        *outer, (columns, taps) = self.slides(configuration)
        count = sizes[columns.axis]
        if not outer:
            return {columns.axis: columns.steps(count, taps)}
        ((lines, kept),) = outer
        streamed = self._streamed(count, columns, taps)
        return {lines.axis: lines.steps(sizes[lines.axis], kept), columns.axis: streamed}


def _block(columns: int, slide: Slide, taps: int) -> int:
    """The largest divisor of a row's outputs whose line the machine can keep."""
    fitting = (one for one in range(columns, 1, -1) if slide.steps(one, taps) <= LINE_STEPS)
    return next((one for one in fitting if columns % one == 0), 1)


def window_of(compute: Compute, found: Match) -> Window | None:
    """The window of a depthwise compute; None for other computes."""
    (_, data), (_, weights) = found.reads
    channel = ((compute.axes[-1].name, 1),)
    if len(data.index) < 2 or data.index[-1].terms != channel or weights.index[-1].terms != channel:
        return None
    columns = _slide(compute, data, weights, -2)
    if columns is None:
        return None
    lines = _slide(compute, data, weights, -3)
    height = compute.extents[lines.axis] if lines else 1
    return Window(columns, lines, height, compute.extents[columns.axis])


def _slide(compute: Compute, data: Read, weights: Read, dimension: int) -> Slide | None:
    """The window along a dimension of the data, which has an axis and a tap of its own."""
    if len(data.index) < -dimension or len(compute.axes) < -dimension:
        return None
    axis, reductions = compute.axes[dimension].name, {one.name for one in compute.reductions}
    terms = dict(data.index[dimension].terms)
    taps = [name for name in terms if name in reductions]
    if len(taps) != 1 or set(terms) != {axis, taps[0]} or min(terms.values()) < 1:
        return None
    others = (
        affine for place, affine in enumerate(data.index) if place != len(data.index) + dimension
    )
    used = {name for affine in others for name, _ in affine.terms}
    if used & set(terms) or not _reads_taps(weights, taps[0]):
        return None
    span = (compute.extents[taps[0]] - 1) * terms[taps[0]] + 1
    return Slide(axis, taps[0], terms[axis], terms[taps[0]], span)


def _reads_taps(weights: Read, tap: str) -> bool:
    return [affine.terms for affine in weights.index].count(((tap, 1),)) == 1


def lane_channels(configuration: Configuration) -> int:
    """Number of channels in one weight tile of a window."""
    return min(configuration.lanes_in, configuration.lanes_out)
