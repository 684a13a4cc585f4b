"""A kernel of one's own: any declaration in the language of `te`, with its schedule."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ... import te
from ...tensor import Kernel
from ..codegen.layout import Layout
from ..codegen.lower import IN_CODE
from ..target import Target
from .description import Array, Plan


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared kernel and the text of its schedule.

    Operands are the kernel's inputs in the order of reading, then its constants, to be bound; small
    constants are part of the code.

    Parameters
    ----------
    kernel
        The declaration.
    steps
        The schedule, one step a line; the plain loops without.
    layouts
        Of tensors that are packed.
    """

    kernel: Kernel
    steps: str = ""
    layouts: tuple[tuple[str, Layout], ...] = ()

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given."""
        known = self.kernel.constants.items()
        names = (*self.kernel.inputs, *(name for name, held in known if held.size > IN_CODE))
        tensors = self.kernel.tensors
        return {name: Array(tensors[name].dtype, tensors[name].shape) for name in names}

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are packed once."""
        packed = [name for name, _ in self.layouts]
        return tuple(n for n in self.operands if n in self.kernel.constants or n in packed)

    @property
    def output(self) -> Array:
        """What it gives."""
        return Array(self.kernel.output.dtype, self.kernel.output.shape)

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Nothing to prepare."""
        return constants

    def plan(self, target: Target) -> Plan:
        """The schedule, replayed for the target's processor."""
        schedule = te.Schedule.parse(self.kernel, self.steps, processor=target.processor)
        return Plan(schedule, dict(self.layouts))
