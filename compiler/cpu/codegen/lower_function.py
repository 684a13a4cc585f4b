"""Emit the loops, guards and statements of a program in one LLVM function, as scheduled.

If only the first and last iterations of a loop need a guard or a border check, they get code of
their own (`middle_of`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from llvmlite import ir

from ....isa.expressions import Affine, Read
from ...te import nodes as loops
from ...te.affine import total, variable
from ...te.target import Kind
from .areas import CodeBuffer, bytes_of
from .buffers import Buffers, LoweringContext
from .cut import middle_of
from .dot_products import emit_dot_product, instruction_of
from .emitter import I64, Emitter, LlvmBuilder, LlvmValue
from .environment import Environment
from .lower_parallel import emit_parallel
from .lower_values import Mask, Values
from .masks import all_of
from .matrix_products import MatrixTiles
from .memory import MemoryAccess
from .operations import is_long


class FunctionLowering:
    """One LLVM function: the kernel, or the body of a parallel loop in it.

    Parameters
    ----------
    shared
        State shared by all functions of the kernel.
    builder
        A builder at the function's entry.
    symbols
        Values of the symbols that are known there.
    threads
        The pool's function for parallel loops and its state; None inside such a loop.
    """

    emitter_type = Emitter

    def __init__(
        self,
        shared: LoweringContext,
        builder: LlvmBuilder,
        symbols: dict[str, LlvmValue],
        threads: tuple[LlvmValue, LlvmValue] | None,
    ) -> None:
        self.shared, self.builder, self.threads = shared, builder, threads
        self.emitter = self.emitter_type(builder, shared.target)
        self.memory = MemoryAccess(self.emitter, symbols)
        self.buffers = Buffers(shared, self.memory)
        self.areas = self.buffers.areas
        self.values = Values(self.memory, self.areas)
        self.tiles = MatrixTiles(self.values, shared.tiles)

    def another(self, builder: LlvmBuilder, symbols: dict[str, LlvmValue]) -> "FunctionLowering":
        """Another function of the kernel, without parallel loops of its own."""
        return FunctionLowering(self.shared, builder, symbols, None)

    def root(self, block: loops.Block, workspace: LlvmValue) -> None:
        """Emit the nests of the program, each with its buffer in the workspace."""
        env = Environment({}, {})
        for node in block:
            if isinstance(node, loops.Allocate) and node.tensor.name in self.areas:
                self.fill(self.areas[node.tensor.name])
            elif isinstance(node, loops.Allocate) and node.tensor.name in self.shared.tiles:
                self.tiles.clear(self.buffers.on_stack(node, env))
            elif isinstance(node, loops.Allocate):
                self.fill(self.buffers.in_workspace(node, env, workspace))
            else:
                self.node(node, env, None)

    def block(self, block: loops.Block, env: Environment, mask: Mask) -> None:
        """Emit nodes in order; later ones see the variables that earlier ones bind."""
        sums = None
        for node in block:
            if isinstance(node, loops.Let):
                env = self.let(node, env)
            elif isinstance(node, loops.Allocate):
                area = self.buffers.on_stack(node, env)
                if node.tensor.name in self.shared.tiles:
                    self.tiles.clear(area)
                    sums = area
                else:
                    self.fill(area)
            else:
                self.node(node, env, mask)
                if sums is not None:
                    self.tiles.store(sums)
                    sums = None

    def node(self, node: loops.Node, env: Environment, mask: Mask) -> None:
        """Emit a node that binds nothing."""
        if isinstance(node, loops.For):
            self.loop(node, env, mask)
        elif isinstance(node, loops.Guard):
            self.where(node.conditions, partial(self.block, node.body, env), env, mask)
        elif isinstance(node, loops.Assign):
            self.store(node, env, mask)
        elif isinstance(node, loops.Update):
            before = self.values.element(node.target, env, mask)
            value = self.values.combined(node.op, before, node.value, env, mask)
            self.write(node.target, value, env, mask)
        elif isinstance(node, loops.InstructionNest):
            self.instruction(node, env)
        elif isinstance(node, (loops.Nest, loops.TransferNest)):
            with self.tiles.shaped(node.body, self.is_shared):
                self.block(node.body, env, mask)

    def instruction(self, node: loops.InstructionNest, env: Environment) -> None:
        """Emit the instruction of a nest."""
        if instruction_of(node).unit:
            self.tiles.multiply(node, env)
        else:
            emit_dot_product(node, env, self.values)

    def store(self, node: loops.Assign, env: Environment, mask: Mask) -> None:
        """Store an element if it exists; in clipped tiles some do not."""

        def stored(mask: Mask) -> None:
            value = self.values.value(node.value, env, mask)
            self.write(node.target, value, env, mask)

        layout = self.areas[node.target.tensor].layout
        self.where(layout.conditions(node.target.index), stored, env, mask)

    def write(self, target: Read, value: LlvmValue, env: Environment, mask: Mask) -> None:
        """Store an element."""
        area = self.areas[target.tensor]
        index = [env.resolved(part) for part in target.index]
        self.memory.write(area, index, self.values.stored(value, area.tensor.dtype), env, mask)

    # Loops ---------------------------------------------------------------------------------------

    def fill(self, area: CodeBuffer) -> None:
        """Fill the buffer of a reduction with its neutral element."""

        def put(place: Affine, value: LlvmValue) -> None:
            self.builder.store(value, self.memory.address(area, place), align=bytes_of(area))

        for symbol, count, place, value in self.buffers.neutral_stores(area):
            if count == 1:
                put(place, value)
            elif count > 1:
                self.counted(symbol, count, partial(put, place, value))

    def counted(self, symbol: str, count: int, body) -> None:
        """Emit a loop of `count` iterations, at least one."""

        def iteration(number: LlvmValue) -> None:
            self.memory.symbols[symbol] = number
            self.memory.open()
            body()
            self.memory.close()

        self.emitter.repeat(count, iteration)

    def let(self, node: loops.Let, env: Environment) -> Environment:
        """Bind a variable: a sum of others, or a digit of a fused loop."""
        value, digit = env.resolved(node.value), node.digit
        if digit is None:
            return env.bind(node.variable, value)
        fused = env.resolved(variable(digit.variable))
        if not fused.terms:
            number = fused.constant // digit.divisor % digit.modulus
            return env.bind(node.variable, total(value, number))
        found = self.builder.udiv(self.memory.number(fused), I64(digit.divisor))
        if not digit.leading:
            found = self.builder.urem(found, I64(digit.modulus))
        symbol = self.shared.fresh(node.variable)
        self.memory.symbols[symbol] = found
        return env.counting(node.variable, value, symbol, 0, digit.modulus - 1)

    def loop(self, node: loops.For, env: Environment, mask: Mask) -> None:
        """Emit a loop as scheduled.

        A vectorised loop runs serially if it is fused or each lane has a stage of its own.
        """
        start, extent = env.resolved(node.start), node.extent
        symbol = self.shared.fresh(node.variable)

        def inside(low: int, high: int) -> Environment:
            return env.counting(node.variable, start, symbol, low, high)

        alone = not any(
            isinstance(inner, (loops.For, loops.Allocate))
            or (isinstance(inner, loops.Let) and inner.digit)
            for inner in loops.nodes(node.body)
        )
        if node.kind is Kind.VECTORISED and extent > 1 and alone:
            self.block(node.body, replace(inside(0, extent - 1), lane=symbol), mask)
        elif node.kind is Kind.UNROLLED or extent == 1:
            for number in range(extent):
                self.block(node.body, inside(number, number), mask)
        elif self.is_shared(node):
            assert self.threads is not None
            emit_parallel(self, node, env, symbol, start, self.threads)
        else:
            first, last = middle_of(node, inside, self.shared.program)
            for number in range(first):
                self.block(node.body, inside(number, number), mask)
            moved = env.counting(node.variable, total(start, first), symbol, 0, last - first)
            if last > first:
                count = last - first + 1
                self.counted(symbol, count, lambda: self.block(node.body, moved, mask))
            else:
                self.block(node.body, moved, mask)
            for number in range(last + 1, extent):
                self.block(node.body, inside(number, number), mask)

    def is_shared(self, node: loops.Node) -> bool:
        """Whether threads share a loop."""
        return (
            isinstance(node, loops.For)
            and node.kind is Kind.PARALLEL
            and node.extent > 1
            and self.threads is not None
            and is_long(node, self.shared.program, self.shared.target.lanes)
        )

    def where(
        self,
        conditions: Sequence[loops.Condition],
        emit: Callable[[Mask], None],
        env: Environment,
        mask: Mask,
    ) -> None:
        """Emit code for where conditions hold: decided now, in a branch, or under a mask."""
        bits, lanes = [], []
        for condition in conditions:
            known, value = env.decide(condition)
            if known is False:
                return
            if known is None:
                found = self.memory.condition(value, condition.low, condition.high, env)
                (lanes if isinstance(found.type, ir.VectorType) else bits).append(found)
        if lanes:
            mask = all_of(self.emitter, lanes if mask is None else [mask, *lanes])
        if not bits:
            emit(mask)
            return
        with self.builder.if_then(all_of(self.emitter, bits)):
            self.memory.open()
            emit(mask)
            self.memory.close()
