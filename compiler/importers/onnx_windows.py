"""Convolutions and pools: `auto_pad`, `ceil_mode`, one-dimensional windows -> explicit 2-D windows.

One-dimensional images [N, C, L] become [N, C, 1, L] and back.
"""

from ..graph import operators as ops
from .onnx_node import OnnxNode
from .onnx_volumes import (
    emit_volume_conv,
    emit_volume_pool,
    import_max_pool_indices,
    reach,
)

Four = tuple[int, int, int, int]


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
    strides, dilations = _pair(node, "strides", flat), _pair(node, "dilations", flat)
    image = types[0].shape[2:]
    window = _two(kernel, flat, 1)
    pads = _pads(node, _two(image, flat, 1), window, strides, dilations, flat)
    groups = node.attribute("group", 1)
    if groups < 1:
        node.fail("a `group` of 1 or more", f"`{groups}`", "correct the model")
    if flat:
        operands = [_expand(node, operands[0]), _expand(node, operands[1]), *operands[2:]]
    result = node.emit(ops.Conv(strides, pads, dilations, groups), operands)
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
    window, image = _two(kernel, flat, 1), _two(shape[2:], flat, 1)
    strides, dilations = _pair(node, "strides", flat), _pair(node, "dilations", flat)
    pads = _pads(node, image, window, strides, dilations, flat)
    overhang = (0, 0)
    if node.attribute("ceil_mode", 0):
        overhang = (
            reach(image[0], window[0], strides[0], dilations[0], (pads[0], pads[2])),
            reach(image[1], window[1], strides[1], dilations[1], (pads[1], pads[3])),
        )
    if average:
        include = bool(node.attribute("count_include_pad", 0))
        operator = ops.AveragePool(window, strides, pads, include, overhang)
    else:
        top, left, bottom, right = pads
        pads = (top, left, bottom + overhang[0], right + overhang[1])
        operator = ops.MaxPool(window, strides, pads, dilations)
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
    window = _two(shape[2:], flat, 1)
    pool = ops.AveragePool if average else ops.MaxPool
    operand = _expand(node, x) if flat else x
    result = node.emit(pool(window, window, (0, 0, 0, 0)), [operand])
    return _squeeze(node, result) if flat else result


def _two(values: tuple[int, ...], flat: bool, first: int) -> ops.Pair:
    return (first, values[0]) if flat else (values[0], values[1])


def _pair(node: OnnxNode, name: str, flat: bool) -> ops.Pair:
    count = 1 if flat else 2
    values = node.attribute(name, (1,) * count)
    if len(values) != count or min(values) < 1:
        node.fail(f"`{name}` of {count} positive integers", f"{list(values)}", "correct the model")
    return _two(values, flat, 1)


def _pads(
    node: OnnxNode,
    image: ops.Pair,
    kernel: ops.Pair,
    strides: ops.Pair,
    dilations: ops.Pair,
    flat: bool,
) -> Four:
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0, 0, 0, 0)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        sides = []
        for size, taps, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
            windows = -(-size // stride)
            total = max(0, (windows - 1) * stride + (taps - 1) * dilation + 1 - size)
            small = total // 2
            sides.append((small, total - small) if mode == "SAME_UPPER" else (total - small, small))
        return (sides[0][0], sides[1][0], sides[0][1], sides[1][1])
    if mode != "NOTSET":
        node.fail(
            "`auto_pad` NOTSET, VALID, SAME_UPPER or SAME_LOWER", f"`{mode}`", "give explicit pads"
        )
    count = 2 if flat else 4
    pads = node.attribute("pads", (0,) * count)
    if len(pads) != count or min(pads) < 0:
        node.fail(f"`pads` of {count} integers, 0 or more", f"{list(pads)}", "correct the model")
    return (0, pads[0], 0, pads[1]) if flat else (pads[0], pads[1], pads[2], pads[3])


def _expand(node: OnnxNode, x: str) -> str:
    shape = node.builder.types[x].shape
    return node.emit(ops.Reshape((*shape[:2], 1, shape[2])), [x], f"{x}.image")


def _squeeze(node: OnnxNode, x: str) -> str:
    shape = node.builder.types[x].shape
    return node.emit(ops.Reshape((*shape[:2], shape[3])), [x], f"{x}.line")
