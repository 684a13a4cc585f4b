"""The laws of the computing instructions as patterns: what tensorisation matches loops against."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .configuration import Memory
from .expressions import Call, Expression, Hole, Immediate, Maybe, OneOf, Op, Reduction, Slot
from .instructions import Combine, Gemm, Instruction, Reduce, Vector


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
    places
        For each operand the scratchpads it may lie in, with the fields that say so.
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
    places: Mapping[str, Mapping[Memory, Mapping[str, int]]] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)
    window: str = ""


_A, _B = Slot("a", ("v",)), Slot("b", ("v",))


def _times(slot: Slot, multiplier: str) -> Call:
    return Call(Op.MULTIPLY, (slot, Immediate(multiplier)))


_COMBINED = OneOf(
    "combine",
    (
        (Combine.ADD, Call(Op.ADD, (_times(_A, "a_multiplier"), _times(_B, "b_multiplier")))),
        (Combine.ADD, Call(Op.ADD, (_A, _times(_B, "b_multiplier")))),
        (Combine.ADD, Call(Op.ADD, (_A, _B))),
        (Combine.MUL, Call(Op.MULTIPLY, (_A, _B))),
        (Combine.MAX, Call(Op.MAXIMUM, (_A, _B))),
        (Combine.MIN, Call(Op.MINIMUM, (_A, _B))),
        (Combine.A, _A),
    ),
)
_REDUCED = OneOf(
    "reduce",
    (
        (Reduce.SUM, Reduction(Op.ADD, _COMBINED)),
        (Reduce.MAX, Reduction(Op.MAXIMUM, _COMBINED)),
        (Reduce.SUM, _COMBINED),
    ),
)
_BIASED = Maybe("bias", Call(Op.ADD, (Hole(), Slot("param.bias", ("v",)))), _REDUCED)
_SCALED = Maybe("scale", Call(Op.REQUANTISE, (Hole(), Slot("param.scale", ("v",)))), _BIASED)
_SHIFTED = Maybe(None, Call(Op.ADD, (Hole(), Immediate("zero_point"))), _SCALED)
_CLAMPED = Maybe(None, Call(Op.CLAMP, (Hole(), Immediate("low"), Immediate("high"))), _SHIFTED)
_LOOKED_UP = Maybe("lookup", Call(Op.LOOKUP, (Slot("table"), Hole())), _CLAMPED)

GEMM = Pattern(
    family=Gemm,
    lanes={"i": "lanes_in", "o": "lanes_out"},
    output=Slot("acc", ("o",)),
    body=Reduction(Op.ADD, Call(Op.MULTIPLY, (Slot("act", ("i",)), Slot("wgt", ("i", "o"))))),
    places={
        "act": {Memory.ACT: {}},
        "wgt": {Memory.WGT: {}},
        "acc": {Memory.ACC: {}},
    },
)

DEPTHWISE = Pattern(
    family=Gemm,
    lanes={"t": "depthwise_taps", "o": "lanes_out"},
    output=Slot("acc", ("o",)),
    body=Reduction(Op.ADD, Call(Op.MULTIPLY, (Slot("act", ("o",)), Slot("wgt", ("t", "o"))))),
    places=GEMM.places,
    fields={"depthwise": 1},
    window="t",
)

VECTOR = Pattern(
    family=Vector,
    lanes={"v": "vector_lanes"},
    output=Slot("dst", ("v",)),
    body=_LOOKED_UP,
    places={
        "dst": {Memory.ACT: {"to_acc": 0}, Memory.ACC: {"to_acc": 1}},
        "a": {Memory.ACT: {"a_from_acc": 0}, Memory.ACC: {"a_from_acc": 1}},
        "b": {Memory.ACT: {}},
        "param.bias": {Memory.PARAM: {}},
        "param.scale": {Memory.PARAM: {}},
        "table": {Memory.LUT: {}},
    },
)

PATTERNS: tuple[Pattern, ...] = (GEMM, DEPTHWISE, VECTOR)
