"""Emit LLVM instructions for scalars and vectors alike; a scalar is broadcast to a vector's lanes.

The few instructions that LLVM's builder lacks are calls of intrinsics, which have the type in
their names.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from llvmlite import ir

from ..instructions import Intrinsic, TableLookup

LlvmValue = Any
LlvmType = Any
LlvmBuilder = Any
LlvmBlock = Any
"""Objects of llvmlite, which has no type annotations."""

BIT: LlvmType = ir.IntType(1)
I8: LlvmType = ir.IntType(8)
I16: LlvmType = ir.IntType(16)
I32: LlvmType = ir.IntType(32)
I64: LlvmType = ir.IntType(64)
FLOAT: LlvmType = ir.FloatType()
HALF: LlvmType = ir.HalfType()
DOUBLE: LlvmType = ir.DoubleType()
POINTER: LlvmType = ir.PointerType()

TYPES = {
    "float32": FLOAT,
    "float16": I16,
    "bfloat16": I16,
    "int64": I64,
    "int32": I32,
    "int16": I16,
    "int8": I8,
    "uint8": I8,
    "bool": I8,
}
"""Types of elements in memory; a bool is a byte of 0 or 1, a float16 or bfloat16 its bits."""

CONTRACT = ("contract",)
"""Flag: a product and a sum may be fused and rounded once."""


class CodeTarget(Protocol):
    """The properties of a target on which code depends."""

    @property
    def lanes(self) -> int:
        """32-bit elements of a register."""
        ...

    @property
    def fused(self) -> bool:
        """Whether a product and a sum are one instruction, rounded once."""
        ...

    @property
    def scaling(self) -> Intrinsic | None:
        """The instruction for powers of 2 beyond the range of float32."""
        ...

    @property
    def lookup(self) -> TableLookup | None:
        """The instruction for tables of 256 bytes."""
        ...


class Emitter:
    """A builder inside one function.

    Parameters
    ----------
    builder
        LLVM's builder.
    target
        The processor to compile for.
    """

    def __init__(self, builder: LlvmBuilder, target: CodeTarget) -> None:
        self.builder, self.target = builder, target

    # Types ---------------------------------------------------------------------------------------

    def vector(self, element: LlvmType, lanes: int) -> LlvmType:
        """A vector type, the element itself for one lane."""
        return element if lanes == 1 else ir.VectorType(element, lanes)

    def like(self, value: LlvmValue, element: LlvmType) -> LlvmType:
        """A type with as many elements as a value has."""
        return self.vector(element, lanes_of(value))

    def splat(self, value: LlvmValue, lanes: int) -> LlvmValue:
        """A scalar broadcast to all lanes; vectors are left as they are."""
        if lanes == 1 or isinstance(value.type, ir.VectorType):
            return value
        kind = ir.VectorType(value.type, lanes)
        if isinstance(value, ir.Constant):
            return ir.Constant(kind, [value] * lanes)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
        order = ir.Constant(ir.VectorType(I32, lanes), [I32(0)] * lanes)
        return self.builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), order)

    def matched(self, *values: LlvmValue) -> list[LlvmValue]:
        """Values with as many lanes as the widest has."""
        lanes = max(map(lanes_of, values))
        return [self.splat(value, lanes) for value in values]

    def constant(self, number: float, like: LlvmValue) -> LlvmValue:
        """A number in the type of a value."""
        return number_of(like.type, number)

    def iota(self, lanes: int) -> LlvmValue:
        """0, 1, 2, ... as int64."""
        return ir.Constant(ir.VectorType(I64, lanes), [I64(lane) for lane in range(lanes)])

    def alloca(self, element: LlvmType, count: int, alignment: int) -> LlvmValue:
        """Memory on the stack that lives as long as the function runs."""
        with self.builder.goto_entry_block():
            pointer = self.builder.alloca(ir.ArrayType(element, count))
        pointer.align = alignment
        pointer.type = POINTER
        return pointer

    # Instructions --------------------------------------------------------------------------------

    def intrinsic(self, name: str, result: LlvmType, arguments: Sequence[LlvmValue]) -> LlvmValue:
        """A call of an intrinsic or of a declared function."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [argument.type for argument in arguments])
            function = ir.Function(module, kind, name)
        return self.builder.call(function, list(arguments))

    def overloaded(
        self, name: str, arguments: Sequence[LlvmValue], result: LlvmType | None = None
    ) -> LlvmValue:
        """A call of an intrinsic that is named after the type of its first operand."""
        first = arguments[0].type
        name = f"llvm.{name}.{suffix(first)}"
        return self.intrinsic(name, result or first, arguments)

    def add(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """The sum."""
        a, b = self.matched(a, b)
        return self.builder.fadd(a, b, flags=CONTRACT) if is_real(a) else self.builder.add(a, b)

    def multiply(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """The product."""
        a, b = self.matched(a, b)
        return self.builder.fmul(a, b, flags=CONTRACT) if is_real(a) else self.builder.mul(a, b)

    def multiply_add(self, a: LlvmValue, b: LlvmValue, c: LlvmValue) -> LlvmValue:
        """`a * b + c` of float32, fused if the target can."""
        a, b, c = self.matched(a, b, c)
        if not self.target.fused:
            return self.add(self.multiply(a, b), c)
        return self.overloaded("fma", [a, b, c])

    def compare(self, sign: str, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """Bits; comparisons with a NaN are false."""
        a, b = self.matched(a, b)
        if is_real(a):
            return self.builder.fcmp_ordered(sign, a, b)
        return self.builder.icmp_signed(sign, a, b)

    def is_nan(self, value: LlvmValue) -> LlvmValue:
        """Bits where a float32 is a NaN."""
        return self.builder.fcmp_unordered("uno", value, value)

    def nan_where(self, condition: LlvmValue, value: LlvmValue) -> LlvmValue:
        """A float32, or a NaN of all ones where the condition holds; cheaper than `select`."""
        ones = self.builder.sext(condition, self.like(value, I32))
        return self.bits(self.builder.or_(self.bits(value, I32), ones), FLOAT)

    def select(self, condition: LlvmValue, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """`a` where the bit is set."""
        condition, a, b = self.matched(condition, a, b)
        return self.builder.select(condition, a, b)

    def maximum(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """The larger value; `b` if either is a NaN."""
        return self.select(self.compare(">", a, b), a, b)

    def minimum(self, a: LlvmValue, b: LlvmValue) -> LlvmValue:
        """The smaller value; `b` if either is a NaN."""
        return self.select(self.compare("<", a, b), a, b)

    def rounded(self, value: LlvmValue) -> LlvmValue:
        """A float32 as int32, halves to even."""
        return self.intrinsic(
            f"llvm.lrint.{suffix(self.like(value, I32))}.{suffix(value.type)}",
            self.like(value, I32),
            [value],
        )

    def all(self, bits: LlvmValue) -> LlvmValue:
        """One bit: whether it is set in all lanes."""
        if lanes_of(bits) == 1:
            return bits
        return self.overloaded("vector.reduce.and", [bits], BIT)

    def either(
        self,
        condition: LlvmValue,
        make: Callable[[], Sequence[LlvmValue]],
        other: Callable[[], Sequence[LlvmValue]],
    ) -> list[LlvmValue]:
        """The values that `make` computes if a bit is set, else those of `other`; by a branch."""
        found = []
        with self.builder.if_else(condition) as branches:
            for branch, compute in zip(branches, (make, other), strict=True):
                with branch:
                    found.append((compute(), self.builder.block))
        values = []
        for pair in zip(*(result for result, _ in found), strict=True):
            merged = self.builder.phi(pair[0].type)
            for value, (_, block) in zip(pair, found, strict=True):
                merged.add_incoming(value, block)
            values.append(merged)
        return values

    def repeat(self, count: int, body: Callable[[LlvmValue], None]) -> None:
        """A loop of `count` iterations, at least one; `body` takes the iteration's number."""
        builder = self.builder
        before = builder.block
        inside, after = builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.branch(inside)
        builder.position_at_end(inside)
        counter = builder.phi(I64)
        counter.add_incoming(I64(0), before)
        body(counter)
        following = builder.add(counter, I64(1), flags=("nuw", "nsw"))
        counter.add_incoming(following, builder.block)
        more = builder.icmp_unsigned("<", following, I64(count))
        builder.cbranch(more, inside, after)
        builder.position_at_end(after)

    def by_register(self, make: Callable[..., LlvmValue], *values: LlvmValue) -> LlvmValue:
        """Apply `make` to one register after the other and join the results."""
        lanes, size = lanes_of(values[0]), self.target.lanes
        if lanes == size:
            return make(*values)
        half = lanes // 2
        first, second = (
            self.by_register(make, *(self.chosen(value, part) for value in values))
            for part in (range(half), range(half, lanes))
        )
        order = ir.Constant(ir.VectorType(I32, lanes), [I32(lane) for lane in range(lanes)])
        return self.builder.shuffle_vector(first, second, order)

    def chosen(self, value: LlvmValue, lanes: Sequence[int]) -> LlvmValue:
        """Some lanes of a vector."""
        order = ir.Constant(ir.VectorType(I32, len(lanes)), [I32(lane) for lane in lanes])
        undefined = ir.Constant(value.type, ir.Undefined)
        return self.builder.shuffle_vector(value, undefined, order)

    def looked_up(self, table: LlvmValue, places: LlvmValue) -> LlvmValue:
        """Bytes at 64 places of a table of 256, each half by one instruction.

        The instruction reads seven bits of a place; the eighth bit selects the half.
        """
        builder, kind, size = self.builder, places.type, places.type.count
        parts = []
        for start in range(0, 256, size):
            pointer = builder.gep(table, [I64(start)], source_etype=I8)
            parts.append(builder.load(pointer, align=1, typ=kind))
        assert self.target.lookup
        name = self.target.lookup.intrinsic
        low, high = (
            self.intrinsic(name, kind, [parts[half], places, parts[half + 1]]) for half in (0, 2)
        )
        return builder.select(builder.icmp_signed("<", places, number_of(kind, 0)), high, low)

    def whole_registers(self, value: LlvmValue) -> bool:
        """Whether a vector is one register, or two, four, ... of them."""
        count, rest = divmod(lanes_of(value), self.target.lanes)
        return count > 0 and not rest and not count & (count - 1)

    def bits(self, value: LlvmValue, element: LlvmType) -> LlvmValue:
        """The same bits as other elements of the same size."""
        return self.builder.bitcast(value, self.like(value, element))

    def from_bfloat16(self, bits: LlvmValue) -> LlvmValue:
        """The float32 whose upper half are some bits."""
        wide = self.builder.zext(bits, self.like(bits, I32))
        return self.bits(self.builder.shl(wide, self.constant(16, wide)), FLOAT)

    def to_bfloat16(self, value: LlvmValue) -> LlvmValue:
        """The bits of the nearest bfloat16, ties to even; a NaN stays one."""
        builder, bits = self.builder, self.bits(value, I32)
        high = builder.lshr(bits, self.constant(16, bits))
        odd = builder.and_(high, self.constant(1, bits))
        rounding = builder.add(odd, self.constant(0x7FFF, bits))
        nearest = builder.lshr(builder.add(bits, rounding), self.constant(16, bits))
        quiet = builder.or_(high, self.constant(0x40, bits))
        found = builder.select(self.is_nan(value), quiet, nearest)
        return builder.trunc(found, self.like(found, I16))


def lanes_of(value: LlvmValue) -> int:
    """Number of elements of a value."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


def element_of(value: LlvmValue) -> LlvmType:
    """The type of its elements."""
    return value.type.element if isinstance(value.type, ir.VectorType) else value.type


def is_real(value: LlvmValue) -> bool:
    """Whether its elements are float32."""
    return element_of(value) == FLOAT


def number_of(kind: LlvmType, number: float) -> LlvmValue:
    """A number in a scalar type, or in all lanes of a vector type."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [number_of(kind.element, number)] * kind.count)
    return ir.Constant(kind, float(number) if kind in (FLOAT, DOUBLE) else int(number))


def constant_table(module: ir.Module, name: str, element: LlvmType, numbers: Sequence) -> LlvmValue:
    """The address of constants in the object file."""
    kind = ir.ArrayType(element, len(numbers))
    table: LlvmValue = ir.GlobalVariable(module, kind, name)
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(kind, [number_of(element, number) for number in numbers])
    table.type = POINTER
    return table


def suffix(kind: LlvmType) -> str:
    """A type in the name of an intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    if isinstance(kind, ir.PointerType):
        return "p0"
    return {FLOAT: "f32", DOUBLE: "f64"}.get(kind) or f"i{kind.width}"


def transposed(builder: LlvmBuilder, rows: Sequence[LlvmValue]) -> list[LlvmValue]:
    """Transpose a square of rows; their number is a power of two.

    Each step interleaves the rows of the first half with those of the second.
    """
    found, lanes = list(rows), len(rows)
    numbers = [lane + half for lane in range(lanes) for half in (0, lanes)]
    kind = ir.VectorType(I32, lanes)
    low, high = (
        ir.Constant(kind, [I32(number) for number in part])
        for part in (numbers[:lanes], numbers[lanes:])
    )
    for _ in range(lanes.bit_length() - 1):
        pairs = zip(found[: lanes // 2], found[lanes // 2 :], strict=True)
        found = [builder.shuffle_vector(a, b, o) for a, b in pairs for o in (low, high)]
    return found
