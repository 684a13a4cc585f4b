"""Emit loads and stores of elements and whole vectors."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from ....errors import CompileError
from ....isa.expressions import Affine
from ...te.affine import scaled, total
from .areas import CodeBuffer, bytes_of
from .emitter import (
    BIT,
    I32,
    I64,
    POINTER,
    TYPES,
    Emitter,
    LlvmValue,
    lanes_of,
    number_of,
    suffix,
    transposed,
)
from .environment import Environment, without
from .masks import all_of, constant_bits, known_bits

SQUARE_BYTES = 16
"""Row size of a square of bytes or words: the smallest vector of any level."""


class Lanes(NamedTuple):
    """Elements of a buffer: the offset of that of lane 0, and the distance from lane to lane."""

    area: CodeBuffer
    offset: Affine
    step: int
    env: Environment


class MemoryAccess:
    """Loads and stores inside one function.

    Parameters
    ----------
    emitter
        Emits the code.
    symbols
        Values of symbols, int64.
    """

    def __init__(self, emitter: Emitter, symbols: dict[str, LlvmValue]) -> None:
        self.emitter, self.symbols = emitter, symbols
        self._sums: list[dict[tuple[tuple[str, int], ...], LlvmValue]] = [{}]
        self._loads: list[dict[Hashable, LlvmValue]] = [{}]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block that may be skipped: its values are not reused after it."""
        self._sums.append({})
        self._loads.append({})
        yield
        self._sums.pop()
        self._loads.pop()

    def once(self, key: Hashable, make: Callable[[], LlvmValue]) -> LlvmValue:
        """The value for a key, emitted once."""
        for known in reversed(self._loads):
            if key in known:
                return known[key]
        value = self._loads[-1][key] = make()
        return value

    def sum_of(self, affine: Affine) -> LlvmValue:
        """The value of a sum of symbols, without its constant."""
        for known in reversed(self._sums):
            if affine.terms in known:
                return known[affine.terms]
        builder = self.emitter.builder
        value: LlvmValue | None = None
        for name, factor in affine.terms:
            part = self.symbols[name]
            part = builder.mul(part, I64(factor), flags=("nsw",)) if factor != 1 else part
            value = part if value is None else builder.add(value, part, flags=("nsw",))
        assert value is not None
        self._sums[-1][affine.terms] = value
        return value

    def number(self, affine: Affine) -> LlvmValue:
        """The value of a sum of symbols."""
        if not affine.terms:
            return I64(affine.constant)
        value = self.sum_of(affine)
        return self.emitter.builder.add(value, I64(affine.constant)) if affine.constant else value

    def condition(self, value: Affine, low: int | None, high: int | None, env) -> LlvmValue:
        """Bits of `low <= value < high`, one per lane where the value moves with the lane."""
        emitter, step = self.emitter, value.coefficient(env.lane)
        if step and len(value.terms) == 1:
            numbers = range(value.constant, value.constant + step * env.lanes, step)
            return constant_bits(
                tuple((low is None or low <= i) and (high is None or i < high) for i in numbers)
            )
        found = self.number(without(value, env.lane))
        if step:
            factors = number_of(ir.VectorType(I64, env.lanes), step)
            lanes = emitter.builder.mul(emitter.iota(env.lanes), factors)
            found = emitter.builder.add(emitter.splat(found, env.lanes), lanes)
        bits = []
        if low is not None:
            bits.append(emitter.compare(">=", found, emitter.constant(low, found)))
        if high is not None:
            bits.append(emitter.compare("<", found, emitter.constant(high, found)))
        return all_of(emitter, bits)

    # Elements ------------------------------------------------------------------------------------

    def inside(self, area: CodeBuffer, index: Sequence[Affine]) -> tuple[Affine, ...]:
        """Return an index, counted from the buffer's first element."""
        pairs = zip(index, area.origin, strict=True)
        return tuple(i if start == _ZERO else total(i, scaled(start, -1)) for i, start in pairs)

    def has_room(self, area: CodeBuffer, index: Sequence[Affine], env: Environment) -> bool:
        """Whether the buffer has room for every lane, even outside the domain."""
        extents = zip(self.inside(area, index), area.layout.shape, strict=True)
        return all(env.inside(affine, 0, extent) is True for affine, extent in extents)

    def place(
        self, area: CodeBuffer, index: Sequence[Affine], env: Environment
    ) -> tuple[Affine, int]:
        """Return the offset of lane 0, and the distance from lane to lane, in elements."""
        offset = area.layout.offset(self.inside(area, index), env, area.tensor.name)
        return without(offset, env.lane), offset.coefficient(env.lane)

    def address(self, area: CodeBuffer, offset: Affine) -> LlvmValue:
        """Pointer to an element."""
        builder, element = self.emitter.builder, TYPES[area.tensor.dtype]
        pointer = area.pointer
        if offset.terms:
            pointer = builder.gep(pointer, [self.sum_of(offset)], source_etype=element)
        if offset.constant:
            pointer = builder.gep(pointer, [I64(offset.constant)], source_etype=element)
        return pointer

    def read(
        self, area: CodeBuffer, index: Sequence[Affine], env: Environment, mask: LlvmValue | None
    ) -> LlvmValue:
        """Load elements; outside the domain they are the pad."""
        if area.values is not None and not any(affine.terms for affine in index):
            place = tuple(affine.constant for affine in index)
            inside = all(0 <= i < size for i, size in zip(place, area.values.shape, strict=True))
            number = area.values[place].item() if inside else area.tensor.pad
            return number_of(TYPES[area.tensor.dtype], number)
        limits = self.limits(area, index, env)
        outside = all_of(self.emitter, [*limits.values()]) if limits else None
        offset, step = self.place(area, index, env)
        lanes = Lanes(area, offset, step, env)
        if step == 1 and (mask is not None or outside is not None):
            padded = outside is None or area.private or area.tensor.pad == 0
            if padded and self.has_room(area, index, env):
                mask = outside = None
        if outside is None and (mask is None or not step):
            if step in (0, 1):
                return self._load(area, offset, env.lanes if step else 1)
            if self._has_rows(lanes, env.lanes):
                return self._column(lanes, env.lanes)
            return self._gather(lanes, None)
        if not step and outside is not None and not isinstance(outside.type, ir.VectorType):
            return self._guarded(area, offset, outside)
        rows = _first_lanes(mask, outside)
        if rows and step > 1 and self._has_rows(lanes, rows):
            return self._column(lanes, rows)
        bits = all_of(self.emitter, [part for part in (mask, outside) if part is not None])
        bits = self.emitter.splat(bits, env.lanes)
        if step != 1:
            return self._gather(lanes, bits)
        return self._masked(area, self._near(area, index, env, limits), bits)

    def write(
        self,
        area: CodeBuffer,
        index: Sequence[Affine],
        value: LlvmValue,
        env: Environment,
        mask: LlvmValue | None,
    ) -> None:
        """Store elements where the bits of the mask are set.

        A mask that is known to have one bit is a scalar store here. LLVM 22 would make it one too,
        but of four bytes where a vector of int32 is cut to int8.
        """
        emitter, builder = self.emitter, self.emitter.builder
        offset, step = self.place(area, index, env)
        if env.lane and not step:
            raise CompileError(
                f"`{area.tensor.name}`: all lanes would write one element; vectorise another loop"
            )
        value = emitter.splat(value, env.lanes)
        size = bytes_of(area)
        if mask is not None and step == 1 and area.private and self.has_room(area, index, env):
            mask = None
        if mask is None and step in (0, 1):
            builder.store(value, self.address(area, offset), align=size)
            return
        bits = mask if mask is not None else number_of(ir.VectorType(BIT, env.lanes), 1)
        known = known_bits(bits)
        if known.count(True) == 1:
            lane = known.index(True)
            one = builder.extract_element(value, I32(lane))
            builder.store(one, self.address(area, total(offset, step * lane)), align=size)
            return
        if step == 1:
            pointer = self.address(area, offset)
            name = f"llvm.masked.store.{suffix(value.type)}.p0"
            emitter.intrinsic(name, ir.VoidType(), [value, pointer, I32(size), bits])
            return
        pointers = self._pointers(Lanes(area, offset, step, env))
        name = f"llvm.masked.scatter.{suffix(value.type)}.v{env.lanes}p0"
        emitter.intrinsic(name, ir.VoidType(), [value, pointers, I32(size), bits])

    def limits(
        self, area: CodeBuffer, index: Sequence[Affine], env: Environment
    ) -> dict[int, LlvmValue]:
        """Masks of the elements that exist, for the dimensions in which some may not."""
        bits = {}
        for dimension, (affine, (low, high)) in enumerate(zip(index, area.domain, strict=True)):
            if env.inside(affine, low, high) is not True:
                least, largest = env.interval(affine)
                below = low if least < low else None
                above = high if largest >= high else None
                bits[dimension] = self.condition(affine, below, above, env)
        return bits

    def _near(
        self,
        area: CodeBuffer,
        index: Sequence[Affine],
        env: Environment,
        limits: Mapping[int, LlvmValue],
    ) -> LlvmValue:
        """The address of elements that a masked load may read, in or near the buffer.

        A masked load from an unmapped page does not fault, but takes about 0.2 us. So a row that
        does not exist is replaced by the one in the middle; elements beside a row stay.
        """
        offset, _ = self.place(area, index, env)
        row = min(limits, default=None)
        alone = len(limits) == 1 and any(size > 1 for size in area.layout.shape[: row or 0])
        if row is None or alone or isinstance(limits[row].type, ir.VectorType):
            return self.address(area, offset)
        middle = (*index[:row], Affine((), sum(area.domain[row]) // 2), *index[row + 1 :])
        rest, _ = self.place(area, middle, env)
        apart = total(offset, scaled(rest, -1))
        builder = self.emitter.builder

        def start() -> LlvmValue:
            return builder.select(limits[row], self.number(apart), I64(0))

        where = self.once(("row", area.tensor.name, apart), start)
        element = TYPES[area.tensor.dtype]
        pointer = builder.gep(self.address(area, rest), [where], source_etype=element)
        pointer.type = POINTER
        return pointer

    def _load(self, area: CodeBuffer, offset: Affine, lanes: int) -> LlvmValue:
        element = TYPES[area.tensor.dtype]
        kind = self.emitter.vector(element, lanes)
        return self.emitter.builder.load(self.address(area, offset), align=bytes_of(area), typ=kind)

    def _has_rows(self, wanted: Lanes, rows: int) -> bool:
        """Whether each of the first lanes can be read as an element of a whole vector of its own.

        The lanes must lie far enough from each other and from the ends of the buffer.
        """
        area, offset, step, env = wanted
        lanes, size = env.lanes, bytes_of(area)
        square = lanes == (self.emitter.target.lanes if size == 4 else SQUARE_BYTES // size)
        if not area.given or step < lanes or not square:
            return False
        low, high = env.interval(offset)
        spare = offset.constant % lanes
        last = high - spare + step * (rows - 1) + lanes
        return low >= spare and last <= area.layout.size

    def _column(self, wanted: Lanes, rows: int) -> LlvmValue:
        """One column of a square of elements; the other columns are kept for later reads.

        Rows and shuffles are much faster than a gather where several columns are read, and no
        slower for one.
        """
        area, offset, step, env = wanted
        lanes = env.lanes
        first, column = total(offset, -(offset.constant % lanes)), offset.constant % lanes

        def columns() -> list[LlvmValue]:
            places = (total(first, step * lane) for lane in range(rows))
            found = [self._load(area, place, lanes) for place in places]
            return transposed(self.emitter.builder, [*found, *found[:1] * (lanes - rows)])

        return self.once(("columns", area.tensor.name, first, step, rows), columns)[column]

    def _guarded(self, area: CodeBuffer, offset: Affine, inside: LlvmValue) -> LlvmValue:
        """One element or the pad; if it does not exist, the first element is loaded instead."""
        builder, element = self.emitter.builder, TYPES[area.tensor.dtype]
        pointer = self.existing(area, offset, inside)
        value = builder.load(pointer, align=bytes_of(area), typ=element)
        return builder.select(inside, value, self.emitter.constant(area.tensor.pad, value))

    def existing(self, area: CodeBuffer, offset: Affine, inside: LlvmValue | None) -> LlvmValue:
        """The address of an element, or of the first one of the buffer if it does not exist."""
        if inside is None:
            return self.address(area, offset)
        builder, element = self.emitter.builder, TYPES[area.tensor.dtype]
        where = builder.select(inside, self.number(offset), I64(0))
        pointer = builder.gep(area.pointer, [where], source_etype=element)
        pointer.type = POINTER
        return pointer

    def _gather(self, wanted: Lanes, bits: LlvmValue | None) -> LlvmValue:
        """Load strided elements; the pad where the mask is clear."""
        area, _, _, env = wanted
        if bits is None:
            bits = number_of(ir.VectorType(BIT, env.lanes), 1)
        rest = number_of(ir.VectorType(TYPES[area.tensor.dtype], env.lanes), area.tensor.pad)
        return self._gathered(area, self._pointers(wanted), bits, rest)

    def _masked(self, area: CodeBuffer, pointer: LlvmValue, bits: LlvmValue) -> LlvmValue:
        """Load elements that lie side by side; the pad where the mask is clear."""
        kind = ir.VectorType(TYPES[area.tensor.dtype], lanes_of(bits))
        arguments = [pointer, I32(bytes_of(area)), bits, number_of(kind, area.tensor.pad)]
        return self.emitter.intrinsic(f"llvm.masked.load.{suffix(kind)}.p0", kind, arguments)

    def _gathered(
        self, area: CodeBuffer, pointers: LlvmValue, bits: LlvmValue, rest: LlvmValue
    ) -> LlvmValue:
        name = f"llvm.masked.gather.{suffix(rest.type)}.v{lanes_of(rest)}p0"
        arguments = [pointers, I32(bytes_of(area)), bits, rest]
        return self.emitter.intrinsic(name, rest.type, arguments)

    def _pointers(self, wanted: Lanes) -> LlvmValue:
        area, offset, step, env = wanted
        builder, kind = self.emitter.builder, ir.VectorType(I64, env.lanes)
        distances = builder.mul(self.emitter.iota(env.lanes), number_of(kind, step))
        first = self.emitter.splat(self.number(offset), env.lanes)
        pointers = builder.gep(
            area.pointer, [builder.add(distances, first)], source_etype=TYPES[area.tensor.dtype]
        )
        pointers.type = ir.VectorType(POINTER, env.lanes)
        return pointers

    def fetch_ahead(self, area: CodeBuffer, offset: Affine, distance: int) -> None:
        """Prefetch the bytes at a distance after an element, once per element."""
        emitter, place = self.emitter, total(offset, distance // bytes_of(area))

        def fetch() -> LlvmValue:
            arguments = [self.address(area, place), I32(0), I32(3), I32(1)]
            return emitter.intrinsic("llvm.prefetch.p0", ir.VoidType(), arguments)

        self.once(("ahead", area.tensor.name, offset), fetch)

    def at(self, area: CodeBuffer, offsets: LlvmValue, first: Affine) -> LlvmValue:
        """Load the elements at offsets from one of them."""
        builder, element = self.emitter.builder, TYPES[area.tensor.dtype]
        pointers = builder.gep(self.address(area, first), [offsets], source_etype=element)
        pointers.type = self.emitter.like(offsets, POINTER)
        if (lanes := lanes_of(offsets)) == 1:
            return builder.load(pointers, align=bytes_of(area), typ=element)
        bits = number_of(ir.VectorType(BIT, lanes), 1)
        return self._gathered(area, pointers, bits, number_of(ir.VectorType(element, lanes), 0))


def _first_lanes(mask: LlvmValue | None, outside: LlvmValue | None) -> int:
    """The number of lanes that count if they are the first ones and all exist, or 0.

    Parameters
    ----------
    mask
        Lanes that count.
    outside
        Lanes that exist; None if all do.
    """
    if mask is None or not isinstance(mask.type, ir.VectorType):
        return 0
    counts = known_bits(mask)
    rows = counts.count(True)
    exist = counts if outside is None else known_bits(outside)
    first = [lane < rows for lane in range(len(counts))]
    return rows if counts == first and all(exist[:rows]) and len(exist) == len(counts) else 0


_ZERO = Affine()
