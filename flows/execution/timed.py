"""The segments of a network with their exact times, for traces, reports and what-if tables.

Segments run one after the other; the host's time between them is not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...compiler.graph import is_accelerated
from ...compiler.module import Module, Segment
from ...compiler.placement.host_products import host_products, idle_sentence
from ...errors import CompileError
from ...isa.configuration import Configuration
from ...isa.instructions import Instruction
from ...isa.memory_model import MemoryModel
from ...runtime.device import Result
from ...runtime.devices import kind_of
from ...runtime.names import layer_names
from ...runtime.profile import layer_cycles
from ...sim.timing import Timing, time_program
from ...sim.timing.beats import Beats, beats
from ...sim.timing.stalls import Activity, activity
from ..reports.placement_table import unfit_sentence

NO_LAYER = -1

HARDWARE = ("rtl", "gate")
"""Devices that measure when each instruction starts and retires."""


@dataclass(frozen=True)
class TimedSegment:
    """A segment and its exact time.

    Parameters
    ----------
    segment, timing
        The program, and the times of its instructions.
    names : mapping
        The short name of each layer, by the value that it computes.
    spans : ndarray or None
        int64[instructions, 2]: start and retirement, as a device measured them; None without such a
        device.
    """

    segment: Segment
    timing: Timing
    names: Mapping[str, str]
    spans: np.ndarray | None = None

    @property
    def program(self) -> Sequence[Instruction]:
        return self.segment.program

    @property
    def agrees(self) -> bool:
        """Whether the measured times, if there are any, equal those of the model."""
        return self.spans is None or bool((self.spans == self.timing.spans).all())

    @cached_property
    def activity(self) -> Activity:
        """The name of every cycle of every unit."""
        return activity(self.timing)

    @cached_property
    def beats(self) -> tuple[Beats, Beats]:
        """Every beat that is read or written."""
        return beats(self.timing)

    @cached_property
    def layer(self) -> np.ndarray:
        """The index of each instruction's layer in the segment, int64[instructions]."""
        layers = np.full(len(self.program), NO_LAYER, dtype=np.int64)
        for number, layer in enumerate(self.segment.layers):
            layers[layer.places] = number
        return layers

    @property
    def layer_cycles(self) -> list[int]:
        """Cycles by which each layer delays the end of the segment; their sum is the segment's.

        The last layer's include the few cycles after the last retirement.
        """
        counts = [count or 0 for count in layer_cycles(self.segment, self.timing.spans)]
        counts[-1] += self.timing.cycles - sum(counts)
        return counts

    def layer_name(self, index: int) -> str:
        """The short name of an instruction's layer; empty for HALT."""
        number = int(self.layer[index])
        return self.names[self.segment.layers[number].output] if number != NO_LAYER else ""

    def label(self, index: int) -> str:
        """The label of an instruction: its layer and its mnemonic."""
        name, mnemonic = self.layer_name(index), self.program[index].mnemonic
        return f"{name}: {mnemonic}" if name else mnemonic

    def note(self, index: int) -> str:
        """The purpose of an instruction: its tile and its part of the work."""
        number = int(self.layer[index])
        if number == NO_LAYER:
            return ""
        prefix = f"{self.segment.layers[number].name}: "
        return self.segment.notes[index].removeprefix(prefix)


def require_segments(module: Module, missing: str = "cycles to tell of") -> None:
    """Reject a network that does not use the accelerator.

    Parameters
    ----------
    missing : str
        What a network without segments lacks, for the message.

    Raises
    ------
    CompileError
        With the remedy.
    """
    if not module.segments:
        cure = idle_sentence(module.graph, host_products(module.graph))
        if unfit := unfit_sentence(module.report.get("placement", {"rows": ()})):
            cure = unfit
        elif any(map(is_accelerated, module.graph.nodes)):
            cure = "leave layers to the accelerator (`--placement`, `--place`)"
        raise CompileError(
            f"model `{module.name}`: expected layers on the accelerator, got none, so there are no "
            f"{missing}; {cure}"
        )


def time_segments(
    module: Module, memory: MemoryModel | None = None, results: Sequence[Result] = ()
) -> list[TimedSegment]:
    """Time every segment.

    Parameters
    ----------
    memory : MemoryModel or None
        Main memory; the default model if None. Its random stalls are ignored.
    results : sequence
        What a device measured for each segment; only measurements of hardware are used.
    """
    names = layer_names(module)
    measured = [_measured(result) for result in results]
    measured += [None] * (len(module.segments) - len(measured))
    return [
        TimedSegment(
            segment, time_program(segment.program, module.configuration, memory), names, spans
        )
        for segment, spans in zip(module.segments, measured, strict=True)
    ]


def time_alone(
    program: Sequence[Instruction],
    configuration: Configuration,
    memory: MemoryModel | None,
    result: Result,
) -> TimedSegment:
    """Time a program that belongs to no network; see `time_segments`."""
    notes = ("",) * len(program)
    segment = Segment(tuple(program), notes, (), (), (), (), b"", 0, 0)
    return TimedSegment(
        segment, time_program(program, configuration, memory), {}, _measured(result)
    )


def _measured(result: Result) -> np.ndarray | None:
    return result.spans if kind_of(result.device) in HARDWARE else None
