"""Other divisions of a network into layers: what the compiler fused is cut, and neighbours joined.

The compiler joins layers greedily, by the time of a few of them. Here each change is timed among
its neighbours, and the likely ones in the whole network, equal places together. The least work of
any division is a lower bound for all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...compiler.accelerator.kernels import build_kernel
from ...compiler.graph import Node, Rearranging
from ...compiler.graph.short_names import JOINT
from ...compiler.main_memory.segment_layout import lay_out_segment
from ...compiler.module import Layer, Module
from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.pipeline import CompileRequest
from ...compiler.pipeline.network_bound import network_work
from ...compiler.pipeline.place import place
from ...compiler.placement import DEFAULT_PLACEMENT
from ...compiler.scheduling.candidate_timer import NEVER, CandidateTimer
from ...compiler.scheduling.fusion import fuse, hands_over, only_reads
from ...compiler.scheduling.given_schedules import GivenSchedule, Part
from ...compiler.scheduling.kernel_programs import KernelPrograms
from ...compiler.tensor import Kernel
from ...errors import CompileError
from ...runtime.names import layer_nodes
from ...sim.timing import ExactMeasure
from .network_trials import NetworkTrials, TriedChange

SLOWER = 1.03
"""A change is tried in the network if its neighbourhood takes at most this many times as long."""

MAX_LAYERS = 2
"""Layers that a change divides anew."""

Nodes = tuple[Node, ...]


def least_cycles(module: Module) -> int | None:
    """Return a lower bound for the cycles of a network divided into layers in any way.

    None if some layers that the accelerator supports do not fit it, so that the bound has them too.
    """
    request = CompileRequest(graph=module.graph, configuration=module.configuration)
    placed = place(request)
    wanted = [len(part) for part in placed.parts if placed.is_segment(part)]
    owned = layer_nodes(module)
    own = [sum(len(owned[one.output]) for one in each.layers) for each in module.segments]
    if wanted != own:
        return None
    works = network_work(module.graph, module.configuration, placement=DEFAULT_PLACEMENT)
    return sum(work.bound(module.memory).cycles for work in works)


@dataclass(frozen=True, slots=True)
class ChainChange:
    """A place's new division into layers, or a layer's new schedule.

    Parameters
    ----------
    layers
        Steps by layer.
    form
        Equal changes of equal layers have equal forms.
    ratio
        Time of the layers and their neighbours, relative to that before.
    """

    layers: Mapping[str, str]
    form: object
    ratio: float

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of its layers."""
        return frozenset(name for layer in self.layers for name in layer.split(JOINT))


def search_chains(network: NetworkTrials, trials: int, may_go_on: Callable[[], bool]) -> None:
    """Change the division of a network into layers while that saves cycles.

    Parameters
    ----------
    trials
        Most changes to try in the network.
    """
    forms: set[object] = set()
    while True:
        for changes in together(_changes(network.module(), may_go_on)):
            if changes[0].form in forms:
                continue
            if len(network.chains) >= trials or not may_go_on():
                return
            forms.add(changes[0].form)
            nodes = frozenset[str]().union(*(change.nodes for change in changes))
            wanted = {
                name: text
                for name, text in network.kept.items()
                if nodes.isdisjoint(name.split(JOINT))
            }
            for change in changes:
                wanted |= change.layers
            cycles = network.attempt(wanted)
            if cycles is None:
                continue
            names = tuple(name for change in changes for name in change.layers)
            network.chains.append(TriedChange(names, cycles, network.kept is wanted))
            if network.kept is wanted:
                break
        else:
            return


def together(changes: Iterator[ChainChange]) -> list[list[ChainChange]]:
    """Changes of equal form that touch no node twice, the likeliest first."""
    found: dict[object, list[ChainChange]] = {}
    for change in changes:
        same = found.setdefault(change.form, [])
        if all(change.nodes.isdisjoint(other.nodes) for other in same):
            same.append(change)
    return sorted(found.values(), key=lambda same: same[0].ratio)


def _changes(module: Module, may_go_on: Callable[[], bool]) -> Iterator[ChainChange]:
    for number, segment in enumerate(module.segments):
        names = [layer.name for layer in segment.layers]
        places = Places(module, number)
        for at in range(len(names)):
            for count in range(1, MAX_LAYERS + 1):
                if at + count > len(names) or not may_go_on():
                    break
                yield from places.changes(at, count)


