"""Writers of host operators: by their `OnnxForm`, or a function if that does not suffice."""

from functools import singledispatch
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..graph import Node
from ..graph import operators as ops
from ..graph.functions import UNARY
from ..graph.operators.quantisation import FLOAT8
from ..graph.operators.recurrent import ACTIVATIONS, real_weights
from ..graph.operators.reductions import POSITIONS
from ..graph.types import DTYPES
from ..importers.onnx_elementwise import VARIANTS
from ..importers.onnx_registered import TO_FIRST, TO_LAST
from .onnx_writer import Writer

DFT_WITH_AXIS = 20
"""First operator set in which the axis of DFT is an operand."""


def element(dtype: str) -> int:
    """Return ONNX's number of an element type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[dtype]))


def write_by_form(operator: ops.Operator, writer: Writer, node: Node) -> None:
    """Write an operator by its `OnnxForm`."""
    form = operator.onnx
    assert form is not None
    names = form.attributes.items()
    writer.add(node, form.kind, **{name: getattr(operator, ours) for name, ours in names})


write_operator = singledispatch(write_by_form)
"""Node writer by operator class: one of the functions below, or the class's ONNX form."""


def has_export(kind: type[ops.Operator]) -> bool:
    """Tell whether ONNX has a counterpart of an operator."""
    return kind.onnx is not None or write_operator.dispatch(kind) is not write_by_form


@write_operator.register
def _quantisation(operator: ops.Quantize | ops.Dequantize, writer: Writer, node: Node) -> None:
    integers = operator.dtype if isinstance(operator, ops.Quantize) else None
    dtype = integers or writer.graph.types[node.inputs[0]].dtype
    scales, points = np.array(operator.scales, np.float32), np.array(operator.zero_points)
    if operator.axis is None:  # scalars; otherwise one value for each channel
        scales, points = scales.reshape(()), points.reshape(())
    scale = writer.held(node, "scale", scales, np.float32)
    zero_point = writer.held(node, "zero_point", points, dtype)
    axis = {} if operator.axis is None else {"axis": operator.axis}
    kind = "QuantizeLinear" if integers else "DequantizeLinear"
    writer.add(node, kind, scale, zero_point, **axis)


@write_operator.register
def _reshape(operator: ops.Reshape, writer: Writer, node: Node) -> None:
    shape = writer.held(node, "shape", operator.shape)
    writer.add(node, "Reshape", shape, **({"allowzero": 1} if 0 in operator.shape else {}))


@write_operator.register
def _pad(operator: ops.Pad, writer: Writer, node: Node) -> None:
    pads = writer.held(node, "pads", operator.before + operator.after)
    value = writer.held(node, "value", operator.value, node.output.type.dtype)
    writer.add(node, "Pad", pads, value)


@write_operator.register
def _slice(operator: ops.Slice, writer: Writer, node: Node) -> None:
    parts = {"starts": operator.starts, "stops": operator.stops}
    parts |= {"axes": [*range(len(operator.starts))], "steps": operator.steps}
    writer.add(node, "Slice", *(writer.held(node, part, data) for part, data in parts.items()))


@write_operator.register
def _cast(operator: ops.Cast, writer: Writer, node: Node) -> None:
    overflows = {"saturate": 0} if operator.dtype in FLOAT8 else {}
    writer.add(node, "Cast", to=element(operator.dtype), **overflows)


@write_operator.register
def _conv(operator: ops.Conv, writer: Writer, node: Node) -> None:
    write_by_form(operator, writer, node)
    kernel = writer.graph.types[node.inputs[1]].shape[2:]
    writer.nodes[-1].attribute.append(helper.make_attribute("kernel_shape", kernel))


@write_operator.register
def _topk(operator: ops.TopK, writer: Writer, node: Node) -> None:
    count = writer.held(node, "count", [operator.count])
    writer.add(node, "TopK", count, axis=operator.axis, largest=int(operator.largest))


@write_operator.register
def _general_quantize(operator: ops.GeneralQuantize, writer: Writer, node: Node) -> None:
    attributes: dict[str, Any] = {"axis": operator.axis, "saturate": int(operator.saturate)}
    if operator.block:
        attributes["block_size"] = operator.block
    if operator.precision:
        attributes["precision"] = element(operator.precision)
    inputs = writer.inputs(node)
    if len(inputs) < 3:
        shape = writer.graph.types[node.inputs[1]].shape
        zero = np.zeros(shape, DTYPES[operator.dtype])
        inputs.append(writer.constant(f"{node.output.name}.zero_point", zero))
    writer.write(node, "QuantizeLinear", inputs, **attributes)


