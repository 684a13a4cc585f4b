"""Values that are stored at their placements make up the results that they are parts of."""

import random

import numpy as np
import pytest

from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QConcat,
    QMaxPool,
    QReshape,
    QResize,
    QSlice,
    QSwap,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
    verify,
)
from tilewright.compiler.main_memory.memory_plan import plan_memory
from tilewright.compiler.main_memory.tensor_placement import TensorPlacements, place_tensors

BLOCK = 4
POOL = QMaxPool((1, 1), (1, 1), (0, 0, 0, 0))


KINDS = ("pool", "resize", "slice", "concat", "concat")


def random_graph(seed: int, kinds: tuple[str, ...] = KINDS) -> Graph:
    """Pools that leave values as they are, and what concatenations and resizes make of them."""
    chance = random.Random(seed)
    builder = Builder("made")
    shape = (chance.randint(1, 2), chance.randint(1, 3), chance.randint(1, 3), chance.randint(1, 9))
    values = [builder.input(Value("x", TensorType("int8", shape)))]
    for _ in range(8):
        source = chance.choice(values)
        kind = chance.choice(kinds)
        if kind == "pool":
            values.append(builder.emit(POOL, [source]))
        elif kind == "slice":
            n, h, w, c = builder.types[source].shape
            starts = tuple(chance.randrange(extent) for extent in (n, h, w, c))
            steps = (1, chance.randint(1, 2), chance.randint(1, 2), 1)
            picked = QSlice((starts[0], starts[1], starts[2], starts[3]), (n, h, w, c), steps)
            if chance.random() < 0.2:
                picked = QSlice((0, h - 1, 0, 0), (n, -1, w, c), (1, -1, 1, 1))
            values.append(builder.emit(picked, [source]))
        elif kind == "reshape":
            n, h, w, c = builder.types[source].shape
            first = chance.choice([one for one in range(1, n * h + 1) if n * h * w % one == 0])
            rest = n * h * w // first
            second = chance.choice([one for one in range(1, rest + 1) if rest % one == 0])
            shape = (first, second, rest // second, c)
            if chance.random() < 0.5:
                whole = n * h * w * c
                channels = chance.choice([one for one in range(1, 41) if whole % one == 0])
                shape = (1, 1, whole // channels, channels)
            values.append(builder.emit(QReshape(shape), [source]))
        elif kind == "swap":
            values.append(builder.emit(QSwap(), [source]))
        elif kind == "resize":
            factors = chance.randint(1, 3), chance.randint(1, 2)
            values.append(builder.emit(QResize(factors), [source]))
        else:
            axis, own = chance.choice((0, 1, 2, 3, 3)), builder.types[source].shape
            alike = [
                name
                for name in values
                if all(
                    a == b or i == axis
                    for i, (a, b) in enumerate(zip(builder.types[name].shape, own, strict=True))
                )
            ]
            parts = [source, *chance.choices(alike, k=chance.randint(0, 2))]
            values.append(builder.emit(QConcat(axis), parts))
    return verify(builder.graph([Output(f"y{i}", name) for i, name in enumerate(values[1:])]))


def placements_of(graph: Graph) -> TensorPlacements:
    stored = {
        name: (*kind.shape[:3], -(-kind.shape[3] // BLOCK) * BLOCK)
        for name, kind in graph.types.items()
    }
    return place_tensors(graph, graph.nodes, stored)


def seen(
    memory: np.ndarray, placements: TensorPlacements, name: str, offsets: dict[str, int]
) -> np.ndarray:
    """A value's elements in memory, int8[copies, ..., N, H, W, C]."""
    placement = placements.of[name]
    resident = placement.resident(offsets[placement.whole])
    shape = (*(count for count, _ in placement.copies), *placement.shape[:3], placement.channels)
    strides = (*(apart for _, apart in placement.copies), *resident.strides)
    return np.lib.stride_tricks.as_strided(memory[resident.base :], shape, strides)


@pytest.mark.parametrize("seed", range(400))
def test_every_value_is_where_it_is_read(seed):
    graph = random_graph(seed, KINDS if seed % 2 else (*KINDS, "reshape", "reshape", "swap"))
    placements = placements_of(graph)
    offsets, size = {}, 0
    for name, bytes_ in placements.sizes.items():
        offsets[name], size = size, size + bytes_
    x = np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    expected = {"x": x, **evaluate(graph, {"x": x}, keep=[n.output.name for n in graph.nodes])}
    memory = np.zeros(size, np.int8)
    written = np.zeros(size, np.int8)
    made = [node.output.name for node in graph.nodes if node.attributes == POOL]
    stored = {name: name for name in ["x", *made]}
    stored |= {copy.target: copy.value for copies in placements.copies.values() for copy in copies}
    for name, value in stored.items():
        seen(memory, placements, name, offsets)[...] = expected[value]
        places = seen(written, placements, name, offsets)
        places += 1
    assert written.max() <= 1, "two values lie at one place"
    for node in graph.nodes:
        got = seen(memory, placements, node.output.name, offsets)
        assert (got == expected[node.output.name]).all(), node


@pytest.mark.parametrize("seed", range(150))
def test_only_what_must_be_is_copied(seed):
    """A value is copied into all results but one, and into all if the host gives it.

    What is picked from a value is copied only to become a part of a result.
    """
    graph = random_graph(seed)
    placements = placements_of(graph)
    readings = [
        name
        for node in graph.nodes
        if isinstance(node.attributes, (QConcat, QResize))
        for name in node.inputs
    ]
    all_copies = [copy for copies in placements.copies.values() for copy in copies]
    copied = [copy.value for copy in all_copies if copy.value == copy.source]
    for name in set(readings):
        free = 0 if name == "x" else 1
        assert copied.count(name) == readings.count(name) - free
    for node in graph.nodes:
        if isinstance(node.attributes, QSlice):
            assert bool(placements.copies[node.output.name]) == (node.output.name in readings)


def test_a_place_lives_as_long_as_any_value_in_it():
    builder = Builder("made", [Value("x", TensorType("int8", (1, 2, 2, 4)))])
    first, second = (builder.emit(POOL, ["x"], name=name) for name in ("a", "b"))
    joined = builder.emit(QConcat(3), [first, second], name="joined")
    graph = builder.graph([Output("y", joined)])
    placements = placements_of(graph)
    spans = {"x": (-1, 1), "a": (0, 2), "b": (1, 2), "joined": (2, 7)}
    (x, whole) = placements.lifetimes(spans)
    assert (x.name, x.first, x.last) == ("x", -1, 1)
    assert (whole.name, whole.first, whole.last, whole.size) == ("joined", 0, 7, 32)
    dram = placements.dram(plan_memory([x, whole]).offsets)
    assert dram["b"].base == dram["a"].base + 4
    assert dram["b"].strides == dram["joined"].strides
    assert all(is_accelerated(node) for node in graph.nodes)


def test_rows_of_another_shape_are_stored_where_they_are_read():
    builder = Builder("made", [Value("x", TensorType("int8", (1, 2, 3, 4)))])
    image = builder.emit(POOL, ["x"])
    rows = builder.emit(QReshape((1, 1, 6, 4)), [image])
    token = builder.emit(
        POOL, [builder.emit(QSlice((0, 0, 0, 0), (1, 1, 1, 4), (1, 1, 1, 1)), ["x"])]
    )
    joined = builder.emit(QConcat(2), [token, rows])
    placements = placements_of(builder.graph([Output("y", joined)]))
    assert not any(placements.copies.values())
    assert placements.of[image].whole == joined


@pytest.mark.parametrize(
    ("stops", "steps", "copied"),
    [
        ((1, 3, 4, 5), (1, 1, 1, 1), False),  # whole rows
        ((1, 3, 2, 5), (1, 1, 1, 1), True),  # parts of rows
        ((1, 3, 4, 5), (1, 1, 3, 1), True),  # columns apart
        ((1, 3, 1, 5), (1, 1, 1, 1), False),  # one column
        ((2, 1, 1, 5), (1, 1, 1, 1), False),  # one pixel of each image
        ((2, 1, 4, 5), (1, 1, 1, 1), True),  # one row of each image
    ],
)
def test_pixels_of_a_slice_are_read_in_place_if_they_lie_evenly(stops, steps, copied):
    builder = Builder("made", [Value("x", TensorType("int8", (2, 3, 4, 6)))])
    cut = builder.emit(QSlice((0, 0, 0, 0), stops, steps), ["x"])
    n, h, w, c = builder.types[cut].shape
    flat = builder.emit(QReshape((1, 1, n * h * w, c)), [cut])
    graph = builder.graph([Output("y", flat)])
    placements = placements_of(graph)
    assert bool(placements.copies[flat]) == copied
    x = np.random.default_rng(4).integers(-128, 128, (2, 3, 4, 6)).astype(np.int8)
    offsets, size = {}, 0
    for name, bytes_ in placements.sizes.items():
        offsets[name], size = size, size + bytes_
    memory = np.zeros(size, np.int8)
    seen(memory, placements, "x", offsets)[...] = x
    for copy in placements.copies[flat]:
        source = seen(memory, placements, copy.source, offsets).copy()
        seen(memory, placements, copy.target, offsets)[...] = source
    assert (seen(memory, placements, flat, offsets) == evaluate(graph, {"x": x})["y"]).all()
