"""Lowering of a single scheduled kernel to a program that a device runs."""

from ...aligned import align
from ...argument_types import checked
from ...errors import CompileError
from ...isa.checker import check
from ...isa.configuration import Memory
from ...isa.tokens import synthesise_tokens
from ..te.box import whole_box
from ..te.program import Program
from ..te.schedule import Schedule
from .constant_pool import ConstantPool
from .dma import DramTensor
from .executable import Executable
from .lower_copies import in_dram
from .lower_schedules import Lowering
from .target import Accelerator


@checked("lower")
def lower(schedule: Schedule) -> Executable:
    """Lower a kernel that is scheduled for an accelerator.

    Parameters
    ----------
    schedule
        A schedule in which every stage is a copy or tensorised.

    Raises
    ------
    CompileError
        When the schedule is for another target, or `Lowering.lower` refuses it.
    """
    kernel, target = schedule.kernel, schedule.target
    if not isinstance(target, Accelerator):
        raise CompileError(
            f"kernel `{kernel.name}`: scheduled for {target.name}; give the Schedule an Accelerator"
        )
    configuration = target.configuration
    dram, size = _main_memory(schedule.program())
    pool = ConstantPool(base=size)
    lowering = Lowering(configuration, dram, pool)
    lowering.lower(schedule)
    program = synthesise_tokens([one.instruction for one in lowering.stream], configuration)
    notes = iter(one.note for one in lowering.stream)
    data_bytes = align(pool.base + pool.size)
    check(program, configuration, data_bytes)
    return Executable(
        kernel=kernel,
        schedule=str(schedule),
        configuration=configuration,
        program=program,
        notes=(
            *("token" if one.only_tokens else next(notes) for one in program[:-1]),
            "end",
        ),
        dram=dram,
        constants=pool.image(),
        constants_offset=pool.base,
        data_bytes=data_bytes,
    )


def _main_memory(program: Program) -> tuple[dict[str, DramTensor], int]:
    """Places for the inputs and for stages in main memory, and their total bytes."""
    kernel = program.kernel
    names = [name for name, node in program.buffers.items() if node.scope == Memory.DRAM.name]
    dram: dict[str, DramTensor] = {}
    size = 0
    for name in (*kernel.inputs, *names):
        tensor = program.tensors[name]
        whole = whole_box(tensor.shape)
        if program.domains.get(name, whole) != whole:
            raise CompileError(
                f"`{name}` has a border in main memory, which STORE does not fill; copy it to a "
                "scratchpad instead"
            )
        dram[name] = in_dram(tensor, size)
        size += align(dram[name].size)
    return dram, size
