"""Emit one kernel: what a block does, with its threads side by side.

In a pipelined loop, copies into shared memory run ahead of the computation: those of iteration
`i + depth - 1` start in iteration `i`, into the slot that iteration `i - 1` has read. They are
asynchronous where a thread copies 4, 8 or 16 bytes at once, or one instruction a box.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from typing_extensions import override

from ..cpu.codegen.buffers import LoweringContext
from ..cpu.codegen.emitter import I8, I64, POINTER, TYPES, LlvmValue
from ..cpu.codegen.environment import Environment
from ..cpu.codegen.lower_function import FunctionLowering
from ..cpu.codegen.lower_values import Mask
from ..te import nodes as loops
from ..te.stages import qualified
from ..te.target import BLOCKS, REGISTER, Kind
from .blocks import (
    bytes_of,
    copies_ahead,
    is_region,
    moves,
    operands_of,
    places_of,
    shared_of,
    spreads,
    thread_loops,
    threads_of,
)
from .box_copies import BoxCopies
from .bulk_copies import BulkCopy
from .emitter import ALIGNMENT_BYTES, GpuEmitter
from .instructions import WARP_THREADS, WarpProduct
from .kernel_module import KernelEntry
from .shared_memory import SharedMemory
from .spread_layout import SpreadLayout
from .warp_products import WarpProducts

_AXES = dict(zip(BLOCKS, "xyz", strict=True))


class KernelLowering(FunctionLowering):
    """The function of one kernel.

    Parameters
    ----------
    shared
        State shared by all kernels of the program.
    emitter_type
        Emits instructions in the language of the target's level.
    entry
        The function's entry.
    nest
        The kernel.
    threads
        Threads of a block that compute.
    has_producer
        Whether there is one more warp, which starts all copies of the pipelined loop.
    boxes
        Copies by tensor maps, by the buffers that they fill.
    """

    emitter: GpuEmitter

    def __init__(
        self,
        shared: LoweringContext,
        emitter_type: type[GpuEmitter],
        entry: KernelEntry,
        nest: loops.Nest,
        threads: int,
        has_producer: bool,
        boxes: Mapping[str, BulkCopy],
    ) -> None:
        self.emitter_type = emitter_type
        super().__init__(shared, entry.builder, {}, None)
        self.spreads, self._places = spreads(nest), places_of(nest)
        self._copier = threads if has_producer else 0
        """The thread that starts copies."""
        self.block_threads = threads + (WARP_THREADS if has_producer else 0)
        self.shared_memory = entry.shared_memory
        self.copies = SharedMemory(self.emitter, self.values, operands_of(nest))
        laws = [
            node.instruction
            for node in loops.nodes((nest,))
            if isinstance(node, loops.InstructionNest)
        ]
        self.reads_shared = any(isinstance(law, WarpProduct) and law.reads_shared for law in laws)
        """Set if instructions read shared memory by themselves."""
        self.products = WarpProducts(self.emitter, self.copies)
        mbarriers = self._at(I64(shared_of(nest))) if boxes else None
        copies = dict(zip(boxes, zip(boxes.values(), entry.maps, strict=True), strict=True))
        self.boxes = BoxCopies(self.emitter, self.values, copies, mbarriers)
        self.grid = dict.fromkeys(BLOCKS, 1)
        """Blocks along each axis of the grid."""
        self._copied: set[str] = set()
        """Axes of the copy that is emitted; conditions on other variables cut off its last part."""
        self._numbers: dict[str, LlvmValue] = {}
        self._units: dict[str, LlvmValue] = {}
        """Numbers of the threads along the loops of the region; empty outside of regions."""
        self._in_region = False
        self._regions = 0
        """Regions so far."""
        self._slots: dict[str, LlvmValue] = {}
        """For each buffer of a pipelined loop, the slot of the iteration that is emitted."""

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
            elif isinstance(node, loops.Barrier):
                self.barrier()
            elif isinstance(node, loops.Nest) and node.stage in self.boxes.copies:
                self.boxes.gathered.append((node.stage, env))
            elif is_region(node):
                self.region(node, env)
            else:
                self.node(node, env, mask)

    def barrier(self) -> None:
        """Let all threads of the block wait for each other, and see what they wrote."""
        if self.reads_shared:
            self.emitter.publish()
        self.emitter.barrier()

    @override
    def instruction(self, node: loops.InstructionNest, env: Environment) -> None:
        self.products.emit(node, env, self.number("tid.x"), self._regions)

    @override
    def where(self, conditions, emit, env: Environment, mask: Mask) -> None:
        names = {name for one in conditions for name, _ in one.value.terms}
        if self.copies.is_copying and not names.isdisjoint(self._copied):
            self.copies.where(conditions, partial(emit, mask), env)
        else:
            super().where(conditions, emit, env, mask)

    @override
    def store(self, node: loops.Assign, env: Environment, mask: Mask) -> None:
        if self.copies.is_copying:
            self.copies.copy(node, env)
        else:
            super().store(node, env, mask)

    @override
    def node(self, node: loops.Node, env: Environment, mask: Mask) -> None:
        if isinstance(node, loops.Nest) and moves(node) and self._fills(node):
            self._copied = {qualified(node.stage, axis) for axis in node.axes}
            with self.copies.copying():
                self.block(node.body, env, None)
        else:
            super().node(node, env, mask)

    def _fills(self, node: loops.Nest) -> bool:
        """Whether a copy fills a buffer in shared memory."""
        return node.stage in self._places

    def _at(self, offset: LlvmValue) -> LlvmValue:
        """An address in shared memory."""
        pointer = self.builder.gep(self.shared_memory, [offset], source_etype=I8)
        pointer.type = POINTER
        return pointer

    def allocate(self, node: loops.Allocate, env: Environment) -> None:
        """Reserve the buffer that the threads share, or each thread's part of it."""
        name, element = node.tensor.name, TYPES[node.tensor.dtype]
        if node.scope != REGISTER:
            place: LlvmValue = I64(self._places[name])
            if (slot := self._slots.get(name)) is not None:
                size = bytes_of(node) // max(1, node.slots)
                place = self.builder.add(place, self.builder.mul(slot, I64(size)))
            self.buffers.area(node, env, self._at(place))
            return
        layout = SpreadLayout(node.shape, self.spreads[name])
        pointer = self.emitter.alloca(element, layout.size, ALIGNMENT_BYTES)
        area = replace(self.buffers.area(node, env, pointer), layout=layout)
        self.areas[name] = area
        self.fill(area)

    def region(self, node: loops.Node, env: Environment) -> None:
        """Emit what each thread runs alone; surplus threads wait."""
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
            self.products.finish()
        else:
            thread = self.number("tid.x")
            inside = self.builder.icmp_unsigned("<", thread, I64(count))
            with self.builder.if_then(inside), self.memory.scope():
                self.block((node,), env, None)
                self.products.finish()
        self._in_region = False

    def digit(self, divisor: int, extent: int, count: int) -> LlvmValue:
        """A digit of the thread's number."""
        value = self.number("tid.x")
        if divisor > 1:
            value = self.builder.udiv(value, I64(divisor))
        return self.builder.urem(value, I64(extent)) if divisor * extent < count else value

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
        elif node.kind is Kind.VECTORISED and self.copies.is_copying:
            self.block(node.body, replace(inside, lane=symbol), mask)
        elif node.kind is Kind.VECTORISED:
            self.loop(replace(node, kind=Kind.UNROLLED), env, mask)
        elif not self._in_region and (ahead := copies_ahead(node)):
            self.pipeline(node, ahead, env)
        else:
            self.counted(symbol, extent, partial(self.block, node.body, inside, mask))

    # Pipelined loops ---------------------------------------------------------------------------

    def pipeline(self, node: loops.For, ahead: tuple[loops.Node, ...], env: Environment) -> None:
        """Emit a loop whose copies run `depth - 1` iterations ahead of the rest.

        Where nothing is asynchronous, the slots only save a barrier. Where tensor maps carry out
        all copies, one thread starts them as soon as slots are read, and no barrier is left.
        """
        emitter, builder, depth = self.emitter, self.builder, node.depth
        names = [one.tensor.name for one in ahead if isinstance(one, loops.Allocate)]
        start, last = env.resolved(node.start), node.extent - 1
        barrier, *rest = node.body[len(ahead) :]
        assert isinstance(barrier, loops.Barrier)
        work = (*(one for one in ahead if isinstance(one, loops.LEAVES)), *rest)
        boxes, thread = self.boxes, self.number("tid.x")
        copied = {one.stage for one in ahead if isinstance(one, loops.Nest)}
        by_threads, by_boxes = not copied <= boxes.copies.keys(), bool(boxes.copies)
        copies = builder.icmp_unsigned("==", thread, I64(self._copier))

        def place(number: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
            """The slot of an iteration, and how often it was filled before."""
            return builder.urem(number, I64(depth)), builder.udiv(number, I64(depth))

        def emit(block: loops.Block, number: LlvmValue, copying: bool = False) -> None:
            """A part of an iteration, whose buffers are in its slots."""
            slot, _ = place(number)
            self._slots |= dict.fromkeys(names, slot)
            counter = self.shared.fresh(node.variable)
            self.memory.symbols[counter] = number
            self.copies.runs_ahead = copying
            with self.memory.scope():
                self.block(block, env.counting(node.variable, start, counter, 0, last), None)
                if boxes.gathered:
                    boxes.start(slot, copies)
            self.copies.runs_ahead = False

        def produce(number: LlvmValue) -> None:
            boxes.wait(*place(number), is_read=True)
            emit(ahead, number, copying=True)

        def consume(number: LlvmValue) -> None:
            slot, turn = place(number)
            boxes.wait(slot, turn)
            emit(work, number)
            boxes.release(slot, thread)

        def iteration(number: LlvmValue) -> None:
            if by_threads:
                emitter.wait(depth - 2)
            if by_boxes:
                boxes.wait(*place(number))
            self.barrier()
            following = builder.add(number, I64(depth - 1))
            with builder.if_then(builder.icmp_unsigned("<=", following, I64(last))):
                emit(ahead, following, copying=True)
            if by_threads:
                emitter.commit()
            emit(work, number)

        if by_boxes:
            boxes.initialise(depth, self._copier // WARP_THREADS, copies)
            self.barrier()
        if self._copier:
            computes = builder.icmp_unsigned("<", thread, I64(self._copier))
            with builder.if_else(computes) as (there, behind):
                with there, self.memory.scope():
                    emitter.repeat(node.extent, consume)
                with behind, builder.if_then(copies), self.memory.scope():
                    emitter.repeat(node.extent, produce)
        elif emitter.is_asynchronous:
            for number in range(depth - 1):
                if number <= last:
                    emit(ahead, I64(number), copying=True)
                if by_threads:
                    emitter.commit()
            emitter.repeat(node.extent, iteration)
            if by_threads:
                emitter.wait(0)
        else:
            emitter.repeat(node.extent, partial(emit, node.body))
        for name in names:
            del self._slots[name]
