"""Register tiles: their sizes at each level, and the loops of a matrix product in them.

A tile is some rows (output pixels, or rows of a matrix) by one panel of columns, one or two vectors
wide. Its sums stay in registers over the whole reduction; with one vector of weights for each
column and a broadcast activation they must fit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....aligned import round_up
from ... import te
from ..codegen.layout import Layout
from ..instructions import MachineInstruction
from ..processor import MAX_SUMS, Processor
from ..target import CpuTarget
from .choices import Choices
from .description import even_blocks

MIN_ROWS, MIN_DEPTH, MIN_RUN = 4, 32, 20
"""Rows, elements of a reduction, and elements of a run, from which matrix instructions are
faster than dot products."""

MIN_ROWS_TIME, STEP_TIME = 8, 3
"""Time of a matrix instruction, where one row takes 1: at least `MIN_ROWS_TIME` for its rows, and
`STEP_TIME` on top."""

ALONE = 1.1
"""Slowdown where each weight panel is loaded for one instruction instead of two."""

SATURATING_TAPS = 2.7
"""Taps of a dot product that saturates, as it is measured against one that takes two."""

MAX_VECTORS = 4
"""Vectors of the widest panel."""

MIN_SUMS, CLEARLY = 10, 0.9
"""Fewest sums of a tile that keep the multipliers busy: there are two multipliers, a sum depends on
the one before it, which takes four cycles, and some slack is left. A wider panel is chosen if it is
estimated to take at most `CLEARLY` times as long. Both were fitted to measurements with AVX2 and
AVX-512, in which wider panels save 7 to 15 % with 4 rows and up to 56 % with 1 row."""

Sizes = tuple[int, int, int]
"""Rows, runs of a reduction, and elements of a run."""

UNROLLED = (4, 2)
"""Steps of a reduction between two branches, the most first; they must divide it."""


READ_AS = {"int8": ("int8", "uint8", "int16"), "uint8": ("uint8", "int16"), "int16": ("int16",)}
"""Types to which dot products may widen activations of each type, the fastest first."""


@dataclass(frozen=True, slots=True)
class Multiplication:
    """The products and sums of a target: of float32 numbers, or of bytes by its instructions.

    Parameters
    ----------
    instruction
        The vector or matrix instruction for bytes; None for float32.
    taps
        Neighbours along the reduction that are multiplied at once.
    shift
        Number added to signed bytes if the dot product takes only unsigned ones; the bias subtracts
        its part of the sums.
    operand
        Type of the activations as they are multiplied; they are changed once for all products.
    """

    instruction: MachineInstruction | None
    taps: int
    shift: int
    operand: str

    @staticmethod
    def of(
        dtype: str, target: CpuTarget, small_pairs: bool = False, sizes: Sizes = (0, 1, 0)
    ) -> "Multiplication":
        """Return the multiplication of float32 numbers, or of integers with weights of int8.

        Parameters
        ----------
        dtype
            Type of the activations.
        small_pairs
            Whether two neighbouring products always fit int16; see `has_small_pairs`.
        sizes
            Rows that matrix instructions may take at once, runs of a reduction, and the elements of
            each.
        """
        rows, runs, run = sizes
        if dtype == "float32":
            return Multiplication(None, 1, 0, dtype)
        instructions = target.processor.instructions
        if rows >= MIN_ROWS and runs * run >= MIN_DEPTH and run >= MIN_RUN:
            for one in instructions:
                if one.unit and (dtype, "int8") in one.pairs:
                    return Multiplication(one, one.taps, 0, dtype)
        fast = (target.saturating,) if small_pairs and target.saturating else ()
        return next(
            Multiplication(one, one.taps, 128 if (dtype, read) == ("int8", "uint8") else 0, read)
            for one in (*fast, *instructions)
            for read in READ_AS[dtype]
            if not one.unit and (read, "int8") in one.pairs
        )

    def processor(self, target: CpuTarget) -> Processor:
        """The target's processor, with the instruction that may saturate if it is the one used."""
        known = target.processor.instructions
        if self.instruction is None or self.instruction in known:
            return target.processor
        return Processor(target.level, (*known, self.instruction))

    def adds(self, target: CpuTarget) -> bool:
        """Whether one instruction multiplies and adds, so that it waits for the sum before it."""
        return self.instruction.adds if self.instruction else target.fused

    @property
    def most_rows(self) -> int:
        """Most rows of a matrix instruction; 0 for all others."""
        return self.instruction.max_rows if self.instruction else 0

    @property
    def rate(self) -> float:
        """Number of products that a lane computes in the time of one vector instruction."""
        saturates = self.instruction is not None and self.instruction.saturates
        return SATURATING_TAPS if saturates else self.taps

    @property
    def depth(self) -> int:
        """Elements along the reduction of one instruction."""
        return self.taps * self.instruction.groups if self.instruction else 1

    @property
    def words(self) -> bool:
        """Whether it multiplies int16."""
        return self.operand == "int16"

    @property
    def moves(self) -> bool:
        """Whether bytes are changed before they are multiplied."""
        return bool(self.shift) or self.words

    def moved(
        self, name: str, axes: tuple[te.Index, ...], element: te.TensorExpression, dtype: str
    ) -> te.DeclaredTensor:
        """A stage of elements of a type as they are multiplied."""
        read = self.operand if self.moves else dtype
        return te.compute(name, read, axes, element + self.shift if self.shift else element)


