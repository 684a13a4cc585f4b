"""Calls of the C functions that compute a network's host steps, one for each operator.

The C is in `assets/host_steps.c`. Its softmax rounds each power to the nearest binary32; NumPy's
powers depend on the processor, so that last bits of a float output may differ.
"""

import math

from ...compiler.graph import Node
from ...compiler.graph import operators as ops
from ...compiler.graph.types import FLOATS, TensorType
from ...compiler.host import host_nodes
from ...compiler.module import Module
from ...errors import CompileError

C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int64": "int64_t", "float32": "float"}
"""Types of values in C, by element type."""

ELEMENT_BYTES = {"int8": 1, "uint8": 1, "int64": 8, "float32": 4}

MAX_AXES = 8
"""As in `assets/host_steps.c`."""

EXPRESSIBLE = "quantize, dequantize, reshape, transpose, shift, softmax or argmax"
"""Host steps that C can express, for messages."""


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
        fits = len(types) == 1 and not graph.is_constant(node.inputs[0])
        is_view = isinstance(node.attributes, ops.Reshape)
        if not fits or not (is_view or _arguments(node, types[0])):
            in_float = any(kind.dtype in FLOATS for kind in types)
            raise CompileError(
                f"layer `{node.name}`: expected a layer of the accelerator or a host step that C "
                f"can express ({EXPRESSIBLE}), got `{node.op}` of {', '.join(map(str, types))}; "
                f"{'quantise it, or ' * in_float}cut it from the network"
            )


def call(node: Node, x: TensorType, source: str, target: str) -> str:
    """Return the C statement for a node that `check_steps` has accepted.

    Parameters
    ----------
    x : TensorType
        Type of the node's only input.
    source, target : str
        C expressions of the input's array and the output's.
    """
    arguments = _arguments(node, x)
    assert arguments is not None, "check_steps accepts the node"
    function, *more = arguments
    return f"tilewright_{function}({', '.join([target, source, *map(str, more)])});"


def _arguments(node: Node, x: TensorType) -> tuple[object, ...] | None:
    """Return the function's name and its arguments after the arrays."""
    match node.attributes:
        case ops.Quantize(axis=None, dtype="int8") as by:
            return "quantize", x.elements, _literal(by.scales[0]), by.zero_points[0]
        case ops.Dequantize(axis=None) as by if x.dtype == "int8":
            return "dequantize", x.elements, _literal(by.scales[0]), by.zero_points[0]
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
    return f"{value.hex()}f"
