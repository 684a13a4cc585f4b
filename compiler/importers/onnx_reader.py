"""A reader of ONNX nodes: operands, their values if known at import, attributes, and errors."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import onnx

from ...errors import ImportModelError
from ...quoting import printable
from ...wording import counted
from ..graph import TensorType, evaluate_outputs
from ..reach import reach
from .onnx_scope import ImportScope, Named, key_of
from .onnx_tensors import read_tensor
from .refusals import NeedsInputError, RefusedError, is_data


class NodeReader:
    """The read-only view of a node during import.

    Parameters
    ----------
    scope : ImportScope
        Scope of the node: names, operator sets and the graph under construction.
    proto : onnx.NodeProto
        Node to read.
    """

    def __init__(self, scope: ImportScope, proto: onnx.NodeProto) -> None:
        self.scope = scope
        self.builder = scope.builder
        self.proto = proto
        self.key = key_of(proto)
        self.opset = scope.opset
        self.names = scope.names
        own = printable(proto.name or next(iter(proto.output), "") or proto.op_type)
        self.label = scope.label or own
        self.where = f"{scope.where}: node `{own}` ({proto.op_type})"
        self.attributes = {a.name: a for a in proto.attribute}
        self.result = next(iter(proto.output), "")
        if not any(proto.output):
            self.fail("an output", "none", "export the model again")

    def fail(self, expected: str, got: str, action: str) -> NoReturn:
        """Raise an import error for this node.

        Raises
        ------
        ImportModelError
            Always.
        """
        raise ImportModelError(f"{self.where}: expected {expected}, got {got}; {action}")

    def refuse(self, cause: str, got: str, action: str) -> NoReturn:
        """Raise the error for a valid node that is not supported.

        Raises
        ------
        RefusedError
            Always.
        """
        raise RefusedError(f"{self.where}: expected no {cause}, got {got}; {action}", cause)

    def has(self, index: int) -> bool:
        """Tell whether an input, perhaps an optional one, is given."""
        if index >= len(self.proto.input):
            return False
        name = self.proto.input[index]
        return name != "" and self.names.get(name) != ""

    def wants(self, index: int) -> bool:
        """Tell whether an output, perhaps an optional one, is used."""
        return index < len(self.proto.output) and self.proto.output[index] != ""

    def input(self, index: int) -> str:
        """Return the name in the graph of a required input, which must be a tensor."""
        value = self.value(index)
        if not isinstance(value, str):
            self.fail(f"a tensor as input {index}", "a sequence", "export the model again")
        return value

    def value(self, index: int) -> Named:
        """Return the value in the graph, or the sequence of values, that a required input names."""
        if not self.has(index):
            self.fail(
                f"an input {index}", counted(len(self.proto.input), "input"), "export it again"
            )
        name = self.proto.input[index]
        if name not in self.names:
            self.fail(
                f"input `{name}` to be an initialiser, a model input or an earlier node's output",
                "none of them",
                "add the missing initialiser or export the model again",
            )
        return self.names[name]

    def inputs(self) -> list[str]:
        """Return the names in the graph of all inputs."""
        return [self.input(index) for index in range(len(self.proto.input))]

    def type(self, index: int) -> TensorType:
        return self.builder.types[self.input(index)]

    def rank(self, index: int) -> int:
        return len(self.type(index).shape)

    def constant(self, index: int) -> np.ndarray:
        """Return the array of an input that must be known at import."""
        data = self.known(self.input(index))
        if data is not None:
            return data
        self.need([self.input(index)], f"input {index} (`{self.proto.input[index]}`)")

    def known(self, name: str) -> np.ndarray | None:
        """Return the array of a value that depends only on constants; None for other values."""
        if self.builder.is_constant(name):
            return self.builder.data(name)
        if self.sources([name]):
            return None
        producer = self.builder.producer(name)
        if producer is None or len(producer.outputs) != 1:
            return None
        arrays = [self.known(operand) for operand in producer.inputs]
        return evaluate_outputs(producer.attributes, [a for a in arrays if a is not None])[0]

    def sources(self, values: Sequence[str]) -> tuple[str, ...]:
        """Return the graph inputs on which values depend."""

        def operands(name: str) -> Sequence[str]:
            producer = self.builder.producer(name)
            return producer.inputs if producer else ()

        seen = reach(values, operands)
        return tuple(value.name for value in self.builder.inputs if value.name in seen)

    def need(self, values: Sequence[str], what: str) -> NoReturn:
        """Raise the error that asks the user to fix the graph inputs on which values depend.

        Raises
        ------
        NeedsInputError
            Always; the error names the inputs.
        """
        self.refuse_computed(
            values,
            f"expected {what} to be a constant, got a value computed at run time",
            "export the model with static shapes and parameters",
        )

    def refuse_computed(self, values: Sequence[str], problem: str, remedy: str) -> NoReturn:
        """Raise the error that a result's type follows from values computed at run time.

        The user may fix inputs that hold sizes. Fixing data would make a constant of the network.

        Raises
        ------
        NeedsInputError
            Always; the error names the inputs.
        """
        inputs = self.sources(values)
        data = tuple(name for name in inputs if is_data(self.builder.types[name]))
        listed = ", ".join(f"`{printable(name)}`" for name in data or inputs)
        if data:
            advice = f"{remedy}; it depends on {listed}, which holds data and cannot be fixed"
        else:
            advice = f"fix the input that it depends on ({listed}; `--fix NAME=VALUE`), or {remedy}"
        raise NeedsInputError(f"{self.where}: {problem}; {advice}", inputs, data)

    def listed(self, name: str, index: int) -> tuple[int, ...]:
        """Return an attribute (older operator sets), or else a constant operand; () for neither."""
        found = self.attribute(name, ())
        return self.integers(index) if not found and self.has(index) else found

    def integers(self, index: int) -> tuple[int, ...]:
        """Return a constant input as integers."""
        array = self.constant(index).ravel()
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            self.fail(f"whole numbers as input {index}", "infinity or NaN", "correct the model")
        return tuple(int(value) for value in array)

    def scalar(self, index: int, default: float) -> float:
        """Return a constant input of one element, or the default if the input is not given."""
        if not self.has(index):
            return default
        array = self.constant(index)
        if array.size != 1:
            self.fail(f"input {index} of one element", f"{array.size}", "make it a scalar")
        return float(array.ravel()[0])

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute in the default's type, with lists as tuples and texts decoded."""
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

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor attribute."""
        proto = self.attributes[name].t
        return read_tensor(proto, f"{self.where}: attribute `{name}`", self.scope.folder)

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """Return an axis attribute, counted from the front."""
        return self.normalise(self.attribute(name, default), rank)

    def normalise(self, axis: int, rank: int) -> int:
        """Return an axis, counted from the front."""
        if not -rank <= axis < rank:
            self.fail(f"an axis of a tensor of rank {rank}", f"`{axis}`", "correct the axis")
        return axis % rank
