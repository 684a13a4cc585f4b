"""Emit one kernel: what a block does, with its threads side by side.

A barrier stands wherever a region reads shared memory that others wrote, or writes what others may
still read. Barriers stand outside the loops over threads, so all threads reach them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llvmlite import ir
from typing_extensions import override

from ...errors import CompileError
from ...isa.expressions import Affine, Read
from ..cpu.codegen.areas import bytes_of as bytes_per_element
from ..cpu.codegen.buffers import LoweringContext
from ..cpu.codegen.dot_products import factors, update_inside
from ..cpu.codegen.emitter import (
    HALF,
    I8,
    I32,
    I64,
    POINTER,
    TYPES,
    Emitter,
    LlvmBuilder,
    LlvmValue,
)
from ..cpu.codegen.environment import Environment, divided, without
from ..cpu.codegen.lower_function import FunctionLowering
from ..cpu.codegen.lower_values import Mask
from ..cpu.codegen.masks import all_of
from ..te import nodes as loops
from ..te.affine import scaled, total
from ..te.target import BLOCKS, REGISTER, SHARED, Kind
from .blocks import Spread, bytes_of, is_region, shared_accesses, thread_loops, threads_of
from .instructions import WarpProduct

ALIGNMENT_BYTES = 16
"""Alignment of buffers in shared memory and in registers."""

SHARED_SPACE = 3
"""LLVM's number of shared memory."""

FRAGMENT_BYTES = 16
"""Bytes of a row of the matrices that a warp loads at once."""

VECTOR_BYTES = (2, 4, 8, 16)
"""Bytes that a thread copies at once."""

_AXES = dict(zip(BLOCKS, "xyz", strict=True))


class GpuEmitter(Emitter):
    """Instructions that LLVM names differently for GPUs."""

    @override
    def rounded(self, value: LlvmValue) -> LlvmValue:
        return self.intrinsic("llvm.nvvm.f2i.rn", I32, [value])

    def register(self, name: str) -> LlvmValue:
        """A number of the thread or of the block, as int64."""
        value = self.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}", I32, [])
        return self.builder.zext(value, I64)

    def in_shared(self, pointer: LlvmValue) -> LlvmValue:
        """A pointer to shared memory as instructions on that memory take it."""
        return self.builder.addrspacecast(pointer, ir.PointerType(addrspace=SHARED_SPACE))

    def barrier(self) -> None:
        self.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", ir.VoidType(), [I32(0)])


