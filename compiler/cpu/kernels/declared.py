"""Custom kernels: any declaration in the language of `te`, with its schedule."""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ...tensor import Kernel
from ..codegen.layout import Layout
from ..codegen.lower import IN_CODE
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule


@dataclass(frozen=True, slots=True)
class Declared(Description):
    """A declared kernel and the text of its schedule.

    Operands are the kernel's inputs in the order in which it reads them, then its constants. Small
    constants are part of the code.

    Parameters
    ----------
    kernel
        The declaration.
    steps
        The schedule, one step per line; plain loops by default.
    layouts
        Layouts of the tensors that are packed.
    """

    kernel: Kernel
    steps: str = ""
    layouts: tuple[tuple[str, Layout], ...] = ()

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        kernel, known = self.kernel, self.kernel.constants.items()
        held = (name for name, value in known if value.size > IN_CODE)
        tensors = [kernel.tensors[name] for name in (*kernel.inputs, *held)]
        return {one.name: Array(one.dtype, one.shape) for one in (*tensors, kernel.output)}

    @property
    @override
    def constants(self) -> tuple[str, ...]:
        packed = [name for name, _ in self.layouts]
        return tuple(n for n in self.operands if n in self.kernel.constants or n in packed)

    def plan(self, target: CpuTarget) -> KernelSchedule:
        """The schedule, replayed for the target's processor."""
        schedule = te.Schedule.parse(self.kernel, self.steps, target.processor)
        return KernelSchedule(schedule, dict(self.layouts))
