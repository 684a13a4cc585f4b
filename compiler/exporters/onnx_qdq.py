"""The ONNX exporter: it writes graphs of host operators, with quantised graphs in QDQ form.

An operator of a float or QDQ graph has its counterpart in operator set 20, with the same semantics
in the importer and in ONNX Runtime; a few have none and are refused. The accelerator's integer
operators have none, so export a graph before its layers are recognised.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...errors import CompileError
from ..graph import Graph, Node, TensorType
from ..graph import operators as ops
from ..graph.functions import UNARY
from ..graph.operators.recurrent import ACTIVATIONS, real_weights
from ..graph.operators.reductions import POSITIONS
from ..importers.onnx_elementwise import VARIANTS
from ..importers.onnx_registered import TO_FIRST, TO_LAST
from .onnx_writer import Writer

OPSET = 20
IR_VERSION = 9
"""IR version of ONNX 1.15, the first release with operator set 20."""

NEWER = ("Swish",)
"""Elementwise functions that operator set 20 lacks."""

Export = Callable[[Writer, Node, Any], None]
"""Function that writes a node, given its operator."""


def export_onnx(graph: Graph) -> onnx.ModelProto:
    """Convert a graph to an ONNX model.

    Parameters
    ----------
    graph : Graph
        Graph of host operators only; its inputs, outputs and their names are kept.

    Raises
    ------
    CompileError
        If an operator has no counterpart in ONNX.
    """
    check_exportable(graph)
    writer = Writer(graph)
    for node in graph.nodes:
        EXPORTS[type(node.attributes)](writer, node, node.attributes)
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
    domains = sorted({node.domain for node in writer.nodes} - {""})
    return helper.make_model(
        made,
        opset_imports=[
            helper.make_opsetid("", OPSET),
            *(helper.make_opsetid(domain, 1) for domain in domains),
        ],
        ir_version=IR_VERSION,
        producer_name="tilewright",
    )


def check_exportable(graph: Graph) -> None:
    """Reject a graph that `export_onnx` cannot write, before any output is made.

    Raises
    ------
    CompileError
        If an operator has no counterpart in ONNX.
    """
    for node in graph.nodes:
        got = f"`{node.op}`"
        if isinstance(node.attributes, ops.Unary) and node.attributes.kind != "Clip":
            kind, parameters = node.attributes.kind, node.attributes.parameters
            got = f"`{kind}` with {len(parameters)} parameters"
            if len(UNARY[kind].parameters) == len(parameters) and kind not in NEWER:
                continue
        elif type(node.attributes) in EXPORTS and not _is_special(graph, node):
            continue
        raise CompileError(
            f"graph `{graph.name}`: node `{node.name}`: expected an operator that ONNX export "
            f"knows, got {got}; run the model with `--calibrate` instead of exporting it"
        )


def _is_special(graph: Graph, node: Node) -> bool:
    """Tell whether ONNX lacks the form of an operator that it has in other forms."""
    if isinstance(node.attributes, ops.ConvTranspose):
        return min(node.attributes.pads) < 0
    if isinstance(node.attributes, ops.OnnxReference):
        return not _is_current(node.attributes)
    if isinstance(node.attributes, ops.Recurrent):
        scales = node.inputs[node.attributes.scales]
        return bool(scales) and not all(map(graph.is_constant, (*node.inputs[1:3], *scales)))
    if isinstance(node.attributes, ops.GridSample | ops.RoiAlign):
        return node.output.type.dtype != "float32"
    if isinstance(node.attributes, ops.Interpolate):
        known = all(map(graph.is_constant, node.inputs[1:]))
        return node.output.type.dtype != "float32" or not known
    return False


def _is_current(operator: ops.OnnxReference) -> bool:
    """Tell whether an operator of ONNX means the same in operator set 20 as in its own."""
    if operator.domain:
        return False
    given, ours = (
        onnx.defs.get_schema(operator.kind, version, "") for version in (operator.version, OPSET)
    )
    return given.since_version == ours.since_version


def _described(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    return helper.make_tensor_value_info(name, element, kind.shape)


def _plain(kind: str, **fields: str) -> Export:
    """Return a writer of ONNX's operator `kind`; `fields` map its attributes to fields of ours."""

    def write(writer: Writer, node: Node, operator: ops.Operator) -> None:
        writer.add(node, kind, **{name: getattr(operator, ours) for name, ours in fields.items()})

    return write


