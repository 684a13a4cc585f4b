"""Order of the host's work, chosen to keep the accelerator busy.

Before a segment starts, the host computes the segment's inputs. While the segment runs, the host
computes the inputs of the next segment. While the last segment runs, it computes everything that
does not depend on that segment.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..graph import Graph, Node
from ..graph.macs import macs_of
from ..graph.operators import Reshape
from .kernel import HostStep


class Named(Protocol):
    """An object with the name of a value."""

    @property
    def name(self) -> str:
        """Name of the value."""
        ...


class SegmentEnds(Protocol):
    """The values that enter and leave a segment; the host sees nothing else of it."""

    @property
    def inputs(self) -> Sequence[Named]:
        """Values that it reads."""
        ...

    @property
    def outputs(self) -> Sequence[Named]:
        """Values that it computes."""
        ...


@dataclass(frozen=True, slots=True)
class RunKernel:
    """Run a step in machine code: a kernel, a recurrent layer, or a movement."""

    kernel: HostStep


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Compute a node by its definition, in NumPy.

    Parameters
    ----------
    macs : int
        Number of its multiplications.
    """

    node: Node
    macs: int = 0


@dataclass(frozen=True, slots=True)
class Alias:
    """Show a value in another shape; no data moves."""

    node: Node


@dataclass(frozen=True, slots=True)
class Start:
    """Write a segment's inputs into its data window and start the accelerator."""

    segment: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Wait for the segment, and read its outputs."""

    segment: int


HostEvent = RunKernel | Evaluate | Alias
Event = HostEvent | Start | Finish


def order_events(
    graph: Graph,
    steps: Sequence[str | int],
    segments: Sequence[SegmentEnds],
    kernels: Iterable[HostStep],
) -> tuple[Event, ...]:
    """Return the events of a run in order; both sides work between a Start and its Finish.

    Parameters
    ----------
    graph : Graph
        The module's graph.
    steps : sequence of str or int
        The module's steps.
    segments : sequence of SegmentEnds
        Inputs and outputs of each segment.
    kernels : iterable of HostStep
        Steps of the host in machine code.
    """
    atoms = _atoms(graph, steps, kernels)
    made = {name: index for index, atom in enumerate(atoms) for name in _writes(atom, segments)}
    needs = [{made[name] for name in _reads(atom, segments) if name in made} for atom in atoms]
    places = [index for index, atom in enumerate(atoms) if isinstance(atom, int)]
    ancestors = {place: _closure(place, needs) for place in places}
    events: list[Event] = []
    done: set[int] = set()

    def emit(chosen: Iterable[int]) -> None:
        for index in sorted(set(chosen) - done):
            atom = atoms[index]
            if not isinstance(atom, int):
                events.append(atom)
                done.add(index)

    for position, place in enumerate(places):
        emit(ancestors[place])
        segment = atoms[place]
        assert isinstance(segment, int)
        events.append(Start(segment))
        later = _followers(place, needs)
        last = position == len(places) - 1
        wanted = range(len(atoms)) if last else ancestors[places[position + 1]]
        emit(set(wanted) - later)
        events.append(Finish(segment))
        done.add(place)
    emit(range(len(atoms)))
    return tuple(events)


def kernel_of(event: HostEvent) -> HostStep | None:
    """Return the machine code's step of an event of the host; None for NumPy."""
    return event.kernel if isinstance(event, RunKernel) else None


def nodes_of(event: HostEvent) -> tuple[Node, ...]:
    """Return the nodes that an event of the host computes."""
    return event.kernel.nodes if isinstance(event, RunKernel) else (event.node,)


def reads_of(event: Event, segments: Sequence[SegmentEnds]) -> tuple[str, ...]:
    """Return the values that an event reads, constants included."""
    if isinstance(event, Start):
        return tuple(binding.name for binding in segments[event.segment].inputs)
    return () if isinstance(event, Finish) else _reads(event, segments)


def writes_of(event: Event, segments: Sequence[SegmentEnds]) -> tuple[str, ...]:
    """Return the values that an event computes."""
    if isinstance(event, Finish):
        return tuple(binding.name for binding in segments[event.segment].outputs)
    return () if isinstance(event, Start) else _writes(event, segments)


def _atoms(
    graph: Graph, steps: Sequence[str | int], kernels: Iterable[HostStep]
) -> list[HostEvent | int]:
    """List segments, kernels in place of their last nodes, and the remaining nodes."""
    ending = {kernel.output: kernel for kernel in kernels}
    taken = {node.outputs[0].name for kernel in ending.values() for node in kernel.nodes}
    atoms: list[HostEvent | int] = []
    for step in steps:
        if isinstance(step, int):
            atoms.append(step)
        elif step in ending:
            atoms.append(RunKernel(ending[step]))
        elif step not in taken:
            node = graph.producer(step)
            assert node is not None
            is_view = isinstance(node.attributes, Reshape)
            atoms.append(Alias(node) if is_view else Evaluate(node, macs_of(graph, node)))
    return atoms


def _reads(atom: HostEvent | int, segments: Sequence[SegmentEnds]) -> tuple[str, ...]:
    if isinstance(atom, int):
        return tuple(binding.name for binding in segments[atom].inputs)
    return atom.kernel.reads if isinstance(atom, RunKernel) else atom.node.inputs


def _writes(atom: HostEvent | int, segments: Sequence[SegmentEnds]) -> tuple[str, ...]:
    if isinstance(atom, int):
        return tuple(binding.name for binding in segments[atom].outputs)
    if isinstance(atom, RunKernel):
        return atom.kernel.outputs
    return tuple(value.name for value in atom.node.outputs)


def _closure(index: int, needs: Sequence[set[int]]) -> set[int]:
    """Return all atoms that an atom needs, directly or indirectly."""
    found: set[int] = set()
    waiting = list(needs[index])
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += needs[one]
    return found


def _followers(index: int, needs: Sequence[set[int]]) -> set[int]:
    """Return an atom and all later ones that need it, directly or indirectly."""
    found = {index}
    for other in range(index + 1, len(needs)):
        if not found.isdisjoint(needs[other]):
            found.add(other)
    return found


def overlaps(events: Sequence[Event]) -> Mapping[int, bool]:
    """Whether the host works while each segment runs, by the segment's index."""
    pairs = zip(events, (*events, None)[1:], strict=True)
    return {
        event.segment: not isinstance(after, Finish)
        for event, after in pairs
        if isinstance(event, Start)
    }
