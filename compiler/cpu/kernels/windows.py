"""How many windows fit an image, for all kernels that have some."""

from typing import Protocol

from ....errors import CompileError

Pair = tuple[int, int]


class Windowed(Protocol):
    """A kernel with windows: extents of the image, and of the window, vertical first."""

    @property
    def height(self) -> int:
        """Rows of the image."""
        ...

    @property
    def width(self) -> int:
        """Columns of the image."""
        ...

    @property
    def kernel(self) -> Pair:
        """Rows and columns of the window."""
        ...

    @property
    def strides(self) -> Pair:
        """Pixels from window to window."""
        ...

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Pixels at the top, left, bottom and right."""
        ...

    @property
    def dilations(self) -> Pair:
        """Pixels from tap to tap."""
        ...


def count_windows(layer: Windowed) -> Pair:
    """Rows and columns of windows."""
    top, left, bottom, right = layer.pads
    reach = [d * (k - 1) + 1 for d, k in zip(layer.dilations, layer.kernel, strict=True)]
    return (
        (layer.height + top + bottom - reach[0]) // layer.strides[0] + 1,
        (layer.width + left + right - reach[1]) // layer.strides[1] + 1,
    )


def check_windows(layer: Windowed, what: str) -> None:
    """Refuse an image that has none.

    Raises
    ------
    CompileError
        Naming the kernel, its window and the image.
    """
    if min(count_windows(layer)) < 1:
        raise CompileError(
            f"{what}: the window {layer.kernel} does not fit {layer.height}x{layer.width} with "
            f"pads {layer.pads}; enlarge the pads"
        )
