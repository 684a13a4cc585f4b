"""Movements as boxes: every element comes from where the definitions of the nodes say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.aligned import address_of
from tilewright.compiler.cpu import CallSequence, copy_call, host
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import (
    Binary,
    Concat,
    Dequantize,
    Gather,
    Pad,
    QConcat,
    QMaxPool,
    QResize,
    QSlice,
    Quantize,
    Reshape,
    ScatterND,
    Slice,
    Transpose,
)
from tilewright.compiler.graph.types import DTYPES
from tilewright.compiler.host import MIN_WORK, HostKernel
from tilewright.compiler.host.boxes import MAX_SAMPLE, PADDING, boxes_of, element_numbers
from tilewright.compiler.host.movements import MAX_BOXES, Movement, find_movements
from tilewright.compiler.host.select import select_steps

from .agreement import call
from .integer_graphs import of_layer, seeds, small


def moved(movement: Movement, arrays: dict[str, np.ndarray], like: np.ndarray) -> np.ndarray:
    """What a movement's machine code gives."""
    sources = [np.ascontiguousarray(arrays[name]) for name in movement.reads]
    sources += [] if movement.fill is None else [movement.fill]
    call = copy_call(movement.boxes, movement.itemsize, len(sources))
    out = np.full(like.shape, 77).astype(like.dtype)
    for place, array in enumerate(sources):
        call.place(**{f"in{place}": address_of(array)})
    CallSequence([call.place(out=address_of(out))]).run()
    return out


def assert_one_movement(graph: Graph, seed: int = 0) -> Movement:
    """The whole graph is one movement, and its copies are the definition's."""
    (movement,) = find_movements(graph, graph.nodes)
    assert len(movement.nodes) == len(graph.nodes)
    random = np.random.default_rng(seed)
    inputs = {
        value.name: random.integers(-99, 99, value.type.shape).astype(DTYPES[value.type.dtype])
        for value in graph.inputs
    }
    arrays = {constant.name: constant.data for constant in graph.constants} | inputs
    (expected,) = evaluate(graph, inputs).values()
    np.testing.assert_array_equal(moved(movement, arrays, expected), expected)
    return movement


def graph_of(shapes: dict[str, tuple[int, ...]], build, dtype: str = "float32") -> Graph:
    builder = Builder("moved", tuple(Value(n, TensorType(dtype, s)) for n, s in shapes.items()))
    return builder.graph([Output("y", build(builder))])


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float16", "float32", "int64"])
def test_a_chain_is_one_copy(dtype):
    """Padding, turns, joins with a constant and cuts: one step from the inputs to the output."""

    def build(b: Builder) -> str:
        padded = b.emit(Pad((0, 1, 0), (0, 1, 2), 3.0), ["a"], "padded")
        turned = b.emit(Transpose((2, 0, 1)), [padded], "turned")
        flat = b.emit(Reshape((6, 15)), [turned], "flat")
        fixed = b.constant(np.arange(30).reshape(2, 15).astype(DTYPES[dtype]), "fixed")
        joined = b.emit(Concat(0), [flat, "b", fixed], "joined")
        return b.emit(Slice((1, 2), (9, 14), (2, 1)), [joined], "cut")

    movement = assert_one_movement(graph_of({"a": (3, 3, 4), "b": (2, 15)}, build, dtype))
    assert movement.fill is not None


def test_fixed_indices_are_boxes():
    """As exporters write windows: overlapping pieces by a table; and slices put in their places."""

    def unfold(b: Builder) -> str:
        table = b.constant((np.arange(3)[:, None] + 2 * np.arange(9)).astype(np.int64), "table")
        return b.emit(Gather(2), ["x", table], "windows")

    assert len(assert_one_movement(graph_of({"x": (2, 4, 19)}, unfold)).boxes) == 1

    def put(b: Builder) -> str:
        place = b.constant(np.array([[1], [-1]], np.int64), "place")
        return b.emit(ScatterND("none"), ["x", place, "new"], "put")

    assert_one_movement(graph_of({"x": (4, 5), "new": (2, 5)}, put))


@given(st.lists(st.integers(1, 90), min_size=1, max_size=4), st.integers(1, 3), seeds)
@settings(max_examples=20)
def test_quantised_parts_are_joined(extents: list[int], axis: int, seed: int) -> None:
    shapes = [(1, *(extent if at == axis else 4 for at in range(1, 4))) for extent in extents]
    assert_one_movement(of_layer(QConcat(axis), shapes), seed)


@given(st.tuples(small, small), st.integers(1, 90), seeds)
@settings(max_examples=10)
def test_pixels_are_repeated(factors: tuple[int, int], channels: int, seed: int) -> None:
    movement = assert_one_movement(of_layer(QResize(factors), [(2, 3, 4, channels)]), seed)
    assert len(movement.boxes) == 1


