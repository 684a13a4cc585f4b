"""Bytes between a network's segments and main memory: actual traffic and lower bound."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...compiler.graph import Graph, Node, QConv, is_accelerated
from ...compiler.module import Module
from ...compiler.placement.partition import partition
from ...isa.configuration import Configuration
from ...isa.instructions import Store
from ...isa.memory_model import MemoryModel
from ...sim.timing.links import moved_bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that LOAD reads from main memory and that STORE writes, without the program."""

    read_bytes: int
    written_bytes: int

    @property
    def total_bytes(self) -> int:
        """Both directions."""
        return self.read_bytes + self.written_bytes

    def cycles(self, configuration: Configuration, memory: MemoryModel) -> float:
        """Cycles in which the bus can move it; its two channels work in parallel, if it has two."""
        moved = max(self.read_bytes, self.written_bytes) if memory.bus is None else self.total_bytes
        return moved / bytes_per_cycle(configuration, memory)


def bytes_per_cycle(configuration: Configuration, memory: MemoryModel) -> float:
    """Peak bandwidth of one channel of the bus."""
    return configuration.bus_bytes / memory.beat_cycles


def moved_traffic(module: Module) -> Traffic:
    """Traffic of the instructions of a compiled network."""
    program = [i for segment in module.segments for i in segment.program]
    written = sum(moved_bytes(i) for i in program if isinstance(i, Store))
    return Traffic(sum(map(moved_bytes, program)) - written, written)


def least_traffic(module: Module) -> Traffic:
    """Minimum traffic of any program for the same graph, whatever the scratchpad sizes.

    Per segment it reads every constant once (weights int8, bias int32 and scale float32 per
    channel, tables) and the inputs, and writes the outputs, all without padding. If only one
    convolution reads an input, only the pixels in its windows count.
    """
    graph = module.graph
    groups = [nodes for nodes in partition(graph) if is_accelerated(nodes[0])]
    read = written = 0
    for segment, nodes in zip(module.segments, groups, strict=True):
        names = dict.fromkeys(name for node in nodes for name in node.inputs)
        read += sum(graph.data(name).nbytes for name in names if graph.is_constant(name))
        read += sum(_input_bytes(graph, binding.name, nodes) for binding in segment.inputs)
        written += sum(graph.types[binding.name].elements for binding in segment.outputs)
    return Traffic(read, written)


def _input_bytes(graph: Graph, name: str, nodes: Sequence[Node]) -> int:
    """Elements of an int8 input that are needed."""
    readers = [node for node in nodes if name in node.inputs]
    batch, height, width, channels = graph.types[name].shape
    if len(readers) == 1 and isinstance(readers[0].attributes, QConv):
        conv, out = readers[0].attributes, readers[0].output.type.shape
        kernel = graph.data(readers[0].inputs[1]).shape
        height, width = (
            _touched(extent, out[axis + 1], kernel[axis], conv, axis)
            for axis, extent in enumerate((height, width))
        )
    return batch * height * width * channels


def _touched(extent: int, outputs: int, taps: int, conv: QConv, axis: int) -> int:
    """Rows or columns of an input that lie in a window."""
    positions: Iterable[int] = (
        output * conv.strides[axis] + tap * conv.dilations[axis] - conv.pads[axis]
        for output in range(outputs)
        for tap in range(taps)
    )
    return len(set(positions).intersection(range(extent)))