def _quantisation(writer: Writer, node: Node, operator: ops.Quantize | ops.Dequantize) -> None:
    integers = operator.dtype if isinstance(operator, ops.Quantize) else None
    dtype = integers or writer.graph.types[node.inputs[0]].dtype
    scales, points = np.array(operator.scales, np.float32), np.array(operator.zero_points)
    if operator.axis is None:  # scalars; otherwise one value for each channel
        scales, points = scales.reshape(()), points.reshape(())
    base = node.output.name
    scale = writer.constant(f"{base}.scale", scales, np.float32)
    zero_point = writer.constant(f"{base}.zero_point", points, dtype)
    axis = {} if operator.axis is None else {"axis": operator.axis}
    kind = "QuantizeLinear" if integers else "DequantizeLinear"
    writer.add(node, kind, scale, zero_point, **axis)


def _reshape(writer: Writer, node: Node, operator: ops.Reshape) -> None:
    shape = writer.constant(f"{node.output.name}.shape", operator.shape, np.int64)
    writer.add(node, "Reshape", shape)


def _pad(writer: Writer, node: Node, operator: ops.Pad) -> None:
    base = node.output.name
    pads = writer.constant(f"{base}.pads", operator.before + operator.after, np.int64)
    value = writer.constant(f"{base}.value", operator.value, node.output.type.dtype)
    writer.add(node, "Pad", pads, value)


def _slice(writer: Writer, node: Node, operator: ops.Slice) -> None:
    axes = range(len(operator.starts))
    parts = {"starts": operator.starts, "stops": operator.stops, "axes": axes}
    parts["steps"] = operator.steps
    base = node.output.name
    names = [writer.constant(f"{base}.{k}", list(v), np.int64) for k, v in parts.items()]
    writer.add(node, "Slice", *names)


def _cast(writer: Writer, node: Node, operator: ops.Cast) -> None:
    writer.add(node, "Cast", to=helper.np_dtype_to_tensor_dtype(np.dtype(operator.dtype)))


def _conv(writer: Writer, node: Node, operator: ops.Conv) -> None:
    write = _plain("Conv", strides="strides", pads="pads", dilations="dilations", group="groups")
    write(writer, node, operator)
    kernel = writer.graph.types[node.inputs[1]].shape[2:]
    writer.nodes[-1].attribute.append(helper.make_attribute("kernel_shape", kernel))


def _average_pool(writer: Writer, node: Node, operator: ops.AveragePool) -> None:
    writer.add(
        node,
        "AveragePool",
        kernel_shape=operator.kernel,
        strides=operator.strides,
        pads=operator.pads,
        count_include_pad=int(operator.count_include_pad),
        ceil_mode=int(any(operator.overhang)),
    )


def _unary(writer: Writer, node: Node, operator: ops.Unary) -> None:
    if operator.kind == "Clip":
        names = [
            writer.constant(f"{node.output.name}.{which}", limit, np.float32)
            for which, limit in zip(("low", "high"), operator.parameters, strict=True)
        ]
        writer.add(node, "Clip", *names)
        return
    known = UNARY[operator.kind].onnx_parameters.items()
    pairs = zip(known, operator.parameters, strict=True)
    _kind(writer, node, operator, **{name: type(one)(value) for (name, one), value in pairs})


def _own(writer: Writer, node: Node, operator: ops.OwnFunction) -> None:
    """Write a registered operator as it was read; its domain is a part of its name."""
    domain, _, kind = operator.name.rpartition(".")
    writer.add(node, kind, domain=domain, **dict(operator.parameters))


