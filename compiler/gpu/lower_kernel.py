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
from ...isa.expressions import Affine
from ..cpu.codegen.buffers import LoweringContext
from ..cpu.codegen.emitter import I32, I64, TYPES, Emitter, LlvmBuilder, LlvmValue
from ..cpu.codegen.environment import Environment, divided
from ..cpu.codegen.lower_function import FunctionLowering
from ..cpu.codegen.lower_values import Mask
from ..te import nodes as loops
from ..te.affine import scaled, total
from ..te.target import BLOCKS, REGISTER, Kind
from .blocks import Spread, bytes_of, is_region, shared_accesses, thread_loops, threads_of

ALIGNMENT_BYTES = 16
"""Alignment of buffers in shared memory and in registers."""

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
        self.grid = {kind: 1 for kind in BLOCKS}
        """Blocks along each axis of the grid."""
        self._numbers: dict[str, LlvmValue] = {}
        self._units: dict[str, LlvmValue] = {}
        """Numbers of the threads along the loops of the region; empty outside of regions."""
        self._in_region = False
        self._shared: dict[str, int] = {}
        """Offsets of the buffers in shared memory."""
        self._used_bytes = 0
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

    @override
    def node(self, node: loops.Node, env: Environment, mask: Mask) -> None:
        before = set(self._read), set(self._written)
        super().node(node, env, mask)
        if isinstance(node, loops.Guard) and not self._in_region:
            self._read |= before[0]
            self._written |= before[1]

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


