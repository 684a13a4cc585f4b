"""The text form of graphs, which the printer writes and the parser reads back.

    graph "kws" {
      input %x : int8[1,49,10,1] quant(0.5847, 83)
      constant %w : int8[10,4,1,64] digest 0123456789abcdef
      %y : int8[1,25,5,64] quant(0.0787, -128) = qconv(%x, %w, %b, %s) {groups=1, ...} @ "conv1"
      output "Identity" = %y
    }

The text is deterministic: one line for each input, constant, node and output. It shows constants by
their digests; the parser takes the arrays in a separate mapping.
"""

import ast
import dataclasses
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from ...errors import CompileError
from .ir import Constant, Graph, Node, Output, Value
from .operators import OPERATORS, Operator
from .types import DTYPES, Quantisation, TensorType

BARE_NAME = re.compile(r"[\w./;:\-]+")
QUOTED = r'"(?:[^"\\]|\\.)*"'
NAME = rf"%(?:[\w./;:\-]+|{QUOTED})"
TYPE = r"(\w+)\[([\d,]*)\](?: quant\(([^,]+), (-?\d+)\))?"
INPUT_LINE = re.compile(rf"input ({NAME}) : {TYPE}")
CONSTANT_LINE = re.compile(rf"constant ({NAME}) : {TYPE} digest (\w+)")
RESULT = re.compile(rf"({NAME}) : {TYPE}(?:, )?")
NODE_LINE = re.compile(
    rf"((?:{NAME} : {TYPE}(?:, )?)+) = (\w+)\(((?:{NAME}(?:, )?)*)\) \{{(.*)\}} @ ({QUOTED})"
)
OUTPUT_LINE = re.compile(rf"output ({QUOTED}) = ({NAME})")


def print_graph(graph: Graph) -> str:
    """Return the text of a graph; equal graphs give equal text."""
    lines = [f"graph {json.dumps(graph.name)} {{"]
    lines += [f"  input {_name(v.name)} : {_type(v.type)}" for v in graph.inputs]
    lines += [
        f"  constant {_name(c.name)} : {_type(c.type)} digest {c.digest}" for c in graph.constants
    ]
    lines += [f"  {_node(node)}" for node in graph.nodes]
    lines += [f"  output {json.dumps(o.name)} = {_name(o.value)}" for o in graph.outputs]
    return "\n".join([*lines, "}", ""])


def parse_graph(text: str, constants: Mapping[str, np.ndarray]) -> Graph:
    """Parse the text of a graph.

    Parameters
    ----------
    text : str
        Output of `print_graph`, or text that a person wrote in the same form.
    constants : mapping
        Name of each constant -> its array.

    Raises
    ------
    CompileError
        If a line is malformed, or a constant is missing or has another digest.
    """
    try:
        return _parse(text, constants)
    except (ValueError, OverflowError, RecursionError) as error:
        detail = " ".join(str(error).split())[:100]
        raise CompileError(
            f"graph text: expected names, numbers and attributes, got `{detail}`; print a graph to "
            "see the form"
        ) from error


def _parse(text: str, constants: Mapping[str, np.ndarray]) -> Graph:
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    header = re.fullmatch(rf"graph ({QUOTED}) \{{", lines[0][1]) if lines else None
    if header is None or lines[-1][1] != "}":
        raise CompileError(
            'graph text: expected `graph "NAME" {` first and `}` last, got '
            f"{'something else' if lines else 'nothing'}; print a graph to see the form"
        )
    inputs: list[Value] = []
    outputs: list[Output] = []
    nodes: list[Node] = []
    arrays: list[Constant] = []
    for number, line in lines[1:-1]:
        if match := INPUT_LINE.fullmatch(line):
            inputs.append(Value(_unname(match[1]), _untype(number, match.groups()[1:5])))
        elif match := CONSTANT_LINE.fullmatch(line):
            arrays.append(_constant(number, match, constants))
        elif match := NODE_LINE.fullmatch(line):
            values = tuple(
                Value(_unname(part[1]), _untype(number, part.groups()[1:5]))
                for part in RESULT.finditer(match[1])
            )
            operator = _operator(number, match[6], match[8])
            operands = tuple(_unname(name) for name in re.findall(NAME, match[7]))
            nodes.append(Node(json.loads(match[9]), operator, operands, values))
        elif match := OUTPUT_LINE.fullmatch(line):
            outputs.append(Output(json.loads(match[1]), _unname(match[2])))
        else:
            raise CompileError(
                f"graph text: line {number}: expected an input, a constant, a node or an output, "
                f"got `{line:.200}`; print a graph to see the form"
            )
    name = json.loads(header[1])
    return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), tuple(arrays))