class Places:
    """The layers of a segment, with kernels for any division of them."""

    def __init__(self, module: Module, number: int) -> None:
        self.graph, self.layers = module.graph, module.segments[number].layers
        owned = layer_nodes(module)
        self.nodes: list[Nodes] = [owned[layer.output] for layer in self.layers]
        made = {node.output.name for nodes in self.nodes for node in nodes}
        ordered = [node for node in self.graph.nodes if node.outputs[0].name in made]
        machine = module.configuration.replace(bus_bits=module.report["ports"][number])
        self.layout = lay_out_segment(self.graph, ordered, machine, DEFAULT_OPTIONS)
        programs = KernelPrograms(*self.layout.placements.apart(), module.configuration)
        self.timer = CandidateTimer(programs, machine, ExactMeasure(module.memory.with_stalls(0.0)))

    def changes(self, at: int, count: int) -> Iterator[ChainChange]:
        """Divisions of some layers into as many or fewer, or of one layer into two."""
        layers = range(at, at + count)
        if any(self._kernel(self.nodes[place]) is None for place in layers):
            return
        nodes = tuple(node for place in layers for node in self.nodes[place])
        if not all(self._hands_on(one, two) for one, two in pairwise(nodes)):
            return
        cuts = {len(self.nodes[at])} if count > 1 else set[int]()
        old = [self.given(place) for place in layers]
        first, second = self.around(at, count)
        past = self.time([*first, *old, *second])
        if past == NEVER:  # a schedule that needs its whole network
            return
        for cut in range(len(nodes)):
            if cut in cuts or (count == 1 and not cut):
                continue
            work = [self._searched(part) for part in (nodes[:cut], nodes[cut:]) if part]
            parts = [part for part in work if part is not None]
            if len(parts) < len(work):
                continue
            cycles = self.time([*first, *parts, *second])
            if cycles > SLOWER * past:
                continue
            programs = self.timer.programs
            texts = {kernel.name: str(programs.schedule(kernel, one)) for kernel, one in parts}
            form = tuple(
                tuple(programs.form(kernel) for kernel, _ in side) for side in (old, parts)
            )
            yield ChainChange(texts, form, cycles / past)

    def around(self, at: int, count: int = 1) -> tuple[list[Part], list[Part]]:
        """The neighbours before and after `count` layers; empty lists at the ends."""
        before, behind = (
            [self.given(place)] if self.is_layer(place) else [] for place in (at - 1, at + count)
        )
        return before, behind

    def is_layer(self, place: int) -> bool:
        """Whether the layer at a place has a kernel."""
        return 0 <= place < len(self.nodes) and self._kernel(self.nodes[place]) is not None

    def _hands_on(self, one: Node, two: Node) -> bool:
        """Whether only the second node reads the first one's result, once and as it is."""
        made, reader = self._kernel((one,)), self._kernel((two,))
        return (
            made is not None
            and reader is not None
            and hands_over(made, reader)
            and only_reads(self.layout, one.output.name, two)
        )

    def _kernel(self, nodes: Nodes) -> Kernel | None:
        """The kernel of a layer; None for copies."""
        if any(isinstance(node.attributes, Rearranging) for node in nodes):
            return None
        machine, images = self.timer.configuration, self.layout.images
        gather = DEFAULT_OPTIONS.gather
        kernels = [build_kernel(one, self.graph, machine, images, gather=gather) for one in nodes]
        for at, node in enumerate(nodes[:-1]):
            name = node.output.name
            if name in self.layout.outputs or set(self.graph.users(name)) - set(nodes):
                kernels[at] = replace(kernels[at], kept=(kernels[at].output.name,))
        return fuse(kernels) if len(kernels) > 1 else kernels[0]

    def given(self, place: int) -> Part:
        """A layer with its current schedule."""
        layer: Layer = self.layers[place]
        kernel = self._kernel(self.nodes[place])
        assert kernel is not None
        return kernel, GivenSchedule(layer.name, layer.schedule)

    def _searched(self, nodes: Nodes) -> Part | None:
        """A layer's kernel with its fastest schedule; None if it does not fit."""
        kernel = self._kernel(nodes)
        assert kernel is not None
        try:
            return kernel, self.timer.choose(kernel, DEFAULT_OPTIONS)
        except CompileError:
            return None

    def time(self, parts: Sequence[Part]) -> int:
        """Cycles of layers one after the other; `NEVER` if they do not fit."""
        try:
            return self.timer.cycles(*parts)
        except CompileError:
            return NEVER
