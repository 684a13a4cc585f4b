"""Importers of convolutions and pools.

One-dimensional images [N, C, L] of the types that layers and kernels have are reshaped to
[N, C, 1, L] and back.
"""

from dataclasses import replace

from ..graph import operators as ops
from .onnx_node import OnnxNode
from .onnx_windows import WindowAttributes, positive, window_of


def import_conv(node: OnnxNode) -> str:
    """Import Conv as Conv."""
    operands = node.inputs()
    types = [node.builder.types[name] for name in operands]
    rank, kernel_rank, kernel = len(types[0].shape), len(types[1].shape), types[1].shape[2:]
    if rank < 3 or rank != kernel_rank:
        node.fail(
            "an image and a kernel of one rank, 3 or more",
            f"ranks {rank} and {kernel_rank}",
            "correct the model",
        )
    declared, groups = node.attribute("kernel_shape", kernel), node.attribute("group", 1)
    window = window_of(node, kernel)
    if declared != kernel:
        node.fail(f"`kernel_shape` = {list(kernel)}", f"{list(declared)}", "export it again")
    if groups < 1:
        node.fail("a `group` of 1 or more", f"`{groups}`", "correct the model")
    line = rank == 3 and types[0].dtype == "float32"
    if line:
        window = window.as_image
        operands[:2] = (_as_image(node, x) for x in operands[:2])
    result = node.emit(ops.Conv(window.strides, window.pads, window.dilations, groups), operands)
    return _as_line(node, result) if line else result


