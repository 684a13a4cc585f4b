"""A compiled network: host steps and accelerator segments in the order in which they run."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..isa.configuration import Configuration
from ..isa.instructions import Instruction
from .graph import Graph


@dataclass(frozen=True, slots=True)
class Binding:
    """An activation in the data window: byte offset, shape with channels padded, and the real shape."""

    name: str
    offset: int
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes it takes."""
        total = 1
        for extent in self.stored_shape:
            total *= extent
        return total


@dataclass(frozen=True, slots=True)
class Layer:
    """One graph node on the accelerator.

    Parameters
    ----------
    name, op, output
        The node, what the report calls it, and the value that it produces.
    macs
        Multiplications as the model defines them.
    schedule
        Its schedule, printed.
    first, last
        Its instructions, as a half-open range of the segment's program.
    """

    name: str
    op: str
    output: str
    macs: int
    schedule: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A program for the accelerator and the data window that it works on.

    Parameters
    ----------
    program
        Ends with HALT; passed the checker.
    notes
        What each instruction is there for.
    layers
        In order; their instruction ranges are disjoint.
    inputs, outputs
        Activations that the host writes before, and reads after.
    activations
        Every activation of the segment, for comparing layer by layer; places may be reused.
    constants, constants_offset
        Bytes that the host puts into the data window once.
    data_bytes
        Size of the data window.
    """

    program: tuple[Instruction, ...]
    notes: tuple[str, ...]
    layers: tuple[Layer, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    activations: tuple[Binding, ...]
    constants: bytes
    constants_offset: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Module:
    """Everything that running a network takes.

    Parameters
    ----------
    graph
        The integer graph: meaning of every step, and the reference to compare with.
    steps
        Host nodes by the value that they produce; accelerator steps as indices into `segments`.
    """

    name: str
    configuration: Configuration
    graph: Graph
    steps: tuple[str | int, ...]
    segments: tuple[Segment, ...]
    report: Mapping[str, object]
