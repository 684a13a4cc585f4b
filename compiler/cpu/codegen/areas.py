"""Buffers while code for them is emitted: what they hold, and where."""

from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from ....isa.expressions import Affine
from ...accelerator.dma import Box
from ...tensor import Tensor
from .emitter import TYPES, LlvmValue
from .layout import Layout, Tiles


@dataclass(frozen=True, slots=True)
class Area:
    """A buffer while code for it is emitted.

    Parameters
    ----------
    tensor
        What it holds.
    domain
        Elements that exist; reading outside gives the pad.
    origin
        Tensor coordinates of its first element, in symbols.
    layout
        Of the box that it has room for.
    pointer
        Its first byte.
    private
        Whether elements that do not exist may be written, where there is room for them.
    values
        What it holds, where that is known.
    given
        Whether it is an operand, which stays as it is: an element is loaded once.
    """

    tensor: Tensor
    domain: Box
    origin: tuple[Affine, ...]
    layout: Layout | Tiles
    pointer: LlvmValue
    private: bool = False
    values: np.ndarray | None = None
    given: bool = False


def bytes_of(area: Area) -> int:
    """Bytes of one element."""
    element = TYPES[area.tensor.dtype]
    return element.width // 8 if isinstance(element, ir.IntType) else 4
