"""ONNX models that grow node by node, as exporters write them: shapes are computed in the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.graph import Graph
from tilewright.compiler.host import MIN_WORK
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Session, open_device

KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}

Part = str | int
"""Of a shape: a value of the graph, int64[1], or a number."""


class Builder:
    """Nodes and constants; each method appends some and returns the name of the result.

    Parameters
    ----------
    seed
        Of the weights.
    """

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, np.ndarray] = {}

    def add(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """Append a node; the names of its results, as a tuple where there are several."""
        name = f"{kind}_{len(self.nodes)}"
        names = [name] if results == 1 else [f"{name}.{index}" for index in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        return names[0] if results == 1 else tuple(names)

    def hold(self, data: Any, dtype: str = "float32") -> str:
        """Keep a constant."""
        name = f"constant_{len(self.held)}"
        self.held[name] = np.asarray(data, dtype=dtype)
        return name

    def whole(self, *numbers: int) -> str:
        """Keep whole numbers, int64[count]."""
        return self.hold(numbers, "int64")

    def draw(self, *shape: int, spread: float = 1.0) -> str:
        """Draw weights whose last extent is summed over, so that they keep the mean square."""
        return self.hold(self.random.normal(0, spread * shape[-1] ** -0.5, shape))

    def extent(self, x: str, axis: int) -> str:
        """An extent as int64[1]: Shape, Gather, Unsqueeze, as tracing exporters write `x.size`."""
        picked = self.add("Gather", self.add("Shape", x), self.hold(axis, "int64"), axis=0)
        return self.add("Unsqueeze", picked, self.whole(0))

    def shape(self, *parts: Part) -> str:
        """A shape of extents and numbers: Concat."""
        listed = [part if isinstance(part, str) else self.whole(part) for part in parts]
        return self.add("Concat", *listed, axis=0)

    def reshape(self, x: str, *parts: Part) -> str:
        """Reshape by a shape computed in the graph."""
        return self.add("Reshape", x, self.shape(*parts))

    def scalar(self, extent: str) -> str:
        """An extent without its axis."""
        return self.add("Squeeze", extent, self.whole(0))

    def model(
        self,
        inputs: Mapping[str, tuple[str, Sequence[int | str]]],
        outputs: Sequence[str],
        opset: int = 17,
    ) -> bytes:
        """The file; an input is a type and a shape, of numbers and names of open dimensions."""
        taken = [
            helper.make_tensor_value_info(name, KINDS[dtype], shape)
            for name, (dtype, shape) in inputs.items()
        ]
        shown = [onnx.ValueInfoProto(name=name) for name in outputs]
        held = [numpy_helper.from_array(data, name) for name, data in self.held.items()]
        graph = helper.make_graph(self.nodes, "network", taken, shown, held)
        opsets = [helper.make_opsetid("", opset)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return made.SerializeToString()


def run_on_sim(
    graph: Graph, inputs: Mapping[str, np.ndarray], least_work: int | None = MIN_WORK
) -> list[np.ndarray]:
    """The outputs of a compiled network; its accelerator layers run on `sim`.

    Its host layers run as kernels; without `least_work`, in NumPy, which defines their bits.
    """
    with open_device("sim", DEFAULT) as device:
        session = Session(compile_module(graph, DEFAULT), device, least_work=least_work)
        return list(session.run(inputs).outputs.values())
