"""Allocate and initialise buffers in the workspace, on the stack or in registers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import ir

from ....aligned import ALIGNMENT_BYTES, align, round_up
from ....errors import CompileError
from ....isa.expressions import Affine, Op
from ...te.nodes import Allocate
from ...te.program import Program
from ...te.target import REGISTER
from ...te.values import LIMITS
from .areas import CodeBuffer, bytes_of
from .emitter import BIT, I8, I64, TYPES, CodeTarget, LlvmValue, number_of
from .environment import Environment
from .layout import Layout
from .matrix_products import SumTiles, whole_tiles
from .memory import MemoryAccess

STACK_BYTES = 1 << 18
"""Largest buffer that lies on the stack of its thread."""

VECTOR = 64
"""Largest number of elements written at once."""


@dataclass(slots=True)
class LoweringContext:
    """State that all functions of a kernel share while they are lowered.

    Parameters
    ----------
    program, target
        The loop program, and the processor to compile for.
    reduced
        Tensors that hold reductions, with their operations.
    tiles
        Tensors whose sums are in the processor's tiles.
    workspace_bytes
        Total size of the root's buffers so far.
    names
        Number of symbols so far.
    """

    program: Program
    target: CodeTarget
    reduced: dict[str, Op]
    tiles: dict[str, SumTiles]
    workspace_bytes: int = 0
    names: int = 0

    def fresh(self, name: str) -> str:
        """A unique symbol."""
        self.names += 1
        return f"{name}#{self.names}"

    def reserve(self, size_bytes: int) -> int:
        """Reserve bytes in the workspace and return the offset of the first."""
        start = align(self.workspace_bytes)
        self.workspace_bytes = start + size_bytes
        return start


class Buffers:
    """Buffers inside one function.

    Parameters
    ----------
    shared
        State shared by all functions of the kernel.
    memory
        Emits the code.
    """

    def __init__(self, shared: LoweringContext, memory: MemoryAccess) -> None:
        self.shared, self.memory, self.emitter = shared, memory, memory.emitter
        self.areas: dict[str, CodeBuffer] = {}

    def in_workspace(self, node: Allocate, env: Environment, workspace: LlvmValue) -> CodeBuffer:
        """Allocate a buffer at the root."""
        area = self.area(node, env, workspace)
        start = self.shared.reserve(bytes_of(area) * area.layout.size)
        pointer = self.emitter.builder.gep(workspace, [I64(start)], source_etype=I8)
        return self.area(node, env, pointer)

    def on_stack(self, node: Allocate, env: Environment) -> CodeBuffer:
        """Allocate a buffer inside a loop, private to a thread; LLVM keeps small ones in registers.

        Raises
        ------
        CompileError
            When the buffer is too large.
        """
        element = TYPES[node.tensor.dtype]
        count = math.prod(self._extents(node))
        size = count * (element.width // 8 if isinstance(element, ir.IntType) else 4)
        if size > STACK_BYTES:
            raise CompileError(
                f"buffer `{node.tensor.name}` has {size} bytes inside a loop, more than the "
                f"{STACK_BYTES} that fit the stack; split the loops around it, or compute it at "
                "the root"
            )
        return self.area(node, env, self.emitter.alloca(element, count, ALIGNMENT_BYTES))

    def area(self, node: Allocate, env: Environment, pointer: LlvmValue) -> CodeBuffer:
        """The buffer at an address, from now on."""
        unbounded = tuple((-(1 << 62), 1 << 62) for _ in node.shape)
        domain = self.shared.program.domains.get(node.tensor.name, unbounded)
        origin = tuple(map(env.resolved, node.origin))
        layout = Layout.plain(self._extents(node))
        found = CodeBuffer(node.tensor, domain, origin, layout, pointer, node.scope == REGISTER)
        self.areas[node.tensor.name] = found
        return found

    def _extents(self, node: Allocate) -> tuple[int, ...]:
        """Extents of a buffer, rounded up to whole tiles or, in registers, to whole vectors."""
        if node.tensor.name in self.shared.tiles:
            tiles = self.shared.tiles[node.tensor.name]
            return whole_tiles(node.shape, tiles.rows, tiles.unit)
        *outer, last = node.shape
        lanes = self.shared.target.lanes
        if node.scope == REGISTER and last > 1:
            last = round_up(last, lanes)
        return (*outer, last)

    def neutral_stores(self, area: CodeBuffer) -> Iterator[tuple[str, int, Affine, LlvmValue]]:
        """Loops that fill the buffer of a reduction with its neutral element.

        Yields a symbol, the number of iterations, the place and the value stored there.
        """
        op = self.shared.reduced.get(area.tensor.name)
        if op is None:
            return
        count, element = area.layout.size, TYPES[area.tensor.dtype]
        if op is Op.ADD:
            arguments = [area.pointer, I8(0), I64(count * bytes_of(area)), BIT(0)]
            self.emitter.intrinsic("llvm.memset.p0.i64", ir.VoidType(), arguments)
            return
        least = LIMITS[area.tensor.dtype][0] if area.tensor.dtype in LIMITS else float("-inf")
        lanes = min(count, area.layout.shape[-1], VECTOR)
        blocks, rest = divmod(count, lanes)
        for size, times, first in ((lanes, blocks, 0), (1, rest, count - rest)):
            symbol = self.shared.fresh("fill")
            place = Affine(((symbol, size),) if times > 1 else (), first)
            yield symbol, times, place, number_of(self.emitter.vector(element, size), least)