def _own_kernel(writer: Writer, node: Node, operator: ops.OwnKernel) -> None:
    """Write a registered kernel without its constants; images in the file are [N, C, H, W]."""
    domain, _, kind = operator.name.rpartition(".")
    inputs = []
    for name in node.inputs[: len(node.inputs) - operator.constants]:
        given = writer.names[name]
        if len(writer.graph.types[name].shape) == 4:
            turned = writer.fresh(f"{given}.first")
            writer.nodes.append(helper.make_node("Transpose", [given], [turned], perm=TO_FIRST))
            given = turned
        inputs.append(given)
    settings: dict[str, Any] = dict(operator.settings)
    if len(node.output.type.shape) != 4:
        writer.write(node, kind, inputs, domain=domain, **settings)
        return
    made = writer.fresh(f"{node.output.name}.first")
    own = helper.make_node(kind, inputs, [made], name=node.name, domain=domain, **settings)
    writer.nodes.append(own)
    writer.write(node, "Transpose", [made], perm=TO_LAST)


def _kind(
    writer: Writer, node: Node, operator: ops.Unary | ops.Binary | ops.Reduce, **attributes: Any
) -> None:
    """Write an operator by its kind, which in ONNX may be an attribute of another operator."""
    kind = operator.kind
    if kind in VARIANTS:
        kind, name, value = VARIANTS[kind]
        attributes[name] = value
    writer.add(node, kind, **attributes)


def _softmax(writer: Writer, node: Node, operator: ops.Softmax) -> None:
    kind = "LogSoftmax" if operator.log else "Softmax"
    shape = node.output.type.shape
    if operator.stop == operator.axis + 1:
        writer.add(node, kind, axis=operator.axis)
        return
    base = node.output.name
    sizes = (*shape[: operator.axis], -1, *shape[operator.stop :])
    inner = writer.constant(f"{base}.flat_shape", sizes, np.int64)
    outer = writer.constant(f"{base}.shape", shape, np.int64)
    flat, soft = writer.fresh(f"{base}.flat"), writer.fresh(f"{base}.soft")
    writer.nodes += [
        helper.make_node("Reshape", [*writer.inputs(node), inner], [flat]),
        helper.make_node(kind, [flat], [soft], axis=operator.axis),
    ]
    writer.write(node, "Reshape", [soft, outer])


def _reduce(writer: Writer, node: Node, operator: ops.Reduce) -> None:
    keep = int(operator.keep)
    if operator.kind in POSITIONS:
        _kind(writer, node, operator, axis=operator.axes[0], keepdims=keep)
        return
    axes = writer.constant(f"{node.output.name}.axes", operator.axes, np.int64)
    writer.add(node, operator.kind, axes, keepdims=keep, noop_with_empty_axes=1)


def _conv_transpose(writer: Writer, node: Node, operator: ops.ConvTranspose) -> None:
    writer.add(
        node,
        "ConvTranspose",
        kernel_shape=writer.graph.types[node.inputs[1]].shape[2:],
        strides=operator.strides,
        pads=operator.pads,
        dilations=operator.dilations,
        output_padding=operator.output_padding,
        group=operator.groups,
    )


def _interpolate(writer: Writer, node: Node, operator: ops.Interpolate) -> None:
    """Write the sum over taps of the definition; Resize has no form for given places."""
    x, places, weights = node.inputs
    base, whole = node.output.name, writer.names[x]
    held = writer.graph.data(places), writer.graph.data(weights)
    spread = [-1 if axis == operator.axis else 1 for axis in range(len(node.output.type.shape))]
    terms: list[str] = []
    for tap, (indices, factors) in enumerate(zip(held[0].T, held[1].T, strict=True)):
        chosen = writer.constant(f"{base}.places{tap}", indices)
        factor = writer.constant(f"{base}.weights{tap}", factors.reshape(spread))
        taken, term = writer.fresh(f"{base}.taken{tap}"), writer.fresh(f"{base}.term{tap}")
        writer.nodes += [
            helper.make_node("Gather", [whole, chosen], [taken], axis=operator.axis),
            helper.make_node("Mul", [taken, factor], [term]),
        ]
        terms.append(term)
    writer.write(node, "Sum", terms)


def _expand(writer: Writer, node: Node, operator: ops.Expand) -> None:
    shape = writer.constant(f"{node.output.name}.shape", operator.shape, np.int64)
    writer.add(node, "Expand", shape)


