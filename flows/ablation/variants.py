"""Ablation: the gain of each optimisation, measured by leaving it out.

Every variant is compiled separately, because the compiler then chooses other tiles, and is timed by
the exact timing model. All variants of a network give exactly the same outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log

from ...compiler.graph import Graph, Node, QConv
from ...compiler.module import Module
from ...compiler.options import Options
from ...compiler.pipeline import compile_module
from ...compiler.placement import STRICT_PLACEMENT
from ...errors import CompileError
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import DEFAULT_MEMORY
from ...runtime.profile import utilisation
from ...sim.timing import ExactMeasure, time_program
from ..bench.resnet18_layers import ConvolutionShape, layer_graph
from ..execution.timed import require_segments
from .traffic import Traffic, least_traffic, moved_traffic

DEPTHS = 1, 2, 3
ALL_ROOM = 0
"""Pipeline depths that are measured."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Variant:
    """Compiler options and machine without one optimisation.

    Parameters
    ----------
    timed
        Whether the exact time, not an estimate, chooses among likely schedules.
    """

    name: str
    options: Options
    configuration: Configuration
    timed: bool = True

    def compile(
        self,
        graph: Graph,
        memory: MemoryModel = DEFAULT_MEMORY,
        progress: Progress = lambda line: None,
    ) -> Module:
        """Compile a network this way.

        Raises
        ------
        CompileError
            When a layer does not fit without the optimisation; the message names the variant.
        """
        try:
            measure = ExactMeasure(memory) if self.timed else None
            return compile_module(
                graph, self.configuration, progress, options=self.options, measure=measure,
                placement=STRICT_PLACEMENT,
            )  # fmt: skip
        except CompileError as problem:
            raise CompileError(f"ablation `{self.name}`: {problem}") from None


@dataclass(frozen=True, slots=True)
class VariantResult:
    """A variant of a network, measured.

    Parameters
    ----------
    cycles
        Cycles of all segments, by the exact timing model.
    of_peak
        MACs of the model as a share of those that the multipliers could do in that time.
    moved, least
        Bytes that the program moves, and the minimum for any program.
    """

    name: str
    cycles: int
    of_peak: float | None
    moved: Traffic
    least: Traffic

    @property
    def over_least(self) -> float:
        """Return the ratio of moved bytes to the lower bound."""
        return self.moved.total_bytes / self.least.total_bytes


@dataclass(frozen=True, slots=True)
class LayerResult:
    """A layer, or several together, at every pipeline depth.

    Parameters
    ----------
    times
        Number of such layers in the network.
    macs, least
        Multiplications, and the minimum traffic.
    peak_cycles, roofline_cycles
        Cycles at the speed of all multipliers, and the lower bound: the larger one of
        `peak_cycles` and the bus cycles for `least`.
    cycles
        Cycles by pipeline depth.
    """

    name: str
    times: int
    macs: int
    least: Traffic
    peak_cycles: float
    roofline_cycles: float
    cycles: Mapping[int, int]

    @property
    def macs_per_byte(self) -> float:
        """Arithmetic intensity: MACs per byte of the busier direction of the bus."""
        return self.macs / max(self.least.read_bytes, self.least.written_bytes)

    @property
    def bound(self) -> float:
        """Share of peak that the roofline allows."""
        return self.peak_cycles / self.roofline_cycles

    def of_peak(self, depth: int) -> float:
        """Return the share of peak that the layer reaches."""
        return self.peak_cycles / self.cycles[depth]

    def of_bound(self, depth: int) -> float:
        """Return the share of `bound` that the layer reaches, at most 1."""
        return self.roofline_cycles / self.cycles[depth]


