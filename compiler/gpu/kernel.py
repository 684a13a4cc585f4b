"""Kernels of the host on a GPU: the declarations of the CPU target with schedules for blocks.

A description chooses how a layer is computed. The declaration that it makes for the simplest
processor has no layouts of vectors, so its arrays are plain ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..cpu import CpuTarget, Description
from ..cpu.target import generic
from .lower import GpuModule, compile_program
from .schedules import default_schedule
from .target import GpuTarget

PLANNED_FOR = "sse2"
"""Level of the processor for which a description makes its declaration."""


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """A kernel of the host as code for a GPU.

    Parameters
    ----------
    description
        The computation.
    module
        Its code.
    tensors
        Type and shape of each array of the module.
    """

    description: Description
    module: GpuModule
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The arrays of the module that follow from the description's constants."""
        prepared = self.description.prepare(constants, planned_for())
        return {name: self._shaped(name, array) for name, array in prepared.items()}

    def _shaped(self, name: str, array: np.ndarray) -> np.ndarray:
        dtype, shape = self.tensors[name]
        if array.size != int(np.prod(shape)):
            rest = [(0, room - size) for room, size in zip(shape, array.shape, strict=True)]
            array = np.pad(array, rest)
        return np.ascontiguousarray(array.reshape(shape).astype(dtype, copy=False))


def planned_for() -> CpuTarget:
    """The processor whose host plan a GPU takes over."""
    return generic(PLANNED_FOR)


def compile_kernel(description: Description, target: GpuTarget) -> GpuKernel:
    """A kernel of the host for a GPU, by the default schedule.

    Raises
    ------
    CompileError
        When it cannot be compiled.
    """
    plan = description.plan(planned_for())
    kernel = plan.schedule.kernel
    program = default_schedule(kernel, target).program()
    tensors = {name: (tensor.dtype, tensor.shape) for name, tensor in kernel.tensors.items()}
    return GpuKernel(description, compile_program(program, target, plan.tiles), tensors)
