"""Emit one kernel: what a block does, with its threads side by side.

A barrier stands wherever a region reads shared memory that others wrote, or writes what others may
still read. Barriers stand outside the loops over threads, so all threads reach them.

In a pipelined loop, copies into shared memory run ahead of the computation: those of iteration
`i + depth - 1` start in iteration `i`, into the slot that iteration `i - 1` has read. They are
asynchronous where a thread copies 4, 8 or 16 bytes at once.

What products of matrices read is swizzled: in each line of shared memory, its pieces of 16 bytes
are exchanged by the number of the line, so that eight rows of a matrix lie in different banks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir
from typing_extensions import override

from ...errors import CompileError
from ...isa.expressions import Affine, Read
from ..cpu.codegen.areas import CodeBuffer
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
from .blocks import (
    LINE_BYTES,
    Spread,
    bytes_of,
    is_region,
    shared_accesses,
    thread_loops,
    threads_of,
)
from .instructions import WarpProduct

ALIGNMENT_BYTES = 16
"""Alignment of buffers in shared memory and in registers."""

GLOBAL_SPACE, SHARED_SPACE = 1, 3
"""LLVM's numbers of main memory and of shared memory."""

ASYNCHRONOUS_BYTES = (4, 8, 16)
"""Bytes that an asynchronous copy moves."""

FRAGMENT_BYTES = 16
"""Bytes of a row of the matrices that a warp loads at once."""

