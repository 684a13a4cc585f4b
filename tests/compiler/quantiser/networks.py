"""Small float networks with random weights, as ONNX and as graphs, and inputs for them."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.importers import import_onnx


class Net:
    """An ONNX model that grows node by node; each call returns the name of the result."""

    def __init__(self, *shape: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, np.ndarray] = {}

    def constant(self, data: Any) -> str:
        name = f"c{len(self.held)}"
        self.held[name] = np.asarray(data, dtype=np.float32)
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def conv(self, x: str, channels: int, depth: int, kernel: int = 3, **attributes: Any) -> str:
        groups = attributes.get("group", 1)
        shape = (channels, depth // groups, kernel, kernel)
        spread = 1 / np.sqrt(np.prod(shape[1:]))
        w = self.constant(self.random.standard_normal(shape) * spread)
        b = self.constant(self.random.standard_normal(channels) * 0.1)
        return self.node("Conv", x, w, b, pads=[kernel // 2] * 4, **attributes)

    def normalised(self, x: str, channels: int) -> str:
        gamma, beta, mean = (self.random.standard_normal(channels) for _ in range(3))
        variance = self.random.uniform(0.5, 2, channels)
        names = [self.constant(values) for values in (1 + 0.2 * gamma, beta, mean, variance)]
        return self.node("BatchNormalization", x, *names)

    def dense(self, x: str, depth: int, channels: int) -> str:
        w = self.constant(self.random.standard_normal((depth, channels)) / np.sqrt(depth))
        b = self.constant(self.random.standard_normal(channels) * 0.1)
        return self.node("Gemm", x, w, b)

    def dense_rows(self, x: str, depth: int, channels: int) -> str:
        w = self.constant(self.random.standard_normal((depth, channels)) / np.sqrt(depth))
        bias = self.constant(self.random.standard_normal(channels) * 0.1)
        return self.node("Add", self.node("MatMul", x, w), bias)

    def model(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shape])],
            [onnx.ValueInfoProto(name=output)],
            [numpy_helper.from_array(data, name) for name, data in self.held.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def graph(self, output: str) -> Graph:
        return import_onnx(self.model(output).SerializeToString())

    def inputs(self, count: int, seed: int = 1) -> dict[str, np.ndarray]:
        """Samples: smooth images for three dimensions, rows else."""
        random = np.random.default_rng(seed)
        values = random.standard_normal((count, 1, *self.shape))
        return {"x": values.astype(np.float32)}


def small_network(seed: int = 0) -> tuple[Net, str]:
    """Batch normalisation, a residual add, a pool and a softmax: what most networks have."""
    net = Net(3, 12, 12, seed=seed)
    x = net.node("Relu", net.normalised(net.conv("x", 8, 3), 8))
    y = net.node("Relu", net.normalised(net.conv(x, 8, 8, group=8), 8))
    y = net.normalised(net.conv(y, 8, 8, kernel=1), 8)
    x = net.node("Relu", net.node("Add", y, x))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return net, net.node("Softmax", net.dense(x, 8, 5))


def attention_network() -> tuple[Net, str]:
    """Two heads of attention over six tokens, with a residual sum."""
    net = Net(6, 16)

    def dense(x: str) -> str:
        w = net.constant(net.random.standard_normal((16, 16)) / 4)
        return net.node("Add", net.node("MatMul", x, w), net.constant(net.random.normal(0, 1, 16)))

    def heads(x: str, *order: int) -> str:
        net.held["heads"] = np.array([1, 6, 2, 8])
        return net.node("Transpose", net.node("Reshape", dense(x), "heads"), perm=order)

    scores = net.node("MatMul", heads("x", 0, 2, 1, 3), heads("x", 0, 2, 3, 1))
    shares = net.node("Softmax", net.node("Div", scores, net.constant(8**0.5)), axis=-1)
    context = net.node("MatMul", shares, heads("x", 0, 2, 1, 3))
    net.held["tokens"] = np.array([1, 6, 16])
    joined = net.node("Reshape", net.node("Transpose", context, perm=[0, 2, 1, 3]), "tokens")
    return net, dense(net.node("Add", dense(joined), "x"))


def output_of(graph: Graph, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The first output for each sample, one at a time."""
    count = len(next(iter(inputs.values())))
    singles = ({name: array[i] for name, array in inputs.items()} for i in range(count))
    return np.concatenate([next(iter(evaluate(graph, each).values())) for each in singles])
