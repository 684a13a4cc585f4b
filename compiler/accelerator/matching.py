"""Instruction selection: match a stage's expression against the laws of `isa.patterns`.

Nothing here knows an instruction by name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...errors import CompileError
from ...isa.configuration import SCRATCHPADS, Memory
from ...isa.expressions import Match, Read
from ...isa.instructions import Role
from ...isa.patterns import PATTERNS, Pattern
from ..te.matching import find_law
from ..tensor import Compute, Tensor
from .sliding import Window, window_of
from .wide_weights import WIDE


class MatchedInstruction(NamedTuple):
    """The instruction of a stage, whatever the sizes of its loops.

    Parameters
    ----------
    pattern, found
        Its law, and the match.
    window
        The sliding window of a depthwise product; None for other stages.
    lanes
        The axes that must fill lanes, each with the parameters that count the lanes.
    edges
        Reads that may touch elements outside a tensor, by axes and by variables.
    """

    pattern: Pattern
    found: Match
    window: Window | None
    lanes: Mapping[str, tuple[str, ...]]
    edges: tuple[tuple[Read, Read], ...]

    @property
    def mnemonic(self) -> str:
        """Its name in the assembly language."""
        return self.pattern.family.mnemonic

    @property
    def weights(self) -> str:
        """The tensor of its weights."""
        reads = self.found.reads
        return next(r.tensor for slot, r in reads if self.pattern.role(slot) is Role.WEIGHTS)


def memories_of(tensors: Iterable[Tensor]) -> dict[str, list[Memory]]:
    """The scratchpads that hold elements of a tensor's type, for each tensor."""
    return {
        tensor.name: [memory for memory in SCRATCHPADS if tensor.dtype in elements_of(memory)]
        for tensor in tensors
    }


def elements_of(memory: Memory) -> tuple[str, ...]:
    """The types of the tensors that a scratchpad holds; WGT has wide weights as parts of int8."""
    own = memory.scratchpad.elements
    return (*own, WIDE) if memory is Memory.WGT else own


def find_pattern(
    compute: Compute,
    places: Mapping[str, Collection[Memory]] | None = None,
    patterns: Sequence[Pattern] = PATTERNS,
) -> tuple[Pattern, Match]:
    """The first declared instruction whose law the compute's expression matches.

    Parameters
    ----------
    compute
        The stage.
    places
        The memories where each tensor may lie. None accepts an instruction for any places.
    patterns
        The laws of the machine's instructions.

    Raises
    ------
    CompileError
        When no instruction computes it, or none can read the operands from their places.
    """
    misplaced: list[str] = []

    def fits(pattern: Pattern, found: Match) -> bool:
        if not _lanes_fit(pattern, compute, found):
            return False
        complaint = _misplaced(pattern, compute, found, places) if places else ""
        misplaced.extend([complaint] if complaint else [])
        return not complaint

    found = find_law(patterns, compute.body, fits)
    if found is not None:
        return found
    raise CompileError(
        misplaced[0]
        if misplaced
        else f"compute `{compute.output.name}`: no instruction matches `{compute.body}`; "
        "split it into stages that one instruction each can do"
    )


def _misplaced(
    pattern: Pattern, compute: Compute, found: Match, places: Mapping[str, Collection[Memory]]
) -> str:
    """The message about an operand in the wrong memory; empty if all are right."""
    named = [(pattern.output, compute.output.name)]
    named += [(slot, read.tensor) for slot, read in found.reads]
    for slot, tensor in named:
        allowed = [
            memory
            for memory in pattern.places[slot.operand]
            if not (slot.byte and memory is Memory.ACC)
        ]
        if not {*places[tensor]} & {*allowed}:
            lies, takes = (
                " or ".join(memory.name for memory in each) for each in (places[tensor], allowed)
            )
            return (
                f"compute `{compute.output.name}`: tensor `{tensor}` lies in {lies}; "
                f"{pattern.family.mnemonic} takes `{slot.operand}` from {takes}"
            )
    return ""


def _lanes_fit(pattern: Pattern, compute: Compute, found: Match) -> bool:
    if pattern.window:
        return window_of(compute, found) is not None
    return all(axis is not None for axis in lane_axes(pattern, compute, found).values())


def lane_axes(pattern: Pattern, compute: Compute, found: Match) -> dict[str, str | None]:
    """The axis of the compute for each lane of the instruction.

    An output lane is the output's last axis. A reduced lane is the reduction axis that moves the
    last dimension of an operand by one.
    """
    reductions = {axis.name for axis in compute.reductions}
    chosen: dict[str, str | None] = {}
    for lane in pattern.lanes:
        if lane == pattern.window:
            continue
        if lane in pattern.output.lanes:
            chosen[lane] = compute.axes[-1].name
            continue
        candidates = [
            {axis for axis, factor in read.index[-1].terms if axis in reductions and factor == 1}
            for slot, read in found.reads
            if slot.lanes and slot.lanes[-1] == lane and read.index
        ]
        common = set.intersection(*candidates) if candidates else set()
        chosen[lane] = min(common) if common else None
    return chosen