def _name(name: str) -> str:
    return f"%{name}" if BARE_NAME.fullmatch(name) else f"%{json.dumps(name)}"


def _unname(text: str) -> str:
    return json.loads(text[1:]) if text[1] == '"' else text[1:]


def _type(kind: TensorType) -> str:
    text = f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
    if kind.quantisation is None:
        return text
    return f"{text} quant({kind.quantisation.scale!r}, {kind.quantisation.zero_point})"


def _untype(number: int, groups: tuple[str | None, ...]) -> TensorType:
    dtype, extents, scale, zero_point = groups
    if dtype is None or dtype not in DTYPES:
        raise CompileError(
            f"graph text: line {number}: expected one of {', '.join(DTYPES)}, got `{dtype}`; "
            "correct the element type"
        )
    shape = tuple(int(extent) for extent in (extents or "").split(",") if extent)
    if scale is None or zero_point is None:
        return TensorType(dtype, shape)
    return TensorType(dtype, shape, Quantisation(float(scale), int(zero_point)))


def _node(node: Node) -> str:
    outputs = ", ".join(f"{_name(v.name)} : {_type(v.type)}" for v in node.outputs)
    operands = ", ".join(_name(name) for name in node.inputs)
    attributes = ", ".join(
        f"{field.name}={getattr(node.attributes, field.name)!r}"
        for field in dataclasses.fields(node.attributes)
    )
    return (
        f"{outputs} = {node.attributes.op}({operands}) {{{attributes}}} @ {json.dumps(node.name)}"
    )


def _operator(number: int, op: str, attributes: str) -> Operator:
    if op not in OPERATORS:
        raise CompileError(
            f"graph text: line {number}: expected one of {', '.join(OPERATORS)}, got `{op}`; "
            "correct the operator"
        )
    try:
        call = ast.parse(f"f({attributes})", mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError("not attributes")
        values = {
            str(word.arg): ast.literal_eval(_Numbers().visit(word.value)) for word in call.keywords
        }
        for name, value in values.items():
            if not _is(value, _kinds(op).get(name, Any)):
                raise ValueError(f"`{name}` is of another type")
        return OPERATORS[op](**values)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        names = ", ".join(field.name for field in dataclasses.fields(OPERATORS[op]))
        raise CompileError(
            f"graph text: line {number}: expected `{op}` with attributes {names or 'none'}, got "
            f"`{attributes:.200}`; correct them"
        ) from error


@cache
def _kinds(op: str) -> dict[str, Any]:
    """Types of an operator's attributes."""
    return get_type_hints(OPERATORS[op])


def _is(value: object, kind: Any) -> bool:
    """Whether a value is of a type that the attributes of operators have."""
    kinds = get_args(kind)
    if kind is Any or kind is None:
        return kind is Any or value is None
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        return len(kinds) == len(value) and all(map(_is, value, kinds))
    if kinds:
        return any(_is(value, one) for one in kinds)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


class _Numbers(ast.NodeTransformer):
    """A transformer that replaces the names `inf` and `nan`, which Python prints, with numbers."""

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the name that `ast` asks for
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def _constant(number: int, match: re.Match[str], arrays: Mapping[str, np.ndarray]) -> Constant:
    name, digest = _unname(match[1]), match[6]
    kind = _untype(number, match.groups()[1:5])
    if name not in arrays:
        raise CompileError(
            f"graph text: line {number}: constant `{name}`: expected its array in the side table, "
            "got none; pass the arrays that belong to this text"
        )
    array = arrays[name]
    if array.dtype.kind == "V" and array.dtype.itemsize == np.dtype(DTYPES[kind.dtype]).itemsize:
        array = array.view(DTYPES[kind.dtype])  # `.npy` stores types that NumPy lacks as raw bytes
    constant = Constant(name, array)
    if (constant.type.dtype, constant.type.shape) != (kind.dtype, kind.shape):
        raise CompileError(
            f"graph text: line {number}: constant `{name}`: expected {kind}, got {constant.type}; "
            "pass the arrays that belong to this text"
        )
    if constant.digest != digest:
        raise CompileError(
            f"graph text: line {number}: constant `{name}`: expected digest `{digest}`, got "
            f"`{constant.digest}`; pass the arrays that belong to this text"
        )
    return constant
