"""Buffers during code generation: contents, layout and address."""

from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from ....isa.expressions import Affine
from ...te.box import Box
from ...tensor import Tensor
from .emitter import TYPES, LlvmValue
from .layout import Layout, Tiles


@dataclass(frozen=True, slots=True)
class CodeBuffer:
    """A buffer during code generation.

    Parameters
    ----------
    tensor
        The tensor that the buffer holds, or a part of it.
    domain
        Elements that exist; reading outside gives the pad.
    origin
        Tensor coordinates of the first element, in symbols.
    layout
        Layout of the box that the buffer has room for.
    pointer
        Address of the first byte.
    private
        Whether elements outside the domain may be written if there is room for them.
    values
        The contents, if they are known at compile time.
    given
        Whether it is an operand, which never changes: each element is loaded once.
    """

    tensor: Tensor
    domain: Box
    origin: tuple[Affine, ...]
    layout: Layout | Tiles
    pointer: LlvmValue
    private: bool = False
    values: np.ndarray | None = None
    given: bool = False


def bytes_of(area: CodeBuffer) -> int:
    """Bytes of one element."""
    element = TYPES[area.tensor.dtype]
    return element.width // 8 if isinstance(element, ir.IntType) else 4
