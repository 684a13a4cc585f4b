"""One ONNX node as the operator importers see it: operands, attributes, emitting.

Nodes whose operands are all constant are computed at once, except DequantizeLinear: that one keeps
weights as integers with a scale.
"""

from collections.abc import Sequence

import numpy as np

from ...errors import CompileError, ImportModelError
from ..graph import Quantisation, TensorType, evaluate_outputs
from ..graph import operators as ops
from ..graph.types import DTYPES, LARGEST_MADE_BYTES, check_size
from .onnx_operands import Operands


class OnnxNode(Operands):
    """A node being imported: what it reads, and what it becomes."""

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
        try:
            folded = None if isinstance(operator, ops.Dequantize) else self._fold(operator, inputs)
            if folded is not None:
                return builder.constant(folded[0], base)
            return builder.emit(operator, inputs, self.label, base, quantisation)
        except CompileError as error:
            raise ImportModelError(f"{self.where}: {error}") from error

    def binary(self, kind: str, a: str, b: str, name: str | None = None) -> str:
        """Emit an elementwise function of two values; see `emit`."""
        return self.emit(ops.Binary(kind), [a, b], name)

    def emit_outputs(
        self, operator: ops.Operator, inputs: Sequence[str], names: Sequence[str] = ()
    ) -> list[str]:
        """Emit an IR node of several outputs and return their values; see `emit`."""
        try:
            folded = self._fold(operator, inputs)
            if folded is not None:
                wished = names or [f"{self.label}.{i}" for i in range(len(folded))]
                return [self.builder.constant(*pair) for pair in zip(folded, wished, strict=True)]
            if not names:
                count = len(operator.infer([self.builder.types[name] for name in inputs]))
                given = (*self.proto.output, *("",) * count)
                names = [given[i] or f"{self.label}.{i}" for i in range(count)]
            return self.builder.emit_outputs(operator, inputs, self.label, names)
        except CompileError as error:
            raise ImportModelError(f"{self.where}: {error}") from error

    def _fold(self, operator: ops.Operator, inputs: Sequence[str]) -> tuple[np.ndarray, ...] | None:
        """Compute an operator whose inputs are all constant; None where one is not."""
        if not all(self.builder.is_constant(name) for name in inputs):
            return None
        kinds = operator.infer([self.builder.types[name] for name in inputs])
        for kind in kinds:
            check_size(kind, LARGEST_MADE_BYTES)
        return evaluate_outputs(operator, [self.builder.data(name) for name in inputs])

    def array(self, data: np.ndarray, name: str | None = None) -> str:
        """Add a constant, named after the node's output unless said otherwise."""
        data = np.asarray(data)
        self.expect_numbers(data)
        return self.builder.constant(data, name or self.proto.output[0])

    def expect_numbers(self, data: np.ndarray) -> None:
        """Refuse texts and other objects among what a node gives.

        Raises
        ------
        RefusedError
            If there are some.
        """
        if str(data.dtype) not in DTYPES:
            self.refuse("strings", f"elements of {data.dtype}", "use numbers")

    def number(self, value: float, dtype: str) -> str:
        """Add a scalar constant of an element type."""
        return self.builder.constant(np.array(value).astype(DTYPES[dtype]), f"{self.label}.number")

    def check(self, kind: TensorType, most: int = LARGEST_MADE_BYTES) -> None:
        """Refuse a tensor of more than `most` bytes before it is made.

        Raises
        ------
        ImportModelError
            If it is.
        """
        try:
            check_size(kind, most)
        except CompileError as error:
            raise ImportModelError(f"{self.where}: {error}") from error

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
