"""Timing candidates exactly while a schedule is chosen, where the caller has a timing model.

The compiler itself knows only an estimate. Whoever calls it can hand in a function that tells the
cycles of a program; then the candidates that the estimate likes best are lowered and timed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..isa.configuration import Configuration
from ..isa.instructions import Instruction
from ..isa.tokens import synthesise_tokens
from .accelerator.constants import ConstantPool, align
from .accelerator.dma import Resident
from .accelerator.lower import Lowering
from .accelerator.schedule import Schedule
from .tensor import Kernel

Measure = Callable[[Sequence[Instruction], Configuration], int]
"""Cycles of a program that the checker would accept."""

Part = tuple[Kernel, Schedule]


class Stopwatch:
    """Cycles of kernels that run one after the other, and of nothing else.

    Parameters
    ----------
    shapes
        How every activation lies in memory, by value.
    measure
        Tells the cycles of a program.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        configuration: Configuration,
        measure: Measure,
    ) -> None:
        self.configuration = configuration
        self.measure = measure
        self.residents: dict[str, Resident] = {}
        self.size = 0
        for name, shape in shapes.items():
            self.residents[name] = Resident(self.size, shape)
            self.size = align(self.size + self.residents[name].size)
        self.known: dict[object, int] = {}

    def cycles(self, *parts: Part) -> int:
        """Cycles of the kernels with these schedules; equal layers are timed once."""
        key = tuple((self._form(kernel), schedule) for kernel, schedule in parts)
        if key not in self.known:
            lowering = Lowering(self.configuration, self.residents, ConstantPool(self.size))
            for kernel, schedule in parts:
                lowering.lower(kernel, schedule)
            instructions = [emitted.instruction for emitted in lowering.stream]
            program = synthesise_tokens(instructions, self.configuration)
            self.known[key] = self.measure(program, self.configuration)
        return self.known[key]

    def _form(self, kernel: Kernel) -> tuple[object, ...]:
        """What a kernel's time follows from: its stages and tensors, not their names."""
        names = {name: f"t{index}" for index, name in enumerate(kernel.tensors)}
        plain = kernel.renamed(names)
        stages = tuple(
            replace(stage, output=replace(stage.output, value="")) for stage in plain.stages
        )
        tensors = tuple(
            (
                replace(tensor, value=""),
                self.residents[tensor.value].shape if tensor.value in self.residents else (),
                name in plain.constants,
            )
            for name, tensor in plain.tensors.items()
        )
        return stages, tensors
