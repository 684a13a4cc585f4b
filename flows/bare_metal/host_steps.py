"""C statements that compute a network's host steps, one for each operator.

Most call a function of `assets/host_steps.c`; elementwise operators are loops. Softmax and sigmoid
round to the nearest binary32; NumPy's powers depend on the processor, so that last bits of a float
output may differ.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...compiler.graph import Node
from ...compiler.graph import operators as ops
from ...compiler.graph.types import FLOATS, TensorType
from ...compiler.host import host_nodes
from ...compiler.module import Module
from ...errors import CompileError

C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t",
    "int64": "int64_t", "float32": "float",
}  # fmt: skip
"""Types of values in C, by element type."""

ELEMENT_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int32": 4, "int64": 8, "float32": 4}

MAX_AXES = 8
"""As in `assets/host_steps.c`."""

EXPRESSIBLE = (
    "quantize, dequantize, reshape, transpose, slice, concat, shift, softmax, sigmoid, argmax, "
    "gather, cast, where, round, arithmetic or a comparison"
)
"""Host steps that C can express, for messages."""

BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Equal": "==", "Less": "<",
    "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">=", "And": "&", "Or": "|",
}  # fmt: skip
"""C operators of elementwise functions."""

OF_FLOATS = ("Add", "Sub", "Mul", "Div")
"""Functions whose C operator has ONNX's meaning for floats only: sums of int64 may overflow."""


def check_steps(module: Module) -> None:
    """Reject a network with values or host steps that C cannot express.

    Raises
    ------
    CompileError
        With the name of the input, the output or the layer.
    """
    graph = module.graph
    ends = [("input", value.name, value.name) for value in graph.inputs]
    ends += [("output", output.name, output.value) for output in graph.outputs]
    for end, name, value in ends:
        kind = graph.types[value]
        if kind.dtype not in C_TYPES:
            raise CompileError(
                f"{end} `{name}`: expected {', '.join(C_TYPES)}, got {kind}; convert it outside of "
                "the network"
            )
        if graph.is_constant(value):
            raise CompileError(
                f"{end} `{name}`: expected a computed value, got a constant; remove it from the "
                "network"
            )
    for node in host_nodes(graph, module.steps):
        types = [graph.types[name] for name in node.inputs]
        is_view = isinstance(node.attributes, ops.Reshape)
        if not is_view and statement(node, types, node.inputs) is None:
            in_float = any(kind.dtype in FLOATS for kind in types)
            raise CompileError(
                f"layer `{node.name}`: expected a layer of the accelerator or a host step that C "
                f"can express ({EXPRESSIBLE}), got `{node.op}` of {', '.join(map(str, types))}; "
                f"{'quantise it, or ' * in_float}cut it from the network"
            )


def statement(
    node: Node, types: Sequence[TensorType], sources: Sequence[str], target: str = ""
) -> str | None:
    """Return the C statement for a node, or None if C cannot express it.

    Parameters
    ----------
    types : sequence of TensorType
        Types of the inputs.
    sources, target : str
        C expressions of the inputs' arrays and the output's.
    """
    result = node.output.type
    if not all(kind.dtype in C_TYPES for kind in (*types, result)):
        return None
    x, first = types[0], types[0].dtype
    match node.attributes:
        case ops.Gather(axis=axis):
            size = ELEMENT_BYTES[first] * math.prod(x.shape[axis + 1 :])
            count = types[1].elements
            sizes = "i", count, math.prod(x.shape[:axis]), x.shape[axis], size
            table, indices = sources
            gather = _called("tilewright_gather", target, table, f"({indices})[i]", *sizes)
            return (
                f"for (size_t i = 0; i < {count}; ++i) if (!{gather}) return TILEWRIGHT_BAD_INDEX;"
            )
        case ops.Cast(dtype="bool"):
            return _loops(types, result, sources, target, "{0} != 0")
        case ops.Cast() if first != "float32" or result.dtype == "float32":
            return _loops(types, result, sources, target, f"({C_TYPES[result.dtype]}){{0}}")
        case ops.Where():
            return _loops(types, result, sources, target, "{0} ? {1} : {2}")
        case ops.Slice(starts=starts, steps=steps):
            place = sum(n * math.prod(x.shape[i + 1 :]) for i, n in enumerate(starts))
            read = _element(sources[0], x.shape, result.shape, place, steps)
            made = _element(target, result.shape, result.shape)
            return f"{_heads(result.shape)}{made} = {read};" if result.elements else ";"
        case ops.Concat(axis=axis):
            ends = np.cumsum([kind.shape[axis] for kind in types]).tolist()
            parts = zip(types, sources, [0, *ends], strict=False)
            inner, whole = math.prod(result.shape[axis + 1 :]), result.shape
            return " ".join(
                f"{{ {_heads(kind.shape)}{_element(target, whole, kind.shape, start * inner)} = "
                f"{_element(source, kind.shape, kind.shape)}; }}"
                for kind, source, start in parts
                if kind.elements
            )
        case ops.Binary(kind=kind) if kind in BINARY and (first in FLOATS or kind not in OF_FLOATS):
            return _loops(types, result, sources, target, f"{{0}} {BINARY[kind]} {{1}}")
    arguments = _arguments(node, x)
    if arguments is None:
        return None
    function, *more = arguments
    return f"{_called(f'tilewright_{function}', target, *sources, *more)};"


