"""Tunable decisions for products on GPUs: tiles, stages, split reductions, and the order of blocks.

A plan asks `Choices` for each of them, as planners of the processor do, so the questions with all
their answers are the space that a tuner searches. Answers that exceed a block are left out: its
shared memory, its threads, and the registers of its sums.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...isa.expressions import Call, Op, Read
from ..cpu.kernels.choices import Choices
from ..te.reductions import has_reduction, reduction_of
from ..te.stages import Stage
from ..tensor import Tensor
from .instructions import WARP_THREADS, WIDE, WarpProduct
from .target import GpuTarget


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a product that a block computes, and what each warp or thread computes of it."""

    rows: int
    columns: int
    taps: int
    own_rows: int
    own_columns: int

    @property
    def units(self) -> int:
        """Warps, warpgroups or threads that share it."""
        return (self.rows // self.own_rows) * (self.columns // self.own_columns)

    @property
    def name(self) -> str:
        """Its answer to the question for the tile."""
        return f"{self.rows}x{self.columns}x{self.own_rows}x{self.own_columns}"


TENSOR_TILES = (Tile(128, 128, 64, 64, 32), Tile(64, 64, 64, 32, 32), Tile(32, 32, 64, 16, 16))
"""Tiles of tensor cores, the largest first; taps are those of two bytes, twice as many of one."""

OTHER_TENSOR_TILES = tuple(
    Tile(rows, columns, 64, *own)
    for rows, columns, *own in (
        (256, 128, 64, 64), (128, 256, 64, 64), (128, 128, 32, 64), (128, 64, 64, 32),
        (128, 64, 32, 32), (64, 128, 32, 64), (64, 128, 32, 32), (64, 64, 16, 32), (64, 32, 32, 16),
        (32, 64, 16, 32), (128, 32, 32, 32), (32, 128, 32, 32), (64, 16, 16, 16), (16, 64, 16, 16),
    )
)  # fmt: skip

GROUP_TILES = (
    Tile(128, 256, 64, 64, 256), Tile(128, 128, 64, 64, 128), Tile(64, 128, 64, 64, 128),
    Tile(64, 64, 64, 64, 64),
)  # fmt: skip
"""Tiles of warpgroups, whose products have 64 rows."""

OTHER_GROUP_TILES = (
    Tile(256, 128, 64, 64, 128), Tile(64, 256, 64, 64, 256), Tile(128, 64, 64, 64, 64),
    Tile(64, 32, 64, 64, 32), Tile(128, 32, 64, 64, 32),
)  # fmt: skip

THREAD_TILES = (Tile(64, 64, 16, 4, 4), Tile(32, 32, 16, 4, 2), Tile(16, 16, 16, 2, 1))
"""Tiles of threads without tensor cores."""

OTHER_THREAD_TILES = (
    Tile(128, 128, 16, 8, 8), Tile(128, 64, 16, 8, 4), Tile(64, 128, 16, 4, 8),
    Tile(64, 64, 16, 8, 4), Tile(64, 32, 16, 4, 4), Tile(32, 64, 16, 4, 4), Tile(32, 32, 16, 4, 4),
    Tile(32, 32, 16, 2, 2), Tile(16, 64, 16, 4, 4), Tile(16, 32, 16, 2, 2),
)  # fmt: skip

PIPELINE_DEPTH, GROUP_DEPTH = 3, 4
"""Iterations whose operands are in shared memory: one that computes, others on their way.

A warpgroup multiplies faster, so its copies start earlier.
"""

MIN_BLOCKS = 64
"""Blocks that a tile must leave: a GPU runs about a hundred at once."""

MIN_PART_TAPS, MAX_PARTS = 256, 32
"""Products of each part of a long sum that is split by default, and the maximum number of parts."""

MAX_OWN_SUMS = 128
"""Sums that a thread keeps in registers, of 255 registers."""

GROUPS = 2, 4, 8
"""Rows of tiles whose blocks run one below the other before those of the next column of tiles."""


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """A stage seen as a matrix product: its axes and operands.

    Parameters
    ----------
    rows
        One axis, or two whose rectangles are the rows of a tile.
    outer, taps
        The reduction: `taps` innermost, `outer` around it.
    """

    rows: tuple[str, ...]
    columns: str
    batch: tuple[str, ...]
    outer: tuple[str, ...]
    taps: str
    a: Read
    b: Read
    sizes: Mapping[str, int]

    def size(self, *axes: str) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    @property
    def high(self) -> int:
        """Most rows of a tile."""
        first = self.sizes[self.rows[0]]
        return first if len(self.rows) == 1 else WIDE * first

    def tiles_down(self, tile: Tile) -> int:
        """Tiles that cover the rows."""
        *first, last = (self.sizes[axis] for axis in self.rows)
        if not first:
            return -(-last // tile.rows)
        return -(-first[0] // (tile.rows // WIDE)) * -(-last // WIDE)

    def blocks(self, tile: Tile) -> int:
        """Blocks of all tiles, for one part of each sum."""
        across = -(-self.sizes[self.columns] // tile.columns)
        return self.tiles_down(tile) * across * self.size(*self.batch)

    @property
    def reduced(self) -> int:
        """Products of each sum."""
        return self.size(*self.outer, self.taps)


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """All decisions on a product.

    Parameters
    ----------
    law
        The product of tensor cores that computes it; None for threads.
    taps
        Products of each sum in an iteration.
    depth
        Iterations whose operands are in shared memory.
    split
        The reduction that is cut into parts, each with blocks of its own, and their number; None
        for one part.
    group
        Rows of tiles of a group: within one, blocks run down before they run across, so that those
        that run at once share more of both operands.
    """

    product: ProductAxes
    law: WarpProduct | None
    tile: Tile
    taps: int
    depth: int
    split: tuple[str, int] | None
    group: int

    @property
    def parts(self) -> int:
        return self.split[1] if self.split else 1

    @property
    def threads(self) -> int:
        """Threads of a block that compute."""
        return _threads(self.law, self.tile)

    @property
    def blocks(self) -> int:
        """Blocks of all parts."""
        return self.product.blocks(self.tile) * self.parts


def find_product(stage: Stage, smallest: int) -> ProductAxes | None:
    """The stage as a product, if each axis moves one operand, or both as a batch.

    Parameters
    ----------
    smallest
        Minimum number of its rows, columns and taps.
    """
    if not has_reduction(stage.body):
        return None
    reduction = reduction_of(stage.body)
    product = reduction.body
    if reduction.op is not Op.ADD or not isinstance(product, Call) or product.op is not Op.MULTIPLY:
        return None
    a, b = product.arguments
    if not (isinstance(a, Read) and isinstance(b, Read)):
        return None
    sizes = {n: high - low for n, (low, high) in zip(stage.axes, stage.domain, strict=True)}
    sizes |= {axis.name: axis.extent for axis in stage.reductions}
    moved = [[axis for part in read.index for axis, _ in part.terms] for read in (a, b)]
    both = {axis for axis in stage.axes if all(axis in names for names in moved)}
    *outer, taps = (axis.name for axis in stage.reductions)
    # An axis of the batch, such as the parts of a long sum, may share a dimension.
    plain = all(
        len(own) <= 1 and all(step == 1 for _, step in own)
        for read in (a, b)
        for part in read.index
        for own in [[term for term in part.terms if term[0] not in both]]
    )
    if not all(taps in names for names in moved) or (outer and not plain):
        return None
    only_a, only_b = (
        [axis for axis in own if axis in stage.axes and axis not in others and sizes[axis] > 1]
        for own, others in (moved, reversed(moved))
    )
    if not only_a or len(only_b) != 1:
        return None
    rows = tuple(only_a[-1:])
    if plain and len(only_a) > 1 and WIDE <= sizes[only_a[-1]] < WIDE * sizes[only_a[-2]]:
        rows = tuple(only_a[-2:])
    (columns,) = only_b
    batch = tuple(axis for axis in stage.axes if axis not in (*rows, columns))
    found = ProductAxes(rows, columns, batch, tuple(outer), taps, a, b, sizes)
    return found if min(found.size(*rows), sizes[columns], found.reduced) >= smallest else None


def plan_product(
    product: ProductAxes, tensors: Mapping[str, Tensor], target: GpuTarget, choices: Choices
) -> ProductPlan:
    """Decide all that is free; `choices` may answer."""
    laws = {law.warps: law for law in _laws(product, tensors, target)}
    law = laws[choices.pick("warps", next(iter(laws)), laws)] if laws else None
    if law is None:
        usual, others, depth = THREAD_TILES, OTHER_THREAD_TILES, 1
    elif law.reads_shared:
        usual, others, depth = GROUP_TILES, OTHER_GROUP_TILES, GROUP_DEPTH
    else:
        usual, others, depth = TENSOR_TILES, OTHER_TENSOR_TILES, PIPELINE_DEPTH
    step, room = law.taps if law else 1, target.properties.shared_bytes
    sizes = [np.dtype(tensors[read.tensor].dtype).itemsize for read in (product.a, product.b)]

    def shared_bytes(tile: Tile, taps: int, depth: int) -> int:
        return taps * depth * (tile.rows * sizes[0] + tile.columns * sizes[1])

    default = _default_tile(usual, product)
    fitting = {
        tile.name: tile
        for tile in (default, *(_cut_to(product, each) for each in (*usual, *others)))
        if tile == default
        or (_is_possible(tile, law, target) and shared_bytes(tile, 2 * step, 1) <= room)
    }
    tile = fitting[choices.pick_name("tile", default.name, fitting)]
    split = _split(product, tile, step, target, choices)
    whole = product.sizes[product.taps] // (split[1] if split and split[0] == product.taps else 1)
    taps = tile.taps
    if law is not None:
        taps = law.taps
        while taps * 2 <= tile.taps * law.taps // 16 and whole % (taps * 2) == 0:
            taps *= 2
    usable = [
        step * factor
        for factor in ((8, 16, 32) if law is None else (1, 2, 4, 8))
        if shared_bytes(tile, step * factor, 1 if law is None else 2) <= room
        and (law is None or whole % (step * factor) == 0)
    ]
    taps = choices.pick("taps", taps, usable)
    rest = product.reduced // (split[1] if split else 1)
    if rest <= taps:
        depth = 1
    else:
        least = 1 if law is None else 2
        deep = [n for n in range(least, 7) if shared_bytes(tile, taps, n) <= room]
        depth = choices.pick("depth", min(depth, max(deep, default=depth)), deep)
    group = _group(product, tile, target, choices)
    return ProductPlan(product, law, tile, taps, depth, split, group)


def _laws(
    product: ProductAxes, tensors: Mapping[str, Tensor], target: GpuTarget
) -> list[WarpProduct]:
    """Products of tensor cores that fit: whole taps, side by side in both operands; best first.

    Sums of a warp may lie beyond the end of the rows, but a warpgroup is for whole ones.
    """
    types = tuple(tensors[read.tensor].dtype for read in (product.a, product.b))
    for read in (product.a, product.b):
        *outer, last = read.index
        if last.terms != ((product.taps, 1),) or last.constant:
            return []
        if any(part.coefficient(product.taps) for part in outer):
            return []
    depth = product.sizes[product.taps]
    return [
        law
        for law in target.instructions
        if types in law.pairs and depth % law.taps == 0 and product.high >= law.rows
    ]


def _default_tile(tiles: tuple[Tile, ...], product: ProductAxes) -> Tile:
    """The largest tile that leaves enough blocks; else the smallest. None exceeds the product."""
    rows, columns = product.size(*product.rows), product.sizes[product.columns]
    for tile in tiles:
        blocks = -(-rows // tile.rows) * -(-columns // tile.columns)
        if blocks * product.size(*product.batch) >= MIN_BLOCKS:
            return _cut_to(product, tile)
    return _cut_to(product, tiles[-1])


def _cut_to(product: ProductAxes, tile: Tile) -> Tile:
    """A tile, halved until it does not exceed the product."""
    high, wide = (
        _halved(tile.rows, product.high),
        _halved(tile.columns, product.sizes[product.columns]),
    )
    return Tile(high, wide, tile.taps, min(tile.own_rows, high), min(tile.own_columns, wide))


def _halved(size: int, most: int) -> int:
    """A size, halved until it is at most `most`."""
    while size > most:
        size //= 2
    return size


def _threads(law: WarpProduct | None, tile: Tile) -> int:
    return tile.units * (WARP_THREADS * law.warps if law else 1)


def _is_possible(tile: Tile, law: WarpProduct | None, target: GpuTarget) -> bool:
    """Whether a block has the threads, and each thread the registers, for a tile."""
    own, per_unit = tile.own_rows * tile.own_columns, WARP_THREADS * law.warps if law else 1
    whole = law is None or tile.own_rows % law.rows == 0
    return (
        whole
        and WARP_THREADS <= _threads(law, tile) <= target.properties.max_threads
        and own // per_unit <= MAX_OWN_SUMS
    )


def _split(
    product: ProductAxes, tile: Tile, step: int, target: GpuTarget, choices: Choices
) -> tuple[str, int] | None:
    """The reduction to cut into parts, and how many; by default, few blocks get more of them.

    Each part has whole steps of an instruction. It is split by default where the blocks would fill
    less than half of the multiprocessors.
    """
    found: dict[int, str] = {}
    for axis in (*product.outer, product.taps):
        whole = product.sizes[axis] // (step if axis == product.taps else 1)
        for parts in range(2, min(MAX_PARTS, whole) + 1):
            if whole % parts == 0 and product.reduced // parts >= step:
                found.setdefault(parts, axis)
    blocks, default = product.blocks(tile), 1
    if 2 * blocks < target.multiprocessors:
        deep = [parts for parts in found if product.reduced // parts >= MIN_PART_TAPS]
        default = max((n for n in deep if n * blocks <= target.multiprocessors), default=1)
    near = [n for n in found if n in (2, 3, 4, 8, 16, MAX_PARTS)]
    parts = choices.pick("split", default, (1, *near))
    return (found[parts], parts) if parts > 1 else None


def _group(product: ProductAxes, tile: Tile, target: GpuTarget, choices: Choices) -> int:
    """Rows of tiles of a group; by default, as many as load least for blocks that run at once."""
    down, across = product.tiles_down(tile), -(-product.sizes[product.columns] // tile.columns)
    whole = [group for group in GROUPS if down % group == 0 and across > 1]

    def loaded(group: int) -> float:
        """Elements of both operands for each tap that the blocks of all multiprocessors load."""
        wide = min(across, -(-target.multiprocessors // group))
        high = -(-target.multiprocessors // wide)
        return max(group, high) * tile.rows + wide * tile.columns

    default = 1
    if down * across > target.multiprocessors:
        default = min((1, *whole), key=loaded)
    return choices.pick("group", default, (1, *whole))
