"""Default schedules of kernels on their own, for the accelerator and for a processor."""

from ..argument_types import checked
from ..errors import CompileError
from .accelerator.target import Accelerator
from .accelerator.whole_kernels import schedule_whole
from .cpu.plain_schedules import schedule_loops
from .cpu.processor import Processor
from .te.schedule import Schedule
from .te.target import Target
from .tensor import Kernel


@checked("schedule_kernel")
def schedule_kernel(kernel: Kernel, target: Target) -> Schedule:
    """A schedule with which a kernel runs on a target, to use as it is or to begin with.

    Parameters
    ----------
    kernel
        A kernel, as `te.kernel` declares it.
    target
        `Accelerator(configuration)`, or a `Processor`.

    Raises
    ------
    CompileError
        For arguments of other types; when no instruction of the accelerator computes a stage, or
        its sizes do not fit.
    """
    if isinstance(target, Accelerator):
        return schedule_whole(kernel, target.configuration)
    if isinstance(target, Processor):
        return schedule_loops(kernel, target)
    raise CompileError(
        f"kernel `{kernel.name}`: {target.name} has no default schedule; give an Accelerator or a "
        "Processor"
    )
