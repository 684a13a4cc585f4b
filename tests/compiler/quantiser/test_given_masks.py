"""Float inputs that are masks, by samples or by operators; values that may be others are none."""

import numpy as np
import pytest

from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes.masks import excludes, mask_step
from tilewright.compiler.passes.plain_attention import plain_attention_to_quantise
from tilewright.compiler.quantiser.given_masks import mark_masks

ADD, MULTIPLY, SUBTRACT = map(ops.Binary, ("Add", "Mul", "Sub"))
KEYS = 4


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def network(dtype: str = "float32", scale: float = -1e9, whole: bool = True) -> Graph:
    """`scores + (1 - m) * scale`, or `scores + m`, with an input m."""
    inputs = [
        Value("x", TensorType("float32", (1, KEYS))),
        Value("m", TensorType(dtype, (1, KEYS))),
    ]
    builder = Builder("mask", inputs)
    added = "m"
    if whole:
        number = builder.emit(ops.Cast("float32"), ["m"]) if dtype != "float32" else "m"
        dropped = builder.emit(SUBTRACT, [builder.constant(floats(1), "one"), number])
        factor = builder.constant(floats(scale), "factor")
        added = builder.emit(MULTIPLY, [dropped, factor], name="added")
    return builder.graph([Output("y", builder.emit(ADD, ["x", added], "sum"))])


def added_to_scores(graph: Graph) -> str:
    return graph.nodes[-1].inputs[1]


def test_an_added_input_that_is_a_mask_in_all_samples_is_one():
    graph = network(whole=False)
    assert not excludes(graph, added_to_scores(graph))
    seen = {"x": np.ones((1, 1, KEYS), np.float32), "m": floats(0, 0, -np.inf, -2000)[None]}
    found, masks = mark_masks(graph, seen)
    assert masks == ("m",)
    assert excludes(found, added_to_scores(found))
    given = {"x": np.zeros((1, KEYS), np.float32), "m": floats(0, -1, -800, -1e5)[None]}
    np.testing.assert_array_equal(evaluate(found, given)["y"], floats(0, 0, -2000, -2000)[None])


@pytest.mark.parametrize(
    ("graph", "samples"),
    [
        (network(), (1, 1, 0, 0)),
        (network(whole=False), (0, 0, 0, 0)),
        (network(whole=False), (0, -3, -np.inf, 0)),
        (network("int64"), (1, 1, 0, 0)),
    ],
    ids=["0 and 1", "zeros", "a bias", "an integer"],
)
def test_other_inputs_stay_as_they_are(graph, samples):
    seen = {"x": floats(1, 1, 0, 0)[None], "m": floats(*samples)[None]}
    assert mark_masks(graph, seen) == (graph, ())


@pytest.mark.parametrize(
    ("dtype", "scale", "step"),
    [
        *(("int64", -1e4, 1e4), ("bool", -1e4, 1e4), ("int64", 1e4, 0), ("int64", -10, 10)),
        *(("float32", -1e4, 1e4), ("float32", 1e4, 0), ("float32", -100, 0), ("float32", 0, 0)),
    ],
)
def test_what_masks_are_made_of(dtype, scale, step):
    graph = network(dtype, scale)
    assert mask_step(graph, added_to_scores(graph)) == step


def test_a_wide_bias_does_not_hide_a_mask():
    """Together, they would be a bias of a range from -100 to 16."""
    builder = Builder("window", [Value("x", TensorType("float32", (1, KEYS)))])
    mask, bias = builder.constant(floats(0, -100, 0, -100)), builder.constant(floats(16, 14, 2, 9))
    masked = builder.emit(ADD, ["x", mask])
    graph = builder.graph([Output("y", builder.emit(ADD, [masked, bias]))])
    found = plain_attention_to_quantise(graph)
    first, last = found.nodes
    np.testing.assert_array_equal(found.data(first.inputs[1]), floats(16, 14, 2, 9))
    np.testing.assert_array_equal(found.data(last.inputs[1]), floats(0, -100, 0, -100))


@pytest.mark.parametrize("first", [0, 1])
def test_a_bias_between_masks_does_not_go_round_in_circles(first):
    """Without scores, neither mask comes last."""
    inputs = [Value("bias", TensorType("float32", (1, KEYS)))]
    inputs += [Value(name, TensorType("bool", (1, KEYS))) for name in "cd"]
    builder = Builder("bias", inputs)
    held = [builder.constant(floats(number), f"it{number:g}") for number in (-1e9, 0)]
    masks = [builder.emit(ops.Where(), [name, *held]) for name in "cd"]
    inner = builder.emit(ADD, ["bias", masks[first]])
    graph = builder.graph([Output("y", builder.emit(ADD, [inner, masks[1 - first]]))])
    found = plain_attention_to_quantise(graph)
    given = {"bias": floats(1, 2, 3, 4)[None]}
    given |= {name: np.array([[True, False, index > 0, False]]) for index, name in enumerate("cd")}
    np.testing.assert_array_equal(evaluate(found, given)["y"], evaluate(graph, given)["y"])
