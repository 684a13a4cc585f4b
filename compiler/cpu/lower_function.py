"""Loops, guards and statements of a program in one LLVM function, as they are scheduled.

A parallel loop is a function `void body(context, begin, end)` of its own. The first and last
iterations of a loop are emitted apart where only they meet a guard or a border (`middle_of`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from llvmlite import ir

from ...isa.expressions import Affine, Read
from ..te.affine import total, variable
from ..te.nodes import (
    Allocate,
    Block,
    Copy,
    Guard,
    Instruction,
    Let,
    Loop,
    Nest,
    Node,
    Store,
    Update,
    nodes,
)
from ..te.stages import Kind
from .buffers import Buffers, Shared
from .cut import middle_of
from .dot_products import emit_dot_product
from .emitter import I64, POINTER, Emitter, LlvmBuilder, LlvmValue
from .environment import Environment
from .lower_values import Mask, Values
from .memory import Area, Memory, all_of, bytes_of


class Function:
    """One LLVM function: the kernel, or the body of a parallel loop in it.

    Parameters
    ----------
    shared
        What all functions of the kernel know.
    builder
        At the function's entry.
    symbols
        Values of symbols that are known there.
    threads
        Who runs a parallel loop, and the pool; None inside of one.
    """

    def __init__(
        self,
        shared: Shared,
        builder: LlvmBuilder,
        symbols: dict[str, LlvmValue],
        threads: tuple[LlvmValue, LlvmValue] | None,
    ) -> None:
        self.shared, self.builder, self.threads = shared, builder, threads
        self.emitter = Emitter(builder, shared.target)
        self.memory = Memory(self.emitter, symbols)
        self.buffers = Buffers(shared, self.memory)
        self.areas = self.buffers.areas
        self.values = Values(self.memory, self.areas)

    def root(self, block: Block, workspace: LlvmValue) -> None:
        """The nests of the program, each with its buffer in the workspace."""
        env = Environment({}, {})
        for node in block:
            if isinstance(node, Allocate) and node.tensor.name in self.areas:
                self.fill(self.areas[node.tensor.name])
            elif isinstance(node, Allocate):
                self.fill(self.buffers.in_workspace(node, env, workspace))
            else:
                self.node(node, env, None)

    def block(self, block: Block, env: Environment, mask: Mask) -> None:
        """Nodes in order; what they bind is known to those after them."""
        for node in block:
            if isinstance(node, Let):
                env = self.let(node, env)
            elif isinstance(node, Allocate):
                self.fill(self.buffers.on_stack(node, env))
            else:
                self.node(node, env, mask)

    def node(self, node: Node, env: Environment, mask: Mask) -> None:
        """One node that binds nothing."""
        if isinstance(node, Loop):
            self.loop(node, env, mask)
        elif isinstance(node, Guard):
            self.guard(node, env, mask)
        elif isinstance(node, Store):
            value = self.values.value(node.value, env, mask)
            self.write(node.target, value, env, mask)
        elif isinstance(node, Update):
            before = self.values.element(node.target, env, mask)
            value = self.values.combined(node.op, before, node.value, env, mask)
            self.write(node.target, value, env, mask)
        elif isinstance(node, Instruction):
            emit_dot_product(node, env, self.values)
        elif isinstance(node, (Nest, Copy)):
            self.block(node.body, env, mask)

    def write(self, target: Read, value: LlvmValue, env: Environment, mask: Mask) -> None:
        """An element in memory."""
        area = self.areas[target.tensor]
        index = [env.resolved(part) for part in target.index]
        self.memory.write(area, index, self.values.stored(value, area.tensor.dtype), env, mask)

    # Loops ---------------------------------------------------------------------------------------

    def fill(self, area: Area) -> None:
        """The neutral element in a buffer that is reduced into."""

        def put(place: Affine, value: LlvmValue) -> None:
            self.builder.store(value, self.memory.address(area, place), align=bytes_of(area))

        for symbol, count, place, value in self.buffers.neutral_stores(area):
            if count == 1:
                put(place, value)
            elif count > 1:
                self.counted(symbol, count, partial(put, place, value))

    def counted(self, symbol: str, count: int, body) -> None:
        """A loop of `count` iterations, at least one."""
        builder = self.builder
        before = builder.block
        inside, after = builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.branch(inside)
        builder.position_at_end(inside)
        counter = builder.phi(I64)
        counter.add_incoming(I64(0), before)
        self.memory.symbols[symbol] = counter
        self.memory.open()
        body()
        self.memory.close()
        following = builder.add(counter, I64(1), flags=("nuw", "nsw"))
        counter.add_incoming(following, builder.block)
        more = builder.icmp_unsigned("<", following, I64(count))
        builder.cbranch(more, inside, after)
        builder.position_at_end(after)

    def let(self, node: Let, env: Environment) -> Environment:
        """A variable that is a sum of others, or a digit of a fused one."""
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

    def loop(self, node: Loop, env: Environment, mask: Mask) -> None:
        """A loop as it is marked.

        A vectorised one that is fused, or has a stage of its own in each lane, is run serially.
        """
        start, extent = env.resolved(node.start), node.extent
        symbol = self.shared.fresh(node.variable)

        def inside(low: int, high: int) -> Environment:
            return env.counting(node.variable, start, symbol, low, high)

        alone = not any(
            isinstance(inner, (Loop, Allocate)) or (isinstance(inner, Let) and inner.digit)
            for inner in nodes(node.body)
        )
        if node.kind is Kind.VECTORISED and extent > 1 and alone:
            self.block(node.body, replace(inside(0, extent - 1), lane=symbol), mask)
        elif node.kind is Kind.UNROLLED or extent == 1:
            for number in range(extent):
                self.block(node.body, inside(number, number), mask)
        elif node.kind is Kind.PARALLEL and self.threads is not None:
            self.parallel(node, env, symbol, start)
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

    def guard(self, node: Guard, env: Environment, mask: Mask) -> None:
        """The body where the conditions hold: at compile time, in a branch, or under a mask."""
        bits, lanes = [], []
        for condition in node.conditions:
            known, value = env.decide(condition)
            if known is False:
                return
            if known is None:
                found = self.memory.condition(value, condition.low, condition.high, env)
                (lanes if isinstance(found.type, ir.VectorType) else bits).append(found)
        if lanes:
            mask = all_of(self.emitter, lanes if mask is None else [mask, *lanes])
        if not bits:
            self.block(node.body, env, mask)
            return
        with self.builder.if_then(all_of(self.emitter, bits)):
            self.memory.open()
            self.block(node.body, env, mask)
            self.memory.close()

    def parallel(self, node: Loop, env: Environment, symbol: str, start: Affine) -> None:
        """A loop whose iterations threads take in turns; its body is a function of its own."""
        assert self.threads is not None
        builder, (run, pool) = self.builder, self.threads
        symbols = [name for name in env.ranges if name in self.memory.symbols]
        names = [name for name, area in self.areas.items() if area.values is None]
        module = builder.module
        signature = ir.FunctionType(ir.VoidType(), [POINTER, I64, I64])
        body = ir.Function(module, signature, self.shared.fresh("body"))
        body.linkage = "internal"
        body.attributes.add("noinline")
        context = self.emitter.alloca(I64, len(names) + len(symbols), 8)
        parts = [builder.ptrtoint(self.areas[name].pointer, I64) for name in names]
        parts += [self.memory.symbols[name] for name in symbols]
        for position, part in enumerate(parts):
            place = builder.gep(context, [I64(position)], source_etype=I64)
            builder.store(part, place, align=8)
        alone = builder.icmp_unsigned("==", builder.ptrtoint(run, I64), I64(0))
        with builder.if_else(alone) as (one, several):
            with one:
                builder.call(body, [context, I64(0), I64(node.extent)])
            with several:
                builder.call(_Callee(run, _RUN), [pool, body, context, I64(node.extent)])
        self.body_of(body, node, env, symbol, start, names, symbols)

    def body_of(
        self,
        body: ir.Function,
        node: Loop,
        env: Environment,
        symbol: str,
        start: Affine,
        names: Sequence[str],
        symbols: Sequence[str],
    ) -> None:
        """The function of a parallel loop."""
        context, begin, end = body.args
        builder = ir.IRBuilder(body.append_basic_block("entry"))
        loaded = [
            builder.load(builder.gep(context, [I64(i)], source_etype=I64), align=8, typ=I64)
            for i in range(len(names) + len(symbols))
        ]
        inner = Function(
            self.shared, builder, dict(zip(symbols, loaded[len(names) :], strict=True)), None
        )
        for name, number in zip(names, loaded, strict=False):
            pointer = builder.inttoptr(number, POINTER)
            inner.areas[name] = replace(self.areas[name], pointer=pointer)
        known = {name: area for name, area in self.areas.items() if name not in names}
        inner.areas.update(known)
        before = builder.block
        head, inside, after = (body.append_basic_block(name) for name in ("head", "loop", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        counter = builder.phi(I64)
        counter.add_incoming(begin, before)
        builder.cbranch(builder.icmp_unsigned("<", counter, end), inside, after)
        builder.position_at_end(inside)
        inner.memory.symbols[symbol] = counter

        def part(low: int, high: int) -> Environment:
            return env.counting(node.variable, start, symbol, low, high)

        first, last = middle_of(node, part, self.shared.program)
        inner.memory.open()
        if last - first + 1 < node.extent:
            offset = builder.sub(counter, I64(first))
            middle = builder.icmp_unsigned("<", offset, I64(last - first + 1))
            rest = part(0, node.extent - 1) if first else part(last + 1, node.extent - 1)
            with builder.if_else(middle) as (whole, cut):
                for block, piece in ((whole, part(first, last)), (cut, rest)):
                    with block:
                        inner.memory.open()
                        inner.block(node.body, piece, None)
                        inner.memory.close()
        else:
            inner.block(node.body, part(0, node.extent - 1), None)
        inner.memory.close()
        counter.add_incoming(builder.add(counter, I64(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        builder.ret_void()


_RUN = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I64])
"""Who runs a parallel loop: pool, body, context, iterations."""


class _Callee:
    """A pointer as something to call, which the builder has no word for."""

    def __init__(self, pointer: LlvmValue, kind: ir.FunctionType) -> None:
        self.type, self.function_type = pointer.type, kind
        self.get_reference = pointer.get_reference
