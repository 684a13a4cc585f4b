"""Memory plan of the host: one arena for the outputs of kernels, reused after their last read.

An alias shares the memory of its source. An elementwise kernel overwrites an operand that no later
event reads. Results of NumPy, outputs of segments and outputs of the network have separate memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Graph
from ..main_memory.memory_plan import Lifetime, plan_memory
from ..module import Segment
from .kernel import HostKernel, HostStep
from .order import Alias, Event, RunKernel, reads_of, writes_of


@dataclass(frozen=True, slots=True)
class HostMemory:
    """A memory plan of the host.

    Parameters
    ----------
    offsets : mapping
        Byte offset of each value in the arena.
    arena_bytes : int
        Its size.
    peak_bytes : int
        Largest number of bytes in use at any time, inside and outside the arena, without network
        inputs and constants.
    least_bytes : int
        Largest number of bytes of live values at any time: no plan in this order needs less.
    dying : tuple
        Values that are not needed after each event.
    """

    offsets: Mapping[str, int]
    arena_bytes: int
    peak_bytes: int
    least_bytes: int
    dying: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class _Storage:
    """Memory that one or more values share."""

    name: str
    size: int
    first: int
    last: int
    placed: bool


def plan_host_memory(
    graph: Graph, events: Sequence[Event], segments: Sequence[Segment], *, keep_all: bool = False
) -> HostMemory:
    """Plan the memory of every value.

    Parameters
    ----------
    graph : Graph
        The module's graph.
    segments : sequence of Segment
        The module's segments.
    events : sequence of Event
        Events of the run, from `order_events`.
    keep_all : bool
        Whether every value is kept until after the run.
    """
    end = len(events)
    shown = {output.value for output in graph.outputs}
    last = _last_reads(events, segments)
    last |= dict.fromkeys(shown, end)
    if keep_all:
        last = {name: end for event in events for name in writes_of(event, segments)}
    held: dict[str, _Storage] = {}
    leaving = _leaving(events, shown)
    for index, event in enumerate(events):
        for name in writes_of(event, segments):
            until = last[name]
            found = None if name in leaving else _taken_over(event, held, index)
            if isinstance(event, Alias):
                found = held.get(event.node.inputs[0], _Storage(name, 0, index, until, False))
            if found is None:
                placed = isinstance(event, RunKernel) and name not in leaving
                found = _Storage(name, graph.types[name].size_bytes, index, until, placed)
            found.last = max(found.last, until)
            held[name] = found
    storages = list({id(storage): storage for storage in held.values()}.values())
    placed = [s for s in storages if s.placed]
    plan = plan_memory([Lifetime(s.name, s.size, s.first, min(s.last, end)) for s in placed])
    offsets = {name: plan.offsets[s.name] for name, s in held.items() if s.placed}
    dying: list[list[str]] = [[] for _ in events]
    for name, until in last.items():
        if until < end and name in held:
            dying[until].append(name)
    return HostMemory(
        offsets,
        plan.size,
        plan.size + _most([s for s in storages if not s.placed], end),
        _most(storages, end),
        tuple(tuple(names) for names in dying),
    )


def _last_reads(events: Sequence[Event], segments: Sequence[Segment]) -> dict[str, int]:
    last: dict[str, int] = {}
    for index, event in enumerate(events):
        last |= dict.fromkeys(writes_of(event, segments), index)
        last |= dict.fromkeys(reads_of(event, segments), index)
    return last


def _leaving(events: Sequence[Event], shown: set[str]) -> set[str]:
    """Return the values that are outputs, directly or through aliases."""
    found = set(shown)
    for event in reversed(events):
        if isinstance(event, Alias) and event.node.output.name in found:
            found.add(event.node.inputs[0])
    return found


def _taken_over(event: Event, held: Mapping[str, _Storage], index: int) -> _Storage | None:
    """Return the memory of an operand that the result may overwrite, after its last read."""
    if not isinstance(event, RunKernel):
        return None
    for value in in_place_operands(event.kernel):
        storage = held.get(value)
        if storage is not None and storage.placed and storage.last <= index:
            return storage
    return None


def in_place_operands(kernel: HostStep) -> tuple[str, ...]:
    """Return the inputs that a kernel may overwrite: of its size, and read element by element."""
    if not isinstance(kernel, HostKernel):
        return ()
    names = getattr(kernel.description, "in_place", ())
    return tuple(kernel.inputs[name] for name in names if name in kernel.inputs)


def _most(storages: Sequence[_Storage], end: int) -> int:
    """Return the largest number of bytes alive at any event."""
    change = [0] * (end + 2)
    for storage in storages:
        change[storage.first] += storage.size
        change[min(storage.last, end) + 1] -= storage.size
    return int(np.cumsum(change).max(initial=0))
