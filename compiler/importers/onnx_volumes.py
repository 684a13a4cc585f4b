"""Convolutions and pools of any rank and element type -> the operators of `graph.volumes`.

`onnx_windows` takes what the accelerator might run; all else comes here.
"""

from dataclasses import dataclass

from ..graph.operators import ConvTranspose, MaxPoolIndices, VolumeConv, VolumePool
from .onnx_node import OnnxNode

Extents = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A node's window attributes, made explicit: one entry for each spatial axis, pads two."""

    kernel: Extents
    strides: Extents
    dilations: Extents
    pads: Extents
    overhang: Extents

    @property
    def pads_and_overhang(self) -> Extents:
        """Pads with the overhang added at the end: for a maximum, which padding never wins."""
        count = len(self.kernel)
        ends = (self.pads[i + count] + self.overhang[i] for i in range(count))
        return (*self.pads[:count], *ends)


def window_of(node: OnnxNode, image: Extents, kernel: Extents) -> Window:
    """Return the window of a convolution or pool over `image` with `kernel` taps.

    Raises
    ------
    ImportModelError
        If an attribute is not as it should be.
    """
    count = len(image)
    strides, dilations = (_positive(node, name, count) for name in ("strides", "dilations"))
    pads = _pads(node, image, kernel, strides, dilations)
    overhang = (0,) * count
    if node.attribute("ceil_mode", 0):
        overhang = tuple(
            _reach(image[i], kernel[i], strides[i], dilations[i], (pads[i], pads[i + count]))
            for i in range(count)
        )
    return Window(kernel, strides, dilations, pads, overhang)


def _positive(node: OnnxNode, name: str, count: int) -> Extents:
    values = node.attribute(name, (1,) * count)
    if len(values) != count or min(values) < 1:
        node.fail(f"`{name}` of {count} positive integers", f"{list(values)}", "correct the model")
    return values


def _pads(
    node: OnnxNode, image: Extents, kernel: Extents, strides: Extents, dilations: Extents
) -> Extents:
    mode, count = node.attribute("auto_pad", "NOTSET"), len(image)
    if mode == "VALID":
        return (0,) * (2 * count)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for size, taps, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
            small = total // 2
            before.append(small if mode == "SAME_UPPER" else total - small)
            after.append(total - before[-1])
        return (*before, *after)
    if mode != "NOTSET":
        node.fail(
            "`auto_pad` NOTSET, VALID, SAME_UPPER or SAME_LOWER", f"`{mode}`", "give explicit pads"
        )
    count *= 2
    pads = node.attribute("pads", (0,) * count)
    if len(pads) != count or min(pads) < 0:
        node.fail(f"`pads` of {count} integers, 0 or more", f"{list(pads)}", "correct the model")
    return pads


def _reach(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    """Return how far the last window reaches beyond the padding under `ceil_mode`.

    A window that would start in the padding at the end is left out. Source: ONNX operator MaxPool.
    """
    padded = size + sum(pads)
    span = (kernel - 1) * dilation + 1
    count = -(-(padded - span) // stride) + 1
    if (count - 1) * stride >= size + pads[0]:
        count -= 1
    return max(0, (count - 1) * stride + span - padded)


def emit_volume_conv(node: OnnxNode, operands: list[str]) -> str:
    """Emit a convolution of `operands` with the node's attributes."""
    types = [node.builder.types[name] for name in operands]
    if len(types[0].shape) < 3 or len(types[0].shape) != len(types[1].shape):
        node.fail(
            "an image and a kernel of one rank, 3 or more",
            f"ranks {len(types[0].shape)} and {len(types[1].shape)}",
            "correct the model",
        )
    window = window_of(node, types[0].shape[2:], types[1].shape[2:])
    groups = node.attribute("group", 1)
    operator = VolumeConv(window.strides, window.pads, window.dilations, groups)
    return node.emit(operator, operands)


def import_conv_transpose(node: OnnxNode) -> str:
    """ConvTranspose -> ConvTranspose."""
    operands = [node.input(i) for i in range(3 if node.has(2) else 2)]
    image, kernel = node.type(0).shape[2:], node.type(1).shape[2:]
    count = len(image)
    if not count or len(kernel) != count:
        node.fail("an image and a kernel of one rank", "others", "correct the model")
    strides, dilations = (_positive(node, name, count) for name in ("strides", "dilations"))
    more = node.attribute("output_padding", (0,) * count)
    mode = node.attribute("auto_pad", "NOTSET")
    wished = node.attribute("output_shape", ())
    if mode.startswith("SAME") and not wished:
        wished = tuple(size * stride for size, stride in zip(image, strides, strict=True))
    if wished:
        if len(wished) != count or len(more) != count:
            node.fail(f"{count} extents of the result", f"{list(wished)}", "correct the model")
        before, after = [], []
        for i in range(count):
            whole = (image[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i]
            half = (whole - wished[i]) // 2
            rest = whole - wished[i] - half
            before.append(half if mode == "SAME_UPPER" else rest)
            after.append(rest if mode == "SAME_UPPER" else half)
        pads = (*before, *after)
    else:
        pads = (0,) * (2 * count) if mode == "VALID" else node.attribute("pads", (0,) * (2 * count))
    if len(pads) != 2 * count:
        node.fail(f"`pads` of {2 * count} integers", f"{list(pads)}", "correct the model")
    operator = ConvTranspose(strides, pads, dilations, more, node.attribute("group", 1))
    return node.emit(operator, operands)


def emit_volume_pool(node: OnnxNode, x: str, kind: str) -> str:
    """Emit a pool of `x` with the node's attributes; `kind` is max, average or lp."""
    shape, kernel = node.builder.types[x].shape, node.attribute("kernel_shape", ())
    if len(shape) < 3 or len(kernel) != len(shape) - 2:
        node.fail(
            "a tensor of rank 3 or more and a kernel of two less",
            f"ranks {len(shape)} and {len(kernel)}",
            "correct the model",
        )
    window = window_of(node, shape[2:], kernel)
    operator = VolumePool(
        kind,
        kernel,
        window.strides,
        window.pads,
        window.dilations,
        window.overhang,
        bool(node.attribute("count_include_pad", 0)),
        node.attribute("p", 2),
    )
    return node.emit(operator, [x])


def import_lp_pool(node: OnnxNode) -> str:
    """LpPool -> VolumePool."""
    return emit_volume_pool(node, node.input(0), "lp")


def import_global_lp_pool(node: OnnxNode) -> str:
    """GlobalLpPool -> VolumePool over the whole image."""
    image = node.type(0).shape[2:]
    ones, none = (1,) * len(image), (0,) * len(image)
    power = node.attribute("p", 2)
    operator = VolumePool("lp", image, ones, (*none, *none), ones, none, False, power)
    return node.emit(operator, [node.input(0)])


def import_max_pool_indices(node: OnnxNode) -> list[str]:
    """MaxPool of two outputs -> MaxPoolIndices."""
    shape, kernel = node.type(0).shape, node.attribute("kernel_shape", ())
    if len(shape) < 3 or len(kernel) != len(shape) - 2:
        node.fail("a kernel for each spatial axis", f"{list(kernel)}", "correct the model")
    window = window_of(node, shape[2:], kernel)
    operator = MaxPoolIndices(
        kernel,
        window.strides,
        window.pads_and_overhang,
        window.dilations,
        bool(node.attribute("storage_order", 0)),
    )
    return node.emit_outputs(operator, [node.input(0)])
