"""Laws of the computing instructions as patterns, which tensorisation matches against loops."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .configuration import Configuration, Memory
from .expressions import Call, Expression, Hole, Immediate, Maybe, OneOf, Op, Reduction, Slot
from .instructions import Gemm, Instruction, ReduceMode, Role, Vector
from .row_laws import ROW_LAWS, RowPass
from .vector_operations import OPERATIONS, Operation, forms


@dataclass(frozen=True, slots=True)
class Pattern:
    """An instruction as `output = body` over lanes, repeated by its loops.

    Parameters
    ----------
    family
        The instruction.
    lanes
        Configuration parameter with the number of lanes, by lane name.
    output, body
        The law; lanes of `body` that are not in `output` are reduced.
    fields
        Values of the instruction's other fields.
    window
        A sliding lane: its element `j` multiplies the operands without it as they were `j` steps
        earlier in the innermost loop. Empty if there is none.
    passes
        The instructions over the same rows that the law takes; empty if it takes one.
    """

    family: type[Instruction]
    lanes: Mapping[str, str]
    output: Slot
    body: Expression
    fields: Mapping[str, int] = field(default_factory=dict)
    window: str = ""
    passes: tuple[RowPass, ...] = ()

    @property
    def places(self) -> Mapping[str, Mapping[Memory, Mapping[str, Any]]]:
        """Scratchpads that each slot may use, with the fields that select them."""
        return _places(self.family)

    def role(self, slot: Slot) -> Role:
        """Role of the operand of a slot."""
        return self.family.roles[slot.operand]


@cache
def _places(family: type[Instruction]) -> Mapping[str, Mapping[Memory, Mapping[str, Any]]]:
    return {slot: family.places[slot.partition(".")[0]] for slot in family.roles}


GEMM = Pattern(
    family=Gemm,
    lanes={"i": "lanes_in", "o": "lanes_out"},
    output=Slot("acc", ("o",)),
    body=Reduction(Op.ADD, Call(Op.MULTIPLY, (Slot("act", ("i",)), Slot("wgt", ("i", "o"))))),
)

DEPTHWISE = Pattern(
    family=Gemm,
    lanes={"t": "depthwise_taps", "o": "lanes_out"},
    output=Slot("acc", ("o",)),
    body=Reduction(Op.ADD, Call(Op.MULTIPLY, (Slot("act", ("o",)), Slot("wgt", ("t", "o"))))),
    fields={"depthwise": 1},
    window="t",
)


def vector_law(operations: Sequence[Operation]) -> Expression:
    """The law of VECTOR: an operation, its reduction, and the optional epilogue.

    The first operation, `a` alone, is tried last.
    """
    ordered = (*operations[1:], operations[0])
    combined = OneOf(
        "combine", tuple((each, form) for each in ordered for form in forms(each.tree))
    )
    reduced = OneOf(
        "reduce",
        (
            (ReduceMode.SUM, Reduction(Op.ADD, combined)),
            (ReduceMode.MAX, Reduction(Op.MAXIMUM, combined)),
            (ReduceMode.SUM, combined),
        ),
    )
    bias, scale = Slot("param.bias", ("v",)), Slot("param.scale", ("v",))
    limits = Immediate("low"), Immediate("high")
    law: Expression = reduced
    for flag, outer in (
        ("bias", Call(Op.ADD, (Hole(), bias))),
        ("scale", Call(Op.REQUANTISE, (Hole(), scale))),
        (None, Call(Op.ADD, (Hole(), Immediate("zero_point")))),
        (None, Call(Op.CLAMP, (Hole(), *limits))),
        ("lookup", Call(Op.LOOKUP, (Slot("table"), Hole()))),
    ):
        law = Maybe(flag, outer, law)
    return law


@cache
def vector_pattern(operations: tuple[Operation, ...]) -> Pattern:
    """Pattern of VECTOR on a machine with these operations."""
    return Pattern(
        family=Vector,
        lanes={"v": "vector_lanes"},
        output=Slot("dst", ("v",)),
        body=vector_law(operations),
    )


VECTOR = vector_pattern(OPERATIONS)

ROWS = tuple(
    Pattern(
        family=Vector,
        lanes={"v": "vector_lanes"},
        output=Slot("dst", ("v",)),
        body=law.body,
        passes=law.passes,
    )
    for law in ROW_LAWS
)
"""Laws of machines with `row_statistics`."""

PATTERNS: tuple[Pattern, ...] = (GEMM, DEPTHWISE, VECTOR, *ROWS)
"""Patterns of a machine with all options and no operations of its own."""


def patterns_of(configuration: Configuration) -> tuple[Pattern, ...]:
    """Patterns of a machine."""
    rows = ROWS if configuration.row_statistics != "none" else ()
    return (GEMM, DEPTHWISE, vector_pattern(configuration.operations), *rows)