def _reference(writer: Writer, node: Node, operator: ops.OnnxReference) -> None:
    """Write an operator of ONNX as it was read; what it leaves out has an empty name."""
    made, operands = operator.node(), iter(writer.inputs(node))
    writer.write(node, operator.kind, [next(operands) if name else "" for name in made.input])
    written = writer.nodes[-1]
    written.attribute.extend(made.attribute)
    results = iter(list(written.output))
    written.output[:] = [next(results) if name else "" for name in made.output]


def _cumsum(writer: Writer, node: Node, operator: ops.CumSum) -> None:
    axis = writer.constant(f"{node.output.name}.axis", operator.axis, np.int64)
    flags = {"exclusive": int(operator.exclusive), "reverse": int(operator.reverse)}
    writer.add(node, "CumSum", axis, **flags)


def _grid_sample(writer: Writer, node: Node, operator: ops.GridSample) -> None:
    corners = int(operator.align_corners)
    names = {"mode": operator.mode, "padding_mode": operator.padding}
    writer.add(node, "GridSample", **names, align_corners=corners)


def _roi_align(writer: Writer, node: Node, operator: ops.RoiAlign) -> None:
    writer.add(
        node,
        "RoiAlign",
        mode=operator.mode,
        output_height=operator.size[0],
        output_width=operator.size[1],
        sampling_ratio=operator.samples,
        spatial_scale=operator.scale,
        coordinate_transformation_mode="half_pixel" if operator.half_pixel else "output_half_pixel",
    )


def _recurrent(writer: Writer, node: Node, operator: ops.Recurrent) -> None:
    names, alphas, betas = zip(*operator.activations, strict=True)
    counts = [len(ACTIVATIONS[name].parameters) for name in names]
    attributes: dict[str, Any] = {
        "hidden_size": writer.graph.types[node.inputs[2]].shape[-1],
        "direction": operator.direction,
        "activations": names,
        "activation_alpha": [one for one, count in zip(alphas, counts, strict=True) if count > 0],
        "activation_beta": [one for one, count in zip(betas, counts, strict=True) if count > 1],
    }
    if operator.clip:
        attributes["clip"] = operator.clip
    if operator.kind == "GRU":
        attributes["linear_before_reset"] = int(operator.linear_before_reset)
    if operator.kind == "LSTM":
        attributes["input_forget"] = int(operator.input_forget)
    inputs = writer.inputs(node)
    if scales := inputs[operator.scales]:
        w, r, *factors = (writer.constants[name] for name in (*inputs[1:3], *scales))
        for place, real in enumerate(real_weights(w, r, factors), 1):
            inputs[place] = writer.constant(f"{inputs[place]}.real", real)
    shown = {name: one for name, one in attributes.items() if one != []}
    writer.write(node, operator.kind, inputs[: operator.scales.start], **shown)


EXPORTS: dict[type[ops.Operator], Export] = {
    ops.Quantize: _quantisation,
    ops.Dequantize: _quantisation,
    ops.Reshape: _reshape,
    ops.Transpose: _plain("Transpose", perm="permutation"),
    ops.Pad: _pad,
    ops.Slice: _slice,
    ops.Concat: _plain("Concat", axis="axis"),
    ops.Expand: _expand,
    ops.Gather: _plain("Gather", axis="axis"),
    ops.GatherElements: _plain("GatherElements", axis="axis"),
    ops.GatherND: _plain("GatherND", batch_dims="batch_dims"),
    ops.GridSample: _grid_sample,
    ops.RoiAlign: _roi_align,
    ops.CumSum: _cumsum,
    ops.OnnxReference: _reference,
    ops.Interpolate: _interpolate,
    ops.Recurrent: _recurrent,
    ops.ScatterND: _plain("ScatterND", reduction="reduction"),
    ops.Cast: _cast,
    ops.Conv: _conv,
    ops.ConvTranspose: _conv_transpose,
    ops.MatMul: _plain("MatMul"),
    ops.MaxPool: _plain(
        "MaxPool", kernel_shape="kernel", strides="strides", pads="pads", dilations="dilations"
    ),
    ops.AveragePool: _average_pool,
    ops.OwnFunction: _own,
    ops.OwnKernel: _own_kernel,
    ops.Unary: _unary,
    ops.Where: _plain("Where"),
    ops.Binary: _kind,
    ops.Softmax: _softmax,
    ops.Reduce: _reduce,
}
"""Operator class -> function that writes it."""
