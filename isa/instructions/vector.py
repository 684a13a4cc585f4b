"""VECTOR: bias, requantisation, residuals, pooling and look-ups over ACC and ACT."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any, ClassVar

from ...errors import IsaError
from ..configuration import Configuration, Memory
from ..fields import Field, address_width
from ..pipeline import VECTOR_RESULT_CYCLES, VECTOR_ROW_CYCLES, VECTOR_TOTAL_CYCLES
from ..statistics import Statistic
from ..vector_operations import Combine, Operation, code_bits
from .common import Access, Instruction, Operand, Role, Unit, slice_count
from .loops import Loop


class ReduceMode(IntEnum):
    """The reduction of the reduce loops."""

    SUM = 0
    MAX = 1


class ResultKind(IntEnum):
    """The result of a slice, on a machine with `row_statistics`."""

    USUAL = 0
    """An int8 to ACT; the total to ACC."""
    WIDE = 1
    """To ACC, the scaled total with 8 fraction bits and a one below."""
    ENTRY = 2
    """To ACC, the 16-bit entry of the table; 0 beyond the bound."""
    NONE = 3
    """Nothing is written."""


MAX_BOUND = 1 << 16
"""The greatest bound, which stands for no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Instruction):
    """Work on slices of `vector_lanes` values, one step per cycle.

    In each step, the law of the operation `combine` computes `x` from the operands; `a_multiplier`
    counts as 1 if `a` comes from ACC. The reduce loops sum `x` or take its maximum. These optional
    stages follow in order: `+ bias`, requantise by `scale`, add `zero_point`, saturate to int8,
    clamp, look up. A result for ACC is taken after the bias. Integers are 32 bits wide and wrap.

    With `row_statistics`, a row is what the innermost map loops with stride 0 of `param` produce.
    Its elements count from 0, in their order. `statistic` is taken of the int8 values before
    the look-up, or of their 16-bit entries, over the elements below the bound; it goes to all lanes
    of the row of PARAM, in place of its bias, its scale, or both. Entries are 256 unsigned
    numbers, low byte first, in LUT from `table` on; where they are looked up, `lookup` has no
    effect. The row of PARAM before the first one, at `param` - 1, holds the constants E (bias) and
    F (scale). Wide results and totals have no statistic.

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
    result
        With `to_acc`, a total, a wide result or an entry; `none` writes nothing.
    statistic
        Statistic of each row. The centre of `power` is the low byte of `b_multiplier`, signed.
    bound, bound_step
        Valid elements of the first row, and how many more each next row of the loop outside the row
        has. A bound of 65536 is none.
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
        f"totals to ACC, otherwise {VECTOR_RESULT_CYCLES}, and {VECTOR_ROW_CYCLES} more with a "
        "statistic"
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
        "param.epsilon": Role.EPSILON,
        "param.factor": Role.FACTOR,
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
    result: ResultKind = ResultKind.USUAL
    statistic: Statistic = Statistic.NONE
    bound: int = MAX_BOUND
    bound_step: int = 0
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
        for name, codes in (
            ("reduce", ReduceMode),
            ("result", ResultKind),
            ("statistic", Statistic),
        ):
            object.__setattr__(self, name, codes(getattr(self, name)))

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
            *(_ROW_FIELDS if configuration.row_statistics != "none" else ()),
        )

    def values(self, configuration: Configuration) -> dict[str, int]:
        """Value of every field of the layout.

        Raises
        ------
        IsaError
            When there are too many loops, or the machine has no statistics over rows.
        """
        if configuration.row_statistics == "none":
            for name, usual in _USUAL.items():
                if getattr(self, name) != usual:
                    raise IsaError(
                        f"configuration `{configuration.name}` has no statistics over rows "
                        f"(`row_statistics` is none); leave out `{name}` or set `row_statistics` "
                        "to all"
                    )
        return super(Vector, self).values(configuration)

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
        if values.get("statistic", 0) >= len(Statistic):
            raise IsaError(f"vector: unknown `statistic` code {values['statistic']}")
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

    @property
    def stays_total(self) -> bool:
        """Whether the result is the total after the bias, for ACC."""
        return self.to_acc and self.result is ResultKind.USUAL

    @property
    def becomes_byte(self) -> bool:
        """Whether the int8 value is computed, of which statistics are taken."""
        return not self.to_acc or self.gives_entries or self.result is ResultKind.NONE

    @property
    def measured(self) -> Statistic:
        """The statistic of each row, if it has one."""
        return self.statistic if self.becomes_byte else Statistic.NONE

    @property
    def gives_entries(self) -> bool:
        """Whether the result is an entry of 16 bits."""
        return self.to_acc and self.result is ResultKind.ENTRY

    @property
    def looks_up_entries(self) -> bool:
        """Whether the table holds entries of 16 bits."""
        return self.gives_entries or self.measured > Statistic.MAXIMUM

    @property
    def looks_up_bytes(self) -> bool:
        """Whether the result is looked up in a table of bytes."""
        writes = not self.to_acc and self.result is not ResultKind.NONE
        return self.lookup and writes and not self.looks_up_entries

    @property
    def has_rows(self) -> bool:
        """Whether rows matter: for a statistic, or for a bound of entries."""
        return self.gives_entries or self.measured is not Statistic.NONE

    def _outside(self) -> tuple[Loop, ...]:
        """Map loops that go from row to row."""
        moved, loops = self.nests["map_loops"].index("param"), self.map_loops
        while loops and not loops[-1].strides[moved]:
            loops = loops[:-1]
        return loops

    def rows(self) -> int:
        """Number of rows."""
        return prod(loop.extent for loop in self._outside())

    def row_outputs(self) -> int:
        """Slices of a row."""
        return prod(loop.extent for loop in self.map_loops[len(self._outside()) :])

    def row_bound(self, row: int) -> int:
        """Valid elements of a row; more than it has if all are."""
        outside = self._outside()
        return self.bound + (row % outside[-1].extent if outside else 0) * self.bound_step

    def takes_effect(self, name: str) -> bool:
        """Fields that the law reads, and those of the stages that the result goes through."""
        if name == "b_multiplier" and self.measured is Statistic.POWER:
            return True
        if name in ("a_multiplier", "b_multiplier"):
            factor_of_acc = self.a_from_acc and name in self.unscaled_fields.values()
            return self.combine.reads(name) and not factor_of_acc
        if name in ("zero_point", "low", "high"):
            return self.becomes_byte
        if name == "scale":
            return not self.stays_total
        if name == "lookup":
            return (
                not self.to_acc and self.result is not ResultKind.NONE and not self.looks_up_entries
            )
        if name == "table":
            return self.looks_up_bytes or self.looks_up_entries
        if name == "statistic":
            return self.becomes_byte
        if name in ("bound", "bound_step"):
            return self.has_rows
        return name != "reduce" or bool(self.reduce_loops)

    def active(self, operand: Operand) -> bool:
        """`b` is read only if the law uses it, `param` only for a bias or a scale.

        `accesses` adds what statistics read and write.
        """
        if operand.name == "b":
            return self.combine.reads("b")
        if operand.name == "param":
            return self.bias or self.scale
        if operand.name == "dst":
            return self.result is not ResultKind.NONE
        return True

    def accesses(self, configuration: Configuration) -> Iterator[Access]:
        """The operands, the parameters and constants of rows, and the tables of a look-up."""
        yield from super(Vector, self).accesses(configuration)
        if self.measured is not Statistic.NONE:
            size = configuration.row_bytes(Memory.PARAM)
            loops = tuple((n, s * size) for n, s in self.nest_of("param") if s)
            yield Access("param", Memory.PARAM, True, self.param * size, size, loops)
            if self.measured is not Statistic.MAXIMUM:
                yield Access("param", Memory.PARAM, False, (self.param - 1) * size, size, ())
        if self.looks_up_bytes or self.looks_up_entries:
            table_bytes = configuration.size_bytes(Memory.LUT) // configuration.lut_tables
            length = table_bytes * (2 if self.looks_up_entries else 1)
            yield Access("table", Memory.LUT, False, self.table * table_bytes, length, ())


_ROW_FIELDS = (
    Field("result", 2),
    Field("statistic", 3),
    Field("bound", (MAX_BOUND - 1).bit_length(), offset=1),
    Field("bound_step", 8),
)
"""Fields of a machine with `row_statistics`."""

_USUAL = {
    "result": ResultKind.USUAL,
    "statistic": Statistic.NONE,
    "bound": MAX_BOUND,
    "bound_step": 0,
}
"""Their values on any other machine."""
