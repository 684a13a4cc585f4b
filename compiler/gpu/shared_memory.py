"""Shared memory: addresses, and copies into it without branches.

What products of matrices read is swizzled: in each line of shared memory, its pieces of 16 bytes
are exchanged by the number of the line, so that eight rows of a matrix lie in different banks. The
instructions of warpgroups demand that pieces stay inside of their row, which may be half a line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from llvmlite import ir

from ...errors import CompileError
from ...isa.expressions import Affine, Read
from ..cpu.codegen.areas import CodeBuffer, bytes_of
from ..cpu.codegen.emitter import BIT, I8, I64, POINTER, TYPES, LlvmValue, number_of
from ..cpu.codegen.environment import Environment, without
from ..cpu.codegen.lower_values import Values
from ..cpu.codegen.masks import all_of
from ..te.nodes import Assign, Condition
from .blocks import LINE_BYTES
from .emitter import ASYNCHRONOUS_BYTES, GpuEmitter

PIECE_BYTES = 16
"""Bytes that stay side by side when a line is swizzled: a row of a matrix that a warp loads."""

VECTOR_BYTES = (2, 4, 8, 16)
"""Sizes of a copy by one instruction of a thread."""


class SharedMemory:
    """The shared memory of one kernel.

    Parameters
    ----------
    values
        Emits the code, and has the buffers that exist now.
    swizzled
        Buffers that only copies write and only instructions read, with the bytes of their rows.
    """

    def __init__(
        self,
        emitter: GpuEmitter,
        values: Values,
        swizzled: Mapping[str, int],
    ) -> None:
        self.emitter, self.values, self.swizzled = emitter, values, swizzled
        self.memory, self.areas = values.memory, values.areas
        self.runs_ahead = False
        """Set while the copies of a later iteration are emitted, which may be asynchronous."""
        self._exist: list[LlvmValue] | None = None
        """In a copy, bits of where the elements exist; None elsewhere."""

    def address(self, area: CodeBuffer, offset: Affine, more: LlvmValue | None) -> LlvmValue:
        """Address of an element, plus some bytes."""
        builder = self.emitter.builder
        place = builder.mul(self.memory.number(offset), I64(bytes_of(area)))
        place = place if more is None else builder.add(place, more)
        if row_bytes := self.swizzled.get(area.tensor.name):
            pieces = row_bytes // PIECE_BYTES
            line = builder.and_(builder.udiv(place, I64(LINE_BYTES)), I64(pieces - 1))
            place = builder.xor(place, builder.mul(line, I64(PIECE_BYTES)))
        found = builder.gep(area.pointer, [place], source_etype=I8)
        found.type = POINTER
        return found

    # Copies --------------------------------------------------------------------------------------

    @property
    def is_copying(self) -> bool:
        return self._exist is not None

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Copy inside of the block: what does not exist becomes the pad, for whole instructions."""
        self._exist = []
        yield
        self._exist = None

    def where(
        self, conditions: Sequence[Condition], emit: Callable[[], None], env: Environment
    ) -> None:
        """Emit code whose elements exist where conditions hold."""
        assert self._exist is not None
        before = list(self._exist)
        for condition in conditions:
            known, value = env.decide(condition)
            if known is False:
                self._exist.append(ir.Constant(BIT, 0))
            elif known is None:
                self._exist.append(self._bit(replace(condition, value=value), env))
        emit()
        self._exist = before

    def _bit(self, condition: Condition, env: Environment) -> LlvmValue:
        """The bit of a condition, which must be the same for all elements of a vector."""
        value, low, high = condition.value, condition.low, condition.high
        if value.coefficient(env.lane):
            value = without(value, env.lane)
            ends = [end - value.constant for end in (low, high) if end is not None]
            if any(number % env.lanes for number in (*ends, *(k for _, k in value.terms))):
                raise CompileError(
                    f"vectors of {env.lanes} elements cross the end of the copied tensor; "
                    "split by a factor that divides its last dimension"
                )
        return self.memory.condition(value, low, high, replace(env, lane=""))

    def copy(self, node: Assign, env: Environment) -> None:
        """Copy an element, or a vector of them."""
        assert isinstance(node.value, Read)
        assert self._exist is not None
        builder = self.emitter.builder
        source, target = self.areas[node.value.tensor], self.areas[node.target.tensor]
        read, index = (
            [env.resolved(part) for part in one.index] for one in (node.value, node.target)
        )
        (at, step), (to, _) = (
            self.memory.place(area, place, env) for area, place in ((source, read), (target, index))
        )
        size = bytes_of(source) * env.lanes
        if env.lanes > 1:
            wider = max(size, bytes_of(target) * env.lanes)
            self._check_vector(source, (at, to), step, wider, env)
        exists = [*self._exist]
        for affine, (low, high) in zip(read, source.domain, strict=True):
            if env.inside(affine, low, high) is not True:
                exists.append(self._bit(Condition(affine, low, high), env))
        inside = all_of(self.emitter, exists) if exists else None
        pointer = self.memory.existing(source, at, inside)
        has_room = self.memory.has_room(target, index, env)
        is_same = source.tensor.dtype == target.tensor.dtype
        if self.runs_ahead and has_room and is_same and size in ASYNCHRONOUS_BYTES:
            self._copy_ahead(source, pointer, self.address(target, to, None), size, inside)
            return
        kind = self.emitter.vector(TYPES[source.tensor.dtype], env.lanes)
        value = builder.load(pointer, align=size, typ=kind)
        if inside is not None:
            pad = self.emitter.constant(source.tensor.pad, value)
            value = builder.select(inside, value, pad)
        if not is_same:
            value = self.values.stored(self.values.widened(source, value), target.tensor.dtype)
        size = bytes_of(target) * env.lanes
        if has_room:
            builder.store(value, self.address(target, to, None), align=size)
            return
        with builder.if_then(self._in_room(target, index, env)):
            builder.store(value, self.address(target, to, None), align=size)

    def _copy_ahead(
        self,
        source: CodeBuffer,
        pointer: LlvmValue,
        place: LlvmValue,
        size: int,
        inside: LlvmValue | None,
    ) -> None:
        """Copy `size` bytes asynchronously; a pad other than zeros is stored at once."""
        pad = source.tensor.pad
        if pad == 0 or inside is None:
            self.emitter.copy_async(place, pointer, size, inside)
            return
        kind = self.emitter.vector(TYPES[source.tensor.dtype], size // bytes_of(source))
        with self.emitter.builder.if_else(inside) as (there, outside):
            with there:
                self.emitter.copy_async(place, pointer, size, None)
            with outside:
                self.emitter.builder.store(number_of(kind, pad), place, align=size)

    def _check_vector(
        self,
        source: CodeBuffer,
        places: tuple[Affine, ...],
        step: int,
        size: int,
        env: Environment,
    ) -> None:
        numbers = [
            number
            for place in places
            for number in (place.constant, *(factor for _, factor in place.terms))
        ]
        if step != 1 or any(number % env.lanes for number in numbers) or size not in VECTOR_BYTES:
            raise CompileError(
                f"a vector of {env.lanes} elements of `{source.tensor.name}` is not an aligned "
                f"one of {', '.join(map(str, VECTOR_BYTES))} bytes side by side; vectorise the "
                "innermost dimension by another factor"
            )

    def _in_room(self, area: CodeBuffer, index: list[Affine], env: Environment) -> LlvmValue:
        """Whether the buffer has room for an element."""
        pairs = zip(self.memory.inside(area, index), area.layout.shape, strict=True)
        bits = [
            self.memory.condition(without(affine, env.lane), 0, extent, replace(env, lane=""))
            for affine, extent in pairs
            if env.inside(affine, 0, extent) is not True
        ]
        return all_of(self.emitter, bits)
