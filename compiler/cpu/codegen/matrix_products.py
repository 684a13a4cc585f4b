"""int8 matrix multiplication on a processor's tile registers (`MatrixUnit`), such as AMX.

Over the whole reduction, the sums stay in the first tiles. In
each step, rows of `a` are loaded into the tiles after them, and a panel of `b` into the last tiles.
The sums are stored when the reduction is complete.

The tiles' shapes are set before a nest and released after it, in each thread that runs it; setting
them takes as long as ten products.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from llvmlite import ir

from ....errors import CompileError
from ....isa.expressions import Affine
from ...te.nodes import LEAVES, Allocate, Block, For, InstructionNest, Node, Update, nodes
from ...te.target import REGISTER
from ..instructions import MatrixUnit
from .areas import CodeBuffer, bytes_of
from .dot_products import factors, instruction_of, operand, update_inside
from .emitter import I8, I64, LlvmBlock, LlvmValue, constant_table
from .environment import Environment, without
from .lower_values import Values


@dataclass(frozen=True, slots=True)
class SumTiles:
    """The tiles that hold the sums of one buffer.

    Parameters
    ----------
    unit
        The tiles of the processor.
    rows
        Rows of a tile.
    down, across
        Tiles below each other and side by side.
    """

    unit: MatrixUnit = field(repr=False)
    rows: int
    down: int
    across: int

    @property
    def count(self) -> int:
        return self.down * self.across

    @property
    def shapes(self) -> bytes:
        """The shapes of all tiles: `rows` rows each, but all that there are in the tiles of `b`."""
        unit, across = self.unit, self.across
        return unit.shapes([self.rows] * (unit.tiles - across) + [unit.max_rows] * across)


def sum_tiles(block: Block) -> dict[str, SumTiles]:
    """The buffers of a program whose sums are in tiles, by name.

    Raises
    ------
    CompileError
        When they need more tiles than there are.
    """
    rows, units = {}, {}
    for node in nodes(block):
        if isinstance(node, InstructionNest) and (unit := instruction_of(node).unit):
            (outer,) = node.body
            assert isinstance(outer, For)
            (update,) = (inner for inner in nodes(node.body) if isinstance(inner, Update))
            rows[update.target.tensor], units[update.target.tensor] = outer.extent, unit
    found = {}
    for node in nodes(block):
        if isinstance(node, Allocate) and node.tensor.name in rows:
            name, extents = node.tensor.name, " x ".join(map(str, node.shape))
            unit = units[name]
            *lines, wide = whole_tiles(node.shape, rows[name], unit)
            down = math.prod(lines) // rows[name]
            found[name] = tiles = SumTiles(unit, rows[name], down, wide // unit.row_sums)
            if node.scope != REGISTER or tiles.count + tiles.across >= unit.tiles:
                raise CompileError(
                    f"`{name}` has {extents} sums, more than the tiles hold beside the operands; "
                    "split the loops around the instruction by smaller factors"
                )
    return found


def whole_tiles(shape: Sequence[int], rows: int, unit: MatrixUnit) -> tuple[int, ...]:
    """Extents of sums, rounded up to whole tiles.

    The rows of tiles run along the last dimension whose extent exceeds 1, that of the columns
    apart.
    """
    *lines, wide = shape
    place = max((d for d, extent in enumerate(lines) if extent > 1), default=-1)
    lines[place] += -lines[place] % rows
    return (*lines, wide + -wide % unit.row_sums)


class MatrixTiles:
    """The tiles inside one function.

    Parameters
    ----------
    values
        Emits the code.
    tiles
        Buffers whose sums are in tiles.
    """

    def __init__(self, values: Values, tiles: dict[str, SumTiles]) -> None:
        self.values, self.emitter, self.tiles = values, values.emitter, tiles
        self._shapes: SumTiles | None = None
        """The tiles whose shapes are set."""
        self._live = ""
        """The buffer whose sums are in tiles now."""
        self._sums: dict[Affine, int] = {}
        self._loaded: dict[int, tuple[str, Affine]] = {}
        self._block: LlvmBlock | None = None
        """The block of code in which these tiles were loaded."""

    @property
    def _unit(self) -> MatrixUnit:
        assert self._shapes
        return self._shapes.unit

    @contextmanager
    def shaped(self, block: Block, is_shared: Callable[[Node], bool]) -> Iterator[None]:
        """Set the shapes of tiles around a block, if its sums need any and they are not set yet.

        Parameters
        ----------
        is_shared
            Whether a loop is in a function of its own, which sets them for itself.

        Raises
        ------
        CompileError
            When sums of the block need tiles of different shapes.
        """
        found = {name: self.tiles[name] for name in self._held_in(block, is_shared)}
        if not found or self._shapes:
            yield
            return
        first, *others = set(found.values())
        if others:
            raise CompileError(
                f"{' and '.join(f'`{name}`' for name in found)} are in one nest, but their tiles "
                "differ in shape; compute one stage at the root"
            )
        self._shapes = first
        self._call(first.unit.configure, self._table(first.shapes))
        yield
        self._call(first.unit.release)
        self._shapes = None

    def _held_in(self, block: Block, is_shared: Callable[[Node], bool]) -> Iterator[str]:
        """The buffers of a block whose sums are in tiles."""
        for node in block:
            if isinstance(node, Allocate):
                if node.tensor.name in self.tiles:
                    yield node.tensor.name
            elif not isinstance(node, LEAVES) and not is_shared(node):
                yield from self._held_in(node.body, is_shared)

    def clear(self, area: CodeBuffer) -> None:
        """Start the sums of a buffer at zero.

        Raises
        ------
        CompileError
            When the tiles hold other sums, or the buffer is at the root.
        """
        name = area.tensor.name
        if self._live:
            raise CompileError(
                f"`{name}` is computed while the sums of `{self._live}` are in tiles; compute it "
                "outside their reduction"
            )
        if not self._shapes:
            raise CompileError(
                f"`{name}` has sums in tiles; compute it inside a loop of its reader"
            )
        self._live, self._sums, self._loaded = name, {}, {}
        for number in range(self._shapes.count):
            self._call(self._shapes.unit.zero, I8(number))

    def store(self, area: CodeBuffer) -> None:
        """Write the sums to their buffer."""
        self._live = ""
        stride = area.layout.shape[-1] * bytes_of(area)
        for place, number in self._sums.items():
            pointer = self.values.memory.address(area, place)
            self._call(self._unit.store, I8(number), pointer, I64(stride))

    def multiply(self, node: InstructionNest, env: Environment) -> None:
        """Emit one product, and loads of the operands that the tiles do not hold yet.

        Raises
        ------
        CompileError
            When the operands do not lie as the instruction reads them: the taps of `a` side by
            side, group after group, `b` lane by lane with the taps of each lane side by side.
        """
        row, group, lane, tap = loops = ("row", "group", "lane", "tap")
        update, env, (*_, taps) = update_inside(node, env, loops)
        steps = {group: taps, lane: 0, tap: 1}, {row: 0, lane: taps, tap: 1}
        (area_a, offset_a), (area_b, offset_b) = (
            operand(node, read, step, env, self.values)
            for read, step in zip(factors(update), steps, strict=True)
        )
        target = update.target
        area = self.values.areas[target.tensor]
        index = [env.resolved(part) for part in target.index]
        offset, step = self.values.memory.place(area, index, env)
        place, tiles = without(offset, row), self.tiles[target.tensor]
        if step != 1 or offset.coefficient(row) not in (0, area.layout.shape[-1]):
            raise CompileError(
                f"{node.mnemonic}: rows and lanes of `{target}` must be the last two dimensions of "
                "which a tile has several elements; reorder the dimensions, or the loops"
            )
        if place.terms:
            raise CompileError(
                f"{node.mnemonic}: the tile of `{target}` is known only at run time; unroll all "
                "loops between those of the reduction and the instruction"
            )
        if self._block is not self.emitter.builder.block:
            self._block, self._loaded = self.emitter.builder.block, {}
        number = self._sums.setdefault(place, len(self._sums))
        assert number < tiles.count
        last = tiles.unit.tiles - tiles.across
        a = self._load(area_a, offset_a, row, range(tiles.count, last))
        b = self._load(area_b, offset_b, group, range(last, tiles.unit.tiles))
        self._call(instruction_of(node).intrinsic, I8(number), I8(a), I8(b))

    def _load(self, area: CodeBuffer, offset: Affine, along: str, tiles: range) -> int:
        """The tile with a matrix; `along` is the symbol of its rows."""
        place = area.tensor.name, without(offset, along)
        for number in tiles:
            if self._loaded.get(number) == place:
                return number
        free = [number for number in tiles if number not in self._loaded]
        if not free:
            oldest = next(number for number in self._loaded if number in tiles)
            del self._loaded[oldest]
            free = [oldest]
        self._loaded[free[0]] = place
        pointer = self.values.memory.address(area, place[1])
        stride = offset.coefficient(along) * bytes_of(area)
        self._call(self._unit.load, I8(free[0]), pointer, I64(stride))
        return free[0]

    def _table(self, content: bytes) -> LlvmValue:
        """Bytes in the object file."""
        module = self.emitter.builder.module
        name = f"shapes.{self._shapes}"
        return module.globals.get(name) or constant_table(module, name, I8, list(content))

    def _call(self, name: str, *arguments: LlvmValue) -> None:
        self.emitter.intrinsic(name, ir.VoidType(), arguments)
