"""Timing candidates exactly while a schedule is chosen, where the caller has a timing model.

The compiler itself knows only an estimate. Whoever calls it can hand in a function that tells the
cycles of a program; then the candidates that the estimate likes best are lowered and timed. Timing
takes longer than all else, so nothing is timed that cannot change the choice.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..isa.configuration import Configuration
from ..isa.expressions import Call, Expression, Literal, Reduction
from ..isa.instructions import Instruction
from ..isa.tokens import synthesise_tokens
from .accelerator.constants import ConstantPool
from .accelerator.dma import DramTensor
from .accelerator.lower import Lowering
from .accelerator.lower_bound import demand_of
from .accelerator.search import Candidate, likely_candidates
from .given_schedules import Part
from .options import Options
from .tensor import Kernel

Measure = Callable[[Sequence[Instruction], Configuration], int]
"""Cycles of a program that the checker would accept."""

NEAR = 1.01
"""A schedule this near to what any takes at least is good enough: no other is timed."""

FAR, FEW_INSTRUCTIONS, PATIENCE = 1.05, 300, 8
"""Try up to PATIENCE times as many candidates while the best is FAR times the bound or more, and
those timed have FEW_INSTRUCTIONS or fewer: timing a small kernel takes a few milliseconds."""

HOPELESS = 1.1
"""A schedule that is estimated to take so many times the best time yet is not timed."""


class CandidateTimer:
    """Cycles of kernels that run one after the other, and of nothing else.

    Parameters
    ----------
    dram
        Where every activation lies in memory, by value, none in the place of another.
    size
        Bytes that they take together.
    measure
        Tells the cycles of a program.
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
        self.known: dict[object, int] = {}
        self.chosen: dict[object, Candidate] = {}
        self.instructions = 0
        """So many have been timed."""

    def choose(self, kernel: Kernel, options: Options, rival: float = math.inf) -> Candidate:
        """The fastest of the likely schedules; equal layers with equal rivals get the same one.

        Parameters
        ----------
        rival
            Cycles of what the kernel could replace.

        Raises
        ------
        CompileError
            When not even the smallest tile fits.
        """
        form = self._form(kernel), options, rival
        if form not in self.chosen:
            self.chosen[form] = self._fastest(kernel, options, rival)
        return self.chosen[form]

    def _fastest(self, kernel: Kernel, options: Options, rival: float) -> Candidate:
        bound = demand_of(kernel, self.configuration).cycles
        likely = likely_candidates(
            kernel, self.configuration, options.pipeline_depth, options.candidates * PATIENCE
        )
        best, least, before = likely[0], math.inf, self.instructions
        for number, schedule in enumerate(likely):
            far = least > FAR * bound and self.instructions - before < FEW_INSTRUCTIONS
            if number >= options.candidates and not far:
                break
            if least <= NEAR * bound or schedule.estimated_cycles > HOPELESS * min(least, rival):
                break
            cycles = self.cycles((kernel, schedule))
            if cycles < least:
                best, least = schedule, cycles
        return best

    def cycles(self, *parts: Part) -> int:
        """Cycles of the kernels with these schedules; equal layers are timed once."""
        key = tuple((self._form(kernel), candidate) for kernel, candidate in parts)
        if key not in self.known:
            lowering = Lowering(self.configuration, self.dram, ConstantPool(self.size))
            for kernel, candidate in parts:
                lowering.lower(candidate.schedule(kernel, self.configuration))
            instructions = [emitted.instruction for emitted in lowering.stream]
            program = synthesise_tokens(instructions, self.configuration)
            self.instructions += len(program)
            self.known[key] = self.measure(program, self.configuration)
        return self.known[key]

    def _form(self, kernel: Kernel) -> object:
        """What a kernel's time follows from: its stages and tensors, but no name and no number."""
        names = {name: f"t{index}" for index, name in enumerate(kernel.tensors)}
        plain = kernel.renamed(names)
        numbers: dict[int, int] = {}
        stages = tuple(
            replace(
                stage,
                output=replace(stage.output, value="", pad=0),
                body=_numbered(stage.body, numbers),
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


def _numbered(tree: Expression, numbers: dict[int, int]) -> Expression:
    """An expression whose constants are replaced by the order in which they first appear."""
    if isinstance(tree, Literal):
        return Literal(numbers.setdefault(tree.value, len(numbers)))
    if isinstance(tree, Call):
        return Call(tree.op, tuple(_numbered(argument, numbers) for argument in tree.arguments))
    if isinstance(tree, Reduction):
        return Reduction(tree.op, _numbered(tree.body, numbers))
    return tree
