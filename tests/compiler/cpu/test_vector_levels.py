"""Kernels without dot products have the same LLVM code on all levels with vectors of a length."""

import pytest

from tilewright.compiler.cpu import LEVELS, Convolution, HeadProduct, Requantisation, generic
from tilewright.compiler.cpu.execution.kernel import lower_description
from tilewright.compiler.cpu.kernels.description import Description

from ...processor import VECTOR_LEVELS
from .arrays import Bytes, with_bytes

BYTES = Bytes("int8", -5, Requantisation("int8", 2))
DEPTHWISE = Convolution(1, 8, 8, 3, 3, (3, 3), pads=(1, 1, 1, 1), groups=3)

KERNELS: dict[str, Description] = {
    "a convolution": Convolution(1, 8, 10, 40, 72, (3, 3), pads=(1, 1, 1, 1)),
    "groups": Convolution(1, 8, 8, 24, 24, (3, 3), pads=(1, 1, 1, 1), groups=4),
    "a depthwise convolution": DEPTHWISE,
    "a depthwise convolution of bytes": with_bytes(DEPTHWISE, BYTES),
    "products of heads": HeadProduct(2, 2, 31, 9, 37, transposed=True),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_code_depends_on_the_length_of_vectors_alone(kernel: str) -> None:
    texts = {level: lower_description(KERNELS[kernel], generic(level))[1].text for level in LEVELS}
    lanes = {level: LEVELS[level].lanes for level in LEVELS}
    for level, text in texts.items():
        (same,) = (each for each in VECTOR_LEVELS if lanes[each] == lanes[level])
        assert text == texts[same], level
    assert len(set(texts.values())) == len(VECTOR_LEVELS)
