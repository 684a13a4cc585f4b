"""A lowering in miniature: loops run at compile time, on the reference machine.

Boxes are copied by hand, instructions come from `compiler.accelerator.tensorise`.
"""

import itertools
from collections import Counter

import numpy as np

from tilewright.compiler import te
from tilewright.compiler.accelerator.layout import Buffer, Placement
from tilewright.compiler.accelerator.tensorise import tensorise
from tilewright.compiler.te.affine import value_of
from tilewright.compiler.te.nodes import Copy
from tilewright.isa.configuration import Configuration, Memory
from tilewright.isa.expressions import reads_of
from tilewright.isa.semantics import Machine

PAIR = np.dtype([("bias", np.int32), ("scale", np.float32)])


class Lowering:
    """Runs a program: scratchpad slots by turns, one instance after the other."""

    def __init__(
        self, program: te.Program, inputs: dict[str, np.ndarray], machine: Configuration
    ) -> None:
        self.program, self.configuration = program, machine
        self.machine = Machine(machine, np.zeros(1, dtype=np.uint8))
        self.dram = dict(inputs)
        self.bases: dict[tuple[str, int], int] = {}
        self.used = dict.fromkeys(Memory, 0)
        self.seen: Counter[str] = Counter()

    def run(self) -> np.ndarray:
        output = self.program.kernel.output
        self.dram[output.name] = np.zeros(output.shape, dtype=output.dtype)
        for instance in te.instances(self.program):
            if isinstance(instance.node, Copy):
                self.transfer(instance)
            else:
                self.compute(instance)
        return self.dram[output.name]

    def compute(self, instance: te.Instance) -> None:
        compute = instance.nest.compute
        assert compute is not None
        names = {instance.nest.stage, *(read.tensor for read in reads_of(compute.body))}
        buffers = {name: self.buffer(instance, name) for name in names}
        for instruction in tensorise(
            compute, instance.tile, buffers, self.configuration, instance.accumulate
        ):
            self.machine.execute(instruction)
            self.seen[instruction.mnemonic] += 1

    def transfer(self, instance: te.Instance) -> None:
        """Element by element; a LOAD or a STORE would move the box at once."""
        assert isinstance(instance.node, Copy)
        source, stage = instance.node.source, instance.nest.stage
        for index in itertools.product(*(range(*pair) for pair in instance.box)):
            if stage == self.program.kernel.output.name:
                self.dram[stage][index] = self.cell(instance, source, index)[...]
            else:
                shape = self.dram[source].shape
                inside = all(0 <= i < size for i, size in zip(index, shape, strict=True))
                pad = self.program.tensors[source].pad
                self.cell(instance, stage, index)[...] = self.dram[source][index] if inside else pad

    def base(self, instance: te.Instance, name: str) -> int:
        """First element of a buffer's slot."""
        buffer = instance.buffers[name]
        shared = "parameters" if buffer.allocate.scope == "PARAM" else name
        memory = Memory[buffer.allocate.scope]
        key = (shared, buffer.slot)
        if key not in self.bases:
            self.bases[key] = self.used[memory]
            size = int(np.prod([high - low for low, high in buffer.box]))
            self.used[memory] += -(-size // 64) * 64
        return self.bases[key]

    def cell(self, instance: te.Instance, name: str, index: tuple[int, ...]) -> np.ndarray:
        """One element of a buffer, as a view of the machine's memory."""
        buffer = instance.buffers[name]
        memory = Memory[buffer.allocate.scope]
        where = self.base(instance, name) + sum(
            placed(i - low, place)
            for i, (low, _), place in zip(index, buffer.box, self.placements(buffer), strict=True)
        )
        dtype = {Memory.PARAM: PAIR, Memory.ACC: np.dtype(np.int32)}.get(memory, np.dtype(np.int8))
        view = self.machine.memories[memory].view(dtype)
        if memory is Memory.PARAM:
            view = view["scale" if name.startswith("scale") else "bias"]
        return view[where : where + 1].reshape(())

    def buffer(self, instance: te.Instance, name: str) -> Buffer:
        """What tensorisation wants to know: where the tile's first element lies, and strides."""
        buffer = instance.buffers[name]
        compute = instance.nest.compute
        assert compute is not None
        axes: dict[str, Placement] = {}
        base = self.base(instance, name)
        if buffer.allocate.scope == "LUT":
            return Buffer(Memory.LUT, base // 256, {})
        starts = {axis: low for axis, (low, _) in instance.ranges.items()}
        index = next((r.index for r in reads_of(compute.body) if r.tensor == name), None)
        if index is None:
            index = [te.axes(**{axis: 1})[0].affine for axis in instance.nest.axes]
        for affine, (low, _), place in zip(index, buffer.box, self.placements(buffer), strict=True):
            base += placed(value_of(affine, starts) - low, place)
            for axis, factor in affine.terms:
                axes[axis] = Placement(place.inner * factor, place.block, place.outer)
        return Buffer(Memory[buffer.allocate.scope], base, axes)

    def placements(self, buffer: te.Buffered) -> list[Placement]:
        """Row-major, and WGT in tiles of lanes."""
        sizes = [high - low for low, high in buffer.box]
        strides = [int(np.prod(sizes[position + 1 :])) for position in range(len(sizes))]
        if buffer.allocate.scope != "WGT":
            return [Placement(stride) for stride in strides]
        lanes_in, lanes_out = self.configuration.lanes_in, self.configuration.lanes_out
        channels = Placement(lanes_out, lanes_in, sizes[-1] * lanes_in)
        outputs = Placement(1, lanes_out, lanes_in * lanes_out)
        return [*(Placement(stride) for stride in strides[:-2]), channels, outputs]


def placed(index: int, place: Placement) -> int:
    """Where an index lies, by its placement."""
    if not place.block:
        return index * place.inner
    return index // place.block * place.outer + index % place.block * place.inner