@given(st.data())
@settings(max_examples=20)
def test_quantised_slices_are_cut(data) -> None:
    shape = (2, 6, 7, data.draw(st.integers(1, 90)))
    starts = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    stops = tuple(
        data.draw(st.integers(start + 1, size)) for start, size in zip(starts, shape, strict=True)
    )
    layer = QSlice(starts, stops, (1, data.draw(small), data.draw(small), 1))
    assert_one_movement(of_layer(layer, [shape]), data.draw(seeds))


@given(st.permutations(range(4)), st.integers(1, 70), seeds)
@settings(max_examples=15)
def test_bytes_are_transposed(order: list[int], channels: int, seed: int) -> None:
    assert_one_movement(of_layer(Transpose(tuple(order)), [(2, 5, 3, channels)]), seed)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((32, 48), (1, 0)),
        ((49, 70), (1, 0)),
        ((2, 17, 3, 31), (0, 3, 2, 1)),
        ((20, 5, 16), (2, 1, 0)),
    ],
)
def test_elements_are_transposed_in_squares(shape: tuple, order: tuple, dtype: str) -> None:
    """Whole squares, and squares that overlap at the right and below."""
    graph = graph_of({"x": shape}, lambda b: b.emit(Transpose(order), ["x"], "turned"), dtype)
    assert_one_movement(graph)


@pytest.mark.parametrize("size", [*range(1, 40), 63, 511, 512, 513, 1200])
def test_runs_of_any_length_are_copied(size: int) -> None:
    """One vector, several of which the last two overlap, and `memcpy`."""

    def build(b: Builder) -> str:
        return b.emit(Slice((0, 1), (3, size + 1), (1, 1)), ["x"], "cut")

    assert_one_movement(graph_of({"x": (3, size + 2)}, build, "int8"))


@pytest.mark.parametrize("shape", [(1, 3, 9, 35), (2, 40, 3, 3)])
def test_images_are_transposed_as_bytes(shape: tuple[int, ...]) -> None:
    """Quantised before they are moved, and moved before they are floats again."""
    builder = Builder("border", [Value("a", TensorType("float32", shape))])
    made = builder.emit(Quantize((0.02,), (-7,), "int8"), ["a"])
    made = builder.emit(Transpose((0, 2, 3, 1)), [made])
    made = builder.emit(QMaxPool((1, 1), (1, 1), (0, 0, 0, 0)), [made])
    made = builder.emit(Transpose((0, 3, 1, 2)), [made])
    made = builder.emit(Dequantize((0.02,), (-7,)), [made])
    graph = builder.graph([Output("out", made)])
    image = np.random.default_rng(1).normal(0, 1.5, shape).astype(np.float32)
    image.reshape(-1)[:7] = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.05, -0.05]
    steps = {step.output: step for step in select_steps(graph, graph.nodes, host(), least_work=0)}
    assert [len(step.nodes) for step in steps.values()] == [1] * 5
    expected = evaluate(graph, {"a": image}, [node.output.name for node in graph.nodes])
    values = {"a": image}
    for node in graph.nodes:
        name, step = node.output.name, steps[node.output.name]
        if isinstance(step, Movement):
            values[name] = moved(step, values, np.zeros(node.output.type.shape, np.int8))
        else:
            assert isinstance(step, HostKernel)
            values[name] = call(step, values, host()).reshape(node.output.type.shape)
    np.testing.assert_array_equal(values[made], expected["out"])


def test_large_values_are_few_boxes() -> None:
    """Progressions are sought in a part of a large map."""
    x, y = (element_numbers(source, (1, 40, 60, 200)) for source in range(2))
    joined = np.concatenate([x, y], 3).repeat(2, 1).transpose(0, 3, 1, 2)
    assert joined.size > MAX_SAMPLE
    boxes = boxes_of(joined, 2)
    assert boxes is not None
    assert len(boxes) == 2


def test_large_images_are_transposed_in_machine_code() -> None:
    """NumPy took five times the time for 192 channels at 128x128."""
    graph = graph_of(
        {"x": (1, 192, 128, 128)}, lambda b: b.emit(Transpose((0, 2, 3, 1)), ["x"], "y")
    )
    assert len(find_movements(graph, graph.nodes)) == 1


def test_what_has_no_pattern_is_left_to_the_definition():
    def build(b: Builder) -> str:
        order = np.random.default_rng(0).permutation(400)
        return b.emit(Gather(0), ["x", b.constant(order, "order")], "mixed")

    graph = graph_of({"x": (400,)}, build)
    assert find_movements(graph, graph.nodes) == ()


def test_an_index_out_of_range_is_left_to_the_definition():
    """Which names it when the network runs."""

    def build(b: Builder) -> str:
        return b.emit(Gather(0), ["x", b.constant(np.array([4]), "index")], "beyond")

    graph = graph_of({"x": (4, 2)}, build)
    assert find_movements(graph, graph.nodes) == ()


