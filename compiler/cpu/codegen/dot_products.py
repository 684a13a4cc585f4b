"""The processor's dot products: `sums[lane] += sum over tap of a[tap] * b[lane, tap]`."""

from collections.abc import Callable
from dataclasses import replace

from llvmlite import ir

from ....errors import CompileError
from ....isa.expressions import Call, Read
from ...te.nodes import Guard, Instruction, Let, Loop, Node, Update
from .areas import Area
from .emitter import I8, I16, I32, Emitter, LlvmValue
from .environment import Environment, without
from .lower_values import Values

FETCHED_AHEAD = ("vpdpwssd",)
"""Instructions that take `b` faster than processors fetch it by themselves from far caches."""

AHEAD_BYTES = 4096
"""How far from what is needed now; from 1024 on it makes little difference."""


def emit_dot_product(node: Instruction, env: Environment, values: Values) -> None:
    """The instruction for a nest of two loops.

    Raises
    ------
    CompileError
        When the operands do not lie as the instruction takes them: `a` with its taps side by side,
        `b` lane by lane, the taps of each side by side.
    """
    (lanes,) = node.body
    assert isinstance(lanes, Loop)
    lane, tap = "lane", "tap"
    env = env.counting(lanes.variable, env.resolved(lanes.start), lane, 0, lanes.extent - 1)
    taps, env = _inner(lanes.body, env)
    assert isinstance(taps, Loop)
    env = env.counting(taps.variable, env.resolved(taps.start), tap, 0, taps.extent - 1)
    update, env = _inner(taps.body, env)
    assert isinstance(update, Update)
    assert isinstance(update.value, Call)
    env = replace(env, lane=lane)
    pointers, areas, offsets = [], [], []
    for read, strides in zip(update.value.arguments, ((0, 1), (taps.extent, 1)), strict=True):
        assert isinstance(read, Read)
        area = values.areas[read.tensor]
        index = [env.resolved(part) for part in read.index]
        offset, step = values.memory.place(area, index, env)
        if (step, offset.coefficient(tap)) != strides:
            raise CompileError(
                f"{node.mnemonic}: `{read}` lies with {step} and {offset.coefficient(tap)} "
                f"elements from lane to lane and from tap to tap, not {strides[0]} and "
                f"{strides[1]}; give `{read.tensor}` a layout that does"
            )
        if not values.memory.has_room(area, index, env):
            raise CompileError(
                f"{node.mnemonic}: `{read}` reaches beyond `{read.tensor}` in the last lanes or "
                "rows; give it a layout with room for whole vectors, or split without a rest"
            )
        areas.append(area)
        offsets.append(without(offset, tap))
        pointers.append(values.memory.address(area, offsets[-1]))
    target = values.areas[update.target.tensor]
    index = [env.resolved(part) for part in update.target.index]
    before = values.memory.read(target, index, env, None)
    if node.mnemonic in FETCHED_AHEAD and areas[1].given:
        values.memory.fetch_ahead(areas[1], offsets[1], AHEAD_BYTES)
    emit = _EMITTERS[node.mnemonic]
    after = emit(values.emitter, before, (areas[0], pointers[0]), (areas[1], pointers[1]))
    values.memory.write(target, index, after, env, None)


def _inner(block: tuple[Node, ...], env: Environment) -> tuple[Node, Environment]:
    """What stands inside definitions, and inside guards of lanes.

    Lanes beyond the end are computed with the others: their sums lie in registers, unused.
    """
    *outer, node = block
    for let in outer:
        assert isinstance(let, Let)
        assert let.digit is None
        env = env.bind(let.variable, env.resolved(let.value))
    if isinstance(node, Guard):
        for condition in node.conditions:
            known, value = env.decide(condition)
            if not known and not value.coefficient("lane"):
                raise CompileError(
                    f"a dot product stands inside of a condition on `{condition.value}`, which is "
                    "the same in all lanes; split the loops around it without a rest"
                )
        return _inner(node.body, env)
    return node, env


Operand = tuple[Area, LlvmValue]


def _four_bytes(emitter: Emitter, sums: LlvmValue, a: Operand, b: Operand) -> LlvmValue:
    """`vpdpbusd`: four uint8 of `a` in all lanes, four int8 of `b` per lane."""
    builder, kind = emitter.builder, ir.VectorType(I8, 64)
    word = emitter.splat(builder.load(a[1], align=1, typ=I32), 16)
    weights = builder.load(b[1], align=1, typ=kind)
    return emitter.intrinsic(
        "llvm.x86.avx512.vpdpbusd.512", sums.type, [sums, builder.bitcast(word, kind), weights]
    )


def _added_words(emitter: Emitter, sums: LlvmValue, a: Operand, b: Operand) -> LlvmValue:
    """`vpdpwssd`: two int16 of `a` in all lanes, two of `b` per lane; the sum wraps."""
    builder, kind = emitter.builder, ir.VectorType(I16, 32)
    pair = builder.bitcast(emitter.splat(builder.load(a[1], align=1, typ=I32), 16), kind)
    weights = builder.load(b[1], align=1, typ=kind)
    return emitter.intrinsic("llvm.x86.avx512.vpdpwssd.512", sums.type, [sums, pair, weights])


def _two_words(
    name: str, lanes: int
) -> Callable[[Emitter, LlvmValue, Operand, Operand], LlvmValue]:
    """`pmaddwd`: pairs of int16, to which bytes are widened; exact but for wrapping."""

    def widened(emitter: Emitter, operand: Operand, count: int) -> LlvmValue:
        area, pointer = operand
        if area.tensor.dtype == "int16":
            return emitter.builder.load(pointer, align=1, typ=ir.VectorType(I16, count))
        found = emitter.builder.load(pointer, align=1, typ=ir.VectorType(I8, count))
        extend = emitter.builder.sext if area.tensor.dtype == "int8" else emitter.builder.zext
        return extend(found, ir.VectorType(I16, count))

    def emit(emitter: Emitter, sums: LlvmValue, a: Operand, b: Operand) -> LlvmValue:
        builder, kind = emitter.builder, ir.VectorType(I16, 2 * lanes)
        pair = emitter.splat(builder.bitcast(widened(emitter, a, 2), I32), lanes)
        weights = widened(emitter, b, 2 * lanes)
        products = emitter.intrinsic(name, sums.type, [builder.bitcast(pair, kind), weights])
        return builder.add(sums, products)

    return emit


_EMITTERS: dict[str, Callable[[Emitter, LlvmValue, Operand, Operand], LlvmValue]] = {
    "vpdpbusd": _four_bytes,
    "vpdpwssd": _added_words,
    "vpmaddwd": _two_words("llvm.x86.avx2.pmadd.wd", 8),
    "pmaddwd": _two_words("llvm.x86.sse2.pmadd.wd", 4),
}
