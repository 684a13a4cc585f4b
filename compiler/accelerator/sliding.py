"""Windows that slide over an image: the mapping of a depthwise convolution to GEMM's taps.

The instruction streams the pixels of a row and multiplies each of the last few by one tap. On a
machine that keeps lines, it also multiplies the pixels above them in the two rows before. A window
wider than the taps is split into groups that accumulate. Incomplete sums, and sums between two
strides, go to accumulator rows that no instruction reads.

With lines, strides would take ACC four times the rows of its outputs. So the pixels of each phase,
even and odd ones for a stride of two, are streamed by an instruction of their own, which adds to
the sums of the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...isa.configuration import Configuration
from ...isa.expressions import Match, Read
from ...isa.pipeline import LINE_STEPS
from ..tensor import Compute

MAX_SHARE = 0.75
"""Maximum share of the steps without lines at which the compiler uses lines. Their tiles have fewer
rows, and every tile costs some cycles of its own."""

INSTRUCTION_STEPS = 30
"""Cost of a further instruction, in steps."""


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
    phases
        Pixels from one that an instruction streams to the next: the stride, or 1.
    """

    axis: str
    tap: str
    stride: int
    dilation: int
    span: int
    phases: int = 1

    def in_phases(self, taps: int) -> "Slide":
        """Split the stride into phases, an instruction each, if one group of taps covers each."""
        apart = self.dilation == 1 < self.stride <= self.span <= self.stride * taps
        return replace(self, phases=self.stride) if apart else self

    @property
    def advance(self) -> int:
        """Streamed pixels from one output to the next."""
        return self.stride // self.phases

    def groups(self, taps: int) -> tuple[int, int]:
        """Number of groups of taps in a phase, and distance in pixels between groups."""
        if self.phases > 1:
            return 1, 0
        rest = self.span - self.used(taps)
        if not rest:
            return 1, 0
        count = -(-self.span // taps)
        while rest % (count - 1):
            count += 1
        return count, rest // (count - 1)

    def used(self, taps: int, phase: int = 0) -> int:
        """Number of taps in a group, on a machine that has `taps` of them."""
        return min((self.span - 1 - phase) // self.phases + 1, taps)

    def steps(self, extent: int, taps: int, phase: int = 0) -> int:
        """Number of pixels to stream for this number of outputs; later phases have no more."""
        return (extent - 1) * self.advance + self.used(taps, phase)


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
        taps, kept = configuration.depthwise_taps, configuration.window_lines
        if self.lines is not None and kept > 1:
            whole, phased = (self.lines, self.columns), self._in_phases(taps, kept)
            for lines, columns in dict.fromkeys((whole, phased)):
                if self._saves_steps(lines, columns, configuration):
                    return (lines, kept), (columns, taps)
        return ((self.columns, taps),)

    def _in_phases(self, taps: int, kept: int) -> tuple[Slide, Slide]:
        """Split both strides into phases, unless some phase would stream single pixels."""
        assert self.lines is not None
        columns = self.columns.in_phases(taps)
        if _shortest_line(self.width, columns, taps) == 1:
            columns = self.columns
        return self.lines.in_phases(kept), columns

    def _saves_steps(self, lines: Slide, columns: Slide, configuration: Configuration) -> bool:
        """Whether lines save enough steps in the tallest tile of full width that ACC can hold."""
        taps, kept = configuration.depthwise_taps, configuration.window_lines
        if columns.used(taps) == 1 or lines.used(kept) == 1:
            return False
        rows = configuration.acc_depth // self._streamed(self.width, columns, taps)
        if rows < lines.used(kept):
            return False
        outputs = min(self.height, (rows - lines.used(kept)) // lines.advance + 1)
        block = _block(self.width, columns, taps)
        if block == 1 < self.width:
            return False
        with_lines = _all_steps(lines, outputs, kept) * _all_steps(columns, block, taps)
        with_lines = with_lines * self.width // block
        with_lines += (lines.phases * columns.phases - 1) * INSTRUCTION_STEPS
        taps_of_column = (lines.span - 1) // lines.dilation + 1
        alone = taps_of_column * outputs * _all_steps(self.columns, self.width, taps)
        return with_lines < MAX_SHARE * alone

    def block(self, columns: int, configuration: Configuration) -> int:
        """Outputs that are streamed as one line, of a row with this number of them.

        Lines are short, so a wide row is cut into several equal ones.
        """
        *outer, (slide, taps) = self.slides(configuration)
        return _block(columns, slide, taps) if outer else columns

    def has_lines(self, columns: int, configuration: Configuration) -> bool:
        """Whether rows of so many outputs are lines to GEMM, which ignores loops of one pixel."""
        *outer, (slide, taps) = self.slides(configuration)
        return not outer or _shortest_line(columns, slide, taps) > 1

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


def _all_steps(slide: Slide, extent: int, taps: int) -> int:
    """Number of pixels that all groups and phases together stream for these outputs."""
    steps = (slide.steps(extent, taps, phase) for phase in range(slide.phases))
    return slide.groups(taps)[0] * sum(steps)


def _shortest_line(columns: int, slide: Slide, taps: int) -> int:
    """Pixels of the shortest line that is streamed for a row of outputs."""
    return slide.steps(_block(columns, slide, taps), taps, slide.phases - 1)


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
