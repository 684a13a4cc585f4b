"""Small QDQ graphs in ONNX Runtime, not optimised: what integer meanings are compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...bench.onnxruntime_peer import peer_session

OPSET = 20


@dataclass(frozen=True, slots=True)
class Int8Tensor:
    """A quantised tensor."""

    data: np.ndarray
    scale: float
    zero_point: int

    @classmethod
    def of(cls, values: np.ndarray, zero_point: int = 0, scale: float | None = None):
        """Round float values; the largest magnitude sets the scale unless one is given."""
        if scale is None:
            scale = float(np.abs(values).max()) / (127 - abs(zero_point))
        rounded = np.rint(values / np.float32(scale)) + zero_point
        return cls(np.clip(rounded, -128, 127).astype(np.int8), scale, zero_point)

    @property
    def floats(self) -> np.ndarray:
        """Float values, as DequantizeLinear gives them."""
        return (self.data.astype(np.float32) - self.zero_point) * np.float32(self.scale)


def run_float(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Any] | None = None,
) -> list[np.ndarray]:
    """Run nodes on float inputs and constants."""
    held = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    kinds = {np.dtype(np.int8): onnx.TensorProto.INT8, np.dtype(np.float32): onnx.TensorProto.FLOAT}
    given = [
        helper.make_tensor_value_info(name, kinds[array.dtype], array.shape)
        for name, array in inputs.items()
    ]
    shown = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "meaning", given, shown, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    session = peer_session(model.SerializeToString(), 1, optimised=False)
    return [np.asarray(array) for array in session.run(list(outputs), dict(inputs))]


def run_qdq(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Int8Tensor],
    y: tuple[float, int],
    constants: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Run nodes between DequantizeLinear of each input and QuantizeLinear of `y`.

    Parameters
    ----------
    y
        Scale and zero point of the result.
    """
    held = dict(constants or {})
    before = []
    for name, tensor in inputs.items():
        held[f"{name}.scale"] = np.float32(tensor.scale)
        held[f"{name}.zero"] = np.int8(tensor.zero_point)
        operands = [f"{name}.int8", f"{name}.scale", f"{name}.zero"]
        before.append(helper.make_node("DequantizeLinear", operands, [name]))
    held["y.scale"], held["y.zero"] = np.float32(y[0]), np.int8(y[1])
    after = helper.make_node("QuantizeLinear", ["y", "y.scale", "y.zero"], ["y.int8"])
    given = {f"{name}.int8": tensor.data for name, tensor in inputs.items()}
    (result,) = run_float([*before, *nodes, after], given, ["y.int8"], held)
    return result
