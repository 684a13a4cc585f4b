"""Means, maxima, gates and norms between layers: one program, equal to the reference."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from tests.compiler.attention_networks import assert_one_program, quantised
from tests.compiler.onnx_models import model, node, run_onnxruntime, value
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes.reductions_as_layers import reductions_as_layers
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

MACHINE = PRESETS["8x8"].replace(name="rows-8x8", row_statistics="all")
IMAGE, ROWS = (1, 6, 7, 5), (1, 9, 12)


def floats(data: object) -> np.ndarray:
    return np.asarray(data, np.float32)


class Net:
    """The nodes and constants of a small network."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.chance = np.random.default_rng(2)

    def __call__(self, kind: str, *inputs: str | np.ndarray, **attributes) -> str:
        names = [each if isinstance(each, str) else self.hold(each) for each in inputs]
        self.nodes.append(node(kind, names, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def hold(self, data: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def conv(self, x: str, results: int, channels: int, size: int = 3) -> str:
        shape = results, channels, size, size
        weights = self.chance.normal(0, 1 / np.sqrt(channels * size * size), shape)
        pads, bias = [size // 2] * 4, floats(self.chance.normal(0, 0.2, results))
        return self("Conv", x, floats(weights), bias, kernel_shape=[size, size], pads=pads)

    def dense(self, x: str, rows: int, columns: int) -> str:
        weights = self.chance.normal(0, 1 / np.sqrt(rows), (rows, columns))
        return self("Add", self("MatMul", x, floats(weights)), floats(weights[0]))

    def norm(self, x: str, channels: int) -> str:
        mean, offset, shift = (floats(self.chance.normal(0, 0.3, channels)) for _ in range(3))
        variance = floats(self.chance.uniform(0.5, 2, channels))
        return self("BatchNormalization", x, 1 + mean, offset, shift, variance)

    def reduce(self, kind: str, x: str, axis: int, keep: int = 1) -> str:
        return self(kind, x, np.array([axis]), keepdims=keep)


def norms_behind_functions(net: Net) -> str:
    x = net.norm(net("HardSwish", net.conv("x", 10, 6)), 10)
    x = net.norm(net("Gelu", net.conv(x, 10, 10)), 10)
    return net("Add", x, net.conv(x, 10, 10))


def spatial_attention(net: Net) -> str:
    """CBAM: a gate of each pixel, from the mean and the maximum of its channels."""
    x = net("Relu", net.conv("x", 10, 6))
    both = net("Concat", *(net.reduce(f"Reduce{k}", x, 1) for k in ("Mean", "Max")), axis=1)
    gate = net("Sigmoid", net.conv(both, 1, 2, 7))
    return net.conv(net("Mul", x, gate), 4, 10)


def of_rows(kind: str, axis: int, keep: int) -> Callable[[Net], str]:
    def make(net: Net) -> str:
        x = net("Relu", net.dense("x", 12, 20))
        y = net.reduce(kind, x, axis, keep)
        if axis == 1:
            return net.dense(y, 20, 8)
        return net.dense(net("Transpose", y, perm=[0, 2, 1]) if keep else y, 9, 8)

    return make


def gated_rows(net: Net) -> str:
    x = net("Relu", net.dense("x", 12, 20))
    gate = net("Sigmoid", net.dense(x, 20, 1))
    return net.dense(net("Mul", x, gate), 20, 8)


CASES: dict[str, tuple[Callable[[Net], str], tuple[int, ...]]] = {
    "norms behind functions": (norms_behind_functions, IMAGE),
    "spatial attention": (spatial_attention, IMAGE),
    "gated rows": (gated_rows, ROWS),
    **{
        f"{kind} over axis {axis}, {'kept' if keep else 'dropped'}": (
            of_rows(kind, axis, keep), ROWS
        )
        for kind in ("ReduceMean", "ReduceMax") for axis in (1, 2) for keep in (0, 1)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_reduction_is_a_layer(name: str) -> None:
    make, shape = CASES[name]
    net = Net()
    proto = model(net.nodes, [value("x", np.float32, shape)], [make(net)], net.constants, 22)
    graph = import_onnx(proto.SerializeToString())
    drawn = np.random.default_rng(5).normal(0, 1, (13, *shape)).astype(np.float32)
    given = {"x": drawn[0]}
    (in_float,) = evaluate(graph, given).values()
    (reference,) = run_onnxruntime(proto, given).values()
    np.testing.assert_allclose(in_float, reference, atol=1e-5)
    (rewritten,) = evaluate(reductions_as_layers(graph), given).values()
    np.testing.assert_allclose(rewritten, in_float, atol=1e-5)
    assert_one_program(quantised(graph, {"x": drawn[1:]}, MACHINE), given, in_float)


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize(("shape", "axis"), [((1, 5, 7, 6), 1), ((2, 9, 12), 1), ((2, 9, 12), 2)])
def test_reductions_of_files_are_layers(kind: str, shape: tuple[int, ...], axis: int) -> None:
    """As TFLite's converter and others write GlobalMaxPooling1D, between integers."""
    net = Net()
    held = floats(0.05), np.array(3, np.int8)
    x = net("DequantizeLinear", net("QuantizeLinear", "x", *held), *held)
    y = net.reduce(kind, x, axis, 0)
    held = (floats(0.021), np.array(-7, np.int8)) if kind == "ReduceMean" else held
    y = net("DequantizeLinear", net("QuantizeLinear", y, *held), *held)
    proto = model(net.nodes, [value("x", np.float32, shape)], [y], net.constants, 22)
    graph = import_model(proto.SerializeToString())
    assert "reduce" not in [one.op for one in graph.nodes]
    given = {"x": floats(np.random.default_rng(6).normal(0, 2, shape))}
    (reference,) = run_onnxruntime(proto, given).values()
    module = compile_module(graph, MACHINE)
    (found,) = Session(module, open_device("sim", MACHINE)).run(given).outputs.values()
    assert len(module.segments) == 1
    np.testing.assert_allclose(found, reference, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0, 1e-5])
def test_statistics_of_norms_stay(epsilon: float) -> None:
    net = Net()
    x = net("Relu", net.dense("x", 12, 20))
    apart = net("Sub", x, net.reduce("ReduceMean", x, 2))
    variance = net.reduce("ReduceMean", net("Mul", apart, apart), 2)
    variance = net("Add", variance, floats(epsilon)) if epsilon else variance
    y = net("Div", apart, net("Sqrt", variance))
    proto = model(net.nodes, [value("x", np.float32, ROWS)], [y], net.constants, 22)
    graph = import_onnx(proto.SerializeToString())
    found = reductions_as_layers(graph)
    assert [one.op for one in found.nodes].count("reduce") == 2