def pick_multiplication(
    choices: Choices, dtype: str, target: CpuTarget, small_pairs: bool, sizes: Sizes
) -> Multiplication:
    """Choose between matrix instructions, where they fit, and dot products.

    Parameters
    ----------
    sizes
        As for `Multiplication.of`.
    """
    way = Multiplication.of(dtype, target, small_pairs, sizes)
    if way.most_rows and not choices.pick("matrix", 1, (0,)):
        return Multiplication.of(dtype, target, small_pairs)
    return way


def panel_of(columns: int, target: CpuTarget) -> int:
    """Columns of a panel: one vector if it covers all columns, else two."""
    return (1 if columns <= target.lanes else 2) * target.lanes


def pick_panel(
    choices: Choices, columns: int, target: CpuTarget, rows: int, way: Multiplication
) -> int:
    """Choose the number of columns of a panel, in whole vectors, for a product with `rows` rows.

    The default is two vectors, or more if there are too few rows to keep the multipliers busy.
    """
    most = min(MAX_VECTORS, -(-columns // target.lanes))
    default = panel_of(columns, target) // target.lanes
    if default > 1 and not way.most_rows:
        pipelined = MIN_SUMS if way.adds(target) else 1
        times = {
            vectors: _panel_time(vectors, rows, columns, target, pipelined)
            for vectors in range(default, most + 1)
        }
        best = min(times, key=lambda vectors: times[vectors])
        default = best if times[best] <= CLEARLY * times[default] else default
    return target.lanes * choices.pick("vectors", default, range(1, most + 1))


def _panel_time(vectors: int, rows: int, columns: int, target: CpuTarget, pipelined: int) -> float:
    """Estimate the time of one step of the reduction, in units of one vector multiplication."""
    high = even_blocks(rows, min(_most_rows(vectors, target), target.tile.rows))
    down, across = divmod(rows, high), divmod(-(-columns // target.lanes), vectors)
    return sum(
        tiles * panels * max(height * width, pipelined)
        for tiles, height in ((down[0], high), (int(down[1] > 0), down[1]))
        for panels, width in ((across[0], vectors), (int(across[1] > 0), across[1]))
    )


def _most_rows(vectors: int, target: CpuTarget, others: int = 0) -> int:
    """Maximum number of rows of a tile whose sums fit the registers, beside `others`."""
    # Each step holds the weights of a panel, and an activation that all of them share.
    return max(1, (target.registers - 1 - others) // vectors - 1)


def pick_rows(
    choices: Choices,
    extent: int,
    panel: int,
    target: CpuTarget,
    name: str = "rows",
    *,
    has_polynomials: bool = False,
    last: int = 0,
) -> int:
    """Choose the rows of a tile, of `extent`: as many as registers have room for, or fewer.

    The last of several extents may have `last` rows only. Its tiles are cut off, but must begin
    inside, because instructions read rows without a test.

    LLVM keeps some constants of polynomials in registers. Where sums take all others, it puts sums
    into memory instead, in every step: a sigmoid behind 14 rows took twice the time of 13.
    """
    vectors = panel // target.lanes
    others = (even_blocks(extent, rows) for rows in range(_most_rows(vectors, target), 0, -1))
    legal = (rows for rows in others if -(-(last or extent) // rows) == -(-extent // rows))
    default = even_blocks(extent, default_rows(panel, target, has_polynomials=has_polynomials))
    return choices.pick(name, default, legal)


def default_rows(panel: int, target: CpuTarget, *, has_polynomials: bool) -> int:
    """Maximum rows of a tile by default; see `pick_rows`."""
    others = target.registers // 16 if has_polynomials else 0
    return min(_most_rows(panel // target.lanes, target, others), target.tile.rows)


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """A tile of matrix instructions.

    Parameters
    ----------
    rows
        Rows of an instruction.
    down
        Instructions one below the other.
    """

    rows: int
    down: int

    @property
    def height(self) -> int:
        """Rows in all."""
        return self.rows * self.down

    @staticmethod
    def of(extent: int, columns: int, most_rows: int) -> "MatrixTile":
        """Choose the tile with the least estimated time.

        Parameters
        ----------
        extent
            Rows that tiles must cover.
        columns
            Columns of a tile.
        most_rows
            Most rows of an instruction.
        """
        costs = {}
        for rows in range(1, min(extent, most_rows) + 1):
            time = max(rows, MIN_ROWS_TIME) + STEP_TIME
            for tile in (MatrixTile(rows, 2), MatrixTile(rows, 1)):
                if tile.height * columns <= MAX_SUMS:
                    times = math.ceil(extent / tile.height) * tile.down
                    costs[tile] = times * time * (ALONE if tile.down == 1 else 1)
        return min(costs, key=lambda tile: costs[tile])


def schedule_tiles(
    s: te.Schedule,
    stage: str,
    sizes: tuple[tuple[str, int], tuple[str, int]],
    outer: str,
    lanes: int,
    taps: str = "",
    steps: int = 1,
) -> None:
    """Cut a stage into register tiles.

    Parameters
    ----------
    s, stage
        The schedule and its stage.
    sizes
        The loop over rows with the rows of a tile, and the loop over columns with those of a panel.
    outer
        Loops around those of a tile, as in `Schedule.nest`.
    lanes
        Lanes of a vector.
    taps
        The loop over the taps of a dot product; empty for float32.
    steps
        Iterations of the innermost of these loops between two branches; they divide it.
    """
    (rows, high), (columns, panel) = sizes
    start = "!" if taps else ""
    inner = f"{rows}.i* {columns}.i.o* {columns}.i.i{start}~ {taps}"
    s.nest(stage, f"{outer}/{steps}* {inner}", **{rows: high, columns: (panel, lanes)})


def schedule_matrix_tiles(
    s: te.Schedule,
    stage: str,
    sizes: tuple[tuple[str, MatrixTile], tuple[str, int]],
    outer: str,
    lanes: int,
    taps: tuple[str, str],
    lines: str = "",
) -> None:
    """Split a stage into tiles that fit a matrix instruction.

    Parameters
    ----------
    s, stage, outer, lanes
        As for `schedule_tiles`.
    sizes
        The loop over rows with its tile, and the loop over columns with those of a panel.
    taps
        The loops over the groups and the taps of an instruction.
    lines
        The loop over further rows of a tile, if any.
    """
    (rows, tile), (columns, panel) = sizes
    several = f"{lines and f'{lines}*'} {rows}.i.o* {columns}.i.o*"
    product = f"{rows}.i.i! {taps[0]} {columns}.i.i~ {taps[1]}"
    factors = {rows: (tile.height, tile.rows), columns: (panel, lanes)}
    s.nest(stage, f"{outer} {several} {product}", **factors)


def pick_steps(choices: Choices, depth: int, *, is_full: bool = False) -> int:
    """Steps of a reduction of `depth` iterations between two branches.

    Parameters
    ----------
    is_full
        Whether a tile needs all registers for one iteration, so that 1 is the default.
    """
    fitting = [count for count in UNROLLED if depth % count == 0 and depth > count]
    return choices.pick("unroll", 1 if is_full else next(iter(fitting), 1), (1, *fitting))


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
