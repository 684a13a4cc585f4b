"""Kernels as instructions, before they are timed.

Of main memory and its port, nothing here depends on more than `weight_storage`. Lowering takes most
of a search, so timers of one segment share what was lowered: those of several main memories, and of
machines that differ only in their memory port or queues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import UnfitError
from ...isa.configuration import Configuration
from ...isa.expressions import Call, Expression, Literal, Reduction
from ...isa.instructions import Instruction
from ...isa.tokens import synthesise_tokens
from ..accelerator.constant_pool import ConstantPool
from ..accelerator.dma import DramTensor
from ..accelerator.lower_schedules import KnownPieces, Lowering
from ..accelerator.matching import find_pattern
from ..accelerator.search import Candidate, TileSearch
from ..accelerator.weights import weight_storage
from ..te.schedule import Schedule
from ..tensor import Compute, Kernel
from .given_schedules import GivenSchedule, Part
from .issue_order import Weave

MAX_KEPT_INSTRUCTIONS = 200_000
"""Instructions of programs that are kept for other timers, a kilobyte each."""

Key = tuple[tuple[int, Candidate | GivenSchedule], ...]
"""Kernels that run one after the other, by their forms, with their schedules."""


class KernelPrograms:
    """Programs of kernels that run one after the other, apart from the rest of the network.

    Parameters
    ----------
    dram
        Place of every activation in memory, by value; no places overlap.
    size
        Total bytes of these places.
    others
        Programs of another segment, which number forms alike and share searches.
    """

    def __init__(
        self,
        dram: Mapping[str, DramTensor],
        size: int,
        configuration: Configuration,
        others: "KernelPrograms | None" = None,
    ) -> None:
        self.dram, self.size, self.configuration = dram, size, configuration
        self.pieces: dict[Kernel, KnownPieces] = {}
        self._kept: dict[Key, tuple[list[Instruction], tuple[Instruction, ...]] | None] = {}
        self._kept_instructions = 0
        self._alike: dict[Kernel, dict[object, Schedule]] = {}
        """Schedules of each kernel, by the form of their steps."""
        self._schedules: dict[tuple[Kernel, object], Schedule] = {}
        self._begun: list[tuple[Part, Lowering]] = []
        """The kernels of the last lowering, each with the state of the lowering after it."""
        self.searches: dict[object, TileSearch] = others.searches if others else {}
        """By form and machine, the searches for candidates, which go on where they ended."""
        self._numbers: dict[object, int] = others._numbers if others else {}
        """A number for each form, which is quicker to look up than the form itself."""
        self._forms: dict[Kernel, int] = {}

    def key(self, parts: Sequence[Part]) -> Key:
        """Return what determines the program of kernels with these schedules."""
        return tuple((self.form(kernel), candidate) for kernel, candidate in parts)

    def program(
        self, parts: Sequence[Part], weave: Weave = synthesise_tokens
    ) -> tuple[list[Instruction], tuple[Instruction, ...]] | None:
        """Return the instructions without and with tokens.

        None if the machine has too few loops for one of the schedules, or too short ones.
        """
        key = self.key(parts)
        if key in self._kept:
            return self._kept[key]
        try:
            instructions = [emitted.instruction for emitted in self.lowered(parts).stream]
        except UnfitError:
            self._kept[key] = None
            return None
        found = instructions, weave(instructions, self.configuration)
        self._kept_instructions += len(instructions)
        if self._kept_instructions <= MAX_KEPT_INSTRUCTIONS:
            self._kept[key] = found
        return found

    def lowered(self, parts: Sequence[Part]) -> Lowering:
        """Lower the kernels. A beginning shared with the previous call is not lowered again.

        The caller must not lower more into the result, which later calls continue from.

        Raises
        ------
        UnfitError
            When the machine has too few loops for one of the schedules, or too short ones.
        """
        same = 0
        for old, new in zip(self._begun, parts, strict=False):
            if old[0] != new:
                break
            same += 1
        del self._begun[same:]
        if self._begun:
            lowering = self._begun[-1][1]
        else:
            pool = ConstantPool(self.size)
            lowering = Lowering(self.configuration, self.dram, pool, known=self.pieces)
        for part in parts[same:]:
            lowering = lowering.copy()
            lowering.lower(self.schedule(*part))
            self._begun.append((part, lowering))
        return lowering

    def schedule(self, kernel: Kernel, choice: Candidate | GivenSchedule) -> Schedule:
        """The schedule of a kernel."""
        if (kernel, choice) not in self._schedules:
            alike = self._alike.setdefault(kernel, {})
            self._schedules[kernel, choice] = choice.schedule(kernel, self.configuration, alike)
        return self._schedules[kernel, choice]

    def form(self, kernel: Kernel) -> int:
        """Return the number of a kernel's form. Kernels of one form take the same time."""
        if kernel not in self._forms:
            self._forms[kernel] = self._numbers.setdefault(self.form_of(kernel), len(self._numbers))
        return self._forms[kernel]

    def form_of(self, kernel: Kernel) -> object:
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
        return stages, tensors, plain.kept


class ProgramStore:
    """The kernel programs of compilations for one machine, and for others with its instructions.

    Such machines differ in the memory port and the queues only. Those that store weights alike
    share programs.
    """

    def __init__(self) -> None:
        self._known: list[KernelPrograms] = []

    def programs(
        self, dram: Mapping[str, DramTensor], size: int, configuration: Configuration
    ) -> KernelPrograms:
        """Return the programs for activations at these places; arguments of `KernelPrograms`."""
        storage = weight_storage(configuration)
        for known in self._known:
            alike = weight_storage(known.configuration) == storage
            if alike and known.size == size and known.dram == dram:
                return known
        others = self._known[0] if self._known else None
        self._known.append(KernelPrograms(dram, size, configuration, others))
        return self._known[-1]


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
