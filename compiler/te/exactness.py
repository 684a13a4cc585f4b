"""Where an instruction does not do what its law alone says: what it saturates, and what it skips.

A law is matched as an expression. The machine saturates whatever it writes as int8, takes a result
for ACC before anything that follows the bias, multiplies by constants only what lies in ACT, takes
each operand from a tensor of its own, and knows no padding. Stages for which that makes a
difference are refused.
"""

from collections.abc import Iterator

from ...isa.configuration import Memory
from ...isa.expressions import Call, Constant, Expression, Op, Read, Reduction
from .bounds import Bounds
from .stages import ScheduleError, Stage, State
from .values import LIMITS


def check_exact(stage: Stage, state: State, bounds: Bounds, mnemonic: str, doing: str) -> None:
    """Refuse a stage whose value an instruction would change.

    Raises
    ------
    ScheduleError
        Saying what differs.
    """
    if stage.output.dtype == "int8" and not is_int8(stage.body, state):
        raise ScheduleError(
            f"{doing}: {mnemonic} saturates to int8, and `{stage.name}` keeps the low bits of its "
            "value; clamp it"
        )
    _check_reads(stage, state, bounds, mnemonic, doing)
    for call in calls(stage.body):
        if call.op is Op.LOOKUP and not is_int8(call.arguments[1], state):
            raise ScheduleError(
                f"{doing}: {mnemonic} saturates to int8 before it looks up; clamp the index of "
                f"`{call}`"
            )
        scaled = call.op is Op.MULTIPLY and isinstance(call.arguments[1], Constant)
        operand = call.arguments[0]
        if scaled and isinstance(operand, Read) and state.scope(operand.tensor) == Memory.ACC.name:
            raise ScheduleError(
                f"{doing}: {mnemonic} multiplies by constants only what lies in ACT, and "
                f"`{operand.tensor}` lies in ACC; make `{call}` a stage that no instruction does"
            )
    if stage.scope == Memory.ACC.name and not is_wide(stage.body):
        raise ScheduleError(
            f"{doing}: ACC takes a result before constants are added, requantisation and clamp, "
            f"and `{stage.name}` lies there; make it an int8 stage in ACT"
        )


def _check_reads(stage: Stage, state: State, bounds: Bounds, mnemonic: str, doing: str) -> None:
    """Operands are whole tensors, one each, and what lies outside of them is not there."""
    seen: set[str] = set()
    for read in stage.reads():
        if read.tensor in seen:
            raise ScheduleError(
                f"{doing}: {mnemonic} takes each operand from a tensor of its own, and "
                f"`{stage.name}` reads `{read.tensor}` twice; declare a second tensor for it"
            )
        seen.add(read.tensor)
        domain = state.domains[read.tensor]
        box = bounds.touched(stage.name, read, domain, frozenset())
        for part, (low, high) in zip(box, domain, strict=True):
            first, end = part.low.constant, part.low.constant + part.extent
            if first < low or end > high:
                raise ScheduleError(
                    f"{doing}: `{read}` reaches {first}..{end - 1} where `{read.tensor}` has "
                    f"{low}..{high - 1}, and {mnemonic} knows no padding; `cache_read` makes a "
                    "copy with its border"
                )


def calls(tree: Expression) -> Iterator[Call]:
    """All calls inside an expression."""
    if isinstance(tree, Call):
        yield tree
        for argument in tree.arguments:
            yield from calls(argument)
    elif isinstance(tree, Reduction):
        yield from calls(tree.body)


def is_int8(tree: Expression, state: State) -> bool:
    """Whether a value lies in -128..127 by its form."""
    if isinstance(tree, Read):
        return state.tensors[tree.tensor].dtype == "int8"
    if isinstance(tree, Constant):
        low, high = LIMITS["int8"]
        return low <= tree.value <= high
    if isinstance(tree, Reduction):
        return tree.op is Op.MAXIMUM and is_int8(tree.body, state)
    if isinstance(tree, Call) and tree.op in (Op.MAXIMUM, Op.MINIMUM):
        return all(is_int8(argument, state) for argument in tree.arguments)
    return isinstance(tree, Call) and tree.op in (Op.CLAMP, Op.LOOKUP)


def is_wide(tree: Expression) -> bool:
    """Whether nothing follows the bias: sums, products, maxima and minima, constants as factors."""
    if isinstance(tree, Call):
        if tree.op is Op.MULTIPLY:
            return all(isinstance(part, Constant) or is_wide(part) for part in tree.arguments)
        wide = tree.op in (Op.ADD, Op.MAXIMUM, Op.MINIMUM)
        return wide and all(map(is_wide, tree.arguments))
    return isinstance(tree, (Read, Reduction))
