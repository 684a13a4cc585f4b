"""Convolutions and pools: `auto_pad`, `ceil_mode`, one-dimensional windows -> explicit 2-D windows.

One-dimensional images [N, C, L] become [N, C, 1, L] and back.
"""

from ..graph import operators as ops
from ..graph.operator import Pair, Quad
from .onnx_node import OnnxNode
from .onnx_volumes import (
    emit_volume_conv,
    emit_volume_pool,
    import_max_pool_indices,
    window_of,
)


def import_conv(node: OnnxNode) -> str:
    """Conv -> Conv."""
    operands = [node.input(i) for i in range(3 if node.has(2) else 2)]
    return emit_conv(node, operands)


def emit_conv(node: OnnxNode, operands: list[str]) -> str:
    """Emit a float convolution of `operands` with the node's attributes."""
    types = [node.builder.types[name] for name in operands]
    rank, kernel_rank = len(types[0].shape), len(types[1].shape)
    if rank not in (3, 4) or kernel_rank != rank or types[0].dtype != "float32":
        return emit_volume_conv(node, operands)
    flat = len(types[0].shape) == 3
    kernel = types[1].shape[2:]
    declared = node.attribute("kernel_shape", kernel)
    if declared != kernel:
        node.fail(f"`kernel_shape` = {list(kernel)}", f"{list(declared)}", "export it again")
    window = window_of(node, types[0].shape[2:], kernel)
    groups = node.attribute("group", 1)
    if groups < 1:
        node.fail("a `group` of 1 or more", f"`{groups}`", "correct the model")
    if flat:
        operands = [_expand(node, operands[0]), _expand(node, operands[1]), *operands[2:]]
    strides, dilations = _pair(window.strides), _pair(window.dilations)
    result = node.emit(ops.Conv(strides, _quad(window.pads), dilations, groups), operands)
    return _squeeze(node, result) if flat else result


def import_pool(node: OnnxNode) -> str | list[str]:
    """MaxPool, AveragePool -> MaxPool, AveragePool; MaxPoolIndices for two outputs."""
    if node.wants(1):
        return import_max_pool_indices(node)
    return emit_pool(node, node.input(0), node.proto.op_type.endswith("AveragePool"))


def emit_pool(node: OnnxNode, x: str, average: bool) -> str:
    """Emit a pool of `x` with the node's attributes."""
    shape = node.builder.types[x].shape
    flat = len(shape) == 3
    kernel = node.attribute("kernel_shape", ())
    usual = len(shape) in (3, 4) and len(kernel) == len(shape) - 2
    dense = set(node.attribute("dilations", ())) <= {1}
    types = ("float32",) if average else ("float32", "int8", "uint8")
    if not usual or node.builder.types[x].dtype not in types or (average and not dense):
        return emit_volume_pool(node, x, "average" if average else "max")
    window = window_of(node, shape[2:], kernel)
    taps, strides = _pair(kernel), _pair(window.strides)
    if average:
        include = bool(node.attribute("count_include_pad", 0))
        overhang = _pair(window.overhang, 0)
        operator = ops.AveragePool(taps, strides, _quad(window.pads), include, overhang)
    else:
        pads, dilations = _quad(window.pads_and_overhang), _pair(window.dilations)
        operator = ops.MaxPool(taps, strides, pads, dilations)
    result = node.emit(operator, [_expand(node, x) if flat else x])
    return _squeeze(node, result) if flat else result


def import_global_pool(node: OnnxNode) -> str:
    """GlobalAveragePool, GlobalMaxPool -> a pool over the whole image."""
    return emit_global_pool(node, node.input(0), "Average" in node.proto.op_type)


def emit_global_pool(node: OnnxNode, x: str, average: bool) -> str:
    """Emit a pool of `x` over its whole image."""
    shape = node.builder.types[x].shape
    if len(shape) < 3:
        node.fail("a tensor of rank 3 or more", f"rank {len(shape)}", "correct the model")
    if len(shape) > 4 or node.builder.types[x].dtype != "float32":
        kind, axes = "ReduceMean" if average else "ReduceMax", tuple(range(2, len(shape)))
        return node.emit(ops.Reduce(kind, axes, True), [x])
    flat = len(shape) == 3
    window = _pair(shape[2:])
    pool = ops.AveragePool if average else ops.MaxPool
    operand = _expand(node, x) if flat else x
    result = node.emit(pool(window, window, (0, 0, 0, 0)), [operand])
    return _squeeze(node, result) if flat else result


def _pair(values: tuple[int, ...], first: int = 1) -> Pair:
    """Return an entry for each axis of a plane, of which a line is the only row."""
    return (first, values[0]) if len(values) == 1 else (values[0], values[1])


def _quad(pads: tuple[int, ...]) -> Quad:
    """Return the pads of a plane; see `_pair`."""
    return (0, pads[0], 0, pads[1]) if len(pads) == 2 else (pads[0], pads[1], pads[2], pads[3])


def _expand(node: OnnxNode, x: str) -> str:
    shape = node.builder.types[x].shape
    return node.emit(ops.Reshape((*shape[:2], 1, shape[2])), [x], f"{x}.image")


def _squeeze(node: OnnxNode, x: str) -> str:
    shape = node.builder.types[x].shape
    return node.emit(ops.Reshape((*shape[:2], shape[3])), [x], f"{x}.line")