@dataclass(frozen=True, slots=True)
class SpreadLayout:
    """The elements of a spread buffer that one thread keeps, in row-major order.

    Parameters
    ----------
    extents
        Extents of the buffer.
    spread
        The owners of its elements.
    """

    extents: tuple[int, ...]
    spread: Spread

    def _sizes(self, dimension: int) -> tuple[int, ...]:
        """Elements of a thread between two digits of its number, the highest first."""
        sizes, above = [], self.extents[dimension]
        for owner in self.spread.owners[dimension]:
            sizes.append(-(-above // (owner.stride * owner.count)))
            above = owner.stride
        return (*sizes, above)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements, as a vector."""
        sizes = [self._sizes(dimension) for dimension in range(len(self.extents))]
        return (math.prod(size for part in sizes for size in part),)

    @property
    def size(self) -> int:
        return self.shape[0]

    def conditions(self, index: tuple[Affine, ...]) -> tuple[loops.Condition, ...]:
        """Conditions for an element to exist: none beyond those of the loops."""
        return ()

    def offset(self, index: Sequence[Affine], environment: Environment, tensor: str) -> Affine:
        """Position of an element among those of its thread.

        Raises
        ------
        CompileError
            When a serial loop crosses from one thread's elements to another's.
        """
        found = Affine()
        for dimension, affine in enumerate(index):
            rest = affine
            parts: list[Affine] = []
            for owner in self.spread.owners[dimension]:
                high, rest = _cut(rest, owner.stride * owner.count, environment, tensor)
                _, rest = _cut(rest, owner.stride, environment, tensor)
                parts.append(high)
            for size, part in zip(self._sizes(dimension), (*parts, rest), strict=True):
                found = total(scaled(found, size), part)
        return found


def _cut(
    affine: Affine, divisor: int, environment: Environment, tensor: str
) -> tuple[Affine, Affine]:
    found = divided(affine, divisor, environment)
    if found is None:
        raise CompileError(
            f"`{tensor}` is kept in registers, and `{affine}` crosses the {divisor} elements "
            "of a thread; split the loop by them"
        )
    return found


def _without(affine: Affine, symbols: Sequence[str]) -> Affine:
    for symbol in symbols:
        affine = without(affine, symbol)
    return affine


class KernelLowering(FunctionLowering):
    """The function of one kernel.

    Parameters
    ----------
    shared
        State shared by all kernels of the program.
    builder
        A builder at the function's entry.
    spreads
        Buffers in registers outside the thread loops.
    threads
        Threads of a block.
    shared_memory
        Address of the memory that threads share.
    """

    emitter_type = GpuEmitter

    def __init__(
        self,
        shared: LoweringContext,
        builder: LlvmBuilder,
        spreads: dict[str, Spread],
        threads: int,
        shared_memory: LlvmValue,
    ) -> None:
        super().__init__(shared, builder, {}, None)
        self.spreads, self.block_threads, self.shared_memory = spreads, threads, shared_memory
        self.grid = dict.fromkeys(BLOCKS, 1)
        """Blocks along each axis of the grid."""
        self._numbers: dict[str, LlvmValue] = {}
        self._units: dict[str, LlvmValue] = {}
        """Numbers of the threads along the loops of the region; empty outside of regions."""
        self._in_region = False
        self._shared: dict[str, int] = {}
        """Offsets of the buffers in shared memory."""
        self._used_bytes = 0
        self._regions = 0
        """Regions so far; what a region loaded from shared memory, another does not reuse."""
        self._exist: list[LlvmValue] | None = None
        """In a copy, bits of where the elements exist; None elsewhere."""
        self._read: set[str] = set()
        self._written: set[str] = set()
        """Shared buffers that were accessed since the last barrier."""

    def number(self, name: str) -> LlvmValue:
        """A number of the thread or the block, read at the function's entry."""
        if name not in self._numbers:
            emitter: Any = self.emitter
            with self.builder.goto_entry_block():
                self._numbers[name] = emitter.register(name)
        return self._numbers[name]

    @override
    def block(self, block: loops.Block, env: Environment, mask: Mask) -> None:
        if self._in_region:
            super().block(block, env, mask)
            return
        for node in block:
            if isinstance(node, loops.Let):
                env = self.let(node, env)
            elif isinstance(node, loops.Allocate):
                self.allocate(node, env)
            elif is_region(node):
                self.region(node, env)
            else:
                self.node(node, env, mask)

    # Products of matrices ----------------------------------------------------------------------

    @override
    def instruction(self, node: loops.InstructionNest, env: Environment) -> None:
        law = node.instruction
        assert isinstance(law, WarpProduct)
        names = [name for name, _ in law.lanes]
        half, row, pair, column, _ = names
        update, env, _ = update_inside(node, env, names, names[:-1])
        area = self.areas[update.target.tensor]
        place, _ = self.memory.place(area, self._resolved(update.target, env), env)
        first = _without(place, names)
        places = [
            self.memory.address(
                area, total(first, h * place.coefficient(half) + c * place.coefficient(column))
            )
            for h in range(2)
            for c in range(2)
        ]
        kind = TYPES[area.tensor.dtype]
        sums = [self.builder.load(one, align=4, typ=kind) for one in places]
        left, right = factors(update)
        operands = [
            *self.fragment(left, {row: 1, half: 8}, 4, node, env),
            *self.fragment(right, {column: 1, pair: 2}, 2, node, env),
        ]
        if law.sums == "float32":
            operands = [self.builder.bitcast(one, ir.VectorType(HALF, 2)) for one in operands]
        result = ir.LiteralStructType([kind] * 4)
        found = self.emitter.intrinsic(law.intrinsic, result, [*operands, *sums])
        for number, one in enumerate(places):
            self.builder.store(self.builder.extract_value(found, number), one, align=4)

    def fragment(
        self,
        read: Read,
        rows: dict[str, int],
        registers: int,
        node: loops.InstructionNest,
        env: Environment,
    ) -> list[LlvmValue]:
        """A warp's part of an operand: rows of 32 bytes, eight rows of half of them a register.

        Parameters
        ----------
        rows
            The loops over rows, with the rows from one iteration to the next.
        """
        area = self.areas[read.tensor]
        offset, _ = self.memory.place(area, self._resolved(read, env), env)
        apart = min(map(offset.coefficient, rows))
        size = bytes_per_element(area)
        steps = {name: apart * count for name, count in rows.items()} | {"tap": 1}
        found = {name: offset.coefficient(name) for name in steps}
        if found != steps or apart * size % FRAGMENT_BYTES or read.tensor not in self._shared:
            raise CompileError(
                f"{node.mnemonic}: `{read}` must lie in {SHARED}, with its taps side by side and "
                f"rows of a multiple of {FRAGMENT_BYTES} bytes; cache_read it, and split the "
                "reduction by whole instructions"
            )
        if not self.memory.has_room(area, self._resolved(read, env), env):
            raise CompileError(
                f"{node.mnemonic}: `{read}` reaches beyond `{read.tensor}`, which is smaller than "
                "the block's tile; split rows and columns by factors that do not exceed them"
            )
        key = ("fragment", read.tensor, _without(offset, [*steps]), self._regions)
        return self.memory.once(
            key, lambda: self._matrices(area, _without(offset, [*steps]), apart * size, registers)
        )

    def _matrices(self, area, offset: Affine, row_bytes: int, count: int) -> list[LlvmValue]:
        """Load matrices of 8 rows of 16 bytes: rows first, then the other half of the taps."""
        builder, thread = self.builder, self.number("tid.x")
        lines = 4 * count  # rows of all matrices that hold the first half of the taps
        line = builder.and_(thread, I64(lines - 1))
        half = builder.and_(builder.lshr(thread, I64(lines.bit_length() - 1)), I64(1))
        place = builder.add(
            builder.mul(line, I64(row_bytes)), builder.mul(half, I64(FRAGMENT_BYTES))
        )
        pointer = builder.gep(self.memory.address(area, offset), [place], source_etype=I8)
        pointer.type = POINTER
        emitter: Any = self.emitter
        found = emitter.intrinsic(
            f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}.b16.p3",
            ir.LiteralStructType([I32] * count),
            [emitter.in_shared(pointer)],
        )
        return [builder.extract_value(found, number) for number in range(count)]

    def _resolved(self, read: Read, env: Environment) -> list[Affine]:
        return [env.resolved(part) for part in read.index]

    # Copies into shared memory -----------------------------------------------------------------

    def copy(self, node: loops.TransferNest, env: Environment) -> None:
        """Copy without branches: what does not exist becomes the pad, for whole instructions."""
        self._exist = []
        self.block(node.body, env, None)
        self._exist = None

    @override
    def where(self, conditions, emit, env: Environment, mask: Mask) -> None:
        if self._exist is None:
            super().where(conditions, emit, env, mask)
            return
        before = list(self._exist)
        for condition in conditions:
            known, value = env.decide(condition)
            if known is not True:
                self._exist.append(self._bit(condition, value, known, env))
        emit(mask)
        self._exist = before

    def _bit(self, condition, value: Affine, known, env: Environment) -> LlvmValue:
        if known is False:
            return ir.Constant(ir.IntType(1), 0)
        if value.coefficient(env.lane):
            ends = [end for end in (condition.low, condition.high) if end is not None]
            start = without(value, env.lane)
            numbers = [factor for _, factor in start.terms]
            if any((end - start.constant) % env.lanes for end in ends) or any(
                number % env.lanes for number in numbers
            ):
                raise CompileError(
                    f"vectors of {env.lanes} elements cross the end of the copied tensor; "
                    "split by a factor that divides its last dimension"
                )
            value = start
        return self.memory.condition(value, condition.low, condition.high, replace(env, lane=""))

    @override
    def store(self, node: loops.Assign, env: Environment, mask: Mask) -> None:
        if self._exist is None:
            super().store(node, env, mask)
            return
        assert isinstance(node.value, Read)
        source, target = self.areas[node.value.tensor], self.areas[node.target.tensor]
        index = self._resolved(node.target, env)
        at, step = self.memory.place(source, self._resolved(node.value, env), env)
        to, _ = self.memory.place(target, index, env)
        element = TYPES[source.tensor.dtype]
        kind, align = self.emitter.vector(element, env.lanes), bytes_per_element(source)
        if env.lanes > 1:
            align *= env.lanes
            whole = all(
                number % env.lanes == 0
                for place in (at, to)
                for number in (place.constant, *(factor for _, factor in place.terms))
            )
            if step != 1 or not whole or align not in VECTOR_BYTES:
                raise CompileError(
                    f"a vector of {env.lanes} elements of `{source.tensor.name}` is not an "
                    f"aligned one of {', '.join(map(str, VECTOR_BYTES))} bytes side by side; "
                    "vectorise the innermost dimension by another factor"
                )
        exists = [*self._exist]
        outside = self.memory.outside(
            source, self._resolved(node.value, env), replace(env, lane="")
        )
        if outside is not None:
            exists.append(outside)
        if not exists:
            value = self.builder.load(self.memory.address(source, at), align=align, typ=kind)
        else:
            inside = all_of(self.emitter, exists)
            place = self.builder.select(inside, self.memory.number(at), I64(0))
            pointer = self.builder.gep(source.pointer, [place], source_etype=element)
            value = self.builder.load(pointer, align=align, typ=kind)
            pad = self.emitter.constant(source.tensor.pad, value)
            value = self.builder.select(inside, value, pad)
        if self.memory.has_room(target, index, env):
            self.builder.store(value, self.memory.address(target, to), align=align)
            return
        with self.builder.if_then(all_of(self.emitter, [self._in_room(target, index, env)])):
            self.builder.store(value, self.memory.address(target, to), align=align)

    def _in_room(self, area, index: list[Affine], env: Environment) -> LlvmValue:
        """Whether the buffer has room for an element."""
        pairs = zip(self.memory.inside(area, index), area.layout.shape, strict=True)
        plain = replace(env, lane="")
        bits = [
            self.memory.condition(without(affine, env.lane), 0, extent, plain)
            for affine, extent in pairs
            if env.inside(affine, 0, extent) is not True
        ]
        return all_of(self.emitter, bits)

    @override
    def node(self, node: loops.Node, env: Environment, mask: Mask) -> None:
        before = set(self._read), set(self._written)
        if isinstance(node, loops.TransferNest) and self._fills(node):
            self.copy(node, env)
        else:
            super().node(node, env, mask)
        if isinstance(node, loops.Guard) and not self._in_region:
            self._read |= before[0]
            self._written |= before[1]

    def _fills(self, node: loops.TransferNest) -> bool:
        """Whether a copy fills a buffer in shared memory."""
        return any(
            isinstance(inner, loops.Assign) and inner.target.tensor in self._shared
            for inner in loops.nodes(node.body)
        )

    def allocate(self, node: loops.Allocate, env: Environment) -> None:
        """Reserve the buffer that the threads share, or each thread's part of it."""
        name, element = node.tensor.name, TYPES[node.tensor.dtype]
        if node.scope != REGISTER:
            if name not in self._shared:
                self._shared[name] = self._used_bytes
                self._used_bytes += bytes_of(node)
            place = [I64(self._shared[name])]
            pointer = self.builder.gep(self.shared_memory, place, source_etype=ir.IntType(8))
            self.buffers.area(node, env, pointer)
            return
        layout = SpreadLayout(node.shape, self.spreads[name])
        pointer = self.emitter.alloca(element, layout.size, ALIGNMENT_BYTES)
        area = replace(self.buffers.area(node, env, pointer), layout=layout)
        self.areas[name] = area
        self.fill(area)

    def region(self, node: loops.Node, env: Environment) -> None:
        """Emit what each thread runs alone; surplus threads wait."""
        self.order(node)
        count = threads_of(node)
        rest, self._units = count, {}
        for loop in thread_loops(node):
            rest //= loop.extent
            self._units[loop.variable] = self.digit(rest, loop.extent, count)
        self._in_region = True
        self._regions += 1
        targets = {
            inner.target.tensor
            for inner in loops.nodes((node,))
            if isinstance(inner, (loops.Assign, loops.Update))
        }
        if count == self.block_threads or (count == 1 and targets <= self.spreads.keys()):
            self.block((node,), env, None)
        else:
            thread = self.number("tid.x")
            with self.builder.if_then(self.builder.icmp_unsigned("<", thread, I64(count))):
                self.memory.open()
                self.block((node,), env, None)
                self.memory.close()
        self._in_region = False

    def digit(self, divisor: int, extent: int, count: int) -> LlvmValue:
        """A digit of the thread's number."""
        value = self.number("tid.x")
        if divisor > 1:
            value = self.builder.udiv(value, I64(divisor))
        return self.builder.urem(value, I64(extent)) if divisor * extent < count else value

    def order(self, region: loops.Node) -> None:
        """Set a barrier if a region needs what other threads did before, or overwrites it."""
        reads, writes = shared_accesses(region, set(self._shared))
        if reads & self._written or writes & (self._read | self._written):
            emitter: Any = self.emitter
            emitter.barrier()
            self._read, self._written = set(), set()
        self._read |= reads
        self._written |= writes

    @override
    def loop(self, node: loops.For, env: Environment, mask: Mask) -> None:
        start, extent = env.resolved(node.start), node.extent
        symbol = self.shared.fresh(node.variable)
        inside = env.counting(node.variable, start, symbol, 0, extent - 1)
        if node.kind in BLOCKS:
            self.grid[node.kind] = extent
            self.memory.symbols[symbol] = self.number(f"ctaid.{_AXES[node.kind]}")
            self.block(node.body, inside, mask)
        elif node.kind is Kind.THREAD:
            self.memory.symbols[symbol] = self._units[node.variable]
            self.block(node.body, inside, mask)
        elif node.kind is Kind.UNROLLED or extent == 1:
            for number in range(extent):
                at = env.counting(node.variable, start, symbol, number, number)
                self.block(node.body, at, mask)
        elif node.kind is Kind.VECTORISED and self._exist is not None:
            self.block(node.body, replace(inside, lane=symbol), mask)
        elif node.kind is Kind.VECTORISED:
            self.loop(replace(node, kind=Kind.UNROLLED), env, mask)
        else:
            if not self._in_region:
                self.repeat(node)
            self.counted(symbol, extent, partial(self.block, node.body, inside, mask))

    def repeat(self, node: loops.For) -> None:
        """Count the accesses of a loop's last iteration as earlier ones of the next."""
        names = {n.tensor.name for n in loops.nodes((node,)) if isinstance(n, loops.Allocate)}
        reads, writes = shared_accesses(node, names | set(self._shared))
        self._read |= reads
        self._written |= writes
