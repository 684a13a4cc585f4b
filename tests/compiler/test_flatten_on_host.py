"""Dense layers on images whose pixels would leave most lanes empty."""

import numpy as np
import pytest

from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QConv,
    QMaxPool,
    QSlice,
    Quantisation,
    TensorType,
    Value,
    evaluate,
)
from tilewright.compiler.graph.operators import Transpose
from tilewright.compiler.passes.flatten_on_host import flatten_on_host, saved_cycles
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import DEFAULT_COSTS
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.runtime import Session, open_device

ONE = Quantisation(1.0, 0)


class Network:
    """A network on int8[1, H, W, C] that ends in a dense layer with a window over its image."""

    def __init__(self, *shape: int) -> None:
        self.builder = Builder("test", (Value("x", TensorType("int8", (1, *shape), ONE)),))

    def emit(self, operator, x: str = "x") -> str:
        return self.builder.emit(operator, [x])

    def ends(self, x: str, channels: int) -> Graph:
        rng = np.random.default_rng(3)
        kernel = (*self.builder.types[x].shape[1:], channels)
        operands = [
            self.builder.constant(rng.integers(-127, 128, kernel).astype(np.int8)),
            self.builder.constant(rng.integers(-99, 99, channels).astype(np.int32)),
            self.builder.constant(np.full(channels, 0.001, np.float32)),
        ]
        dense = QConv("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0)
        y = self.builder.emit(dense, [x, *operands], "dense", quantisation=ONE)
        return self.builder.graph((Output("y", y),))


def pooled(channels: int, depth: int = 1, size: int = 12) -> Graph:
    """A pool on the accelerator, and a dense layer on its square image."""
    network = Network(2 * size, 2 * size, depth)
    return network.ends(network.emit(QMaxPool((2, 2), (2, 2), (0, 0, 0, 0))), channels)


def sliced(channels: int) -> Graph:
    """A dense layer on one channel of an image that the host makes."""
    network = Network(2, 96, 3)
    turned = network.emit(Transpose((0, 2, 1, 3)))
    cut = QSlice((0, 0, 1, 2), (1, 96, 2, 3), (1, 1, 1, 1))
    return network.ends(network.emit(cut, turned), channels)


def run_and_compare(graph: Graph):
    """Return the compiled module after its results on the simulator are compared."""
    x = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].type.shape).astype(np.int8)
    module = compile_module(graph, DEFAULT)
    with open_device("sim", DEFAULT) as device:
        (ours,) = Session(module, device).run({"x": x}).outputs.values()
    np.testing.assert_array_equal(ours, evaluate(graph, {"x": x})["y"])
    return module


def test_an_image_of_one_channel_is_flattened():
    module = run_and_compare(pooled(128))
    assert [node.op for node in module.graph.nodes] == ["qmaxpool", "reshape", "qconv"]
    weights = 12 * 12 * 128
    assert weights <= len(module.segments[1].constants) < 1.1 * weights


def test_a_slice_of_the_hosts_image_stays_on_the_host():
    module = run_and_compare(sliced(32))
    assert [node.op for node in module.graph.nodes] == ["transpose", "slice", "reshape", "qconv"]
    assert len(module.segments) == 1


@pytest.mark.parametrize(
    "graph", [pooled(16, size=6), pooled(128, 16)], ids=["small", "full lanes"]
)
def test_a_window_that_costs_little_reads_the_image_in_place(graph):
    assert flatten_on_host(graph, DEFAULT, DEFAULT_COSTS) == graph


def test_the_saving_is_that_of_the_empty_lanes():
    """144 pixels take a tile of 256 bytes each, over a bus of 8 bytes; flat, they fill 9 tiles."""
    assert saved_cycles((12, 12, 1, 16), DEFAULT) == (144 - 9) * 256 // 8
    assert saved_cycles((12, 12, 16, 16), DEFAULT) == 0
    assert saved_cycles((3, 1, 24, 40), DEFAULT) == (6 - 5) * 3 * 256 // 8
    assert saved_cycles((12, 12, 4, 4), PRESETS["4x4"]) == 0
