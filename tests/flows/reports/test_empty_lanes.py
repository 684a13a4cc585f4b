"""The report page names the lanes of the array that a layer leaves empty."""

import numpy as np
import pytest

from tilewright.compiler.graph import Constant, Graph, Node, Output, QConv, TensorType, Value
from tilewright.compiler.options import Options
from tilewright.compiler.pipeline import compile_module
from tilewright.flows.execution.timed import time_segments
from tilewright.flows.reports.page.causes import path_steps
from tilewright.flows.reports.page.layer_rows import layer_facts
from tilewright.flows.reports.page.sentences import empty_lanes
from tilewright.isa.configuration import PRESETS

SMALL = PRESETS["8x8"]
Shape = tuple[int, int, int, int]


def told(channels: int, *weights: Shape, options: Options | None = None) -> str:
    """What is said of convolutions int8[KH, KW, Ci / groups, Co] in a row, as one layer."""
    value, nodes, constants = "x", [], []
    size = 8
    for number, shape in enumerate(weights):
        kh, kw, per_group, channels_out = shape
        groups = channels // per_group
        names = [f"{role}{number}" for role in ("w", "bias", "scale")]
        arrays = (
            np.ones(shape, np.int8),
            np.zeros(channels_out, np.int32),
            np.full(channels_out, 0.01, np.float32),
        )
        constants += [Constant(*pair) for pair in zip(names, arrays, strict=True)]
        kind = "depthwise" if groups > 1 else "conv"
        pads = (kh // 2, kw // 2, (kh - 1) // 2, (kw - 1) // 2)
        attributes = QConv(kind, (1, 1), pads, (1, 1), groups, 0, 0)
        given = Value(f"v{number}", TensorType("int8", (1, size, size, channels_out)))
        nodes.append(Node(f"m/conv{number}/Conv", attributes, (value, *names), (given,)))
        value, channels = given.name, channels_out
    x = Value("x", TensorType("int8", (1, size, size, channels_of(weights[0], nodes[0]))))
    graph = Graph("convolutions", (x,), (Output("y", value),), tuple(nodes), tuple(constants))
    module = compile_module(graph, SMALL, options=options or Options())
    (segment,) = time_segments(module)
    (fact,) = layer_facts(module, segment, path_steps(segment))
    return empty_lanes(module, fact)


def channels_of(shape: Shape, node: Node) -> int:
    """Input channels of a convolution."""
    assert isinstance(node.attributes, QConv)
    return shape[2] * node.attributes.groups


@pytest.mark.parametrize(
    ("channels", "weights", "said"),
    [
        (12, (3, 3, 12, 16), ": 12 input channels on 8 lanes"),
        (16, (3, 3, 16, 20), ": 20 output channels on 8 lanes"),
        (12, (1, 1, 12, 1), ": 12 input channels on 8 lanes and 1 output channel on 8 lanes"),
        (
            16,
            (3, 3, 1, 16),
            ": no channel sums over another, so at most 3 of 8 input lanes work",
        ),
    ],
)
def test_the_side_that_is_not_full_is_named(channels, weights, said):
    assert told(channels, weights) == said


def test_windows_that_are_gathered_count_by_their_values():
    assert told(1, (3, 3, 1, 32)) == ": 9 values of a window on 8 lanes"
    assert told(3, (3, 3, 3, 8)) == ": 9 values of a window's row on 8 lanes"
    assert told(3, (3, 3, 3, 8), options=Options(gather=False)) == ": 3 input channels on 8 lanes"


def test_windows_that_fill_the_lanes_are_not_blamed():
    assert told(2, (1, 4, 2, 8)) == ": the other rows only pad a tile"
    assert told(2, (1, 4, 2, 4)) == ": 4 output channels on 8 lanes"


def test_of_fused_convolutions_each_has_its_reason():
    said = told(16, (3, 3, 1, 16), (1, 1, 16, 20))
    assert said == (
        ": in conv0/Conv no channel sums over another, so at most 3 of 8 input lanes work; "
        "in conv1/Conv 20 output channels on 8 lanes"
    )
