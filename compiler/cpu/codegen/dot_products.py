"""The processor's dot products: `sums[lane] += sum over tap of a[tap] * b[lane, tap]`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from llvmlite import ir

from ....errors import CompileError
from ....isa.expressions import Affine, Call, Read
from ...te.nodes import For, Guard, InstructionNest, Let, Node, Update
from ..instructions import MachineInstruction
from .areas import CodeBuffer
from .emitter import I16, I32, TYPES, Emitter, LlvmType, LlvmValue
from .environment import Environment, without
from .lower_values import Values

AHEAD_BYTES = 4096
"""Prefetch distance; from 1024 on it makes little difference."""


def emit_dot_product(node: InstructionNest, env: Environment, values: Values) -> None:
    """Emit the instruction for a nest of two loops.

    Raises
    ------
    CompileError
        When the operands do not lie as the instruction reads them: the taps of `a` side by side,
        `b` lane by lane with the taps of each lane side by side.
    """
    lane, tap = "lane", "tap"
    update, env, (_, taps) = update_inside(node, env, (lane, tap))
    (area_a, offset_a), (area_b, offset_b) = (
        operand(node, read, {lane: apart, tap: 1}, env, values)
        for read, apart in zip(factors(update), (0, taps), strict=True)
    )
    target = values.areas[update.target.tensor]
    index = [env.resolved(part) for part in update.target.index]
    before = values.memory.read(target, index, env, None)
    a = area_a, values.memory.address(area_a, offset_a)
    b = area_b, values.memory.address(area_b, offset_b)
    instruction = instruction_of(node)
    if instruction.fetches_ahead and area_b.given:
        values.memory.fetch_ahead(area_b, offset_b, AHEAD_BYTES)
    after = _emit(instruction, values.emitter, before, a, b)
    values.memory.write(target, index, after, env, None)


def instruction_of(node: InstructionNest) -> MachineInstruction:
    """The instruction of a nest."""
    assert isinstance(node.instruction, MachineInstruction)
    return node.instruction


def update_inside(
    node: InstructionNest,
    env: Environment,
    symbols: Sequence[str],
    private: Sequence[str] = ("lane", "row"),
) -> tuple[Update, Environment, tuple[int, ...]]:
    """The statement of an instruction, its environment, and the extents of its loops.

    Parameters
    ----------
    symbols
        A name for the counter of each loop; `lane` is that of the lanes.
    private
        Loops whose sums beyond the end may be computed as well, since they stay in registers.
    """
    block, extents = node.body, []
    for symbol in symbols:
        loop, env = _inner(block, env, private)
        assert isinstance(loop, For)
        start, extent = env.resolved(loop.start), loop.extent
        env = env.counting(loop.variable, start, symbol, 0, extent - 1)
        block = loop.body
        extents.append(extent)
    update, env = _inner(block, env, private)
    assert isinstance(update, Update)
    return update, replace(env, lane="lane" if "lane" in symbols else ""), tuple(extents)


def factors(update: Update) -> Sequence[Read]:
    """The elements that a statement multiplies."""
    assert isinstance(update.value, Call)
    reads = update.value.arguments
    assert all(isinstance(read, Read) for read in reads)
    return cast(Sequence[Read], reads)


def operand(
    node: InstructionNest, read: Read, steps: Mapping[str, int], env: Environment, values: Values
) -> tuple[CodeBuffer, Affine]:
    """The buffer of an operand, and its offset where the counters of `steps` are zero.

    Parameters
    ----------
    steps
        Elements from one to the next, by the counter's name.

    Raises
    ------
    CompileError
        When it lies otherwise, or the buffer has no room for all elements.
    """
    area = values.areas[read.tensor]
    index = [env.resolved(part) for part in read.index]
    offset = area.layout.offset(values.memory.inside(area, index), env, area.tensor.name)
    found = {symbol: offset.coefficient(symbol) for symbol in steps}
    if found != steps:
        strides = (
            ", ".join(f"{symbol} {step}" for symbol, step in which.items())
            for which in (found, steps)
        )
        raise CompileError(
            f"{node.mnemonic}: the strides of `{read}` are {', expected '.join(strides)}; change "
            f"the layout of `{read.tensor}`"
        )
    if not values.memory.has_room(area, index, env):
        raise CompileError(
            f"{node.mnemonic}: `{read}` reaches beyond `{read.tensor}` in the last lanes or "
            "rows; give it a layout with room for whole vectors and tiles, or split without a "
            "remainder"
        )
    for symbol in steps:
        offset = without(offset, symbol)
    return area, offset


def _inner(
    block: tuple[Node, ...], env: Environment, private: Sequence[str]
) -> tuple[Node, Environment]:
    """The node inside definitions and guards of private sums, with its environment."""
    *outer, node = block
    for let in outer:
        assert isinstance(let, Let)
        assert let.digit is None
        env = env.bind(let.variable, env.resolved(let.value))
    if isinstance(node, Guard):
        for condition in node.conditions:
            known, value = env.decide(condition)
            if not known and not any(map(value.coefficient, private)):
                raise CompileError(
                    f"a dot product is guarded by a condition on `{condition.value}`, which is the "
                    "same in all lanes and rows; split the loops around it without a remainder"
                )
        return _inner(node.body, env, private)
    return node, env


Operand = tuple[CodeBuffer, LlvmValue]
"""A buffer, and the address of the first element that is read."""


def _emit(
    instruction: MachineInstruction, emitter: Emitter, sums: LlvmValue, a: Operand, b: Operand
) -> LlvmValue:
    """The new sums; `a` is the same in all lanes, `b` lies lane by lane."""
    lanes, element = emitter.target.lanes, TYPES[instruction.element]
    kind = ir.VectorType(element, 32 // element.width * lanes)
    word = emitter.splat(_loaded(emitter, a, element, I32), lanes)
    right = _loaded(emitter, b, element, kind)
    left = emitter.builder.bitcast(word, kind)
    if instruction.adds:
        return emitter.intrinsic(instruction.intrinsic, sums.type, [sums, left, right])
    if instruction.pair_sums:
        words = ir.VectorType(I16, 2 * lanes)
        left = emitter.intrinsic(instruction.pair_sums, words, [left, right])
        right = words([1] * words.count)
    if instruction.intrinsic:
        products = emitter.intrinsic(instruction.intrinsic, sums.type, [left, right])
        return emitter.builder.add(sums, products)
    wide = ir.VectorType(I32, left.type.count)  # LLVM finds the instructions
    products = emitter.builder.mul(*(emitter.builder.sext(one, wide) for one in (left, right)))
    for tap in range(instruction.taps):
        lanes = range(tap, wide.count, instruction.taps)
        sums = emitter.builder.add(sums, emitter.chosen(products, lanes))
    return sums


def _loaded(emitter: Emitter, operand: Operand, element: LlvmType, kind: LlvmType) -> LlvmValue:
    """Neighbours as one value; elements of another type are widened."""
    (area, pointer), builder = operand, emitter.builder
    given = TYPES[area.tensor.dtype]
    if given == element:
        return builder.load(pointer, align=1, typ=kind)
    count = kind.count if isinstance(kind, ir.VectorType) else 32 // element.width
    found = builder.load(pointer, align=1, typ=ir.VectorType(given, count))
    extend = builder.sext if area.tensor.dtype == "int8" else builder.zext
    wide = extend(found, ir.VectorType(element, count))
    return wide if wide.type == kind else builder.bitcast(wide, kind)
