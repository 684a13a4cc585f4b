"""Kernels of the host on a GPU.

Products have declarations of their own. All others are computed as on the simplest processor, whose
arrays are plain ones, without layouts of vectors.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from ...aligned import round_up
from ...errors import CompileError
from .. import te
from ..cpu import (
    Attention,
    Box,
    Convolution,
    CpuTarget,
    Description,
    HeadProduct,
    MatrixProduct,
)
from ..cpu.kernels.attention import WHOLE_KEYS
from ..cpu.kernels.choices import Choices, choice_of, device_key, digest_of, workload_of
from ..cpu.kernels.description import TunableDescription
from ..cpu.kernels.rows import RowKernel
from ..cpu.target import generic
from ..tensor import Kernel
from .attention import product_of
from .lower import GpuModule, compile_program
from .product_plans import ProductPlan
from .products import Declaration, declare_product
from .schedules import default_schedule, product_plan
from .target import GpuTarget

COPIED = {1: "int8", 2: "int16", 4: "int32"}
"""Types that stand for all elements of a size where they are only copied."""

MAX_WIDTH = 128
"""Maximum number of elements of a row that are reduced in parallel."""

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
    declaration
        The declaration that it was compiled from.
    """

    description: Description
    module: GpuModule
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    declaration: Declaration

    def prepare(self, constants: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The arrays of the module that follow from the description's constants."""
        prepared = self.declaration.prepare(constants)
        return {name: self._shaped(name, array) for name, array in prepared.items()}

    def _shaped(self, name: str, array: np.ndarray) -> np.ndarray:
        dtype, shape = self.tensors[name]
        if array.size != int(np.prod(shape)):
            rest = [(0, room - size) for room, size in zip(shape, array.shape, strict=True)]
            array = np.pad(array, rest)
        return np.ascontiguousarray(array.reshape(shape).astype(dtype, copy=False))


def planned_for() -> CpuTarget:
    """The processor whose host plan a GPU takes over."""
    return replace(generic(PLANNED_FOR), fuses_attention=True)


def declare(description: Description, target: GpuTarget) -> Declaration:
    """The declaration of a kernel of the host for a GPU."""
    if isinstance(description, Attention):
        s, columns = description.scores, description.context.columns
        sizes = s.rows // description.groups, columns, s.inner, round_up(s.columns, WHOLE_KEYS)
        taps_last = product_of(s.dtype, sizes, target) is not None
        return Declaration(description.declared(taps_last=taps_last), dict)
    product = declare_product(description, target)
    if product is not None:
        return product
    if isinstance(description, RowKernel) and description.inner == 1:
        width = min(MAX_WIDTH, 1 << (description.columns - 1).bit_length())
        stages = description.declared(width)
        return Declaration(te.kernel(stages.name, stages.out), dict)
    plan = description.plan(planned_for())
    prepare = partial(description.prepare, target=planned_for())
    return Declaration(plan.schedule.kernel, prepare, plan.tiles)


def space_plan(description: Description, target: GpuTarget, choices: Choices) -> ProductPlan | None:
    """The plan of a kernel's product; None for kernels whose schedule has no free decisions."""
    if not isinstance(description, MatrixProduct | Convolution | HeadProduct):
        return None
    kernel = _tunable(description.with_choice(()), target)
    return kernel and product_plan(kernel, target, choices)


@lru_cache(maxsize=64)  # a walk through a space asks thousands of times
def _tunable(description: Description, target: GpuTarget) -> Kernel | None:
    product = declare_product(description, target)
    return product and product.kernel


def check_choice(description: TunableDescription, target: GpuTarget) -> None:
    """Refuse decisions that the plan of a kernel does not know.

    Raises
    ------
    CompileError
        The message names one.
    """
    choices = Choices(description.choice)
    space_plan(description, target, choices)
    choices.check_known()


def compile_kernel(description: Description, target: GpuTarget) -> GpuKernel:
    """A kernel of the host for a GPU, by the default schedule or the description's choices for it.

    Raises
    ------
    CompileError
        When it cannot be compiled.
    """
    declaration = declare(description, target)
    choices = Choices(description.choice if isinstance(description, TunableDescription) else ())
    program = default_schedule(declaration.kernel, target, choices).program()
    choices.check_known()
    return kernel_of(description, declaration, compile_program(program, target, declaration.tiles))


def with_device_choice(
    description: Description, target: GpuTarget, device: str, choices: Mapping[str, str]
) -> Description:
    """Return a kernel with the decisions that were recorded for it on this device.

    It stays as it is if there are none, or if its plan does not know them: they may stem from
    another version, or from a stranger.
    """
    if not choices or not isinstance(description, TunableDescription):
        return description
    text = choices.get(device_key(digest_of(workload_of(description)), device))
    if text is None:
        return description
    try:
        changed = description.with_choice(choice_of(text))
        check_choice(changed, target)
    except CompileError:
        return description
    return changed


def kernel_of(description: Description, declaration: Declaration, module: GpuModule) -> GpuKernel:
    """A kernel of the host from the code of its declaration."""
    kernel, tiles = declaration.kernel, declaration.tiles
    shapes = {name: tensor.shape for name, tensor in kernel.tensors.items()}
    shapes |= {name: place.extents for name, place in tiles.items()}
    tensors = {name: (kernel.tensors[name].dtype, shape) for name, shape in shapes.items()}
    tensors |= {each.name: (each.dtype, each.shape) for each in module.buffers}
    return GpuKernel(description, module, tensors, declaration)


def compile_copy(box: Box, elements: int, itemsize: int, target: GpuTarget) -> GpuModule | None:
    """Code that copies a box of the array `in0` to the whole of `out`, as a transposition does.

    Parameters
    ----------
    elements
        Of `in0`.

    Returns
    -------
    None if the box has gaps in the output, goes backwards in the source, or has elements of a type
    that tensors do not have.
    """
    if itemsize not in COPIED or box.place or min(box.strides) < 0 or not _is_dense(box):
        return None
    source = te.tensor("in0", COPIED[itemsize], (elements,))
    axes = te.axes(**{f"i{place}": extent for place, extent in enumerate(box.extents)})
    index = sum((axis * stride for axis, stride in zip(axes, box.strides, strict=True)), box.first)
    kernel = te.kernel("copy", te.compute("out", COPIED[itemsize], axes, source[index]))
    return compile_program(default_schedule(kernel, target).program(), target)


def _is_dense(box: Box) -> bool:
    """Whether a box fills an array in its order."""
    sizes = [math.prod(box.extents[place + 1 :]) for place in range(len(box.extents))]
    return list(box.steps) == sizes
