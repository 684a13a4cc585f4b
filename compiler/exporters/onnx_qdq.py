"""The ONNX exporter: it writes graphs of host operators, with quantised graphs in QDQ form.

All that importers make has its counterpart in ONNX, with the same semantics in the importer and in
ONNX Runtime. A model declares operator set 20, or a newer one if an operator asks for it. The
accelerator's integer operators have no counterpart, so a graph whose layers are recognised is
written as it was imported.
"""

from dataclasses import replace

import onnx
from onnx import helper, numpy_helper

from ...argument_types import checked
from ...errors import CompileError
from ..graph import Graph, Node, TensorType
from ..graph import operators as ops
from ..graph.functions import UNARY
from .onnx_operators import element, has_export, write_operator
from .onnx_writer import Writer

OPSET = 20
"""Operator set of a model none of whose operators is newer."""


@checked("export_onnx")
def export_onnx(graph: Graph) -> onnx.ModelProto:
    """Convert a graph to an ONNX model.

    Parameters
    ----------
    graph : Graph
        Graph as from `import_model` or `from_torch`, or another one of host operators only; its
        inputs, outputs and their names are kept.

    Raises
    ------
    CompileError
        If an operator has no counterpart in ONNX.
    """
    graph = replace(graph.imported or graph, name=graph.name)
    check_exportable(graph)
    writer = Writer(graph)
    for node in graph.nodes:
        write_operator(node.attributes, writer, node)
    for output in graph.outputs:
        name = writer.names[output.value]
        if name != output.name:
            writer.nodes.append(helper.make_node("Identity", [name], [output.name]))
    made = helper.make_graph(
        writer.nodes,
        graph.name,
        [_described(value.name, value.type) for value in graph.inputs],
        [_described(output.name, graph.types[output.value]) for output in graph.outputs],
        [numpy_helper.from_array(data, name) for name, data in writer.constants.items()],
    )
    versions = _opsets(graph)
    opsets = [helper.make_opsetid(*one) for one in versions.items()]
    known = [one for one in opsets if _is_known(one)]
    return helper.make_model(
        made,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(known),
        producer_name="tilewright",
    )


def _is_known(opset: onnx.OperatorSetIdProto) -> bool:
    """Tell whether an operator set is one of ONNX's; others say nothing of its file format."""
    return (opset.domain or "ai.onnx") in {domain for domain, _ in helper.OP_SET_ID_VERSION_MAP}


def _opsets(graph: Graph) -> dict[str, int]:
    """Return the versions of the operator sets that a graph needs, by domain."""
    versions = {"": max([OPSET, *map(_first_opset, graph.nodes)])}
    for node in graph.nodes:
        if isinstance(node.attributes, ops.OnnxReference) and node.attributes.domain:
            versions[node.attributes.domain] = node.attributes.version
        if isinstance(node.attributes, ops.OwnFunction | ops.OwnKernel):
            versions[node.attributes.name.rpartition(".")[0]] = 1
    return versions


def _first_opset(node: Node) -> int:
    """Return the first operator set, of those from 20 on, that has an operator in its form."""
    operator = node.attributes
    if isinstance(operator, ops.Unary) and operator.function.variant is None:
        kind = operator.kind
        return OPSET if onnx.defs.has(kind, OPSET) else onnx.defs.get_schema(kind).since_version
    if isinstance(operator, ops.OnnxReference) and not operator.domain:
        schema = onnx.defs.get_schema(operator.kind, operator.version, "")
        return max(OPSET, schema.since_version)
    if isinstance(operator, ops.GeneralQuantize):
        return _first_quantisation(operator.dtype, operator.block, bool(operator.precision))
    return OPSET


def _first_quantisation(dtype: str, block: int, newest: bool) -> int:
    """Return the first operator set whose quantisation has an element type, or blocks."""
    if "int2" in dtype:
        return 25
    if newest or dtype.startswith("float4"):
        return 23
    return 21 if block or dtype in ("int4", "uint4", "int16", "uint16") else OPSET


def check_exportable(graph: Graph) -> None:
    """Reject a graph that `export_onnx` cannot write, before any output is made.

    Raises
    ------
    CompileError
        If an operator has no counterpart in ONNX.
    """
    for node in graph.nodes:
        operator = node.attributes
        got = f"`{operator.kind if isinstance(operator, ops.OnnxReference) else node.op}`"
        if isinstance(node.attributes, ops.Unary) and node.attributes.kind != "Clip":
            kind, parameters = node.attributes.kind, node.attributes.parameters
            got = f"`{kind}` with {len(parameters)} parameters"
            if len(UNARY[kind].parameters) == len(parameters):
                continue
        elif has_export(type(operator)) and not _is_special(graph, node):
            continue
        raise CompileError(
            f"graph `{graph.name}`: node `{node.name}`: expected an operator that ONNX export "
            f"knows, got {got}; export the graph as it was imported, or run the model with "
            "`--calibrate`"
        )


def _is_special(graph: Graph, node: Node) -> bool:
    """Tell whether ONNX lacks the form of an operator that it has in other forms."""
    if isinstance(node.attributes, ops.OnnxReference):
        return not _is_current(node.attributes)
    if isinstance(node.attributes, ops.Recurrent):
        scales = node.inputs[node.attributes.scales]
        return bool(scales) and not all(map(graph.is_constant, (*node.inputs[1:3], *scales)))
    if getattr(node.attributes, "channels_last", False):
        return True
    if isinstance(node.attributes, ops.GridSample | ops.RoiAlign):
        return node.output.type.dtype != "float32"
    if isinstance(node.attributes, ops.Interpolate):
        known = all(map(graph.is_constant, node.inputs[1:]))
        return node.output.type.dtype != "float32" or not known
    return False


def _is_current(operator: ops.OnnxReference) -> bool:
    """Tell whether an operator of ONNX means the same in the sets of a model as in its own.

    Versions with as many operands and results and the same attributes, defaults included, differ
    in their element types alone.
    """
    if operator.domain or operator.kind == "DFT":
        return True
    own, ours = (
        onnx.defs.get_schema(operator.kind, version, "")
        for version in (operator.version, max(operator.version, OPSET))
    )
    forms = [
        (
            {name: one.default_value for name, one in schema.attributes.items()},
            len(schema.inputs),
            len(schema.outputs),
        )
        for schema in (own, ours)
    ]
    return forms[0] == forms[1]


def _described(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element(kind.dtype), kind.shape)
