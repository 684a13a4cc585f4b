"""A compiled network: host steps and accelerator segments, in execution order."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..html_tables import html_table
from ..isa.configuration import Configuration
from ..isa.instructions import Instruction
from ..isa.memory_model import MemoryModel
from ..wording import counted
from .graph import Graph


@dataclass(frozen=True, slots=True)
class Binding:
    """An activation in the data window.

    Parameters
    ----------
    offset
        Byte of the first element; those of dimensions that run backwards lie before it.
    stored_shape, shape
        [N, H, W, C] in the data window, and without padding.
    corner, fill
        `corner` is the row and column at which it begins inside a border; `fill` is the value of
        the border. Padding channels follow the real ones and are zero.
    whole, strides
        The value that contains it, and bytes per step of each dimension; empty if it is separate
        and row-major. The bytes between its elements belong to other parts.
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
        """Number of bytes from its lowest to its highest."""
        if not self.strides:
            return math.prod(self.stored_shape)
        if 0 in self.stored_shape:
            return 0
        return 1 + sum(abs(step) for step in self._steps())

    @property
    def start(self) -> int:
        """Its lowest byte."""
        return self.offset + sum(min(step, 0) for step in self._steps())

    def _steps(self) -> list[int]:
        """Bytes from the first to the last index of each dimension, for strided places."""
        pairs = zip(self.stored_shape, self.strides, strict=False)  # no strides: row-major
        return [max(extent - 1, 0) * stride for extent, stride in pairs]

    def overwrites(self, other: "Binding") -> bool:
        """Whether a later write to one place may destroy the data at another."""
        if (self.whole or self.name) == (other.whole or other.name):
            return False
        return self.start < other.start + other.size and other.start < self.start + self.size

    def write(self, image: np.ndarray, values: np.ndarray) -> None:
        """Write int8[shape] and its padding to the data window uint8[bytes]."""
        stored = self._stored(image)
        if stored.shape[1:3] != self.shape[1:3]:
            stored[...] = self.fill
        inner = self._inner(stored)
        inner[..., : self.shape[3]] = values
        inner[..., self.shape[3] :] = 0

    def read(self, image: np.ndarray) -> np.ndarray:
        """Read int8[shape] from the data window, as a copy."""
        return self._inner(self._stored(image))[..., : self.shape[3]].copy()

    def _stored(self, image: np.ndarray) -> np.ndarray:
        place = image[self.start : self.start + self.size].view(np.int8)
        if not self.strides:
            return place.reshape(self.stored_shape)
        first = place[self.offset - self.start :]
        return np.lib.stride_tricks.as_strided(first, self.stored_shape, self.strides)

    def _inner(self, stored: np.ndarray) -> np.ndarray:
        (top, left), (_, height, width, _) = self.corner, self.shape
        return stored[:, top : top + height, left : left + width]


@dataclass(frozen=True, slots=True)
class Layer:
    """One graph node on the accelerator.

    Parameters
    ----------
    name, op, output
        The node's name, its operator in reports, and the value that it produces.
    macs
        Number of multiplications by the model's definition.
    schedule
        The steps of its schedule, one per line; see `given_schedules`.
    runs
        Its instructions, as ascending half-open ranges of the segment's program. There are several
        if instructions of neighbouring layers stand between them.
    """

    name: str
    op: str
    output: str
    macs: int
    schedule: str
    runs: tuple[tuple[int, int], ...]

    @property
    def places(self) -> list[int]:
        """Places of its instructions in the segment's program."""
        return [place for run in self.runs for place in range(*run)]


@dataclass(frozen=True, slots=True)
class Segment:
    """A program for the accelerator and the data window that it works on.

    Parameters
    ----------
    program
        Ends with HALT; passed the checker.
    notes
        The purpose of each instruction.
    layers
        In order; no instruction belongs to two of them.
    inputs, outputs
        Activations that the host writes before a run and reads after it.
    activations
        Every activation of the segment, for comparisons by layer; places may be reused.
    constants, constants_offset
        Bytes that the host writes to the data window once.
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
            f"<Segment of {counted(len(self.layers), 'layer')} in "
            f"{counted(len(self.program), 'instruction')}, {self.data_bytes:,} bytes of data>"
        )

    def image(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """A new data window, uint8[data_bytes], with constants and the given inputs."""
        image = np.zeros(self.data_bytes, dtype=np.uint8)
        end = self.constants_offset + len(self.constants)
        image[self.constants_offset : end] = np.frombuffer(self.constants, dtype=np.uint8)
        for binding in self.inputs:
            binding.write(image, values[binding.name])
        return image


HEADINGS = ("layer", "operator", "side", "type", "MACs", "instructions")
TEXT_COLUMNS = 4
"""Columns of text, which come before those of numbers."""


def _cell(value: str | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else value


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled network, with all that a run needs.

    Parameters
    ----------
    graph
        The integer graph: the definition of every step, and the reference for comparisons.
    steps
        Host nodes, by the value that they produce, and segments, by their index in `segments`.
    report
        Facts and figures from the compiler.
    memory
        The main memory that the programs were made for. They run with any other one, too, but take
        longer than programs made for it.
    code
        Machine code of the host's kernels by their keys (`host.kernel_store.compile_host`).
        Kernels that are missing here are compiled when the module runs.
    choices
        Recorded choices of host kernels (`cpu.kernels.choices.with_recorded_choice`).
    trust_code
        Whether to run machine code that this user's key has not signed. Otherwise it is compiled
        when the module runs.
    """

    name: str
    configuration: Configuration
    graph: Graph
    steps: tuple[str | int, ...]
    segments: tuple[Segment, ...]
    report: Mapping[str, Any]
    memory: MemoryModel = field(default_factory=MemoryModel)
    code: Mapping[str, bytes] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)
    trust_code: bool = False

    def __repr__(self) -> str:
        layers = sum(len(segment.layers) for segment in self.segments)
        instructions = sum(len(segment.program) for segment in self.segments)
        return (
            f"<Module `{self.name:.60}` for `{self.configuration.name:.60}`: {layers} accelerator "
            f"layers in {counted(instructions, 'instruction')}>"
        )

    def rows(self) -> list[tuple[str, str, str, str, int | None, int | None]]:
        """Return name, operator, side, type, multiplications and instructions of each layer.

        On the host a row is a node, whose multiplications are not counted.
        """
        rows: list[tuple[str, str, str, str, int | None, int | None]] = []
        for step in self.steps:
            if isinstance(step, int):
                for layer in self.segments[step].layers:
                    kind, count = str(self.graph.types[layer.output]), len(layer.places)
                    rows.append((layer.name, layer.op, "accelerator", kind, layer.macs, count))
            elif node := self.graph.producer(step):
                kind = str(node.outputs[0].type)
                rows.append((node.name, node.op, "host", kind, None, None))
        return rows

    def summary(self) -> str:
        """Return a table of the layers in the order of execution, as text."""
        cells = [HEADINGS, *(tuple(map(_cell, row)) for row in self.rows())]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < TEXT_COLUMNS else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        )

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], HEADINGS, self.rows(), left=TEXT_COLUMNS)
