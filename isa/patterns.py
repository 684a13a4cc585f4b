"""The laws of the computing instructions as patterns: what tensorisation matches loops against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .configuration import Configuration, Memory
from .expressions import Call, Expression, Hole, Immediate, Maybe, OneOf, Op, Reduction, Slot
from .instructions import Gemm, Instruction, ReduceMode, Role, Vector
from .vector_operations import OPERATIONS, Operation, forms


@dataclass(frozen=True, slots=True)
class Pattern:
    """An instruction as `output = body` over lanes, repeated by its loops.

    Parameters
    ----------
    family
        The instruction.
    lanes
        Lane name to the configuration parameter that says how many there are.
    output, body
        The law; lanes of `body` that `output` lacks are reduced over.
    fields
        What the instruction's other fields hold.
    window
        A lane that slides: its element `j` multiplies what the operands without it had `j` steps
        before in the innermost loop. Empty where none does.
    """

    family: type[Instruction]
    lanes: Mapping[str, str]
    output: Slot
    body: Expression
    fields: Mapping[str, int] = field(default_factory=dict)
    window: str = ""

    @property
    def places(self) -> Mapping[str, Mapping[Memory, Mapping[str, Any]]]:
        """For each slot the scratchpads it may lie in, with the fields that say so."""
        return _places(self.family)

    def role(self, slot: Slot) -> Role:
        """What the operand of a slot is to the instruction."""
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
    """What VECTOR computes: an operation, reduced, and all that may follow.

    The first operation, `a` alone, is the last to be tried.
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
    """VECTOR on a machine with these operations."""
    return Pattern(
        family=Vector,
        lanes={"v": "vector_lanes"},
        output=Slot("dst", ("v",)),
        body=vector_law(operations),
    )


VECTOR = vector_pattern(OPERATIONS)

PATTERNS: tuple[Pattern, ...] = (GEMM, DEPTHWISE, VECTOR)
"""What every machine has."""


def patterns_of(configuration: Configuration | None) -> tuple[Pattern, ...]:
    """What a machine has; what every machine has, if none is given."""
    if configuration is None:
        return PATTERNS
    return (GEMM, DEPTHWISE, vector_pattern(configuration.operations))
