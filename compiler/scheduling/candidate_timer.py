"""Exact timing of schedule candidates, if the caller has a timing model.

The compiler itself has only an estimate. A caller may pass a function that gives the cycles of a
program. Then the candidates with the best estimates are lowered and timed. Timing takes longer than
the rest of the search, so a candidate that cannot change the choice is not timed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import UnfitError
from ...isa.configuration import Configuration
from ...isa.expressions import Call, Expression, Literal, Reduction
from ..accelerator.constants import ConstantPool
from ..accelerator.dma import DramTensor
from ..accelerator.lower_bound import chained, demand_of
from ..accelerator.lower_schedules import KnownPieces, Lowering
from ..accelerator.matching import find_pattern
from ..accelerator.search import Candidate, likely_candidates
from ..options import Options
from ..te.schedule import Schedule
from ..tensor import Compute, Kernel
from .given_schedules import GivenSchedule, Part
from .issue_order import Measure, issue

NEAR = 1.02
"""If the best time is within this factor of the lower bound, no other schedule is timed."""

FAR, FEW_INSTRUCTIONS, PATIENCE = 1.05, 300, 8
"""Try up to PATIENCE times as many candidates while the best is FAR times the bound or more, and
those timed have FEW_INSTRUCTIONS or fewer: timing a small kernel takes a few milliseconds."""

ASTRAY, MORE = 1.25, 4
"""Try MORE times as many candidates while the best takes ASTRAY times its estimate or more.
Estimates assume a main memory as fast as the port; a slower one may favour another candidate."""

HOPELESS = 1.05
"""A schedule is not timed if its estimate exceeds the best time by this factor."""

NEVER = 1 << 62
"""Cycles of kernels with schedules that do not fit: more than those of any program."""


class CandidateTimer:
    """Times kernels that run one after the other, apart from the rest of the network.

    Parameters
    ----------
    dram
        Place of every activation in memory, by value; no places overlap.
    size
        Total bytes of these places.
    measure
        Gives the cycles of a program.
    """

    def __init__(
        self,
        dram: Mapping[str, DramTensor],
        size: int,
        configuration: Configuration,
        measure: Measure,
    ) -> None:
        self.configuration = configuration
        self.measure = measure
        self.dram, self.size = dram, size
        self.known: dict[object, tuple[int, int]] = {}
        """Cycles and instructions of the programs that were timed."""
        self.chosen: dict[object, Candidate] = {}
        self.listed: dict[object, tuple[int, list[Candidate]]] = {}
        """The likely schedules of each form, and how many were asked for."""
        self.alike: dict[Kernel, dict[object, Schedule]] = {}
        """Schedules of each kernel, by the form of their steps."""
        self.schedules: dict[tuple[Kernel, object], Schedule] = {}
        self.begun: list[tuple[Part, Lowering]] = []
        """The kernels of the last lowering, each with the state of the lowering after it."""
        self.pieces: dict[Kernel, KnownPieces] = {}
        self.numbers: dict[object, int] = {}
        """A number for each form, which is quicker to look up than the form itself."""
        self.forms: dict[Kernel, int] = {}
        self.instructions = 0
        """Instructions of all programs timed so far."""

    def choose(self, kernel: Kernel, options: Options, rival: float = math.inf) -> Candidate:
        """The fastest of the likely schedules; equal layers with equal rivals get the same.

        Parameters
        ----------
        rival
            Cycles of the kernels that this kernel could replace.

        Raises
        ------
        UnfitError
            When not even the smallest tile fits, or when no schedule that was tried fits the loops
            of the instructions.
        """
        form = self.form(kernel), options, rival
        if form not in self.chosen:
            self.chosen[form] = self._fastest(kernel, options, rival)
        return self.chosen[form]

    def likely(self, kernel: Kernel, options: Options, count: int) -> list[Candidate]:
        """The `count` schedules with the least estimates; see `likely_candidates`."""
        form, depth = self.form(kernel), options.pipeline_depth
        asked, found = self.listed.get((form, depth), (0, []))
        if asked < count:
            found = likely_candidates(kernel, self.configuration, depth, count)
            self.listed[form, depth] = count, found
        return found[:count]

    def _fastest(self, kernel: Kernel, options: Options, rival: float) -> Candidate:
        bound = demand_of(kernel, self.configuration).cycles
        few, many = options.candidates, options.candidates * PATIENCE
        likely = self.likely(kernel, options, few)
        best, least, before = likely[0], math.inf, self.instructions
        for number in range(many):
            far = least > FAR * bound and self.instructions - before < FEW_INSTRUCTIONS
            astray = number < few * MORE and least > ASTRAY * best.estimated_cycles
            if number >= few and not far and not astray:
                break
            if number == few:
                likely = self.likely(kernel, options, many)
            if number >= len(likely):
                break
            schedule = likely[number]
            if least <= NEAR * bound or schedule.estimated_cycles > HOPELESS * min(least, rival):
                break
            cycles = self.cycles((kernel, schedule))
            if cycles < least:
                best, least = schedule, cycles
        if least == NEVER:
            self.lowered([(kernel, best)])  # raises the reason
        return best

    def cycles(self, *parts: Part) -> int:
        """Cycles of the kernels with these schedules; equal layers are timed once.

        `NEVER` if the machine has too few loops for one of the schedules, or too short ones.
        """
        return self._timed(parts)[0]

    def instructions_of(self, *parts: Part) -> int:
        """Number of instructions of the kernels with these schedules."""
        return self._timed(parts)[1]

    def bound(self, *parts: Part) -> int:
        """Lower bound for the cycles of the kernels with any schedules."""
        return chained([demand_of(kernel, self.configuration) for kernel, _ in parts]).cycles

    def _timed(self, parts: Sequence[Part]) -> tuple[int, int]:
        key = tuple((self.form(kernel), candidate) for kernel, candidate in parts)
        if not parts:
            return 0, 0
        if key not in self.known:
            try:
                stream = self.lowered(parts).stream
            except UnfitError:
                self.known[key] = NEVER, 0
                return self.known[key]
            instructions = [emitted.instruction for emitted in stream]
            issued = issue(instructions, self.configuration, self.measure)
            self.instructions += len(issued.program)
            self.known[key] = issued.cycles, len(issued.program)
        return self.known[key]

    def lowered(self, parts: Sequence[Part]) -> Lowering:
        """Lower the kernels. A beginning shared with the previous call is not lowered again.

        Raises
        ------
        UnfitError
            When the machine has too few loops for one of the schedules, or too short ones.
        """
        same = 0
        for old, new in zip(self.begun, parts, strict=False):
            if old[0] != new:
                break
            same += 1
        del self.begun[same:]
        lowering = self.begun[-1][1].copy() if same else self._nothing_lowered()
        for part in parts[same:]:
            lowering.lower(self.schedule(*part))
            self.begun.append((part, lowering.copy()))
        return lowering

    def _nothing_lowered(self) -> Lowering:
        pool = ConstantPool(self.size)
        return Lowering(self.configuration, self.dram, pool, known=self.pieces)

    def schedule(self, kernel: Kernel, choice: Candidate | GivenSchedule) -> Schedule:
        """The schedule of a kernel."""
        if (kernel, choice) not in self.schedules:
            alike = self.alike.setdefault(kernel, {})
            self.schedules[kernel, choice] = choice.schedule(kernel, self.configuration, alike)
        return self.schedules[kernel, choice]

    def form(self, kernel: Kernel) -> int:
        """Return the number of a kernel's form. Kernels of one form take the same time."""
        if kernel not in self.forms:
            self.forms[kernel] = self.numbers.setdefault(self._form(kernel), len(self.numbers))
        return self.forms[kernel]

    def _form(self, kernel: Kernel) -> object:
        """The facts that determine a kernel's time: stages and tensors, no names or numbers."""
        names = {name: f"t{index}" for index, name in enumerate(kernel.tensors)}
        plain = kernel.renamed(names)
        stages = tuple(
            (
                replace(
                    stage,
                    output=replace(stage.output, value="", pad=0),
                    body=_without_numbers(stage.body),
                ),
                _instruction_of(stage),
            )
            for stage in plain.stages
        )
        tensors = tuple(
            (
                replace(tensor, value="", pad=0),
                replace(self.dram[tensor.value], base=0) if tensor.value in self.dram else None,
                name in plain.constants,
            )
            for name, tensor in plain.tensors.items()
        )
        return stages, tensors


def _without_numbers(tree: Expression) -> Expression:
    """Replace each constant of an expression by 0."""
    if isinstance(tree, Literal):
        return Literal(0)
    if isinstance(tree, Call):
        return Call(tree.op, tuple(map(_without_numbers, tree.arguments)))
    if isinstance(tree, Reduction):
        return Reduction(tree.op, _without_numbers(tree.body))
    return tree


def _instruction_of(stage: Compute) -> tuple[object, ...]:
    """The instruction of a stage, without the numbers in its fields; constants may decide on it."""
    pattern, found = find_pattern(stage)
    fields = ((name, None if type(value) is int else value) for name, value in found.fields)
    operands = (slot.operand for slot, _ in found.reads)
    return pattern.family, *pattern.fields.items(), *fields, *operands
