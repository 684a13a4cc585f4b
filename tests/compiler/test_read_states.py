"""States in one tensor are read from what they were before it is updated."""

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Output, TensorType, Value, evaluate, verify
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes import read_states

SHAPE = (3, 4, 5)


def scattered(first: tuple[int, ...], size: tuple[int, ...], order: int = 1):
    """A tensor with a box that is written, whose places may come in reverse order."""
    builder = Builder(
        "net",
        [Value("x", TensorType("float32", SHAPE)), Value("part", TensorType("float32", size))],
    )
    places = np.stack(
        np.meshgrid(
            *(np.arange(a, a + n) for a, n in zip(first, size, strict=True)), indexing="ij"
        ),
        axis=-1,
    )[::order]
    indices = builder.constant(np.ascontiguousarray(places))
    return builder, builder.emit(ops.ScatterND("none"), ["x", indices, "part"])


def read(builder: Builder, y: str):
    graph = builder.graph([Output("y", y)])
    made = verify(read_states(graph))
    random = np.random.default_rng(2)
    given = {v.name: random.normal(0, 1, v.type.shape).astype(np.float32) for v in graph.inputs}
    np.testing.assert_array_equal(evaluate(made, given)["y"], evaluate(graph, given)["y"])
    return {node.op for node in made.nodes}


@pytest.mark.parametrize(
    ("starts", "stops", "through"),
    [
        ((0, 0, 0), (1, 4, 5), True),  # before the box
        ((2, 0, 0), (3, 4, 5), True),  # behind it
        ((1, 1, 0), (2, 3, 5), True),  # the box itself
        ((1, 1, 2), (2, 2, 4), True),  # inside it
        ((1, 0, 0), (2, 2, 5), False),  # part of it and of what lies before
        ((0, 0, 0), (3, 4, 5), False),
    ],
)
def test_a_slice_is_read_past_an_update_that_it_does_not_cut(starts, stops, through):
    builder, written = scattered((1, 1, 0), (1, 2, 5))
    cut = builder.emit(ops.Slice(starts, stops, (1, 1, 1)), [written])
    assert ("scatter_nd" not in read(builder, cut)) == through


def test_a_state_that_is_gathered_is_read_past_an_update():
    builder, written = scattered((0, 0, 0), (1, 4, 5))
    taken = builder.emit(ops.Gather(0), [written, builder.constant(np.array(2))])
    assert "scatter_nd" not in read(builder, taken)


def test_updates_in_another_order_are_read_from_the_result():
    builder, written = scattered((0, 0, 0), (2, 4, 5), order=-1)
    assert "scatter_nd" in read(
        builder, builder.emit(ops.Slice((0, 0, 0), (1, 4, 5), (1, 1, 1)), [written])
    )