@write_operator.register
def _general_dequantize(operator: ops.GeneralDequantize, writer: Writer, node: Node) -> None:
    block = {"block_size": operator.block} if operator.block else {}
    if operator.dtype != writer.graph.types[node.inputs[1]].dtype:
        block["output_dtype"] = element(operator.dtype)
    writer.add(node, "DequantizeLinear", axis=operator.axis, **block)


@write_operator.register
def _integer_matmul(operator: ops.IntegerMatMul, writer: Writer, node: Node) -> None:
    """Write the product of a difference in int32; weights may exceed what MatMulInteger takes."""
    base = node.output.name
    x, w, zero_point = (
        writer.step(f"{base}.wide{place}", "Cast", [given], to=onnx.TensorProto.INT32)
        for place, given in enumerate(writer.inputs(node))
    )
    centred = writer.step(f"{base}.centred", "Sub", [x, zero_point])
    writer.write(node, "MatMul", [centred, w])


@write_operator.register
def _unary(operator: ops.Unary, writer: Writer, node: Node) -> None:
    if operator.kind == "Clip":
        names = [
            writer.held(node, which, limit, np.float32)
            for which, limit in zip(("low", "high"), operator.parameters, strict=True)
        ]
        writer.add(node, "Clip", *names)
        return
    known = UNARY[operator.kind].onnx_parameters.items()
    pairs = zip(known, operator.parameters, strict=True)
    _kind(operator, writer, node, **{name: type(one)(value) for (name, one), value in pairs})


@write_operator.register
def _own(operator: ops.OwnFunction, writer: Writer, node: Node) -> None:
    """Write a registered operator as it was read; its domain is a part of its name."""
    domain, _, kind = operator.name.rpartition(".")
    writer.add(node, kind, domain=domain, **dict(operator.parameters))


@write_operator.register
def _own_kernel(operator: ops.OwnKernel, writer: Writer, node: Node) -> None:
    """Write a registered kernel without its constants; images in the file are [N, C, H, W]."""
    domain, _, kind = operator.name.rpartition(".")
    inputs = []
    for name in node.inputs[: len(node.inputs) - operator.constants]:
        given = writer.names[name]
        if len(writer.graph.types[name].shape) == 4:
            given = writer.step(f"{given}.first", "Transpose", [given], perm=TO_FIRST)
        inputs.append(given)
    settings: dict[str, Any] = dict(operator.settings)
    if len(node.output.type.shape) != 4:
        writer.write(node, kind, inputs, domain=domain, **settings)
        return
    first = f"{node.output.name}.first"
    made = writer.step(first, kind, inputs, name=node.name, domain=domain, **settings)
    writer.write(node, "Transpose", [made], perm=TO_LAST)


def _kind(
    operator: ops.Unary | ops.Binary | ops.Reduce, writer: Writer, node: Node, **attributes: Any
) -> None:
    """Write an operator by its kind, which in ONNX may be an attribute of another operator."""
    kind = operator.kind
    if variant := VARIANTS.get(kind):
        kind, attributes[variant.attribute] = variant.kind, variant.value
    writer.add(node, kind, **attributes)


write_operator.register(ops.Binary, _kind)


@write_operator.register
def _softmax(operator: ops.Softmax, writer: Writer, node: Node) -> None:
    kind = "LogSoftmax" if operator.log else "Softmax"
    shape = node.output.type.shape
    if operator.stop == operator.axis + 1:
        writer.add(node, kind, axis=operator.axis)
        return
    base = node.output.name
    sizes = (*shape[: operator.axis], -1, *shape[operator.stop :])
    inner, outer = writer.held(node, "flat_shape", sizes), writer.held(node, "shape", shape)
    flat = writer.step(f"{base}.flat", "Reshape", [*writer.inputs(node), inner])
    soft = writer.step(f"{base}.soft", kind, [flat], axis=operator.axis)
    writer.write(node, "Reshape", [soft, outer])


@write_operator.register
def _reduce(operator: ops.Reduce, writer: Writer, node: Node) -> None:
    keep = int(operator.keep)
    if operator.kind in POSITIONS:
        _kind(operator, writer, node, axis=operator.axes[0], keepdims=keep)
        return
    axes = writer.held(node, "axes", operator.axes)
    writer.add(node, operator.kind, axes, keepdims=keep, noop_with_empty_axes=1)