def _called(function: str, *arguments: object) -> str:
    return f"{function}({', '.join(map(str, arguments))})"


def _loops(
    types: Sequence[TensorType],
    result: TensorType,
    sources: Sequence[str],
    target: str,
    expression: str,
) -> str:
    """Return loops over the result's axes, with broadcasting, around an assignment."""
    shape = result.shape
    given = [_element(array, kind.shape, shape) for array, kind in zip(sources, types, strict=True)]
    value = expression.format(*given)
    return f"{_heads(shape)}{_element(target, shape, shape)} = {value};"


def _heads(shape: tuple[int, ...]) -> str:
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    return "".join(f"for (size_t i{i} = 0; i{i} < {shape[i]}; ++i{i}) " for i in axes)


def _element(
    array: str, own: tuple[int, ...], shape: tuple[int, ...], place: int = 0,
    strides: Sequence[int] = ()
) -> str:  # fmt: skip
    """Return the element of an array for the indices of loops over a shape.

    Parameters
    ----------
    own : tuple of int
        The array's shape; axes of extent 1 are broadcast.
    place : int
        The first element.
    strides : sequence of int
        Distances of elements along each axis, or none for neighbours.
    """
    own = (1,) * (len(shape) - len(own)) + own
    terms = [
        f"i{axis} * {math.prod(own[axis + 1 :]) * (strides[axis] if strides else 1)}"
        for axis, extent in enumerate(shape)
        if extent > 1 and own[axis] > 1
    ]
    return f"({array})[{' + '.join([*terms, *([str(place)] if place or not terms else [])])}]"


def constant_declaration(name: str, data: np.ndarray) -> str:
    """Return the C declaration of a host step's constant."""
    return f"const {C_TYPES[str(data.dtype)]} {name}[{data.size}]"


def constant_in_c(name: str, data: np.ndarray) -> str:
    """Return the C definition of a host step's constant."""
    in_c = _literal if data.dtype == np.float32 else int
    numbers = ", ".join(str(in_c(each)) for each in data.reshape(-1).tolist())
    return f"{constant_declaration(name, data)} = {{{numbers}}};"


def _arguments(node: Node, x: TensorType) -> tuple[object, ...] | None:
    """Return the function's name and its arguments after the arrays."""
    match node.attributes:
        case ops.Quantize(axis=None, dtype="int8") as by:
            return "quantize", x.elements, _literal(by.scales[0]), by.zero_points[0]
        case ops.Dequantize(axis=None) as by if x.dtype == "int8":
            return "dequantize", x.elements, _literal(by.scales[0]), by.zero_points[0]
        case ops.Unary(kind="Round" | "Sigmoid" as kind) if x.dtype == "float32":
            return kind.lower(), x.elements
        case ops.Shift():
            return "shift", x.elements
        case ops.Transpose(permutation=order) if len(order) <= MAX_AXES:
            return _transpose(x, order)
        case ops.Softmax(log=False) as by if x.dtype == "float32" and _ends(x, by.stop):
            return "softmax", *_rows(x, by.axis)
        case ops.Reduce(kind="ArgMax", axes=(axis,)) if x.dtype == "float32" and _ends(x, axis + 1):
            return "argmax", *_rows(x, axis)
    return None


def _transpose(x: TensorType, order: tuple[int, ...]) -> tuple[object, ...] | None:
    if x.dtype not in ELEMENT_BYTES or not order:
        return None
    size = ELEMENT_BYTES[x.dtype]
    steps = [size * math.prod(x.shape[axis + 1 :]) for axis in order]
    return (
        "transpose", size, len(order), _array([x.shape[axis] for axis in order]), _array(steps)
    )  # fmt: skip


def _array(numbers: list[int]) -> str:
    return f"(const uint32_t[]){{{', '.join(map(str, numbers))}}}"


def _ends(x: TensorType, axis: int) -> bool:
    """Whether elements along the axes before `axis` follow each other in memory."""
    return math.prod(x.shape[axis:]) == 1


def _rows(x: TensorType, axis: int) -> tuple[int, int]:
    return math.prod(x.shape[:axis]), math.prod(x.shape[axis:])


def _literal(value: float) -> str:
    """Return a binary32 in C, exactly."""
    if not math.isfinite(value):
        return "0.0f / 0.0f" if math.isnan(value) else f"{math.copysign(1, value)}f / 0.0f"
    return f"{value.hex()}f"
