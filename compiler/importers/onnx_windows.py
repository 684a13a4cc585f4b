"""Windows of convolutions and pools: `auto_pad`, `ceil_mode` and defaults made explicit."""

from dataclasses import dataclass

from ..graph.operators.windows import Extents
from .onnx_node import OnnxNode


@dataclass(frozen=True, slots=True)
class WindowAttributes:
    """Explicit window attributes of a node: one entry for each spatial axis; for pads, two."""

    kernel: Extents
    strides: Extents
    dilations: Extents
    pads: Extents
    overhang: Extents

    @property
    def as_image(self) -> "WindowAttributes":
        """The same window on a one-row image; an image window is returned unchanged."""
        if len(self.kernel) != 1:
            return self
        pads = (0, self.pads[0], 0, self.pads[1])
        extents = ((1, *self.kernel), (1, *self.strides), (1, *self.dilations))
        return WindowAttributes(*extents, pads, (0, *self.overhang))

    @property
    def pads_and_overhang(self) -> Extents:
        """Pads plus the overhang at the end, for a maximum, which never chooses padding."""
        count = len(self.kernel)
        ends = (self.pads[i + count] + self.overhang[i] for i in range(count))
        return (*self.pads[:count], *ends)


def window_of(node: OnnxNode, kernel: Extents) -> WindowAttributes:
    """Return the window of a convolution or pool on the node's first operand.

    Raises
    ------
    ImportModelError
        If an attribute is invalid.
    """
    image = node.type(0).shape[2:]
    count = len(image)
    if not count or len(kernel) != count:
        node.fail(
            "a tensor of rank 3 or more and a kernel of two less",
            f"ranks {count + 2} and {len(kernel)}",
            "correct the model",
        )
    strides, dilations = (positive(node, name, count) for name in ("strides", "dilations"))
    pads = _pads(node, image, kernel, strides, dilations)
    overhang = (0,) * count
    if node.attribute("ceil_mode", 0):
        overhang = tuple(
            _reach(image[i], kernel[i], strides[i], dilations[i], (pads[i], pads[i + count]))
            for i in range(count)
        )
    return WindowAttributes(kernel, strides, dilations, pads, overhang)


def positive(node: OnnxNode, name: str, count: int) -> Extents:
    """Return an attribute of `count` positive integers; the default is all ones."""
    values = node.attribute(name, (1,) * count)
    if len(values) != count or min(values) < 1:
        node.fail(f"`{name}` of {count} positive integers", f"{list(values)}", "correct the model")
    return values


def _pads(
    node: OnnxNode, image: Extents, kernel: Extents, strides: Extents, dilations: Extents
) -> Extents:
    mode, count = node.attribute("auto_pad", "NOTSET"), 2 * len(image)
    if mode == "VALID":
        return (0,) * count
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for size, taps, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
            before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
            after.append(total - before[-1])
        return (*before, *after)
    if mode != "NOTSET":
        node.fail(
            "`auto_pad` NOTSET, VALID, SAME_UPPER or SAME_LOWER", f"`{mode}`", "give explicit pads"
        )
    pads = node.attribute("pads", (0,) * count)
    if len(pads) != count or min(pads) < 0:
        node.fail(f"`pads` of {count} integers, 0 or more", f"{list(pads)}", "correct the model")
    return pads


def _reach(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    """Return how far the last window reaches beyond the padding under `ceil_mode`, in elements.

    A window that would start in the padding at the end is dropped. Source: ONNX operator MaxPool.
    """
    padded = size + sum(pads)
    span = (kernel - 1) * dilation + 1
    count = -(-(padded - span) // stride) + 1
    if (count - 1) * stride >= size + pads[0]:
        count -= 1
    return max(0, (count - 1) * stride + span - padded)
