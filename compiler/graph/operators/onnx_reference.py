"""Rare operators, run by the reference implementation in the `onnx` package: correct but slow.

The importer finds their types with a run on zeros and keeps them as attributes, so a graph
describes itself completely. A result of any other type is an error. The `onnx` package is imported
only when such an operator runs.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from ....errors import CompileError
from ..operator import Operator, operator
from ..types import DTYPES, TensorType, Types

ReferenceAttribute = tuple[str, int | float | str | bytes | tuple[Any, ...]]
"""Name and value of an attribute; a tensor is stored as the bytes of its TensorProto."""


@operator("onnx_reference", 0, 100)
class OnnxReference(Operator):
    """ONNX operator `kind` of `domain` in version `version` of its operator set.

    Attributes
    ----------
    attributes : tuple of ReferenceAttribute
        Attributes of ONNX's operator, with defaults filled in.
    present : tuple of bool
        Whether each of ONNX's operands is given.
    results : tuple of (int, str, tuple of int)
        Position among ONNX's results, element type and shape of each output of the node.
    """

    domain: str
    kind: str
    version: int
    attributes: tuple[ReferenceAttribute, ...]
    present: tuple[bool, ...]
    results: tuple[tuple[int, str, tuple[int, ...]], ...]

    def result_type(self, types: Types) -> tuple[TensorType, ...]:
        count = sum(self.present)
        self.expect(len(types) == count, f"{count} inputs", types)
        return tuple(TensorType(dtype, shape) for _, dtype, shape in self.results)

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        found = self.run(*arrays)
        for got, (_, dtype, shape) in zip(found, self.results, strict=True):
            if (str(got.dtype), got.shape) != (dtype, shape):
                raise CompileError(
                    f"`{self.kind}`: expected {dtype}{list(shape)}, got {got.dtype}"
                    f"{list(got.shape)} from ONNX's reference; fix the inputs that its shape "
                    "depends on"
                )
        return found

    def run(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run the reference implementation and return its results without checking their types.

        Raises
        ------
        CompileError
            If the reference implementation fails.
        """
        if self.kind == "TensorScatter" and len(arrays) > len(("cache", "update")):
            self._check_places(*arrays)
        types = tuple((str(array.dtype), array.shape) for array in arrays)
        names = [f"x{i}" for i, given in enumerate(self.present) if given]
        given = dict(zip(names, arrays, strict=True))
        try:
            with np.errstate(all="ignore"):
                if self.kind == "DFT" and arrays[0].dtype in (np.float32, np.float64):
                    results = [_fourier(dict(self.attributes), *map(given.get, ("x0", "x1", "x2")))]
                else:
                    results = _evaluator(self, types).run(None, given)
        except Exception as error:  # third-party code may raise anything on bad operands
            detail = " ".join(f"{type(error).__name__}: {error}".split())
            raise CompileError(
                f"`{self.kind}`: expected operands that ONNX's reference computes with, got "
                f"`{detail[:200]}`; correct the operands"
            ) from error
        return tuple(np.asarray(result) for result in results)

    def _check_places(self, cache: np.ndarray, update: np.ndarray, places: np.ndarray) -> None:
        """Refuse places from which an update leaves a cache that is not circular."""
        attributes: dict[str, Any] = dict(self.attributes)
        axis, limit = attributes["axis"], cache.shape[attributes["axis"]]
        last = limit - update.shape[axis]
        wrong = places[(places < 0) | (places > last)]
        if wrong.size and attributes["mode"] == "linear":
            raise CompileError(
                f"`{self.kind}`: expected `write_indices` from 0 to {last} for "
                f"{update.shape[axis]} of {limit} places of the cache along axis {axis}, "
                f"got {wrong[0]}; correct the indices of this input"
            )

    def node(self) -> Any:
        """Return the `onnx.NodeProto`; operands are named `x0`, `x1`, results `y0`, `y1`."""
        import onnx

        results = {position for position, _, _ in self.results}
        node = onnx.helper.make_node(
            self.kind,
            [f"x{i}" if given else "" for i, given in enumerate(self.present)],
            [f"y{i}" if i in results else "" for i in range(max(results, default=0) + 1)],
            domain=self.domain,
        )
        for name, value in self.attributes:
            if isinstance(value, bytes):
                value = onnx.TensorProto.FromString(value)
            node.attribute.append(onnx.helper.make_attribute(name, value))
        return node


def _fourier(
    attributes: dict[str, Any],
    x: Any,
    extent: np.ndarray | None,
    position: np.ndarray | None,
) -> np.ndarray:
    """Return the DFT with the bits of ONNX's reference, which copies four times more."""
    inverse, half = (bool(attributes.get(name, 0)) for name in ("inverse", "onesided"))
    axis = int(attributes.get("axis", -2) if position is None else position) % x.ndim
    numbers = np.result_type(x.dtype, np.complex64)
    signal = x[..., 0]
    if x.shape[-1] > 1:
        signal = np.ascontiguousarray(x).view(numbers)[..., 0]
    size = 2 * (x.shape[axis] - 1) if inverse and half else x.shape[axis]
    size = size if extent is None else int(extent)
    if inverse and half:
        return np.fft.irfft(signal, size, axis)[..., None].astype(x.dtype, copy=False)
    found = (np.fft.ifft if inverse else np.fft.fft)(signal, size, axis)
    if half:
        found = found[(slice(None),) * axis + (slice(size // 2 + 1),)]
    found = np.ascontiguousarray(found, numbers)
    return found.view(x.dtype).reshape(*found.shape, 2)


@lru_cache(maxsize=256)
def _evaluator(operator: OnnxReference, types: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
    import onnx
    from onnx.reference import ReferenceEvaluator

    node, helper = operator.node(), onnx.helper
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype])), shape
        )
        for name, (dtype, shape) in zip(filter(None, node.input), types, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "onnx_reference", inputs, outputs)
    opset = [helper.make_opsetid(operator.domain, operator.version)]
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=opset))
