"""Importers of convolutions and pools: of images, as the passes know them, or of any rank and type.

One-dimensional images [N, C, L] are reshaped to [N, C, 1, L] and back.
"""

from ..graph import operators as ops
from ..graph.operator import Pair, Quad
from ..graph.operators.windows import Extents
from .onnx_node import OnnxNode
from .onnx_windows import positive, window_of


def import_conv(node: OnnxNode) -> str:
    """Import Conv as Conv or VolumeConv."""
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
    if rank > 4 or types[0].dtype != "float32":
        operator = ops.VolumeConv(window.strides, window.pads, window.dilations, groups)
        return node.emit(operator, operands)
    if declared != kernel:
        node.fail(f"`kernel_shape` = {list(kernel)}", f"{list(declared)}", "export it again")
    if groups < 1:
        node.fail("a `group` of 1 or more", f"`{groups}`", "correct the model")
    strides, dilations = _pair(window.strides), _pair(window.dilations)
    operands[:2] = (_as_image(node, x) for x in operands[:2])
    result = node.emit(ops.Conv(strides, _quad(window.pads), dilations, groups), operands)
    return _as_line(node, result, rank)


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
    operator = ops.ConvTranspose(strides, pads, dilations, more, node.attribute("group", 1))
    return node.emit(operator, node.inputs())


def import_pool(node: OnnxNode) -> str | list[str]:
    """Import MaxPool, AveragePool and LpPool as one pool, or MaxPoolIndices for two outputs."""
    if not node.wants(1):
        return import_one_pool(node)
    window = window_of(node, node.attribute("kernel_shape", ()))
    operator = ops.MaxPoolIndices(
        window.kernel,
        window.strides,
        window.pads_and_overhang,
        window.dilations,
        bool(node.attribute("storage_order", 0)),
    )
    return node.emit_outputs(operator, [node.input(0)])


KINDS = {"MaxPool": "max", "AveragePool": "average", "LpPool": "lp"}
"""Operator -> kind of VolumePool."""


def import_one_pool(node: OnnxNode) -> str:
    """Import MaxPool, AveragePool and LpPool as MaxPool, AveragePool or VolumePool."""
    kind, (x, image) = KINDS[node.proto.op_type], (node.input(0), node.type(0))
    window = window_of(node, node.attribute("kernel_shape", ()))
    include = bool(node.attribute("count_include_pad", 0))
    dense = set(window.dilations) <= {1}
    types = {"max": ("float32", "int8", "uint8"), "average": ("float32",)}.get(kind, ())
    if len(image.shape) > 4 or image.dtype not in types or (kind == "average" and not dense):
        extents = (window.kernel, window.strides, window.pads, window.dilations, window.overhang)
        return node.emit(ops.VolumePool(kind, *extents, include, node.attribute("p", 2)), [x])
    taps, strides = _pair(window.kernel), _pair(window.strides)
    if kind == "average":
        overhang = _pair(window.overhang, 0)
        operator = ops.AveragePool(taps, strides, _quad(window.pads), include, overhang)
    else:
        pads, dilations = _quad(window.pads_and_overhang), _pair(window.dilations)
        operator = ops.MaxPool(taps, strides, pads, dilations)
    return _as_line(node, node.emit(operator, [_as_image(node, x)]), len(image.shape))


def import_global_pool(node: OnnxNode) -> str:
    """Import GlobalAveragePool, GlobalMaxPool and GlobalLpPool as an image-sized pool or Reduce."""
    x, kind, op = node.input(0), node.type(0), node.proto.op_type
    rank, image = len(kind.shape), kind.shape[2:]
    if rank < 3:
        node.fail("a tensor of rank 3 or more", f"rank {rank}", "correct the model")
    if op == "GlobalLpPool":
        ones, none = (1,) * len(image), (0,) * len(image)
        power = node.attribute("p", 2)
        pool = ops.VolumePool("lp", image, ones, (*none, *none), ones, none, False, power)
        return node.emit(pool, [x])
    average = op == "GlobalAveragePool"
    if rank > 4 or kind.dtype != "float32":
        reduction = "ReduceMean" if average else "ReduceMax"
        return node.emit(ops.Reduce(reduction, tuple(range(2, rank)), True), [x])
    pool, window = ops.AveragePool if average else ops.MaxPool, _pair(image)
    result = node.emit(pool(window, window, (0, 0, 0, 0)), [_as_image(node, x)])
    return _as_line(node, result, rank)


def _pair(values: Extents, first: int = 1) -> Pair:
    """Return one value for each axis of an image; a line is an image of one row."""
    return (first, values[0]) if len(values) == 1 else (values[0], values[1])


def _quad(pads: Extents) -> Quad:
    """Return the pads of an image; see `_pair`."""
    return (0, pads[0], 0, pads[1]) if len(pads) == 2 else (pads[0], pads[1], pads[2], pads[3])


def _as_image(node: OnnxNode, x: str) -> str:
    """Emit a line as an image of one row; return an image unchanged."""
    shape = node.builder.types[x].shape
    return node.reshape(x, (*shape[:2], 1, shape[2]), f"{x}.image") if len(shape) == 3 else x


def _as_line(node: OnnxNode, x: str, rank: int) -> str:
    """Emit an image of one row as a line if the operand, of `rank`, was a line."""
    shape = node.builder.types[x].shape
    return node.reshape(x, (*shape[:2], shape[3]), f"{x}.line") if rank == 3 else x
