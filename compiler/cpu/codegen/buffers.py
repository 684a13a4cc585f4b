"""Buffers of a loop program: in the workspace, on the stack, in registers; their first values."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import ir

from ....errors import CompileError
from ....isa.expressions import Affine, Op
from ...te.nodes import Allocate
from ...te.program import Program
from ...te.stages import REGISTER
from ...te.values import LIMITS
from ..target import Target
from .areas import Area, bytes_of
from .emitter import BIT, I8, I64, TYPES, LlvmValue, number_of
from .environment import Environment
from .layout import Layout
from .memory import Memory

ALIGNMENT = 64
"""Bytes to which buffers are aligned: a cache line."""

STACK_BYTES = 1 << 18
"""Largest buffer that lies on the stack of its thread."""

VECTOR = 64
"""Most elements that are written at once."""


@dataclass(slots=True)
class Shared:
    """What all functions of a kernel know, and count together.

    Parameters
    ----------
    program, target
        What is compiled, and what for.
    reduced
        Tensors that are reduced into, and by what.
    workspace_bytes
        Size of the root's buffers so far.
    names
        Symbols so far.
    """

    program: Program
    target: Target
    reduced: dict[str, Op]
    workspace_bytes: int = 0
    names: int = 0

    def fresh(self, name: str) -> str:
        """A symbol that no other is named like."""
        self.names += 1
        return f"{name}#{self.names}"

    def reserve(self, size_bytes: int) -> int:
        """Room in the workspace; its first byte."""
        start = -(-self.workspace_bytes // ALIGNMENT) * ALIGNMENT
        self.workspace_bytes = start + size_bytes
        return start


class Buffers:
    """Buffers inside one function.

    Parameters
    ----------
    shared
        What all functions of the kernel know.
    memory
        Where code goes.
    """

    def __init__(self, shared: Shared, memory: Memory) -> None:
        self.shared, self.memory, self.emitter = shared, memory, memory.emitter
        self.areas: dict[str, Area] = {}

    def in_workspace(self, node: Allocate, env: Environment, workspace: LlvmValue) -> Area:
        """A buffer at the root."""
        area = self._area(node, env, workspace)
        start = self.shared.reserve(bytes_of(area) * area.layout.size)
        pointer = self.emitter.builder.gep(workspace, [I64(start)], source_etype=I8)
        return self._area(node, env, pointer)

    def on_stack(self, node: Allocate, env: Environment) -> Area:
        """A buffer inside a loop, of this thread alone; LLVM keeps small ones in registers.

        Raises
        ------
        CompileError
            When it is too large.
        """
        element = TYPES[node.tensor.dtype]
        count = math.prod(self._room(node))
        size = count * (element.width // 8 if isinstance(element, ir.IntType) else 4)
        if size > STACK_BYTES:
            raise CompileError(
                f"buffer `{node.tensor.name}` has {size} bytes inside a loop, more than the "
                f"{STACK_BYTES} that fit the stack; split the loops around it, or compute it at "
                "the root"
            )
        return self._area(node, env, self.emitter.alloca(element, count, ALIGNMENT))

    def _area(self, node: Allocate, env: Environment, pointer: LlvmValue) -> Area:
        unbounded = tuple((-(1 << 62), 1 << 62) for _ in node.shape)
        domain = self.shared.program.domains.get(node.tensor.name, unbounded)
        origin = tuple(map(env.resolved, node.origin))
        layout = Layout.plain(self._room(node))
        found = Area(node.tensor, domain, origin, layout, pointer, node.scope == REGISTER)
        self.areas[node.tensor.name] = found
        return found

    def _room(self, node: Allocate) -> tuple[int, ...]:
        """A buffer's extents; rows of registers are whole vectors."""
        *outer, last = node.shape
        lanes = self.shared.target.lanes
        if node.scope == REGISTER and last > 1:
            last = -(-last // lanes) * lanes
        return (*outer, last)

    def neutral_stores(self, area: Area) -> Iterator[tuple[str, int, Affine, LlvmValue]]:
        """Loops that fill a buffer that is reduced into with the neutral element.

        Each is a symbol, how often, where, and what is stored.
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
