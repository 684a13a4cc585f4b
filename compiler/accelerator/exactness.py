"""Limits of an instruction that its law does not express.

A law is matched as an expression, but the machine has more rules. It saturates every result that it
writes as int8. It writes a result to ACC before constants, requantisation and clamp. It multiplies
only ACT operands by constants. It takes each operand from a separate tensor, and it has no padding.
A stage is refused if one of these rules changes its value.
"""

from collections.abc import Iterator

from ...isa.configuration import Memory
from ...isa.expressions import Call, Expression, Literal, Match, Op, Read, Reduction
from ...isa.instructions import Instruction
from ..te.bounds import Bounds
from ..te.stages import Stage, State
from ..te.target import ScheduleError
from ..te.values import LIMITS


def check_exact(stage: Stage, state: State, found: Match, family: type[Instruction]) -> None:
    """Refuse a stage whose value an instruction would change.

    Parameters
    ----------
    found
        The match of the stage with the law of `family`.

    Raises
    ------
    ScheduleError
        When it would; the message has the difference.
    """
    mnemonic = family.mnemonic
    if stage.output.dtype == "int8" and not is_int8(stage.body, state):
        raise ScheduleError(
            f"{mnemonic} saturates to int8, but `{stage.name}` keeps the low bits of its value; "
            "clamp it"
        )
    seen: set[str] = set()
    for _, read in found.reads:
        if read.tensor in seen:
            raise ScheduleError(
                f"{mnemonic} takes each operand from a separate tensor, but `{stage.name}` reads "
                f"`{read.tensor}` twice; declare a second tensor for it"
            )
        seen.add(read.tensor)
    fields = dict(found.fields)
    for call in calls(stage.body):
        if call.op is Op.LOOKUP and not is_int8(call.arguments[1], state):
            raise ScheduleError(
                f"{mnemonic} saturates to int8 before it looks up; clamp the index of `{call}`"
            )
    wide = [
        read.tensor
        for slot, read in found.reads
        if state.scope(read.tensor) == Memory.ACC.name
        and fields.get(family.unscaled_fields.get(slot.operand, ""), 1) != 1
    ]
    if wide:
        factors = [call for call in calls(stage.body) if call.op is Op.MULTIPLY]
        part = next((c for c in factors if isinstance(c.arguments[1], Literal)), stage.body)
        raise ScheduleError(
            f"{mnemonic} multiplies only operands in ACT by constants, but `{wide[0]}` lies in "
            f"ACC; make `{part}` a separate stage without `tensorise`"
        )
    if stage.scope == Memory.ACC.name and family.finishes(fields):
        raise ScheduleError(
            "ACC receives a result before added constants, requantisation and clamp, but "
            f"`{stage.name}` lies in ACC; make it an int8 stage in ACT"
        )


def reads_at_edges(stage: Stage, state: State) -> tuple[tuple[Read, Read], ...]:
    """Reads that may touch elements outside a tensor, by axes and by variables.

    Whether they do depends on the sizes of loops; see `check_inside`.
    """
    found = []
    for read, used in zip(stage.reads, stage.variable_reads, strict=True):
        domain = state.domains[read.tensor]
        reach = zip(stage.reach([read], domain), domain, strict=True)
        rolls = any(one.name == read.tensor and one.ahead is not None for one in state.stages)
        empty = any(low == high for low, high in domain)  # an empty tensor is never read
        outside = any(first < low or end > high for (first, end), (low, high) in reach)
        if outside and not empty and not rolls:  # rings include the border
            found.append((read, used))
    return tuple(found)


def check_inside(
    edges: tuple[tuple[Read, Read], ...], state: State, bounds: Bounds, mnemonic: str
) -> None:
    """Refuse reads outside a tensor: instructions have no padding.

    Raises
    ------
    ScheduleError
        When there is one; the message names it.
    """
    for read, used in edges:
        domain = state.domains[read.tensor]
        box = bounds.touched(used, domain, frozenset())
        for part, (low, high) in zip(box, domain, strict=True):
            first, end = part.low.constant, part.low.constant + part.extent
            if first < low or end > high:
                raise ScheduleError(
                    f"`{read}` reaches {first}..{end - 1} where `{read.tensor}` has "
                    f"{low}..{high - 1}, but {mnemonic} has no padding; use `cache_read` for a "
                    "copy with a border"
                )


def calls(tree: Expression) -> Iterator[Call]:
    """All calls in an expression."""
    if isinstance(tree, Call):
        yield tree
        for argument in tree.arguments:
            yield from calls(argument)
    elif isinstance(tree, Reduction):
        yield from calls(tree.body)


def is_int8(tree: Expression, state: State) -> bool:
    """Whether the form of a value guarantees -128..127."""
    if isinstance(tree, Read):
        return state.tensors[tree.tensor].dtype == "int8"
    if isinstance(tree, Literal):
        low, high = LIMITS["int8"]
        return low <= tree.value <= high
    if isinstance(tree, Reduction):
        return tree.op is Op.MAXIMUM and is_int8(tree.body, state)
    if isinstance(tree, Call) and tree.op in (Op.MAXIMUM, Op.MINIMUM):
        return all(is_int8(argument, state) for argument in tree.arguments)
    return isinstance(tree, Call) and tree.op in (Op.CLAMP, Op.LOOKUP)
