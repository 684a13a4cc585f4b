"""Laws of softmax and norms: each is a few VECTORs over the same rows; see `isa.meanings`.

The passes share rows of ACC, which hold 32 bits for each element, and rows of PARAM, one for each
row of elements. Those follow a row of PARAM with the constants E and F.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .configuration import Configuration
from .expressions import Call, Expression, Immediate, Op, Slot
from .instructions import Combine, Instruction, ResultKind, Role, Statistic, Vector
from .row_statistics import BYTE_MIDDLE


class Shared(Enum):
    """Operands of passes that are no operands of the law."""

    SUMS = "sums"
    """The elements in ACC, as the pass before left them."""
    ROW = "row"
    """The parameters of each row."""
    SPARE = "spare"
    """Any values in another bank of ACT than the stream's; they are multiplied by 0."""


@dataclass(frozen=True, slots=True)
class RowPass:
    """One VECTOR of a law.

    The last pass writes the law's result, the others ACC, or nothing.

    Parameters
    ----------
    operands
        Its operands, each with the law's operand of that role, or what the passes share.
    fields
        Its other fields, apart from loops.
    taken
        Fields whose values the law was matched with, by the names of the law's immediates.
    """

    operands: tuple[tuple[Slot, Role | Shared], ...]
    fields: Mapping[str, Any]
    taken: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RowLaw:
    """An expression of a row's element, and the VECTORs that compute it."""

    body: Expression
    passes: tuple[RowPass, ...]


_STREAM = Slot("a", ("v",), byte=True)
_ROW = (_STREAM, Slot("table"), Slot("param.epsilon"), Slot("param.factor"))
_OF_ROWS = (_STREAM, Role.STREAM), (Slot("param.bias"), Shared.ROW)
_TABLE = Slot("table"), Role.TABLE
_SUMS = Slot("a", ("v",)), Shared.SUMS
_BOUND = {"bound": "bound"}
_FINISH = {"zero_point": "zero_point", "low": "low", "high": "high"}


def _finished(tree: Expression) -> Expression:
    """The end of every law: the zero point, then the clamp."""
    moved = Call(Op.ADD, (tree, Immediate("zero_point")))
    return Call(Op.CLAMP, (moved, Immediate("low"), Immediate("high")))


def _softmax() -> RowLaw:
    entries = {"bias": True, "zero_point": BYTE_MIDDLE, "result": ResultKind.ENTRY}
    return RowLaw(
        _finished(Call(Op.SOFTMAX, (*_ROW, Immediate("bound")))),
        (
            RowPass(_OF_ROWS, {"result": ResultKind.NONE, "statistic": Statistic.MAXIMUM}, _BOUND),
            RowPass((*_OF_ROWS, _TABLE), {**entries, "statistic": Statistic.SUM}, _BOUND),
            RowPass((_SUMS, _OF_ROWS[1]), {"scale": True}, _FINISH),
        ),
    )


def _norm(op: Op, statistic: Statistic, taken: Mapping[str, str]) -> RowLaw:
    """The law of a normalisation, whose statistic takes these fields from it."""
    value = Call(op, (*_ROW, *map(Immediate, taken.values())))
    bias, scale = Slot("param.bias", ("v",)), Slot("param.scale", ("v",))
    scaled = Call(Op.REQUANTISE, (Call(Op.ADD, (value, bias)), scale))
    both = {"bias": True, "scale": True}
    spread = {"combine": Combine.ADD, "b_multiplier": 0, "result": ResultKind.WIDE, **both}
    spare = Slot("b", ("v",)), Shared.SPARE
    return RowLaw(
        _finished(scaled),
        (
            RowPass(
                (*_OF_ROWS, _TABLE), {"result": ResultKind.NONE, "statistic": statistic}, taken
            ),
            RowPass((*_OF_ROWS, spare), spread, {"a_multiplier": "bound"}),
            RowPass((_SUMS, (bias, Role.BIAS), (scale, Role.SCALE)), both, _FINISH),
        ),
    )


ROW_LAWS = (
    _softmax(),
    _norm(Op.STANDARDISE, Statistic.VARIANCE, _BOUND),
    _norm(Op.NORMALISE, Statistic.POWER, {**_BOUND, "b_multiplier": "centre"}),
)
"""The laws of a machine with `row_statistics`."""


def row_elements(instruction: Instruction, configuration: Configuration) -> int | None:
    """Elements of each row that an instruction works on; None if rows do not matter to it."""
    if not isinstance(instruction, Vector) or not instruction.has_rows:
        return None
    return instruction.row_outputs() * configuration.vector_lanes
