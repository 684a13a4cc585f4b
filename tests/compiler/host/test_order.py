"""The order of host steps, and where their values lie, on random networks of two sides."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.cpu import Elementwise
from tilewright.compiler.graph import Builder, Graph, Node, Output, TensorType, Value
from tilewright.compiler.graph.operators import Binary, Reshape
from tilewright.compiler.host import Alias, Evaluate, Finish, HostKernel, RunKernel, Start
from tilewright.compiler.host.memory import plan_host_memory
from tilewright.compiler.host.order import order_events, overlaps, reads_of, writes_of
from tilewright.compiler.module import Binding, Segment

SHAPE = (1, 1, 1, 8)
BYTES = 64
"""Of a value: 32 bytes, as the plan aligns them."""


def kernel(node: Node, in_place: bool = True) -> HostKernel:
    kinds = (("a", "float32"), ("b", "float32" if in_place else "int8"))
    names = dict(zip("ab", node.inputs, strict=True))
    return HostKernel(Elementwise(SHAPE, kinds, ("add", "a", "b")), names, nodes=(node,))


def segment(graph: Graph, nodes: list[Node]) -> Segment:
    """A segment as far as the host sees it."""
    inside = {node.output.name for node in nodes}
    reads = dict.fromkeys(name for node in nodes for name in node.inputs if name not in inside)
    inputs = tuple(Binding(name, 0, SHAPE, SHAPE) for name in reads)
    outputs = tuple(Binding(name, 0, SHAPE, SHAPE) for name in inside)
    return Segment((), (), (), inputs, outputs, (), b"", 0, 0)


@dataclass
class Network:
    """A graph, its steps, and its segments."""

    graph: Graph
    steps: list[str | int]
    segments: list[Segment]

    def events(self, kernels=()):
        return order_events(self.graph, self.steps, self.segments, kernels)


def network(reads: list[tuple[int, int]], sides: list[str], shown: list[int]) -> Network:
    """Nodes that add two earlier values; `s` on the accelerator, each its own segment."""
    builder = Builder("random", (Value("x", TensorType("float32", SHAPE)),))
    names = ["x"]
    for (a, b), side in zip(reads, sides, strict=True):
        chosen = [names[a % len(names)], names[b % len(names)]]
        if side == "v":
            names.append(builder.emit(Reshape(SHAPE), chosen[:1], f"n{len(names)}"))
        else:
            names.append(builder.emit(Binary("Add"), chosen, f"n{len(names)}"))
    outputs = sorted({names[index % len(names)] for index in shown} - {"x"} | {names[-1]})
    graph = builder.graph([Output(f"out.{name}", name) for name in outputs])
    side_of = dict(zip(names[1:], sides, strict=True))
    steps: list[str | int] = []
    segments: list[Segment] = []
    for node in graph.nodes:
        if side_of[node.output.name] == "s":
            steps.append(len(segments))
            segments.append(segment(graph, [node]))
        else:
            steps.append(node.output.name)
    return Network(graph, steps, segments)


@st.composite
def networks(draw) -> Network:
    count = draw(st.integers(1, 14))
    pair = st.tuples(st.integers(0, 20), st.integers(0, 20))
    reads = draw(st.lists(pair, min_size=count, max_size=count))
    sides = draw(st.lists(st.sampled_from("hhksv"), min_size=count, max_size=count))
    return network(reads, sides, draw(st.lists(st.integers(0, 20), max_size=3)))


def distinct(node: Node) -> bool:
    return len(set(node.inputs)) == 2


def kernels_of(made: Network) -> list[HostKernel]:
    """Two of three additions of the host."""
    found = [s for s in made.steps if isinstance(s, str)]
    nodes = [node for s in found if (node := made.graph.producer(s)) is not None]
    adds = [node for node in nodes if isinstance(node.attributes, Binary)]
    return [kernel(node) for index, node in enumerate(adds) if index % 3 and distinct(node)]


@given(networks())
def test_everything_happens_once_after_what_it_reads(made):
    events = made.events(kernels_of(made))
    ready = {"x"}
    for event in events:
        assert set(reads_of(event, made.segments)) <= ready
        ready |= set(writes_of(event, made.segments))
    written = [name for event in events for name in writes_of(event, made.segments)]
    assert sorted(written) == sorted(node.output.name for node in made.graph.nodes)


@given(networks())
def test_segments_start_in_order_and_one_at_a_time(made):
    running, order = None, []
    for event in made.events():
        if isinstance(event, Start):
            assert running is None
            running = event.segment
            order.append(running)
        elif isinstance(event, Finish):
            assert event.segment == running
            running = None
    assert order == list(range(len(made.segments)))


def test_the_host_works_beside_a_segment_where_it_need_not_wait():
    # x -> n1 (segment) -> n3 (needs n1); x -> n2 and n4 (free of it)
    made = network([(0, 0), (0, 0), (1, 1), (2, 2)], ["s", "h", "h", "h"], [1, 2, 3, 4])
    kinds = [type(event).__name__ for event in made.events()]
    assert kinds == ["Start", "Evaluate", "Evaluate", "Finish", "Evaluate"]
    assert overlaps(made.events()) == {0: True}


def test_without_nodes_there_is_nothing_to_work_beside():
    assert overlaps(()) == {}


def test_what_a_segment_needs_comes_first():
    made = network([(0, 0), (0, 0), (1, 1)], ["h", "h", "s"], [1, 2, 3])
    events = made.events()
    assert [type(event) for event in events] == [Evaluate, Start, Evaluate, Finish]
    assert writes_of(events[0], made.segments) == ("n1.binary",)


@given(networks(), st.booleans())
def test_nothing_is_overwritten_while_it_is_read(made, keep_all):
    """A walk through the events with the arena's bytes labelled by their owners."""
    kernels = kernels_of(made)
    events = made.events(kernels)
    memory = plan_host_memory(made.graph, events, made.segments, keep_all=keep_all)
    owner: dict[int, set[str]] = {}
    for event in events:
        for name in reads_of(event, made.segments):
            if name in memory.offsets:
                assert name in owner[memory.offsets[name]]
        for name in writes_of(event, made.segments):
            if name not in memory.offsets:
                continue
            offset = memory.offsets[name]
            assert offset + 32 <= memory.arena_bytes
            if isinstance(event, Alias):
                owner[offset].add(name)
            else:
                owner[offset] = {name}
    if keep_all:
        alive = [owner[offset] for offset in set(memory.offsets.values())]
        assert set(memory.offsets) == set().union(*alive)