def test_values_that_others_read_stay_values():
    """A cut that two nodes read is computed once; an output inside a chain ends a movement."""

    def build(b: Builder) -> str:
        cut = b.emit(Slice((0, 1), (4, 5), (1, 1)), ["x"], "cut")
        turned = b.emit(Transpose((1, 0)), [cut], "turned")
        return b.emit(Binary("Add"), [cut, turned], "sum")

    graph = graph_of({"x": (4, 6)}, build)
    found = find_movements(graph, graph.nodes)
    assert [[node.output.name for node in one.nodes] for one in found] == [
        ["cut.slice"],
        ["turned.transpose"],
    ]
    builder = Builder("shown", (Value("x", TensorType("float32", (4, 6))),))
    cut = builder.emit(Slice((0, 1), (4, 5), (1, 1)), ["x"], "cut")
    turned = builder.emit(Transpose((1, 0)), [cut], "turned")
    graph = builder.graph([Output("c", cut), Output("t", turned)])
    assert [one.output for one in find_movements(graph, graph.nodes)] == [
        "cut.slice",
        "turned.transpose",
    ]


def test_small_movements_alone_need_no_machine_code():
    """Unless one of them is large."""
    for rows, steps in ((4, 0), (4 * MIN_WORK, 1)):
        shape = {"x": (rows, 6)}
        graph = graph_of(shape, lambda b: b.emit(Transpose((1, 0)), ["x"], "turned"))
        assert len(select_steps(graph, graph.nodes, host())) == steps


@st.composite
def maps(draw) -> np.ndarray:
    """The numbers of elements after a chain of movements of up to two arrays."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    x = element_numbers(0, shape)
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["turn", "flat", "cut", "join", "pad", "repeat", "reverse"]))
        axis = draw(st.integers(0, x.ndim - 1))
        if kind == "turn":
            x = x.transpose(draw(st.permutations(range(x.ndim))))
        elif kind == "flat" and axis:
            x = x.reshape(*x.shape[: axis - 1], -1, *x.shape[axis + 1 :])
        elif kind == "cut":
            low = draw(st.integers(0, x.shape[axis] - 1))
            x = np.take(x, range(low, x.shape[axis], draw(st.integers(1, 3))), axis)
        elif kind == "join":
            x = np.concatenate([x, element_numbers(draw(st.integers(0, 1)), x.shape)], axis)
        elif kind == "pad":
            ends = [(1, 2) if one == axis else (0, 0) for one in range(x.ndim)]
            x = np.pad(x, ends, constant_values=PADDING)
        elif kind == "repeat":
            x = x.repeat(2, axis)
        elif kind == "reverse":
            x = np.flip(x, axis)
    return x


@given(maps(), seeds)
@settings(max_examples=150, deadline=None)
def test_boxes_are_the_map(numbers, seed):
    boxes = boxes_of(numbers, 10_000)
    assert boxes is not None
    assert boxes_of(numbers, len(boxes)) == boxes
    assert not boxes or boxes_of(numbers, len(boxes) - 1) is None
    found = np.full(numbers.size, PADDING)
    for box in boxes:
        index = np.indices(box.extents).reshape(len(box.extents), -1)
        places = box.place + np.array(box.steps) @ index
        assert (found[places] == PADDING).all(), "no element is copied twice"
        found[places] = (
            element_numbers(box.source, (1,)) + box.first + np.array(box.strides) @ index
        )
    np.testing.assert_array_equal(found.reshape(numbers.shape), numbers)


@given(maps(), st.sampled_from(["int8", "int16", "float32", "int64"]))
@settings(max_examples=60, deadline=None)
def test_machine_code_copies_boxes(numbers, dtype):
    boxes = boxes_of(numbers, 10_000)
    assert boxes is not None
    random = np.random.default_rng(0)
    sources = [random.integers(1, 99, 9_000).astype(dtype) for _ in range(2)]
    out = np.zeros(numbers.shape, dtype)
    call = copy_call(boxes, out.itemsize, 2)
    places = {f"in{index}": address_of(array) for index, array in enumerate(sources)}
    CallSequence([call.place(out=address_of(out), **places)]).run()
    flat = np.concatenate([*(np.resize(one, 10_000) for one in sources), np.zeros(1, dtype)])
    which = np.where(numbers == PADDING, 20_000, (numbers >> 40) * 10_000 + (numbers & 0xFFFF))
    np.testing.assert_array_equal(out, flat[which])


@pytest.mark.parametrize("count", [2 * MAX_BOXES, 2 * MAX_BOXES + 1])
def test_a_movement_has_few_boxes(count):
    """Two rows from far places are a box, as any two are a progression."""
    rows = np.cumsum(np.arange(count) + 1)

    def build(b: Builder) -> str:
        return b.emit(Gather(0), ["x", b.constant(rows, "rows")], "found")

    graph = graph_of({"x": (int(rows[-1]) + 1, 3)}, build)
    assert len(find_movements(graph, graph.nodes)) == (count == 2 * MAX_BOXES)
