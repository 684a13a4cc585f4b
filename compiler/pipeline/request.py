"""A request to the compiler, and the stages that it goes through.

Each stage is a frozen value that the next one starts from, so that any of them can be looked at
(`describe`). `PlacedGraph` is of the whole network; the others are of one segment.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...isa.configuration import Configuration
from ...isa.instructions import Instruction
from ...isa.memory_model import MemoryModel
from ...isa.settings import DEFAULT_MEMORY
from ..accelerator.constant_pool import ConstantPool
from ..accelerator.lower_schedules import Emitted
from ..accelerator.residents import ResidentFrame
from ..graph import Graph, Node
from ..main_memory.memory_plan import MemoryPlan
from ..main_memory.segment_layout import SegmentLayout
from ..module import Binding, Module, Segment
from ..options import DEFAULT_OPTIONS, Options
from ..placement import (
    ACCELERATOR,
    DEFAULT_COSTS,
    DEFAULT_PLACEMENT,
    Costs,
    Decision,
    PlacedLayer,
    Placement,
)
from ..scheduling.bound_report import LayerGap
from ..scheduling.fusion import Group, MovementGroup
from ..te.schedule import Schedule

Progress = Callable[[str], None]
"""Called with a line of text before each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """A network to compile, the machine, and the choices that the user made.

    Parameters
    ----------
    graph
        A result of `import_model`.
    configuration
        The accelerator.
    memory
        The main memory that the program is made for.
    options
        The optimisations to use.
    placement
        The nodes that run on the accelerator; by default all that it supports and that fit the
        configuration. The report says which ones do not fit, and why.
    costs
        The basis of time estimates, for the report and for a `placement` with the least time.
    schedules
        Schedule steps for some layers, by the layer's name. They replace the compiler's choice; see
        `given_schedules`.
    keep_all
        Give every activation its own place, so that all of them can be read after a run. Those that
        stay on chip are stored as well, which takes cycles.
    lean
        Leave out what cycles do not depend on: the checker's proof, the host's machine code, notes,
        and the report of the placement. The module is for timing alone.
    choices
        Recorded choices of host kernels (`cpu.kernels.choices.with_recorded_choice`).
    """

    graph: Graph
    configuration: Configuration
    memory: MemoryModel = DEFAULT_MEMORY
    options: Options = DEFAULT_OPTIONS
    placement: Placement = DEFAULT_PLACEMENT
    costs: Costs = DEFAULT_COSTS
    schedules: Mapping[str, str] = field(default_factory=dict)
    keep_all: bool = False
    lean: bool = False
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    """The network after each node has its side.

    Parameters
    ----------
    graph
        The graph as this machine runs it.
    decision
        The side of each node.
    parts
        The nodes in execution order; parts for the host and for the accelerator alternate.
    """

    graph: Graph
    decision: Decision
    parts: tuple[tuple[Node, ...], ...]

    def is_segment(self, part: tuple[Node, ...]) -> bool:
        """Whether the accelerator runs a part."""
        return self.decision.on_accelerator(part[0])

    @property
    def accelerated(self) -> list[Node]:
        """The nodes that the accelerator runs, in order."""
        return [node for part in self.parts if self.is_segment(part) for node in part]


@dataclass(frozen=True, slots=True)
class Grouped:
    """A segment as kernels, with the schedules that are fastest for each kernel alone.

    Parameters
    ----------
    layout
        The layout of activations in main memory, without addresses.
    """

    layout: SegmentLayout
    groups: tuple[Group | MovementGroup, ...]

    @property
    def searched(self) -> Configuration:
        """The machine that groups and schedules were chosen for, see `group.narrower_ports`."""
        return self.layout.configuration


@dataclass(frozen=True, slots=True)
class ScheduledLayer:
    """A group with the schedules that it gets among its neighbours, or from the user.

    Parameters
    ----------
    schedules
        One for each of its kernels.
    gap
        Cycles of the layer alone, and their lower bound.
    """

    group: Group | MovementGroup
    schedules: tuple[Schedule, ...]
    gap: LayerGap


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A segment with its schedules, and with addresses for its activations.

    Parameters
    ----------
    bound
        The place in the data window of each activation that reaches main memory.
    """

    grouped: Grouped
    layers: tuple[ScheduledLayer, ...]
    plan: MemoryPlan
    bound: Mapping[str, Binding]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A segment as instructions without tokens, in the order of its schedules.

    Parameters
    ----------
    ends
        For each layer, the number of instructions up to its end.
    constants
        The constants, with their addresses.
    frames
        Activations that may stay on chip between kernels.
    """

    scheduled: Scheduled
    stream: tuple[Emitted, ...]
    ends: tuple[int, ...]
    constants: ConstantPool
    frames: Mapping[str, ResidentFrame]

    @property
    def instructions(self) -> list[Instruction]:
        return [emitted.instruction for emitted in self.stream]


@dataclass(frozen=True, slots=True)
class Linked:
    """A segment as a program.

    Parameters
    ----------
    cycles
        Exact cycles; 0 without a timing model.
    """

    lowered: Lowered
    segment: Segment
    cycles: int

    @property
    def layers(self) -> tuple[ScheduledLayer, ...]:
        return self.lowered.scheduled.layers

    @property
    def placed_layers(self) -> list[PlacedLayer]:
        """Its layers for reports."""
        return [
            PlacedLayer(
                layer.group.name, layer.group.op, ACCELERATOR, layer.group.nodes, layer.gap.cycles,
                layer.gap.exact,
            )
            for layer in self.layers
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compilation:
    """A request with all its stages, and the module."""

    request: CompileRequest
    placed: PlacedGraph
    segments: tuple[Linked, ...]
    module: Module
