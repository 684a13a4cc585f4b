"""A compiled network: host steps and accelerator segments in the order in which they run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..isa.configuration import Configuration
from ..isa.instructions import Instruction
from .graph import Graph


@dataclass(frozen=True, slots=True)
class Binding:
    """An activation in the data window.

    Parameters
    ----------
    offset
        First byte.
    stored_shape, shape
        [N, H, W, C] as it lies there, and without padding.
    corner, fill
        Row and column where it begins inside a border of this value. Padding channels, behind the
        real ones, are zero.
    whole, strides
        The value that it is a part of, and bytes per step of each dimension there; empty where it
        lies alone, row-major. What else lies between its elements belongs to other parts.
    """

    name: str
    offset: int
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]
    corner: tuple[int, int] = (0, 0)
    fill: int = 0
    whole: str = ""
    strides: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes from its first to its last."""
        if not self.strides:
            return math.prod(self.stored_shape)
        steps = zip(self.stored_shape, self.strides, strict=True)
        return 1 + sum((extent - 1) * stride for extent, stride in steps)

    def overwrites(self, other: "Binding") -> bool:
        """Whether a place that is written later may destroy what lies at another one."""
        if (self.whole or self.name) == (other.whole or other.name):
            return False
        return self.offset < other.offset + other.size and other.offset < self.offset + self.size

    def write(self, image: np.ndarray, values: np.ndarray) -> None:
        """Put int8[shape] into the data window uint8[bytes], padding around it."""
        stored = self._stored(image)
        if stored.shape[1:3] != self.shape[1:3]:
            stored[...] = self.fill
        inner = self._inner(stored)
        inner[..., : self.shape[3]] = values
        inner[..., self.shape[3] :] = 0

    def read(self, image: np.ndarray) -> np.ndarray:
        """Take int8[shape] out of the data window; a copy."""
        return self._inner(self._stored(image))[..., : self.shape[3]].copy()

    def _stored(self, image: np.ndarray) -> np.ndarray:
        place = image[self.offset : self.offset + self.size].view(np.int8)
        if not self.strides:
            return place.reshape(self.stored_shape)
        return np.lib.stride_tricks.as_strided(place, self.stored_shape, self.strides)

    def _inner(self, stored: np.ndarray) -> np.ndarray:
        (top, left), (_, height, width, _) = self.corner, self.shape
        return stored[:, top : top + height, left : left + width]


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
        The steps of its schedule, one a line; see `given_schedules`.
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

    def __repr__(self) -> str:
        return (
            f"<Segment of {len(self.layers)} layers in {len(self.program):,} instructions, "
            f"{self.data_bytes:,} bytes of data>"
        )

    def image(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """A new data window, uint8[data_bytes], with constants and the given inputs."""
        image = np.zeros(self.data_bytes, dtype=np.uint8)
        end = self.constants_offset + len(self.constants)
        image[self.constants_offset : end] = np.frombuffer(self.constants, dtype=np.uint8)
        for binding in self.inputs:
            binding.write(image, values[binding.name])
        return image


@dataclass(frozen=True, slots=True)
class Module:
    """Everything that running a network takes.

    Parameters
    ----------
    graph
        The integer graph: meaning of every step, and the reference to compare with.
    steps
        Host nodes by the value that they produce; accelerator steps as indices into `segments`.
    report
        What the compiler has to tell.
    code
        Machine code of the host's kernels by their keys (`host.compile_host`); kernels that it
        lacks are compiled when the module is run.
    """

    name: str
    configuration: Configuration
    graph: Graph
    steps: tuple[str | int, ...]
    segments: tuple[Segment, ...]
    report: Mapping[str, Any]
    code: Mapping[str, bytes] = field(default_factory=dict)

    def __repr__(self) -> str:
        layers = sum(len(segment.layers) for segment in self.segments)
        instructions = sum(len(segment.program) for segment in self.segments)
        return (
            f"<Module `{self.name:.60}` for `{self.configuration.name:.60}`: {layers} accelerator "
            f"layers in {instructions:,} instructions>"
        )