def variants(graph: Graph, configuration: Configuration) -> list[Variant]:
    """Return the full compiler, one variant per omitted optimisation, and one without any."""
    whole = Options()
    found = [
        Variant("everything", whole, configuration),
        *(
            Variant(f"pipeline depth {depth}", Options(pipeline_depth=depth), configuration)
            for depth in DEPTHS
        ),
        Variant("without fusion", Options(fuse=False), configuration),
        Variant("without gathering", Options(gather=False), configuration),
        Variant("without timed schedules", whole, configuration, timed=False),
    ]
    bare = configuration
    if configuration.depthwise_taps and any(map(_keeps_channels_apart, graph.nodes)):
        bare = configuration.replace(
            name=f"{configuration.name},depthwise_taps=0", depthwise_taps=0
        )
        found.append(Variant("without depthwise mode", whole, bare))
    least = Options(pipeline_depth=1, fuse=False, gather=False)
    return [*found, Variant("nothing of all that", least, bare, timed=False)]


def _keeps_channels_apart(node: Node) -> bool:
    return (
        isinstance(node.attributes, QConv)
        and 1 < node.attributes.groups == node.output.type.shape[3]
    )


def measure_variant(
    variant: Variant,
    graph: Graph,
    memory: MemoryModel,
    progress: Progress = lambda line: None,
) -> VariantResult:
    """Compile a variant and time it.

    Parameters
    ----------
    progress
        Called with one line per layer.

    Raises
    ------
    CompileError
        When a layer does not fit, or none runs on the accelerator.
    """
    module = variant.compile(graph, memory, progress)
    require_segments(module)
    cycles = module_cycles(module, memory)
    macs = sum(layer.macs for segment in module.segments for layer in segment.layers)
    return VariantResult(
        name=variant.name,
        cycles=cycles,
        of_peak=utilisation(macs, cycles, module.configuration),
        moved=moved_traffic(module),
        least=least_traffic(module),
    )


def module_cycles(module: Module, memory: MemoryModel) -> int:
    """Cycles of all segments, one after the other."""
    return sum(
        time_program(segment.program, module.configuration, memory).cycles
        for segment in module.segments
    )


def measure_layer(
    shape: ConvolutionShape, configuration: Configuration, memory: MemoryModel
) -> LayerResult:
    """Compile a layer at every depth and time it.

    Raises
    ------
    CompileError
        When it does not fit.
    """
    graph = layer_graph(shape)
    modules = {}
    for depth in (*DEPTHS, ALL_ROOM):
        variant = Variant(depth_text(depth), Options(pipeline_depth=depth), configuration)
        modules[depth] = variant.compile(graph, memory)
    peak_cycles = shape.macs / (configuration.lanes_in * configuration.lanes_out)
    least = least_traffic(modules[ALL_ROOM])
    return LayerResult(
        name=shape.name,
        times=shape.times,
        macs=shape.macs,
        least=least,
        peak_cycles=peak_cycles,
        roofline_cycles=max(peak_cycles, least.cycles(configuration, memory)),
        cycles={depth: module_cycles(module, memory) for depth, module in modules.items()},
    )


def total(layers: Sequence[LayerResult]) -> LayerResult:
    """All layers one after the other, each as often as it occurs in the network."""
    least = Traffic(
        sum(layer.times * layer.least.read_bytes for layer in layers),
        sum(layer.times * layer.least.written_bytes for layer in layers),
    )
    return LayerResult(
        name="all",
        times=sum(layer.times for layer in layers),
        macs=sum(layer.times * layer.macs for layer in layers),
        least=least,
        peak_cycles=sum(layer.times * layer.peak_cycles for layer in layers),
        roofline_cycles=sum(layer.times * layer.roofline_cycles for layer in layers),
        cycles={
            depth: sum(layer.times * layer.cycles[depth] for layer in layers)
            for depth in (*DEPTHS, ALL_ROOM)
        },
    )


def geometric_means(layers: Sequence[LayerResult], depth: int) -> tuple[float, float]:
    """Mean share of each layer's roofline: each layer once, and as often as it occurs.

    The means are geometric, as for any ratios to different bases.
    """

    def mean(weights: Sequence[int]) -> float:
        pairs = zip(weights, layers, strict=True)
        total = fsum(weight * log(layer.of_bound(depth)) for weight, layer in pairs)
        return exp(total / sum(weights))

    return mean([1] * len(layers)), mean([layer.times for layer in layers])


def depth_text(depth: int) -> str:
    """A pipeline depth in words."""
    return "all the room" if depth == ALL_ROOM else f"depth {depth}"
