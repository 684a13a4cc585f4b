"""Rare operators, run by the reference implementation that comes with `onnx`: slow and correct.

Their types are worked out at import by ONNX's own shape inference and kept as attributes, so that
a graph says everything about itself; a result of any other type is refused.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import onnx

from ...errors import CompileError
from .ir import DTYPES, TensorType
from .operator import Operator
from .rules import Definition, Types, expect

Attribute = tuple[str, int | float | str | bytes | tuple[Any, ...]]
"""Name and value; a tensor is the bytes of its TensorProto."""


@dataclass(frozen=True, slots=True)
class Library(Operator):
    """ONNX operator `kind` of `domain` as of operator set `version`.

    Attributes
    ----------
    attributes : tuple of Attribute
        As the model gives them.
    present : tuple of bool
        For each of ONNX's operands, whether it is given.
    results : tuple of (int, str, tuple of int)
        Which of ONNX's results the node has, with their element types and shapes.
    """

    op: ClassVar[str] = "library"
    domain: str
    kind: str
    version: int
    attributes: tuple[Attribute, ...]
    present: tuple[bool, ...]
    results: tuple[tuple[int, str, tuple[int, ...]], ...]


def onnx_node(operator: Library) -> onnx.NodeProto:
    """Return the ONNX node; operands are named `x0`, `x1`, results `y0`, `y1`."""
    results = {position for position, _, _ in operator.results}
    count = max(results, default=0) + 1
    node = onnx.helper.make_node(
        operator.kind,
        [f"x{i}" if given else "" for i, given in enumerate(operator.present)],
        [f"y{i}" if i in results else "" for i in range(count)],
        domain=operator.domain,
    )
    for name, value in operator.attributes:
        if isinstance(value, bytes):
            value = onnx.TensorProto.FromString(value)
        node.attribute.append(onnx.helper.make_attribute(name, value))
    return node


def _types(operator: Library, types: Types) -> tuple[TensorType, ...]:
    expect(len(types) == sum(operator.present), operator, f"{sum(operator.present)} inputs", types)
    return tuple(TensorType(dtype, shape) for _, dtype, shape in operator.results)


@lru_cache(maxsize=256)
def _evaluator(operator: Library, types: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
    from onnx.reference import ReferenceEvaluator  # takes a while, and few networks need it

    node = onnx_node(operator)
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype])), shape
        )
        for name, (dtype, shape) in zip(filter(None, node.input), types, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "library", inputs, outputs)
    opset = [onnx.helper.make_opsetid(operator.domain, operator.version)]
    return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opset))


def run_library(operator: Library, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run the reference implementation.

    Raises
    ------
    CompileError
        If it fails, or gives something else than the operator's types say.
    """
    found = run_reference(operator, *arrays)
    for got, (_, dtype, shape) in zip(found, operator.results, strict=True):
        if (str(got.dtype), got.shape) != (dtype, shape):
            raise CompileError(
                f"`{operator.kind}`: expected {dtype}{list(shape)}, got {got.dtype}"
                f"{list(got.shape)} from ONNX's reference; fix the inputs that its shape depends on"
            )
    return found


def run_reference(operator: Library, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run the reference implementation, whatever types it gives.

    Raises
    ------
    CompileError
        If it fails.
    """
    types = tuple((str(array.dtype), array.shape) for array in arrays)
    names = [f"x{i}" for i, given in enumerate(operator.present) if given]
    try:
        with np.errstate(all="ignore"):
            results = _evaluator(operator, types).run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # third-party code raises anything over operands it cannot take
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise CompileError(
            f"`{operator.kind}`: expected operands that ONNX's reference computes with, got "
            f"`{detail[:200]}`; correct the operands"
        ) from error
    return tuple(np.asarray(result) for result in results)


DEFINITIONS = (Definition(Library, (0, 100), _types, run_library),)
