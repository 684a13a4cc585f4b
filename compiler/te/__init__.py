"""Tensor expressions and schedules: declare a kernel in index notation, then transform its loops.

`docs/schedules.md` is the guide. Declarations build the compiler's `Kernel`. A `Schedule` is a list
of checked steps, and its `program` is a tree of loops. `interpret` runs the loops literally,
`instances` walks them as a machine would, and `lower` turns them into a checked program of the
accelerator.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .declare import compute, kernel, tensor
from .footprint import footprint
from .functions import (
    constant,
    decay,
    equal,
    erf,
    exp,
    gelu,
    less,
    log,
    real,
    rounded,
    select,
    sigmoid,
    single,
    sqrt,
    tanh,
)
from .index import Index, axes, reduce_axes
from .instances import Buffered, Instance, instances
from .interpret import InterpretError, interpret
from .law import apply
from .loop_steps import Fuse, Parallelise, Pipeline, Reorder, Split, Unroll, Vectorise
from .processor import DotProduct, Processor
from .program import Program
from .regions import region
from .schedule import Schedule
from .stage_steps import CacheRead, CacheWrite, ComputeAt, ComputeRoot, SetScope, Tensorise
from .stages import Kind, ScheduleError
from .steps import Step, parse_step
from .storage_steps import Arena, Precede, Roll
from .values import DeclaredTensor, TensorExpression, clamp, lookup, maximum, minimum, requantise
from .values import maximum_over as max
from .values import sum_over as sum

if TYPE_CHECKING:
    from ..accelerator.executable import Executable, Outcome
    from ..accelerator.lower_kernel import lower

__all__ = [
    "Arena",
    "Buffered",
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeRoot",
    "DeclaredTensor",
    "DotProduct",
    "Executable",
    "Fuse",
    "Index",
    "Instance",
    "InterpretError",
    "Kind",
    "Outcome",
    "Parallelise",
    "Pipeline",
    "Precede",
    "Processor",
    "Program",
    "Reorder",
    "Roll",
    "Schedule",
    "ScheduleError",
    "SetScope",
    "Split",
    "Step",
    "TensorExpression",
    "Tensorise",
    "Unroll",
    "Vectorise",
    "apply",
    "axes",
    "clamp",
    "compute",
    "constant",
    "decay",
    "equal",
    "erf",
    "exp",
    "footprint",
    "gelu",
    "instances",
    "interpret",
    "kernel",
    "less",
    "log",
    "lookup",
    "lower",
    "max",
    "maximum",
    "minimum",
    "parse_step",
    "real",
    "reduce_axes",
    "region",
    "requantise",
    "rounded",
    "select",
    "sigmoid",
    "single",
    "sqrt",
    "sum",
    "tanh",
    "tensor",
]

_LOWERING = {"Executable": "executable", "Outcome": "executable", "lower": "lower_kernel"}
"""Names of the accelerator target, which imports this package; so they are loaded late."""


def __getattr__(name: str) -> object:
    """Load a name of the accelerator target at its first use."""
    if name not in _LOWERING:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(f"..accelerator.{_LOWERING[name]}", __name__), name)
