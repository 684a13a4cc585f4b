"""VECTOR: bias, requantisation, residuals, pooling and look-ups over ACC and ACT."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

from ...errors import IsaError
from ..configuration import Configuration, Memory
from ..fields import Field, address_width
from ..pipeline import VECTOR_RESULT_CYCLES, VECTOR_TOTAL_CYCLES
from ..vector_operations import Combine, Operation, code_bits
from .common import Access, Instruction, Operand, Role, Unit, slice_count
from .loops import Loop


class ReduceMode(IntEnum):
    """The reduction of the reduce loops."""

    SUM = 0
    MAX = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Instruction):
    """Work on slices of `vector_lanes` values, one step per cycle.

    In each step, the law of the operation `combine` computes `x` from the operands; `a_multiplier`
    counts as 1 if `a` comes from ACC. The reduce loops sum `x` or take its maximum. These optional
    stages follow in order: `+ bias`, requantise by `scale`, add `zero_point`, saturate to int8,
    clamp, look up. A result for ACC is taken after the bias. Integers are 32 bits wide and wrap.

    Parameters
    ----------
    a_from_acc, to_acc
        Whether `a` is read from, and the result written to, ACC instead of ACT.
    combine, reduce
        The operations.
    a_multiplier, b_multiplier
        Signed 16-bit factors that the law of `combine` may use.
    bias, scale
        Use the per-channel bias, or the per-channel binary32 scale, from PARAM.
    zero_point, low, high
        Added after requantisation; bounds of the clamp. Signed 8 bits.
    lookup, table
        Map the result through a table of LUT.
    dst, a, b, param
        Addresses in slices; `param` in rows of PARAM.
    map_loops
        Strides `(dst, a, b, param)`.
    reduce_loops
        Strides `(a, b)`.
    """

    unit: ClassVar[Unit] = Unit.VECTOR
    opcode: ClassVar[int] = 3
    mnemonic: ClassVar[str] = "vector"
    law: ClassVar[str] = (
        "dst = lookup(clamp(saturate8("
        "requantise(reduce(combine(a, b)) + bias, scale) + zero_point)))"
    )
    time: ClassVar[str] = (
        f"one step per cycle; complete {VECTOR_TOTAL_CYCLES} cycles after the last if it writes "
        f"ACC, {VECTOR_RESULT_CYCLES} if it writes ACT"
    )
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("dst", writes=True),
        Operand("a", reads=True),
        Operand("b", reads=True),
        Operand("param", reads=True),
    )
    roles: ClassVar[dict[str, Role]] = {
        "dst": Role.RESULT,
        "a": Role.STREAM,
        "b": Role.STREAM,
        "param.bias": Role.BIAS,
        "param.scale": Role.SCALE,
        "table": Role.TABLE,
    }
    places: ClassVar[dict[str, dict[Memory, dict[str, Any]]]] = {
        "dst": {Memory.ACT: {"to_acc": False}, Memory.ACC: {"to_acc": True}},
        "a": {Memory.ACT: {"a_from_acc": False}, Memory.ACC: {"a_from_acc": True}},
        "b": {Memory.ACT: {}},
        "param": {Memory.PARAM: {}},
        "table": {Memory.LUT: {}},
    }
    nests: ClassVar[dict[str, tuple[str, ...]]] = {
        "map_loops": ("dst", "a", "b", "param"),
        "reduce_loops": ("a", "b"),
    }
    reduction_nest: ClassVar[str] = "reduce_loops"
    unscaled_fields: ClassVar[dict[str, str]] = {"a": "a_multiplier"}

    a_from_acc: bool = False
    to_acc: bool = False
    combine: Operation = Combine.A
    reduce: ReduceMode = ReduceMode.SUM
    a_multiplier: int = 1
    b_multiplier: int = 1
    bias: bool = False
    scale: bool = False
    zero_point: int = 0
    low: int = -128
    high: int = 127
    lookup: bool = False
    table: int = 0
    dst: int
    a: int
    b: int = 0
    param: int = 0
    map_loops: tuple[Loop, ...] = ()
    reduce_loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        super(Vector, self).__post_init__()
        if not isinstance(self.combine, Operation):
            raise IsaError(
                f"vector: `combine` must be an operation, such as `Combine.ADD` or one of "
                f"`Configuration.operations`, not {self.combine!r}"
            )
        object.__setattr__(self, "reduce", ReduceMode(self.reduce))

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """Operation and constants."""
        return (
            Field("a_from_acc", 1),
            Field("to_acc", 1),
            Field("combine", code_bits(configuration.operations)),
            Field("reduce", 1),
            Field("a_multiplier", 16, signed=True),
            Field("b_multiplier", 16, signed=True),
            Field("bias", 1),
            Field("scale", 1),
            Field("zero_point", 8, signed=True),
            Field("low", 8, signed=True),
            Field("high", 8, signed=True),
            Field("lookup", 1),
            Field("table", (configuration.lut_tables - 1).bit_length()),
        )

    def code_of(self, field: str, configuration: Configuration) -> int:
        """An operation is encoded as its index in the machine's table; other fields are numbers.

        Raises
        ------
        IsaError
            When the machine does not have the operation.
        """
        if field != "combine":
            return super(Vector, self).code_of(field, configuration)
        operations = configuration.operations
        if self.combine not in operations:
            raise IsaError(
                f"configuration `{configuration.name}` has no operation `{self.combine}`; it has "
                f"{'; '.join(map(str, operations))}; declare it in `extra_operations`"
            )
        return operations.index(self.combine)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], configuration: Configuration) -> Instruction:
        """Inverse of `values`.

        Raises
        ------
        IsaError
            For an unknown code.
        """
        code, operations = values["combine"], configuration.operations
        if code >= len(operations):
            raise IsaError(f"vector: unknown `combine` code {code}")
        decoded = {**values, "combine": operations[code]}
        return super(Vector, cls).from_values(decoded, configuration)

    @classmethod
    def base_bits(cls, operand: str, configuration: Configuration) -> int:
        """Slices of the larger of ACT and ACC; rows of PARAM."""
        if operand == "param":
            return address_width(configuration.rows(Memory.PARAM))
        return address_width(slice_count(configuration))

    @classmethod
    def finishes(cls, found: Mapping[str, Any]) -> bool:
        """Whether any stage follows the bias; a clamp or a zero point counts with any constant."""
        return bool(found.get("scale") or found.get("lookup") or {"zero_point", "low"} & set(found))

    @classmethod
    def granule(cls, operand: str, memory: Memory, configuration: Configuration) -> int:
        """A slice of bytes or of 32-bit integers; a row of PARAM."""
        if memory is Memory.PARAM:
            return configuration.row_bytes(memory)
        return configuration.vector_lanes * (4 if memory is Memory.ACC else 1)

    @classmethod
    def legal_values(cls, name: str, configuration: Configuration) -> Sequence[Any]:
        """The machine's operations and tables; other fields follow from their width."""
        if name == "combine":
            return configuration.operations
        if name == "table":
            return range(configuration.lut_tables)
        return super(Vector, cls).legal_values(name, configuration)

    def takes_effect(self, name: str) -> bool:
        """Fields that the law reads, and those of the stages after the bias in a result for ACT."""
        if name in ("a_multiplier", "b_multiplier"):
            factor_of_acc = self.a_from_acc and name in self.unscaled_fields.values()
            return self.combine.reads(name) and not factor_of_acc
        if name in ("zero_point", "low", "high", "lookup", "scale"):
            return not self.to_acc
        if name == "table":
            return self.lookup and not self.to_acc
        return name != "reduce" or bool(self.reduce_loops)

    def active(self, operand: Operand) -> bool:
        """`b` is read only if the law uses it, `param` only for a bias or a scale."""
        if operand.name == "b":
            return self.combine.reads("b")
        if operand.name == "param":
            return self.bias or self.scale
        return True

    def accesses(self, configuration: Configuration) -> Iterator[Access]:
        """The operands, and the whole table that a look-up may read."""
        yield from super(Vector, self).accesses(configuration)
        if self.lookup and not self.to_acc:
            table_bytes = configuration.size_bytes(Memory.LUT) // configuration.lut_tables
            yield Access("table", Memory.LUT, False, self.table * table_bytes, table_bytes, ())
