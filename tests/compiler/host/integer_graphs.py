"""Graphs of quantised layers, and their comparison with the definition on a feature set."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from tilewright.compiler.graph import Builder, Graph, Output, QConv, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import Operator

from ...processor import target_at
from .agreement import run_kernels, selected

small = st.integers(1, 3)
seeds = st.integers(0, 1 << 30)


def of_layer(
    operator: Operator, shapes: Sequence[tuple[int, ...]], *constants: np.ndarray
) -> Graph:
    """One layer; inputs are `a`, `b`, ... of int8, constants follow."""
    inputs = [
        Value(name, TensorType("int8", shape)) for name, shape in zip("abcd", shapes, strict=False)
    ]
    builder = Builder("layer", inputs)
    operands = [value.name for value in inputs]
    operands += [builder.constant(array) for array in constants]
    return builder.graph([Output("out", builder.emit(operator, operands))])


def qconv(groups: int = 1, **given) -> QConv:
    """A convolution of plain geometry where nothing else is given."""
    plain = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    points = {"zero_point_x": 0, "zero_point_y": 0}
    return QConv("conv", groups=groups, **{**plain, **points, **given})


def random_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Bytes for every input, those at the ends of the range as often as all others together."""
    random = np.random.default_rng(seed)
    made = {}
    for value in graph.inputs:
        anything = random.integers(-128, 128, value.type.shape)
        ends = random.choice([-128, 127], value.type.shape)
        made[value.name] = np.where(random.random(value.type.shape) < 0.5, anything, ends).astype(
            np.int8
        )
    return made


def assert_same(graph: Graph, level: str, seed: int = 0, kernels: int = 1) -> np.ndarray:
    """Compare with the definition, bit for bit; all nodes must be done by so many kernels."""
    target, inputs = target_at(level), random_inputs(graph, seed)
    found = selected(graph, target)
    assert len(found) == kernels
    assert sum(len(kernel.nodes) for kernel in found) == len(graph.nodes)
    assert all(kernel.exact for kernel in found)
    got = run_kernels(graph, inputs, target)[graph.outputs[0].value]
    expected = evaluate(graph, inputs)[graph.outputs[0].name]
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    return expected
