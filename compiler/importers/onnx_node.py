"""One ONNX node as the operator importers see it: operands, attributes, emitting, complaining.

Nodes whose operands are all constant are computed at once, except DequantizeLinear: that one keeps
weights as integers with a scale.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import onnx

from ...errors import CompileError, ImportModelError
from ..graph import Builder, Quantisation, TensorType, evaluate_operator
from ..graph import operators as ops


def printable(text: str) -> str:
    """Return a text on one line: control characters, which a file may name things by, escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class OnnxNode:
    """A node being imported.

    Parameters
    ----------
    builder : Builder
        Receives the IR nodes.
    proto : onnx.NodeProto
        The node.
    opset : int
        Version of ONNX's own operator set.
    names : dict
        ONNX name -> name in the graph; the importer's, read only here.
    model : str
        For messages.
    """

    def __init__(
        self, builder: Builder, proto: onnx.NodeProto, opset: int, names: dict[str, str], model: str
    ) -> None:
        self.builder = builder
        self.proto = proto
        self.opset = opset
        self.names = names
        self.label = printable(proto.name or next(iter(proto.output), "") or proto.op_type)
        self.where = f"model `{model}`: node `{self.label}` ({proto.op_type})"
        self.attributes = {a.name: a for a in proto.attribute}
        if not any(proto.output):
            self.fail("an output", "none", "export the model again")

    def fail(self, expected: str, got: str, action: str) -> NoReturn:
        """Raise the import error of this node.

        Raises
        ------
        ImportModelError
            Always.
        """
        raise ImportModelError(f"{self.where}: expected {expected}, got {got}; {action}")

    def has(self, index: int) -> bool:
        """Tell whether an (optional) input is given."""
        return index < len(self.proto.input) and self.proto.input[index] != ""

    def input(self, index: int) -> str:
        """Return the graph's name of a required input."""
        if not self.has(index):
            self.fail(f"an input {index}", f"{len(self.proto.input)} inputs", "export it again")
        name = self.proto.input[index]
        if name not in self.names:
            self.fail(
                f"input `{name}` to be an initialiser, a model input or an earlier node's output",
                "none of them",
                "add the missing initialiser or export the model again",
            )
        return self.names[name]

    def inputs(self) -> list[str]:
        """Return the graph's names of all inputs."""
        return [self.input(index) for index in range(len(self.proto.input))]

    def type(self, index: int) -> TensorType:
        """Return the type of an input."""
        return self.builder.types[self.input(index)]

    def rank(self, index: int) -> int:
        """Return the rank of an input."""
        return len(self.type(index).shape)

    def constant(self, index: int) -> np.ndarray:
        """Return the array of an input that must be known at import."""
        name = self.input(index)
        if not self.builder.is_constant(name):
            self.fail(
                f"input {index} (`{self.proto.input[index]}`) to be a constant",
                "a value computed at run time",
                "export the model with static shapes and parameters",
            )
        return self.builder.data(name)

    def integers(self, index: int) -> tuple[int, ...]:
        """Return a constant input as integers."""
        return tuple(int(value) for value in self.constant(index).ravel())

    def scalar(self, index: int, default: float) -> float:
        """Return a constant input of one element, or the default where it is not given."""
        if not self.has(index):
            return default
        array = self.constant(index)
        if array.size != 1:
            self.fail(f"input {index} of one element", f"{array.size}", "make it a scalar")
        return float(array.ravel()[0])

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute: of the default's type, lists as tuples, texts decoded."""
        if name not in self.attributes:
            return default
        try:
            value = onnx.helper.get_attribute_value(self.attributes[name])
        except ValueError:
            self.fail(f"attribute `{name}` of a known type", "another", "export the model again")
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = tuple(value)
        kind = float if isinstance(default, float) else type(default)
        if default is not None and not isinstance(value, kind):
            self.fail(
                f"attribute `{name}` of type {kind.__name__}",
                f"{type(value).__name__}",
                "export the model again",
            )
        return value

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """Return an axis attribute counted from the front."""
        return self.normalise(self.attribute(name, default), rank)

    def normalise(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < max(rank, 1):
            self.fail(f"an axis of a tensor of rank {rank}", f"`{axis}`", "correct the axis")
        return axis % max(rank, 1)

    def emit(
        self,
        operator: ops.Operator,
        inputs: Sequence[str],
        name: str | None = None,
        quantisation: Quantisation | None = None,
    ) -> str:
        """Emit an IR node, or a constant where all its inputs are; return the value's name."""
        builder = self.builder
        base = name or self.proto.output[0]
        foldable = all(builder.is_constant(i) for i in inputs)
        try:
            if foldable and not isinstance(operator, ops.Dequantize):
                result = evaluate_operator(operator, [builder.data(i) for i in inputs])
                return builder.constant(result, base)
            return builder.emit(operator, inputs, self.label, base, quantisation)
        except CompileError as error:
            raise ImportModelError(f"{self.where}: {error}") from error
        except (ValueError, IndexError, MemoryError, OverflowError) as error:
            detail = " ".join(str(error).split())
            self.fail("operands that fit together", f"`{detail}`", "export the model again")

    def quantised(
        self, x: str, scale: np.ndarray, zero_point: np.ndarray | None, axis: int
    ) -> tuple[tuple[float, ...], tuple[int, ...], int | None]:
        """Check a scale and zero point and return them as (scales, zero points, axis or None)."""
        shape = self.builder.types[x].shape
        values = np.asarray(scale)
        if values.dtype != np.float32 or values.ndim > 1:
            self.fail(
                "a float32 scale, one or one for each channel",
                f"{values.dtype}{list(values.shape)}",
                "quantise per tensor or per channel",
            )
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            self.fail(
                "positive, finite scales",
                f"`{values.ravel()[np.flatnonzero(bad.ravel())[0]]}`",
                "quantise the model again with calibration data that reaches this tensor",
            )
        zeros = np.zeros(values.shape, np.int64) if zero_point is None else zero_point
        if zeros.size != values.size:
            self.fail(f"{values.size} zero points", f"{zeros.size}", "give one for each scale")
        scales = tuple(float(value) for value in values.ravel())
        points = tuple(int(value) for value in zeros.ravel())
        if values.size == 1:
            return scales, points, None
        axis = self.normalise(axis, len(shape))
        if values.size != shape[axis]:
            self.fail(
                f"{shape[axis]} scales (axis {axis})", f"{values.size}", "give one for each channel"
            )
        return scales, points, axis

    def dequantize(self, x: str, scale: int, zero_point: int, axis: int = 1) -> str:
        """Emit a Dequantize of value `x` with inputs number `scale` and `zero_point`."""
        zeros = self.constant(zero_point) if self.has(zero_point) else None
        kind = self.builder.types[x].dtype
        if kind not in ("int8", "uint8", "int32"):
            self.fail("int8, uint8 or int32 to dequantise", kind, "quantise to 8 bits")
        parameters = self.quantised(x, self.constant(scale), zeros, axis)
        base = f"{self.proto.output[0]}.{self.proto.input[scale]}"
        return self.emit(ops.Dequantize(*parameters), [x], base)

    def quantize(self, x: str, scale: int, zero_point: int, axis: int = 1) -> str:
        """Emit a Quantize of value `x` with inputs number `scale` and `zero_point`."""
        zeros = self.constant(zero_point) if self.has(zero_point) else None
        dtype = "uint8" if zeros is None else str(zeros.dtype)
        if dtype not in ("int8", "uint8"):
            self.fail("int8 or uint8 to quantise to", dtype, "quantise to 8 bits")
        scales, points, along = self.quantised(x, self.constant(scale), zeros, axis)
        return self.emit(ops.Quantize(scales, points, dtype, along), [x])
