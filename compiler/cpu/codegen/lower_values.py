"""Lower expressions to LLVM values: int32, int64 and float32, as `compiler.tensor` defines them."""

from collections.abc import Mapping
from typing import TypeGuard

import numpy as np
from llvmlite import ir

from ....errors import CompileError
from ....isa.expressions import Affine, Call, Expression, Literal, Op, Read, Real
from ....isa.numbers import EXACT_LIMIT, INT8_MAX, INT8_MIN, SATURATED
from .areas import CodeBuffer
from .emitter import (
    FLOAT,
    HALF,
    I32,
    I64,
    TYPES,
    Emitter,
    LlvmValue,
    element_of,
    is_real,
    lanes_of,
    number_of,
)
from .environment import Environment
from .functions import FUNCTIONS
from .memory import MemoryAccess

Mask = LlvmValue | None

_BITWISE = {Op.SHIFT_RIGHT: "ashr", Op.AND: "and_", Op.OR: "or_", Op.XOR: "xor"}
"""Operations on the bits of integers, with the builder's names for them."""


_CONTRACTED = (Op.ADD, Op.MULTIPLY)
"""Operations that may be fused with another."""


class Values:
    """Expressions inside one function.

    Parameters
    ----------
    memory
        Reads elements.
    areas
        The buffers that exist now, by tensor.
    """

    def __init__(self, memory: MemoryAccess, areas: Mapping[str, CodeBuffer]) -> None:
        self.memory, self.areas = memory, areas
        self.emitter: Emitter = memory.emitter

    def value(self, tree: Expression, env: Environment, mask: Mask) -> LlvmValue:
        """The value of an expression: a scalar if it is the same in all lanes."""
        if isinstance(tree, Literal):
            return I32(tree.value)
        if isinstance(tree, Real):
            return number_of(FLOAT, tree.value)
        if isinstance(tree, Read):
            return self.element(tree, env, mask)
        assert isinstance(tree, Call)
        if tree.op is Op.LOOKUP:
            return self._lookup(tree, env, mask)
        if tree.op is Op.ELEMENT:
            return self._behind(tree, env, mask)
        product = tree.arguments[0]
        if tree.op is Op.ADD and is_product(product):
            return self._multiply_add(product, tree.arguments[1], env, mask)
        if tree.op is Op.REAL and isinstance(product, Call) and product.op in _CONTRACTED:
            a, b = (self.value(part, env, mask) for part in product.arguments)
            return self._single(product.op, a, b)
        parts = [self.value(part, env, mask) for part in tree.arguments]
        return self._apply(tree.op, parts)

    def element(self, read: Read, env: Environment, mask: Mask) -> LlvmValue:
        """Elements of a tensor, widened to 32 bits."""
        area = self.areas[read.tensor]
        index = tuple(map(env.resolved, read.index))
        if not area.given:
            return self._loaded(area, index, env, mask)
        key = (read.tensor, index, env.lane, mask)
        return self.memory.once(key, lambda: self._loaded(area, index, env, mask))

    def _loaded(
        self, area: CodeBuffer, index: tuple[Affine, ...], env: Environment, mask: Mask
    ) -> LlvmValue:
        return self.widened(area, self.memory.read(area, index, env, mask))

    def _behind(self, tree: Call, env: Environment, mask: Mask) -> LlvmValue:
        """The elements at distances from one; lanes that do not count may have any distance."""
        read, distance = tree.arguments
        assert isinstance(read, Read)
        area = self.areas[read.tensor]
        first, step = self.memory.place(area, tuple(map(env.resolved, read.index)), env)
        if step or not area.given:
            raise CompileError(f"`{tree}`: expected an operand's element that all lanes share")
        places = self.value(distance, env, mask)
        if mask is not None:
            places = self.emitter.select(mask, places, self.emitter.constant(0, places))
        return self.widened(area, self.memory.at(area, places, first))

    def widened(self, area: CodeBuffer, found: LlvmValue) -> LlvmValue:
        """Elements in 32 bits or more."""
        if area.tensor.dtype == "float16":
            half = self.emitter.bits(found, HALF)
            return self.emitter.builder.fpext(half, self.emitter.like(found, FLOAT))
        if area.tensor.dtype == "bfloat16":
            return self.emitter.from_bfloat16(found)
        if area.tensor.dtype in ("int8", "int16"):
            return self.emitter.builder.sext(found, self.emitter.like(found, I32))
        if area.tensor.dtype in ("uint8", "bool"):
            return self.emitter.builder.zext(found, self.emitter.like(found, I32))
        return found

    def stored(self, value: LlvmValue, dtype: str) -> LlvmValue:
        """A value as it is stored: cut to the low bits."""
        emitter, element = self.emitter, TYPES[dtype]
        if dtype == "bool":
            value = emitter.compare("!=", value, emitter.constant(0, value))
            return emitter.builder.zext(value, emitter.like(value, element))
        if dtype == "float16":
            half = emitter.builder.fptrunc(value, emitter.like(value, HALF))
            return emitter.bits(half, element)
        if dtype == "bfloat16":
            return emitter.to_bfloat16(value)
        if element_of(value) == element:
            return value
        kind = emitter.like(value, element)
        if dtype == "int64":
            return emitter.builder.sext(value, kind)
        return emitter.builder.trunc(value, kind)

    def combined(self, op: Op, before: LlvmValue, tree: Expression, env, mask: Mask) -> LlvmValue:
        """A partial sum or maximum, with one more value."""
        if op is Op.ADD and is_real(before) and is_product(tree):
            a = self.value(tree.arguments[0], env, mask)
            if is_zero(a):
                return before
            b = self.value(tree.arguments[1], env, mask)
            if is_real(a):
                return self.emitter.multiply_add(a, b, before)
            return self._apply(op, [before, self.emitter.multiply(a, b)])
        value = self.value(tree, env, mask)
        found = self._apply(op, [before, value])
        if op is Op.MAXIMUM and is_real(before):  # `found` is the value if either is a NaN
            return self.emitter.nan_where(self.emitter.is_nan(before), found)
        return found

    def _multiply_add(self, product: Call, addend: Expression, env, mask: Mask) -> LlvmValue:
        a, b = (self.value(part, env, mask) for part in product.arguments)
        c = self.value(addend, env, mask)
        if is_real(a) and is_real(c):
            return self.emitter.multiply_add(a, b, c)
        return self._apply(Op.ADD, [self._apply(Op.MULTIPLY, [a, b]), c])

    def _single(self, op: Op, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """A sum or a product, rounded to float32; LLVM must not contract it with another.

        Neither may carry the flag: a negated product would pass it on to the sum that follows.
        """
        if is_real(a) and not (is_number(a) and is_number(b)):
            builder = self.emitter.builder
            return (builder.fadd if op is Op.ADD else builder.fmul)(*self.emitter.matched(a, b))
        return self._apply(Op.REAL, [self._apply(op, [a, b])])

    def _apply(self, op: Op, parts: list[LlvmValue]) -> LlvmValue:
        emitter = self.emitter
        if op in FUNCTIONS:
            return FUNCTIONS[op](emitter, parts[0])
        if op is Op.REQUANTISE:
            return self._requantise(*parts)
        if op is Op.REAL and is_real(parts[0]):
            return parts[0]
        if op is Op.REAL:
            return emitter.builder.sitofp(parts[0], emitter.like(parts[0], FLOAT))
        if op is Op.ROUND:
            return emitter.rounded(parts[0])
        if op is Op.CLAMP:
            value = emitter.minimum(number_of(I32, INT8_MAX), self._from_int8_min(parts[0]))
            return emitter.minimum(parts[2], emitter.maximum(parts[1], value))
        if op is Op.SELECT:
            return emitter.select(
                emitter.compare("!=", parts[0], emitter.constant(0, parts[0])),
                *self._wide(*parts[1:]),
            )
        a, b = self._wide(*parts)
        if op in (Op.LESS, Op.EQUAL):
            bits = emitter.compare("<" if op is Op.LESS else "==", a, b)
            return emitter.builder.zext(bits, emitter.like(bits, I32))
        if op is Op.DIVIDE:
            return emitter.builder.fdiv(*emitter.matched(a, b))
        if op is Op.MULTIPLY and is_number(a) and is_number(b):
            return number_of(FLOAT, float(np.float32(a.constant) * np.float32(b.constant)))
        if op in _BITWISE:
            return getattr(emitter.builder, _BITWISE[op])(*emitter.matched(a, b))
        if isinstance(b, ir.Constant):
            a, b = b, a
        if op is Op.MAXIMUM:
            return emitter.maximum(a, b)
        if op is Op.MINIMUM:
            return emitter.minimum(a, b)
        return emitter.add(a, b) if op is Op.ADD else emitter.multiply(a, b)

    def _from_int8_min(self, value: LlvmValue) -> LlvmValue:
        return self.emitter.maximum(self.emitter.constant(INT8_MIN, value), value)

    def _wide(self, *values: LlvmValue) -> tuple[LlvmValue, ...]:
        """The values, all widened to int64 if one is."""
        if not any(element_of(value) == I64 for value in values):
            return values
        emitter = self.emitter
        return tuple(
            value
            if element_of(value) == I64
            else emitter.builder.sext(value, emitter.like(value, I64))
            for value in values
        )

    def _requantise(self, total: LlvmValue, scale: LlvmValue) -> LlvmValue:
        """`isa.numbers.requantise`."""
        emitter, builder = self.emitter, self.emitter.builder
        total, scale = emitter.matched(total, scale)
        size = emitter.overloaded("fabs", [scale])
        finite = emitter.compare("<", size, emitter.constant(float("inf"), size))
        largest = emitter.overloaded("copysign", [emitter.constant(2.0**127, scale), scale])
        scale = emitter.select(finite, scale, largest)
        product = builder.fmul(builder.sitofp(total, emitter.like(total, FLOAT)), scale)
        limit = emitter.constant(float(SATURATED), product)
        negative_limit = emitter.constant(-float(SATURATED), product)
        bounded = emitter.minimum(limit, emitter.maximum(negative_limit, product))
        exact = builder.and_(
            emitter.compare("<", total, emitter.constant(EXACT_LIMIT, total)),
            emitter.compare(">", total, emitter.constant(-EXACT_LIMIT, total)),
        )
        sign = emitter.overloaded("copysign", [limit, product])
        return emitter.rounded(emitter.select(exact, bounded, sign))

    def _lookup(self, tree: Call, env: Environment, mask: Mask) -> LlvmValue:
        """`table[index + 128]`, with the index clamped to -128..127."""
        emitter, builder = self.emitter, self.emitter.builder
        table, index = tree.arguments
        assert isinstance(table, Read)
        area = self.areas[table.tensor]
        found = self._from_int8_min(self.value(index, env, mask))
        found = emitter.minimum(emitter.constant(INT8_MAX, found), found)
        found = builder.add(found, emitter.constant(128, found))
        lookup = emitter.target.lookup
        if lookup and lanes_of(found) == lookup.lanes:
            places = builder.trunc(found, emitter.like(found, TYPES["int8"]))
            return builder.sext(emitter.looked_up(area.pointer, places), found.type)
        if mask is not None and lanes_of(found) > 1:
            found = emitter.select(mask, found, emitter.constant(0, found))
        return builder.sext(self.memory.at(area, found, Affine()), emitter.like(found, I32))


def is_number(value: LlvmValue) -> bool:
    """Whether a value is a float32 constant."""
    return isinstance(value, ir.Constant) and value.type == FLOAT


def is_zero(value: LlvmValue) -> bool:
    """Whether a factor is the constant zero: its term is left out, whatever the other factor."""
    return is_number(value) and value.constant == 0


def is_product(tree: Expression) -> TypeGuard[Call]:
    """Whether a value is multiplied and added by one instruction."""
    return isinstance(tree, Call) and tree.op is Op.MULTIPLY
