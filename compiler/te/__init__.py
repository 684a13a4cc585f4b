"""Tensor expressions and schedules: declare a kernel in index notation, then transform its loops.

`docs/guide/schedules.md` is the guide. Declarations build the compiler's `Kernel`. A `Schedule` is
a list of checked steps, and its `program` is a tree of loops. `interpret` runs the loops literally,
and `instances` walks them as a machine would. A `Target` says what a machine has; this package
knows none.
"""

from ..tensor import Patches, View
from .carry import Carry
from .declare import compute, kernel, tensor
from .footprint import footprint
from .functions import (
    constant,
    cos,
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
    sin,
    single,
    sqrt,
    tanh,
)
from .index import Index, axes, reduce_axes
from .instances import Buffered, Instance, instances
from .interpret import InterpretError, interpret
from .law import apply
from .loop_steps import (
    Bind,
    Fuse,
    Parallelise,
    Pipeline,
    Reorder,
    Split,
    SplitFirst,
    Unroll,
    Vectorise,
)
from .program import Program
from .regions import region
from .schedule import Schedule
from .stage_steps import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeRoot,
    SetScope,
    SplitReduction,
    Tensorise,
)
from .steps import Step, parse_step
from .storage_steps import Arena, Precede, Roll
from .target import Kind, ScheduleError, Scope, Target
from .values import (
    DeclaredTensor,
    TensorExpression,
    clamp,
    element,
    lookup,
    maximum,
    minimum,
    requantise,
    row_operation,
)
from .values import maximum_over as max
from .values import sum_over as sum

__all__ = [
    "Arena", "Bind", "Buffered", "CacheRead", "CacheWrite", "Carry", "ComputeAt", "ComputeRoot",
    "DeclaredTensor", "Fuse", "Index", "Instance", "InterpretError", "Kind", "Parallelise",
    "Patches", "Pipeline", "Precede", "Program", "Reorder", "Roll", "Schedule", "ScheduleError",
    "Scope", "SetScope", "Split", "SplitFirst", "SplitReduction", "Step", "Target",
    "TensorExpression", "Tensorise", "Unroll", "Vectorise", "View", "apply", "axes", "clamp",
    "compute", "constant", "cos", "decay", "element", "equal", "erf", "exp", "footprint", "gelu",
    "instances", "interpret", "kernel", "less", "log", "lookup", "max", "maximum", "minimum",
    "parse_step", "real", "reduce_axes", "region", "requantise", "rounded", "row_operation",
    "select", "sigmoid", "sin", "single", "sqrt", "sum", "tanh", "tensor",
]  # fmt: skip
