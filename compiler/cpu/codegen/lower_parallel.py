"""Emit a parallel loop as a function `void body(context, begin, end)`, and the call that runs it.

The context holds the addresses of buffers and the values of symbols that the body needs, eight
bytes each.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llvmlite import ir

from ...te.nodes import For
from .cut import middle_of
from .emitter import I64, POINTER, LlvmValue
from .environment import Environment

if TYPE_CHECKING:
    from .lower_function import FunctionLowering

Part = Callable[[int, int], Environment]
"""Returns the environment inside a loop, between its first and last iteration of a part."""

LINE_BYTES = 64
"""Bytes of a cache line. The context has lines of its own, as the caller writes its stack
while others read the context."""


def emit_parallel(
    outer: "FunctionLowering", node: For, env: Environment, symbol: str, inside: Part
) -> None:
    """Emit a loop whose iterations are shared by threads.

    Parameters
    ----------
    outer
        The function around the loop.
    node, symbol, inside
        The loop, its counter, and the environment in some of its iterations.
    env
        The environment around it.
    """
    assert outer.threads is not None
    builder, (run, pool) = outer.builder, outer.threads
    symbols = [name for name in env.ranges if name in outer.memory.symbols]
    names = [name for name, area in outer.areas.items() if area.values is None]
    signature = ir.FunctionType(ir.VoidType(), [POINTER, I64, I64])
    body = ir.Function(builder.module, signature, outer.shared.fresh("body"))
    body.linkage = "internal"
    body.attributes.add("noinline")
    lines = math.ceil((len(names) + len(symbols)) * 8 / LINE_BYTES)
    context = outer.emitter.alloca(I64, lines * LINE_BYTES // 8, LINE_BYTES)
    parts = [builder.ptrtoint(outer.areas[name].pointer, I64) for name in names]
    parts += [outer.memory.symbols[name] for name in symbols]
    for position, part in enumerate(parts):
        place = builder.gep(context, [I64(position)], source_etype=I64)
        builder.store(part, place, align=8)
    alone = builder.icmp_unsigned("==", builder.ptrtoint(run, I64), I64(0))
    with builder.if_else(alone) as (one, several):
        with one:
            builder.call(body, [context, I64(0), I64(node.extent)])
        with several:
            builder.call(Callee(run, RUN), [pool, body, context, I64(node.extent)])
    inner = _inside(outer, body, names, symbols)
    with inner.tiles.shaped(node.body, inner.is_shared):
        _emit_iterations(inner, body, node, symbol, inside)
    inner.builder.ret_void()


def _inside(
    outer: "FunctionLowering", body: ir.Function, names: Sequence[str], symbols: Sequence[str]
) -> "FunctionLowering":
    """The body at its entry, with the contents of the context."""
    builder = ir.IRBuilder(body.append_basic_block("entry"))
    loaded = [
        builder.load(builder.gep(body.args[0], [I64(i)], source_etype=I64), align=8, typ=I64)
        for i in range(len(names) + len(symbols))
    ]
    inner = outer.another(builder, dict(zip(symbols, loaded[len(names) :], strict=True)))
    for name, number in zip(names, loaded, strict=False):
        pointer = builder.inttoptr(number, POINTER)
        inner.areas[name] = replace(outer.areas[name], pointer=pointer)
    known = {name: area for name, area in outer.areas.items() if name not in names}
    inner.areas.update(known)
    return inner


def _emit_iterations(
    inner: "FunctionLowering", body: ir.Function, node: For, symbol: str, part: Part
) -> None:
    """Emit the loop over iterations; those of the middle have code of their own."""
    builder, (_, begin, end) = inner.builder, body.args
    before = builder.block
    head, inside, after = (body.append_basic_block(name) for name in ("head", "loop", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    counter = builder.phi(I64)
    counter.add_incoming(begin, before)
    builder.cbranch(builder.icmp_unsigned("<", counter, end), inside, after)
    builder.position_at_end(inside)
    inner.memory.symbols[symbol] = counter

    first, last = middle_of(node, part, inner.shared.program)
    with inner.memory.scope():
        if last - first + 1 < node.extent:
            offset = builder.sub(counter, I64(first))
            middle = builder.icmp_unsigned("<", offset, I64(last - first + 1))
            rest = part(0, node.extent - 1) if first else part(last + 1, node.extent - 1)
            with builder.if_else(middle) as (whole, cut):
                for block, piece in ((whole, part(first, last)), (cut, rest)):
                    with block, inner.memory.scope():
                        inner.block(node.body, piece, None)
        else:
            inner.block(node.body, part(0, node.extent - 1), None)
    counter.add_incoming(builder.add(counter, I64(1)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)


RUN = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER, I64])
"""Type of the pool's function: pool, body, context, iterations."""


class Callee:
    """A pointer that the builder can call."""

    def __init__(self, pointer: LlvmValue, kind: ir.FunctionType) -> None:
        self.type, self.function_type = pointer.type, kind
        self.get_reference = pointer.get_reference