@given(networks())
def test_what_the_network_shows_lies_outside_the_arena(made):
    events = made.events(kernels_of(made))
    memory = plan_host_memory(made.graph, events, made.segments)
    views = {e.node.output.name: e.node.inputs[0] for e in events if isinstance(e, Alias)}
    for output in made.graph.outputs:
        name = output.value
        while name in views:
            assert name not in memory.offsets
            name = views[name]
        assert name not in memory.offsets
    assert memory.least_bytes <= memory.peak_bytes


@given(networks())
def test_forgotten_values_are_not_read_again(made):
    events = made.events(kernels_of(made))
    memory = plan_host_memory(made.graph, events, made.segments)
    shown, gone = {output.value for output in made.graph.outputs}, set()
    for event, dying in zip(events, memory.dying, strict=True):
        assert gone.isdisjoint(reads_of(event, made.segments))
        gone |= set(dying)
    assert gone.isdisjoint(shown)


@pytest.mark.parametrize(("in_place", "arena"), [(True, BYTES), (False, 2 * BYTES)])
def test_a_chain_of_elementwise_kernels_works_in_place(in_place, arena):
    made = network([(0, 0), (1, 0), (2, 0), (3, 0)], ["h"] * 4, [])
    nodes = made.graph.nodes
    chosen = [kernel(node, in_place=in_place) for node in nodes]
    if not in_place:
        chosen = [replace_inputs(one) for one in chosen]
    events = made.events(chosen)
    assert all(isinstance(event, RunKernel) for event in events)
    memory = plan_host_memory(made.graph, events, [])
    assert memory.arena_bytes == arena
    assert memory.least_bytes >= np.prod(SHAPE) * 4


def replace_inputs(one: HostKernel) -> HostKernel:
    """The same with operands that are read in another way than element by element."""
    description = Elementwise(
        SHAPE, (("a", "int8"), ("b", "int8")), ("add", "a", "b"), dtype="float32"
    )
    return HostKernel(description, one.inputs, nodes=one.nodes)