@write_operator.register
def _conv_transpose(operator: ops.ConvTranspose, writer: Writer, node: Node) -> None:
    """Write a ConvTranspose; negative padding, which ONNX lacks, is a Pad in front of the bias."""
    inputs, base = writer.inputs(node), node.output.name
    attributes = {
        "kernel_shape": writer.graph.types[node.inputs[1]].shape[2:],
        "strides": operator.strides,
        "pads": [max(pad, 0) for pad in operator.pads],
        "dilations": operator.dilations,
        "output_padding": operator.output_padding,
        "group": operator.groups,
    }
    added = [max(-pad, 0) for pad in operator.pads]
    if not any(added):
        writer.write(node, "ConvTranspose", inputs, **attributes)
        return
    half = len(added) // 2
    core = writer.step(f"{base}.core", "ConvTranspose", inputs[:2], **attributes)
    pads = writer.held(node, "pads", [0, 0, *added[:half], 0, 0, *added[half:]])
    if len(inputs) == 2:
        writer.write(node, "Pad", [core, pads])
        return
    shape = writer.held(node, "bias_shape", [-1] + [1] * half)
    spread = writer.step(f"{base}.spread", "Pad", [core, pads])
    flat = writer.step(f"{base}.bias", "Reshape", [inputs[2], shape])
    writer.write(node, "Add", [spread, flat])


@write_operator.register
def _interpolate(operator: ops.Interpolate, writer: Writer, node: Node) -> None:
    """Write a Gather, Mul and Sum per tap: Resize cannot take explicit source positions."""
    x, places, weights = node.inputs
    base, whole = node.output.name, writer.names[x]
    held = writer.graph.data(places), writer.graph.data(weights)
    spread = [-1 if axis == operator.axis else 1 for axis in range(len(node.output.type.shape))]
    terms: list[str] = []
    for tap, (indices, factors) in enumerate(zip(held[0].T, held[1].T, strict=True)):
        chosen = writer.constant(f"{base}.places{tap}", indices)
        factor = writer.constant(f"{base}.weights{tap}", factors.reshape(spread))
        taken = writer.step(f"{base}.taken{tap}", "Gather", [whole, chosen], axis=operator.axis)
        terms.append(writer.step(f"{base}.term{tap}", "Mul", [taken, factor]))
    writer.write(node, "Sum", terms)


@write_operator.register
def _expand(operator: ops.Expand, writer: Writer, node: Node) -> None:
    writer.add(node, "Expand", writer.held(node, "shape", operator.shape))


@write_operator.register
def _reference(operator: ops.OnnxReference, writer: Writer, node: Node) -> None:
    """Write an operator of ONNX as it was read; what it leaves out has an empty name."""
    made, operands = operator.node(), iter(writer.inputs(node))
    names = [next(operands) if name else "" for name in made.input]
    if operator.kind == "DFT" and operator.version < DFT_WITH_AXIS:
        ((place, axis),) = ((i, a.i) for i, a in enumerate(made.attribute) if a.name == "axis")
        del made.attribute[place]
        names = [*names, *[""] * (2 - len(names)), writer.held(node, "axis", axis)]
    writer.write(node, operator.kind, names)
    written = writer.nodes[-1]
    written.domain = operator.domain
    written.attribute.extend(made.attribute)
    results = iter(list(written.output))
    written.output[:] = [next(results) if name else "" for name in made.output]


@write_operator.register
def _cumsum(operator: ops.CumSum, writer: Writer, node: Node) -> None:
    flags = {"exclusive": int(operator.exclusive), "reverse": int(operator.reverse)}
    writer.add(node, "CumSum", writer.held(node, "axis", operator.axis), **flags)


@write_operator.register
def _max_pool_indices(operator: ops.MaxPoolIndices, writer: Writer, node: Node) -> None:
    window = {name: getattr(operator, name) for name in ("strides", "pads", "dilations")}
    window |= {"kernel_shape": operator.kernel, "storage_order": int(operator.columns_first)}
    writer.add(node, "MaxPool", unused=1, **window)


@write_operator.register
def _roi_align(operator: ops.RoiAlign, writer: Writer, node: Node) -> None:
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


@write_operator.register
def _recurrent(operator: ops.Recurrent, writer: Writer, node: Node) -> None:
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