PIECES = LINE_BYTES // FRAGMENT_BYTES
"""Rows of matrices that fit a line."""

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

    def copy_async(
        self, target: LlvmValue, source: LlvmValue, size: int, inside: LlvmValue | None
    ) -> None:
        """Start a copy of `size` bytes into shared memory; zeros where the bit is not set."""
        way = "cg" if size == max(ASYNCHRONOUS_BYTES) else "ca"
        given = I32(size) if inside is None else self.builder.select(inside, I32(size), I32(0))
        self.intrinsic(
            f"llvm.nvvm.cp.async.{way}.shared.global.{size}.s",
            ir.VoidType(),
            [
                self.in_shared(target),
                self.builder.addrspacecast(source, ir.PointerType(addrspace=GLOBAL_SPACE)),
                given,
            ],
        )

    def commit(self) -> None:
        """End a group of asynchronous copies."""
        self.intrinsic("llvm.nvvm.cp.async.commit.group", ir.VoidType(), [])

    def wait(self, groups: int) -> None:
        """Wait until at most so many groups of this thread are unfinished."""
        self.intrinsic("llvm.nvvm.cp.async.wait.group", ir.VoidType(), [I32(groups)])

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
    operands
        Buffers that only copies write and only instructions read.
    """

    emitter: GpuEmitter
    emitter_type = GpuEmitter

    def __init__(
        self,
        shared: LoweringContext,
        builder: LlvmBuilder,
        spreads: dict[str, Spread],
        threads: int,
        shared_memory: LlvmValue,
        operands: frozenset[str],
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
        self._swizzled = operands
        self._slots: dict[str, LlvmValue] = {}
        """For each buffer of a pipelined loop, the slot of the iteration that is emitted."""
        self._ahead = False
        """Whether copies are emitted that run ahead."""
        self._read: set[str] = set()
        self._written: set[str] = set()
        """Shared buffers that were accessed since the last barrier."""

    def number(self, name: str) -> LlvmValue:
        """A number of the thread or the block, read at the function's entry."""
        if name not in self._numbers:
            with self.builder.goto_entry_block():
                self._numbers[name] = self.emitter.register(name)
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
        pointer = self._in_line(area, offset, place)
        found = self.emitter.intrinsic(
            f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}.b16.p3",
            ir.LiteralStructType([I32] * count),
            [self.emitter.in_shared(pointer)],
        )
        return [builder.extract_value(found, number) for number in range(count)]

    def _in_line(self, area: CodeBuffer, offset: Affine, more: LlvmValue | None) -> LlvmValue:
        """Address of an element of shared memory, plus some bytes; see the module on swizzles."""
        builder = self.builder
        place = self.memory.number(offset)
        place = builder.mul(place, I64(bytes_per_element(area)))
        place = place if more is None else builder.add(place, more)
        if area.tensor.name in self._swizzled:
            line = builder.and_(builder.udiv(place, I64(LINE_BYTES)), I64(PIECES - 1))
            place = builder.xor(place, builder.mul(line, I64(FRAGMENT_BYTES)))
        found = builder.gep(area.pointer, [place], source_etype=I8)
        found.type = POINTER
        return found

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
        for affine, (low, high) in zip(self._resolved(node.value, env), source.domain, strict=True):
            if env.inside(affine, low, high) is not True:
                exists.append(self._bit(loops.Condition(affine, low, high), affine, None, env))
        inside = all_of(self.emitter, exists) if exists else None
        has_room = self.memory.has_room(target, index, env)
        pointer = self._pointer(source, at, inside)
        if self._ahead and has_room and align in ASYNCHRONOUS_BYTES and source.tensor.pad == 0:
            self.emitter.copy_async(self._in_line(target, to, None), pointer, align, inside)
            return
        value = self.builder.load(pointer, align=align, typ=kind)
        if inside is not None:
            pad = self.emitter.constant(source.tensor.pad, value)
            value = self.builder.select(inside, value, pad)
        if has_room:
            self.builder.store(value, self._in_line(target, to, None), align=align)
            return
        with self.builder.if_then(all_of(self.emitter, [self._in_room(target, index, env)])):
            self.builder.store(value, self._in_line(target, to, None), align=align)

    def _pointer(self, area: CodeBuffer, at: Affine, inside: LlvmValue | None) -> LlvmValue:
        """Address of elements, or that of the first ones where they do not exist."""
        if inside is None:
            return self.memory.address(area, at)
        place = self.builder.select(inside, self.memory.number(at), I64(0))
        element = TYPES[area.tensor.dtype]
        found = self.builder.gep(area.pointer, [place], source_etype=element)
        found.type = POINTER
        return found

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
            place: LlvmValue = I64(self._shared[name])
            if (slot := self._slots.get(name)) is not None:
                size = bytes_of(node) // max(1, node.slots)
                place = self.builder.add(place, self.builder.mul(slot, I64(size)))
            pointer = self.builder.gep(self.shared_memory, [place], source_etype=I8)
            pointer.type = POINTER
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
        reads, writes = shared_accesses(region, self._shared.keys() - self._slots.keys())
        if reads & self._written or writes & (self._read | self._written):
            self.emitter.barrier()
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
        elif node.depth > 1 and not self._in_region and (ahead := self._copies(node)):
            self.pipeline(node, ahead, env, symbol)
        else:
            if not self._in_region:
                self.repeat(node)
            self.counted(symbol, extent, partial(self.block, node.body, inside, mask))

    # Pipelined loops ---------------------------------------------------------------------------

    def _copies(self, node: loops.For) -> tuple[loops.Node, ...]:
        """The buffers in shared memory that copies at the head of a loop fill, with the copies."""
        found: list[loops.Node] = []
        for inner in node.body:
            if (isinstance(inner, loops.Allocate) and inner.scope == SHARED) or (
                isinstance(inner, loops.Nest) and inner.compute is None and found
            ):
                found.append(inner)
            else:
                break
        return tuple(found)

    def pipeline(
        self, node: loops.For, ahead: tuple[loops.Node, ...], env: Environment, symbol: str
    ) -> None:
        """Emit a loop whose copies run `depth - 1` iterations ahead of the rest."""
        emitter, builder, depth = self.emitter, self.builder, node.depth
        names = [one.tensor.name for one in ahead if isinstance(one, loops.Allocate)]
        start, last = env.resolved(node.start), node.extent - 1
        rest = node.body[len(ahead) :]

        def emit(block: loops.Block, number: LlvmValue, copying: bool) -> None:
            """A part of an iteration, whose buffers are in its slots."""
            slot = builder.urem(number, I64(depth))
            self._slots |= dict.fromkeys(names, slot)
            counter = self.shared.fresh(node.variable)
            self.memory.symbols[counter] = number
            self._ahead = copying
            self.memory.open()
            self.block(block, env.counting(node.variable, start, counter, 0, last), None)
            self.memory.close()
            self._ahead = False

        emitter.barrier()  # earlier readers of the memory are done
        for number in range(depth - 1):
            if number <= last:
                emit(ahead, I64(number), copying=True)
            emitter.commit()

        def iteration() -> None:
            number = self.memory.symbols[symbol]
            emitter.wait(depth - 2)
            emitter.barrier()
            following = builder.add(number, I64(depth - 1))
            with builder.if_then(builder.icmp_unsigned("<=", following, I64(last))):
                emit(ahead, following, copying=True)
            emitter.commit()
            emit((*(one for one in ahead if isinstance(one, loops.Allocate)), *rest), number, False)

        self.counted(symbol, node.extent, iteration)
        emitter.wait(0)
        for name in names:
            self._read.add(name)
            del self._slots[name]

    def repeat(self, node: loops.For) -> None:
        """Count the accesses of a loop's last iteration as earlier ones of the next."""
        names = {n.tensor.name for n in loops.nodes((node,)) if isinstance(n, loops.Allocate)}
        reads, writes = shared_accesses(node, names | set(self._shared))
        self._read |= reads
        self._written |= writes
