"""Register tiles: their sizes at each level, and the loops of a matrix product in them.

A tile is some rows (output pixels, or rows of a matrix) by one panel of columns, one or two vectors
wide. Its sums stay in registers over the whole reduction; with one vector of weights for each
column and a broadcast activation they must fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ... import te
from ...te.processor import DotProduct
from ..codegen.layout import Layout
from ..target import WORDS, CpuTarget
from .description import round_up
from .quantised import Requantisation


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The largest tiles of a level.

    Parameters
    ----------
    rows
        Rows by a panel of two vectors.
    rows_alone
        Rows by a panel of one vector, where each row has weights of its own group.
    rows_of_bytes
        Rows by a panel of two vectors, where both operands are activations of bytes.
    vectors
        Vectors of sums, where the shape of the tile is free.
    """

    rows: int
    rows_alone: int
    rows_of_bytes: int
    vectors: int


TILES: Mapping[str, RegisterTile] = {
    "avx512vnni": RegisterTile(rows=14, rows_alone=14, rows_of_bytes=14, vectors=28),
    "avx2": RegisterTile(rows=6, rows_alone=10, rows_of_bytes=4, vectors=12),
    "sse2": RegisterTile(rows=4, rows_alone=4, rows_of_bytes=4, vectors=12),
}
"""Register tiles by level."""


UNROLLED = (4, 2)
"""Steps of a reduction between two branches, the most first; they must divide it."""


@dataclass(frozen=True, slots=True)
class Multiplication:
    """The products and sums of a target: of float32 numbers, or of bytes by its dot products.

    Parameters
    ----------
    instruction
        The dot product; None for float32.
    taps
        Neighbours along the reduction that are multiplied at once.
    shift
        Number added to signed bytes if the dot product takes only unsigned ones; the bias subtracts
        its part of the sums.
    words
        Whether activations are widened to int16, once for all products.
    """

    instruction: DotProduct | None
    taps: int
    shift: int
    words: bool

    @staticmethod
    def of(
        quantised: Requantisation | None, target: CpuTarget, small_pairs: bool = False
    ) -> "Multiplication":
        """Return the multiplication of float32 numbers, or of bytes.

        `small_pairs` tells whether two neighbouring products always fit int16; see
        `has_small_pairs`.
        """
        if quantised is None:
            return Multiplication(None, 1, 0, False)
        known = target.processor.instructions
        instruction = next((one for one in known if one.saturates and small_pairs), known[0])
        words = instruction.pairs == WORDS
        direct = words or quantised.dtype_in == "uint8"
        return Multiplication(instruction, instruction.taps, 0 if direct else 128, words)

    @property
    def moves(self) -> bool:
        """Whether bytes are changed before they are multiplied."""
        return bool(self.shift) or self.words

    def moved(
        self,
        name: str,
        axes: tuple[te.Index, ...],
        element: te.TensorExpression,
        source: te.DeclaredTensor,
    ) -> te.DeclaredTensor:
        """A stage of a source's elements as they are multiplied."""
        if self.shift:
            return te.compute(name, "uint8", axes, element + self.shift)
        return te.compute(name, "int16" if self.words else source.tensor.dtype, axes, element)


def panel_of(columns: int, target: CpuTarget) -> int:
    """Columns of a panel: one vector if it covers all columns, else two."""
    return (1 if columns <= target.lanes else 2) * target.lanes


def schedule_tiles(
    s: te.Schedule,
    stage: str,
    sizes: tuple[tuple[str, int], tuple[str, int]],
    order: Sequence[str],
    lanes: int,
    taps: str = "",
    depth: int = 1,
) -> None:
    """Cut a stage into register tiles.

    Parameters
    ----------
    s, stage
        The schedule and its stage.
    sizes
        The loop over rows with the rows of a tile, and the loop over columns with those of a panel.
    order
        Loops around those of a tile, the outermost first.
    lanes
        Lanes of a vector.
    taps
        The loop over the taps of a dot product; empty for float32.
    depth
        Iterations of the innermost of these loops, to unroll it by a few. A tile of bytes needs all
        registers for one iteration, so 1 leaves the loop as it is.
    """
    (rows, high), (columns, panel) = sizes
    s.split(stage, rows, high)
    s.split(stage, columns, panel)
    s.split(stage, f"{columns}.i", lanes)
    inner = [f"{rows}.i", f"{columns}.i.o", f"{columns}.i.i"]
    order = unrolled(s, stage, order, depth)
    s.reorder(stage, *order, *inner, *([taps] if taps else []))
    s.unroll(stage, inner[0])
    s.unroll(stage, inner[1])
    if taps:
        s.tensorise(stage, inner[2])
    s.vectorise(stage, inner[2])


def unrolled(s: te.Schedule, stage: str, order: Sequence[str], depth: int) -> Sequence[str]:
    """Unroll the last of some loops, of `depth` iterations, by a few; return all loops."""
    *outer, last = order
    for count in UNROLLED:
        if depth % count == 0 and depth > count:
            s.split(stage, last, count)
            s.unroll(stage, f"{last}.i")
            return *outer, f"{last}.o", f"{last}.i"
    return order


def panels(
    shape: tuple[int, ...], panel: int, taps: int = 1, order: Sequence[int] = (), depth: int = -2
) -> Layout:
    """A layout of weights in panels of the last dimension, as a tile reads them.

    Parameters
    ----------
    shape
        Extents of the weights; the last is rounded up to whole panels.
    panel
        Columns of a panel.
    taps
        Elements along the depth that lie side by side for each column.
    order
        Dimensions from the outermost; panels come first by default. The columns of a panel follow,
        then the taps.
    depth
        The dimension of input channels.
    """
    *outer, columns = range(len(shape))
    depth %= len(shape)
    whole = (*shape[:-1], round_up(shape[-1], panel))
    cut = {columns: (panel,), depth: (taps,) if taps > 1 else ()}
    blocks = tuple(cut.get(dimension, ()) for dimension in range(len(shape)))
    last = ((columns, 1), (depth, 1)) if taps > 1 else ((columns, 1),)
    return Layout(whole, blocks, (*((d, 0) for d in order or (columns, *outer)), *last))
