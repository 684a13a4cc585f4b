"""Order of the host's work, chosen to keep the accelerator busy.

Before a segment starts, the host computes the segment's inputs. While the segment runs, the host
computes the inputs of the next segment. While the last segment runs, it computes everything that
does not depend on that segment.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..graph import Graph, Node, Value
from ..graph.operators import Reshape
from ..module import Binding
from ..reach import reach
from .kernel import HostStep


class SegmentEnds(Protocol):
    """The values that enter and leave a segment; the host sees nothing else of it."""

    @property
    def inputs(self) -> Sequence[Value | Binding]:
        """Values that it reads."""
        ...

    @property
    def outputs(self) -> Sequence[Value | Binding]:
        """Values that it computes."""
        ...


@dataclass(frozen=True, slots=True)
class RunKernel:
    """Run a step in machine code: a kernel, a recurrent layer, or a movement."""

    kernel: HostStep


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Compute a node by its definition, in NumPy."""

    node: Node


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
    made = {name: index for index, atom in enumerate(atoms) for name in _made(atom, segments)}
    needs = [{made[name] for name in reads_of(atom, segments) if name in made} for atom in atoms]
    starts = {index: atom for index, atom in enumerate(atoms) if isinstance(atom, Start)}
    ancestors = {place: reach(needs[place], needs.__getitem__) for place in starts}
    events: list[Event] = []
    done: set[int] = set()

    def emit(chosen: Iterable[int]) -> None:
        fresh = sorted(set(chosen) - done - starts.keys())
        events.extend(atoms[index] for index in fresh)
        done.update(fresh)

    for place, after in zip(starts, (*starts, None)[1:], strict=True):
        emit(ancestors[place])
        later = _followers(place, needs)
        events.append(starts[place])
        emit(set(range(len(atoms)) if after is None else ancestors[after]) - later)
        events.append(Finish(starts[place].segment))
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
        return tuple(value.name for value in segments[event.segment].inputs)
    if isinstance(event, Finish):
        return ()
    return event.kernel.reads if isinstance(event, RunKernel) else event.node.inputs


def writes_of(event: Event, segments: Sequence[SegmentEnds]) -> tuple[str, ...]:
    """Return the values that an event computes."""
    if isinstance(event, Finish):
        return tuple(value.name for value in segments[event.segment].outputs)
    if isinstance(event, Start):
        return ()
    if isinstance(event, RunKernel):
        return event.kernel.outputs
    return tuple(value.name for value in event.node.outputs)


def _made(atom: HostEvent | Start, segments: Sequence[SegmentEnds]) -> tuple[str, ...]:
    """Return the values that an atom computes; a segment has them when it is finished."""
    return writes_of(Finish(atom.segment) if isinstance(atom, Start) else atom, segments)


def _atoms(
    graph: Graph, steps: Sequence[str | int], kernels: Iterable[HostStep]
) -> list[HostEvent | Start]:
    """List segments, kernels in place of their last nodes, and the remaining nodes."""
    ending = {kernel.output: kernel for kernel in kernels}
    taken = {node.outputs[0].name for kernel in ending.values() for node in kernel.nodes}
    atoms: list[HostEvent | Start] = []
    for step in steps:
        if isinstance(step, int):
            atoms.append(Start(step))
        elif step in ending:
            atoms.append(RunKernel(ending[step]))
        elif step not in taken:
            node = graph.producer(step)
            assert node is not None
            is_view = isinstance(node.attributes, Reshape)
            atoms.append(Alias(node) if is_view else Evaluate(node))
    return atoms


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
