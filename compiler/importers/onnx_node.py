"""One ONNX node during import: its operands, and the operators that replace it.

If all operands of a node are constant, its result is computed at once. DequantizeLinear is the
exception: it keeps weights as integers with a scale.
"""

import copy
from collections import ChainMap
from collections.abc import Sequence

import numpy as np
import onnx

from ...errors import CompileError, ImportModelError
from ..graph import TensorType, evaluate_outputs
from ..graph import operators as ops
from ..graph.types import DTYPES, FLOATS, HALVES, MAX_MADE_BYTES, check_size
from .onnx_blocks import channel_scales
from .onnx_reader import NodeReader
from .onnx_scope import Named
from .onnx_tensors import ELEMENT_TYPES, ONNX_TYPES


class OnnxNode(NodeReader):
    """A node during import; operators emitted for it take its name, and by default its result's."""

    def as_operator(self, kind: str, *operands: str | None) -> "OnnxNode":
        """Return this node as ONNX's operator `kind` with values of the graph as operands."""
        proto = onnx.NodeProto()
        proto.CopyFrom(self.proto)
        names = ["" if value is None else f"operand {i}" for i, value in enumerate(operands)]
        proto.op_type, proto.domain, proto.input[:] = kind, "", names
        other = copy.copy(self)
        other.proto = proto
        known: dict[str, Named] = {
            name: x for name, x in zip(names, operands, strict=True) if x is not None
        }
        other.names = ChainMap(known, self.names)
        return other

    def emit(self, operator: ops.Operator, inputs: Sequence[str], name: str | None = None) -> str:
        """Emit an operator, or a constant if all inputs are constant; return the value's name."""
        return self.emit_outputs(operator, inputs, [name or self.result])[0]

    def emit_outputs(
        self, operator: ops.Operator, inputs: Sequence[str], names: Sequence[str] = ()
    ) -> list[str]:
        """Emit an operator with several outputs and return their values; see `emit`."""
        try:
            folded = self._fold(operator, inputs)
            if folded is not None:
                requested = names or [f"{self.label}.{i}" for i in range(len(folded))]
                return [
                    self.builder.constant(*pair) for pair in zip(folded, requested, strict=True)
                ]
            if not names:
                count = len(operator.infer([self.builder.types[name] for name in inputs]))
                given = (*self.proto.output, *("",) * count)
                names = [given[i] or f"{self.label}.{i}" for i in range(count)]
            return self.builder.emit_outputs(operator, inputs, self.label, names)
        except CompileError as error:
            raise ImportModelError(f"{self.where}: {error}") from error

    def _fold(self, operator: ops.Operator, inputs: Sequence[str]) -> tuple[np.ndarray, ...] | None:
        """Compute an operator whose inputs are all constant; None if one is not."""
        constant = all(self.builder.is_constant(name) for name in inputs)
        if not constant or isinstance(operator, ops.Dequantize):
            return None
        for kind in operator.infer([self.builder.types[name] for name in inputs]):
            check_size(kind, MAX_MADE_BYTES)
        return evaluate_outputs(operator, [self.builder.data(name) for name in inputs])

    def unary(self, kind: str, x: str, name: str | None = None) -> str:
        """Emit an elementwise function of a value; see `emit`."""
        return self.emit(ops.Unary(kind), [x], name)

    def binary(self, kind: str, a: str, b: str, name: str | None = None) -> str:
        """Emit an elementwise function of two values; see `emit`."""
        return self.emit(ops.Binary(kind), [a, b], name)

    def reshape(self, x: str, shape: Sequence[int], name: str | None = None) -> str:
        """Emit a value with another shape; see `emit`."""
        return self.emit(ops.Reshape(tuple(shape)), [x], name)

    def transpose(self, x: str, order: Sequence[int], name: str | None = None) -> str:
        """Emit a value with its axes permuted; see `emit`."""
        return self.emit(ops.Transpose(tuple(order)), [x], name)

    def cast(self, x: str, dtype: str, name: str | None = None) -> str:
        """Emit a conversion of a value to `dtype`; return the value itself if it has that type."""
        if self.builder.types[x].dtype == dtype:
            return x
        return self.emit(ops.Cast(dtype), [x], name)

    def take(self, x: str, axis: int, indices: np.ndarray, name: str | None = None) -> str:
        """Emit the elements at known indices along an axis; see `emit`."""
        constant = self.builder.constant(indices.astype(np.int64), f"{name or self.result}.indices")
        return self.emit(ops.Gather(axis), [x, constant], name)

    def part(self, x: str, axis: int, start: int, stop: int, name: str | None = None) -> str:
        """Emit the elements from `start` to `stop` along an axis; see `emit`."""
        shape = self.builder.types[x].shape
        starts = tuple(start if i == axis else 0 for i in range(len(shape)))
        stops = tuple(stop if i == axis else size for i, size in enumerate(shape))
        return self.emit(ops.Slice(starts, stops, (1,) * len(shape)), [x], name)

    def array(self, data: np.ndarray, name: str | None = None) -> str:
        """Add a constant, by default named after the node's output."""
        data = np.asarray(data)
        self.expect_numbers(data)
        return self.builder.constant(data, name or self.result)

    def expect_numbers(self, data: np.ndarray) -> None:
        """Reject results that contain strings or other objects.

        Raises
        ------
        RefusedError
            If there are any.
        """
        if str(data.dtype) not in DTYPES:
            self.refuse("strings", f"elements of {data.dtype}", "use numbers")

    def number(self, value: float, dtype: str) -> str:
        """Add a scalar constant of type `dtype`."""
        return self.builder.constant(np.array(value).astype(DTYPES[dtype]), f"{self.label}.number")

    def check(self, kind: TensorType, most: int = MAX_MADE_BYTES) -> None:
        """Reject a tensor of more than `most` bytes before it is computed.

        Raises
        ------
        ImportModelError
            If the tensor is larger.
        """
        try:
            check_size(kind, most)
        except CompileError as error:
            raise ImportModelError(f"{self.where}: {error}") from error

    def quantised(
        self, x: str, scale: np.ndarray, zero_point: np.ndarray | None, axis: int
    ) -> tuple[tuple[float, ...], tuple[int, ...], int | None]:
        """Check a scale and a zero point; return (scales, zero points, axis or None)."""
        shape = self.builder.types[x].shape
        values = np.asarray(scale)
        if str(values.dtype) in HALVES:
            values = values.astype(np.float32)
        if values.dtype != np.float32 or values.size > max(values.shape, default=1):
            self.fail(
                "a float32 scale, one or one for each channel",
                f"{values.dtype}{list(values.shape)}",
                "quantise per tensor or per channel",
            )
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            worst = values.ravel()[np.flatnonzero(bad.ravel())[0]]
            advice = "quantise the model again with calibration data that reaches this tensor"
            if np.isinf(worst):
                advice = (
                    "the tensor holds infinities, as masks do: leave it in float, or give the "
                    "float model to `tilewright quantise`"
                )
            self.fail("positive, finite scales", f"`{worst}`", advice)
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

    def has_plain_scale(self, scale: int, dtype: str) -> bool:
        """Tell whether Quantize and Dequantize accept the scale and the zero point that follows it.

        Both must be known and not blocked. The scale must be float32, or a half, which is widened,
        and `dtype` supported.
        """
        if not self.has(scale):
            return True  # `constant` reports the missing scale
        parameters = [scale, scale + 1] if self.has(scale + 1) else [scale]
        known = all(self.known(self.input(index)) is not None for index in parameters)
        plain = dtype in ("float32", *HALVES, "int8", "uint8", "int32")
        requested = self.attribute("output_dtype", 0)
        usual = requested in (0, *(ONNX_TYPES[name] for name in ("int8", "uint8", "float32")))
        plain = plain and self.type(scale).dtype in ("float32", *HALVES)
        return known and plain and usual and not self.attribute("block_size", 0)

    def dequantize(self, index: int, axis: int = 1, general: bool = False) -> str:
        """Emit a Dequantize of input `index`; its scale and zero point are the next two inputs."""
        x, scale, zero_point = self.input(index), index + 1, index + 2
        name = f"{self.result}.{self.proto.input[scale]}"
        if general:
            plain = self._by_channel(x, scale, axis)
            if plain is not None:
                return plain
            requested = ELEMENT_TYPES.get(self.attribute("output_dtype", 0), self.type(scale).dtype)
            dtype = requested if requested in FLOATS else "float32"
            operator = ops.GeneralDequantize(*self._along(x, scale, axis), dtype)
            return self.emit(operator, self._with_scale(x, scale), name)
        zeros = self.constant(zero_point) if self.has(zero_point) else None
        kind = self.builder.types[x].dtype
        if kind not in ("int8", "uint8", "int32"):
            self.fail("int8, uint8 or int32 to dequantise", kind, "quantise to 8 bits")
        scales = self.constant(scale)
        if self.builder.is_constant(x) and str(scales.dtype) in ("float32", *HALVES):
            x, scales, zeros = self._positive(x, scales, zeros, axis)
        return self.emit(ops.Dequantize(*self.quantised(x, scales, zeros, axis)), [x], name)

    def _positive(
        self, x: str, scales: np.ndarray, zeros: np.ndarray | None, axis: int
    ) -> tuple[str, np.ndarray, np.ndarray | None]:
        """Turn the negative scales of a constant, as NNCF's, into positive ones, exactly.

        The complements of an integer and of its zero point have the opposite difference.
        """
        data, negative = self.builder.data(x), np.isfinite(scales) & (scales < 0)
        axis = self.normalise(axis, data.ndim) if scales.size > 1 else 0
        if not negative.any() or (scales.size > 1 and scales.size != data.shape[axis]):
            return x, scales, zeros
        points = np.zeros(scales.shape, data.dtype) if zeros is None else zeros
        along = [-1 if scales.size > 1 and i == axis else 1 for i in range(data.ndim)]
        turned = np.where(negative.reshape(along), ~data, data)
        points = np.where(negative.reshape(points.shape), ~points, points)
        return self.builder.constant(turned, f"{x}.turned"), np.abs(scales), points

    def quantize(
        self, x: str, scale: int, axis: int = 1, dtype: str = "uint8", general: bool = False
    ) -> str:
        """Emit a Quantize of value `x`; input `scale` is the scale, and the zero point follows.

        Without a zero point, the element type is `dtype`.
        """
        zero_point = scale + 1
        if general:
            operator = ops.GeneralQuantize(
                *self._along(x, scale, axis),
                self.type(zero_point).dtype if self.has(zero_point) else dtype,
                bool(self.attribute("saturate", 1)),
                ELEMENT_TYPES.get(self.attribute("precision", 0), ""),
            )
            return self.emit(operator, self._with_scale(x, scale))
        zeros = self.constant(zero_point) if self.has(zero_point) else None
        dtype = dtype if zeros is None else str(zeros.dtype)
        if dtype not in ("int8", "uint8"):
            self.fail("int8 or uint8 to quantise to", dtype, "quantise to 8 bits")
        scales, points, along = self.quantised(x, self.constant(scale), zeros, axis)
        return self.emit(ops.Quantize(scales, points, dtype, along), [x])

    def _along(self, x: str, scale: int, axis: int) -> tuple[int, int]:
        """Return the axis and the block size of a general quantisation."""
        rank = len(self.builder.types[x].shape)
        along = self.normalise(axis, rank) if self.type(scale).elements > 1 else 0
        return along, self.attribute("block_size", 0)

    def _by_channel(self, x: str, scale: int, axis: int) -> str | None:
        """Emit constants with scales of blocks as a Dequantize; None if channels have no scales."""
        along, block = self._along(x, scale, axis)
        known = [self.known(name) for name in self._with_scale(x, scale)]
        arrays = [each for each in known if each is not None]
        if not block or len(arrays) < len(known):
            return None
        found = channel_scales(*arrays, axis=along, block=block)
        if found is None:
            return None
        whole, scaling = found
        return self.emit(scaling, [self.builder.constant(whole, f"{self.result}.whole")])

    def _with_scale(self, x: str, scale: int) -> list[str]:
        given = [scale, scale + 1] if self.has(scale + 1) else [scale]
        return [x, *map(self.input, given)]
