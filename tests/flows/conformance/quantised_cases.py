"""ONNX's tests of float operators in quantised form: int8 around the operator, as quantisers do."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase

from tilewright.flows.conformance.cases import arrays_of

WEIGHTED = ("Conv", "Gemm")
"""Operators whose second operand is weights."""

SYMMETRIC = ("MatMul", "LinearAttention")
"""Operators that multiply activations, which then have no zero points."""

ALIKE = ("Add", "Sub", "Mul", "MatMul", "Concat", "Max", "Min", "Sum", "Mean")
"""Operators all of whose operands are activations; of others, the first one is."""


@dataclass
class QuantisedCase:
    """A model in QDQ form.

    Attributes
    ----------
    model : bytes
        int8 activations between a QuantizeLinear and a DequantizeLinear, int8 weights.
    inputs : dict
        The case's.
    fixed : dict
        Those that are no activations.
    steps : list of float
        Of the outputs' quantisation, in the model's order.
    """

    model: bytes
    inputs: dict[str, np.ndarray]
    fixed: dict[str, np.ndarray]
    steps: list[float]


class _Rewriter:
    """Puts QDQ pairs around the only node of a model."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(proto)
        (self.node,) = self.model.graph.node
        self.before: list[onnx.NodeProto] = []
        self.after: list[onnx.NodeProto] = []

    def hold(self, name: str, array: np.ndarray | np.generic) -> str:
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, name: str, array: np.ndarray) -> str:
        step = step_of(array)
        integers = self.hold(f"{name}.integers", np.rint(array / step).astype(np.int8))
        scale = self.hold(f"{name}.scale", step)
        self.before.append(helper.make_node("DequantizeLinear", [integers, scale], [f"{name}.w"]))
        return f"{name}.w"

    def pair(self, nodes: list, name: str, result: str, step: np.float32, zero: int) -> None:
        """Append `name` -> `result`, rounded."""
        scale = self.hold(f"{result}.scale", step)
        parameters = [scale, self.hold(f"{result}.zero", np.int8(zero))]
        middle = f"{result}.integers"
        nodes.append(helper.make_node("QuantizeLinear", [name, *parameters], [middle]))
        nodes.append(helper.make_node("DequantizeLinear", [middle, *parameters], [result]))

    def finished(self) -> bytes:
        graph = self.model.graph
        nodes = [*self.before, self.node, *self.after]
        del graph.node[:]
        graph.node.extend(nodes)
        for entry in self.model.opset_import:
            if not entry.domain:
                entry.version = max(entry.version, 13)
        return self.model.SerializeToString()


def step_of(array: np.ndarray) -> np.float32:
    """The scale at which an array fits int8."""
    return np.float32(max(np.abs(array).max(initial=0), 1e-3) / 127)


def quantised_case(case: TestCase) -> QuantisedCase:
    """Put a case of one operator into QDQ form; its float32 activations and results are rounded."""
    inputs, expected = arrays_of(case)
    assert case.model is not None, "node tests carry their models"
    rewriter, fixed = _Rewriter(case.model), dict(inputs)
    node = rewriter.node
    for place, name in enumerate(node.input):
        if name not in inputs or inputs[name].dtype != np.float32:
            continue
        if node.op_type in WEIGHTED and place == 1:
            node.input[place] = rewriter.weights(name, inputs[name])
        elif place == 0 or node.op_type in ALIKE:
            zero = 0 if node.op_type in SYMMETRIC else -3
            rewriter.pair(rewriter.before, name, f"{name}.{place}", step_of(inputs[name]), zero)
            node.input[place] = f"{name}.{place}"
            fixed.pop(name, None)
    steps = []
    for place, name in enumerate(node.output):
        shown = [output.name for output in rewriter.model.graph.output]
        if name not in shown:
            continue
        step = step_of(expected[shown.index(name)])
        node.output[place] = f"{name}.exact"
        rewriter.pair(rewriter.after, f"{name}.exact", name, step, 5)
        steps.append(float(step))
    return QuantisedCase(rewriter.finished(), inputs, fixed, steps)
