"""From a schedule to instructions that the checker has accepted.

The walk runs the loops around transfers and instructions, so the order of the instructions is the
order of the loop program. What may run at the same time is not decided here: tokens follow from
what the instructions touch, and `pipeline` lets them touch different slots.
"""

from ...errors import CompileError
from ...isa.checker import check
from ...isa.configuration import Configuration, Memory
from ...isa.expressions import Affine, Read, reads_of
from ...isa.instructions import Instruction
from ...isa.tokens import synthesise_tokens
from ..accelerator.constants import ConstantPool, align
from ..accelerator.dma import Box, Resident
from ..accelerator.layout import Buffer, Placement
from ..accelerator.tensorise import tensorise
from .affine import value_of
from .executable import Executable
from .instances import Instance, instances
from .nodes import Allocate, Copy, nodes
from .places import Places
from .program import Program
from .schedule import Schedule
from .transfers import Transfers, resident


def lower(schedule: Schedule) -> Executable:
    """Lower a scheduled kernel for the machine of its schedule.

    Parameters
    ----------
    schedule
        Every stage is a copy or tensorised.

    Raises
    ------
    CompileError
        When the schedule has no configuration, a stage is computed element by element, a
        scratchpad is too small, a copy goes where no unit moves data, or an operand lies where
        its instruction cannot reach it.
    """
    kernel, configuration = schedule.kernel, schedule.configuration
    if configuration is None:
        raise CompileError(
            f"kernel `{kernel.name}`: the machine is unknown; give the Schedule a Configuration"
        )
    program = schedule.program()
    work = list(instances(program))
    residents, size = _main_memory(program)
    pool = ConstantPool(base=size)
    lowering = _Lowering(program, configuration, residents, pool)
    stream = [one for instance in work for one in lowering.instance(instance)]
    woven = synthesise_tokens([instruction for instruction, _ in stream], configuration)
    notes = iter(note for _, note in stream)
    data_bytes = align(pool.base + pool.size)
    check(woven, configuration, data_bytes)
    return Executable(
        kernel=kernel,
        schedule=str(schedule),
        configuration=configuration,
        program=woven,
        notes=(
            *("token" if one.only_tokens else next(notes) for one in woven[:-1]),
            "end",
        ),
        residents=residents,
        constants=pool.image(),
        constants_offset=pool.base,
        data_bytes=data_bytes,
    )


def _main_memory(program: Program) -> tuple[dict[str, Resident], int]:
    """Places for inputs and for what stages leave in main memory, and the bytes of all."""
    kernel = program.kernel
    written = [node for node in nodes(program.body) if isinstance(node, Allocate)]
    names = [node.tensor.name for node in written if node.scope == Memory.DRAM.name]
    residents: dict[str, Resident] = {}
    size = 0
    for name in (*kernel.inputs, *names):
        tensor = program.tensors[name]
        if program.domains.get(name, _whole(tensor.shape)) != _whole(tensor.shape):
            raise CompileError(
                f"`{name}` has a border in main memory, which STORE does not fill; copy it to a "
                "scratchpad instead"
            )
        residents[name] = resident(tensor, size)
        size += align(residents[name].size)
    return residents, size


def _whole(shape: tuple[int, ...]) -> Box:
    return tuple((0, extent) for extent in shape)


class _Lowering:
    """Instructions and notes of one instance after the other."""

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        residents: dict[str, Resident],
        pool: ConstantPool,
    ) -> None:
        self.configuration = configuration
        self.places = Places(program, configuration)
        self.transfers = Transfers(program, self.places, residents, pool)

    def instance(self, instance: Instance) -> list[tuple[Instruction, str]]:
        starts = " ".join(f"{axis}{low}" for axis, (low, _) in instance.ranges.items())
        if isinstance(instance.node, Copy):
            moved = self.transfers.instructions(instance)
            note = f"{instance.nest.stage} {starts}: copy `{instance.node.source}`"
            return [(one, note) for one in moved]
        note = f"{instance.nest.stage} {starts}: {instance.node.mnemonic}"
        return [(one, note) for one in self._compute(instance)]

    def _compute(self, instance: Instance) -> list[Instruction]:
        compute = instance.nest.compute
        assert compute is not None
        reads = reads_of(compute.body)
        own = Read(instance.nest.stage, tuple(Affine(((a, 1),)) for a in instance.nest.axes))
        self._check_pair(instance, reads)
        buffers = {read.tensor: self._buffer(instance, read) for read in (own, *reads)}
        return tensorise(compute, instance.tile, buffers, self.configuration, instance.accumulate)

    def _check_pair(self, instance: Instance, reads: tuple[Read, ...]) -> None:
        """A bias and a scale are one operand: they must lie side by side."""
        pair = {
            read.tensor: (buffer.box, buffer.slot)
            for read in reads
            if (buffer := instance.buffers.get(read.tensor)) is not None
            and buffer.allocate.scope == Memory.PARAM.name
        }
        if len(set(pair.values())) > 1:
            shown = " and ".join(
                f"`{name}` {_ranges(box)} in slot {slot}" for name, (box, slot) in pair.items()
            )
            raise CompileError(
                f"stage `{instance.nest.stage}`: {shown} share the pairs of PARAM; copy both in "
                "the same loop with the same box"
            )

    def _buffer(self, instance: Instance, read: Read) -> Buffer:
        """Where the tile's first element lies, and how far every axis moves."""
        buffer = instance.buffers[read.tensor]
        memory = Memory[buffer.allocate.scope]
        base = self.places.base(read.tensor, buffer.slot)
        if memory is Memory.LUT:
            return Buffer(memory, base // 256, {})
        starts = {axis: low for axis, (low, _) in instance.ranges.items()}
        sizes = tuple(high - low for low, high in buffer.box)
        axes: dict[str, Placement] = {}
        for affine, (low, _), place in zip(
            read.index, buffer.box, self.places.placements(memory, sizes), strict=True
        ):
            index = value_of(affine, starts) - low
            if place.block:
                base += index // place.block * place.outer + index % place.block * place.inner
            else:
                base += index * place.inner
            for axis, factor in affine.terms:
                already = axes[axis].inner if axis in axes else 0
                axes[axis] = Placement(already + place.inner * factor, place.block, place.outer)
        return Buffer(memory, base, axes)


def _ranges(box: Box) -> str:
    return f"[{', '.join(f'{low}..{high - 1}' for low, high in box)}]"