def import_conv_transpose(node: OnnxNode) -> str:
    """Import ConvTranspose as ConvTranspose."""
    image, kernel = node.type(0).shape[2:], node.type(1).shape[2:]
    count = len(image)
    if not count or len(kernel) != count:
        node.fail("an image and a kernel of one rank", "different ranks", "correct the model")
    strides, dilations = (positive(node, name, count) for name in ("strides", "dilations"))
    more = node.attribute("output_padding", (0,) * count)
    mode, requested = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape", ())
    if mode.startswith("SAME") and not requested:
        requested = tuple(size * stride for size, stride in zip(image, strides, strict=True))
    pads = (0,) * (2 * count) if mode == "VALID" else node.attribute("pads", (0,) * (2 * count))
    if requested:
        if len(requested) != count or len(more) != count:
            node.fail(f"{count} extents of the result", f"{list(requested)}", "correct the model")
        before, after = [], []
        for i in range(count):
            whole = (image[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i]
            half = (whole - requested[i]) // 2
            rest = whole - requested[i] - half
            before.append(half if mode == "SAME_UPPER" else rest)
            after.append(rest if mode == "SAME_UPPER" else half)
        pads = (*before, *after)
    if len(pads) != 2 * count:
        node.fail(f"`pads` of {2 * count} integers", f"{list(pads)}", "correct the model")
    operands, line = node.inputs(), count == 1 and node.type(0).dtype == "float32"
    if line:
        strides, dilations, more = (1, *strides), (1, *dilations), (0, *more)
        pads = (0, pads[0], 0, pads[1])
        operands[:2] = (_as_image(node, x) for x in operands[:2])
    operator = ops.ConvTranspose(strides, pads, dilations, more, node.attribute("group", 1))
    result = node.emit(operator, operands)
    return _as_line(node, result) if line else result


def import_pool(node: OnnxNode) -> str | list[str]:
    """Import MaxPool, AveragePool and LpPool as one pool, and MaxPoolIndices for indices."""
    pooled = import_one_pool(node)
    if not node.wants(1):
        return pooled
    window, columns_first = window_of(node, node.attribute("kernel_shape", ())), False
    if len(window.kernel) > 1:
        columns_first = bool(node.attribute("storage_order", 0))
    extents = (window.kernel, window.strides, window.pads_and_overhang, window.dilations)
    operator = ops.MaxPoolIndices(*extents, columns_first)
    return [pooled, node.emit(operator, [node.input(0)], node.proto.output[1])]


def import_max_unpool(node: OnnxNode) -> str:
    """Import MaxUnpool; where its shape is given, the indices count the elements of that shape."""
    window = window_of(node, node.attribute("kernel_shape", ()))
    operator = ops.MaxUnpool(window.kernel, window.strides, window.pads)
    if node.has(2):
        asked, least = node.integers(2), operator.unpooled(node.type(0).shape)
        more = [to - size for to, size in zip(asked, least, strict=False)]
        if len(asked) != len(least) or any(more[:2]) or min(more) < 0:
            expected = f"an `output_shape` of {list(least)} or more along the image's axes"
            node.fail(expected, f"{list(asked)}", "correct the model")
        kernel = tuple(map(sum, zip(window.kernel, more[2:], strict=True)))  # only extents count
        operator = replace(operator, kernel=kernel)
    return node.emit(operator, [node.input(0), node.input(1)])


def import_one_pool(node: OnnxNode) -> str:
    """Import MaxPool, AveragePool and LpPool by the operators of the same names."""
    kind, (x, image) = node.proto.op_type, (node.input(0), node.type(0))
    window = window_of(node, node.attribute("kernel_shape", ()))
    types = {"MaxPool": ("float32", "int8", "uint8"), "AveragePool": ("float32",)}.get(kind, ())
    line = len(image.shape) == 3 and image.dtype in types
    if line:
        x, window = _as_image(node, x), window.as_image
    result = node.emit(_pool(node, kind, window), [x])
    return _as_line(node, result) if line else result


def _pool(node: OnnxNode, kind: str, window: WindowAttributes) -> ops.Operator:
    if kind == "MaxPool":
        extents = (window.kernel, window.strides, window.pads_and_overhang, window.dilations)
        return ops.MaxPool(*extents)
    extents = (window.kernel, window.strides, window.pads)
    if kind == "LpPool":
        power = node.attribute("p", 2)
        return ops.LpPool(*extents, window.dilations, window.overhang, power)
    include = bool(node.attribute("count_include_pad", 0))
    return ops.AveragePool(*extents, include, window.overhang, dilations=window.dilations)


def import_global_pool(node: OnnxNode) -> str:
    """Import GlobalAveragePool, GlobalMaxPool and GlobalLpPool as an image-sized pool or Reduce."""
    x, kind, op = node.input(0), node.type(0), node.proto.op_type
    rank, image = len(kind.shape), kind.shape[2:]
    if rank < 3:
        node.fail("a tensor of rank 3 or more", f"rank {rank}", "correct the model")
    ones, none = (1,) * len(image), (0,) * len(image)
    if op == "GlobalLpPool":
        window = WindowAttributes(image, ones, ones, (*none, *none), none)
        return node.emit(_pool(node, "LpPool", window), [x])
    if rank > 4 or kind.dtype != "float32":
        reduction = "ReduceMean" if op == "GlobalAveragePool" else "ReduceMax"
        return node.emit(ops.Reduce(reduction, tuple(range(2, rank)), True), [x])
    window = WindowAttributes(image, image, ones, (*none, *none), none).as_image
    pool = _pool(node, op.removeprefix("Global"), window)
    result = node.emit(pool, [_as_image(node, x)])
    return _as_line(node, result) if rank == 3 else result


def _as_image(node: OnnxNode, x: str) -> str:
    """Emit a line as an image of one row; return an image unchanged."""
    shape = node.builder.types[x].shape
    return node.reshape(x, (*shape[:2], 1, shape[2]), f"{x}.image") if len(shape) == 3 else x


def _as_line(node: OnnxNode, x: str) -> str:
    """Emit an image of one row as a line."""
    shape = node.builder.types[x].shape
    return node.reshape(x, (*shape[:2], shape[3]), f"{x}.line")
