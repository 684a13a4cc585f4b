"""Kernels without dot products have the same LLVM code on all levels with vectors of a length."""

import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    Elementwise,
    HeadProduct,
    LayerNormalisation,
    Pooling,
    Requantisation,
    RowReduction,
    RowSoftmax,
    generic,
)
from tilewright.compiler.cpu.execution.kernel import lower_description
from tilewright.compiler.cpu.kernels.description import Description
from tilewright.compiler.cpu.kernels.pooling import PoolingPlaces
from tilewright.compiler.cpu.kernels.sampling import LinearSamples

from ...processor import VECTOR_LEVELS
from .arrays import Bytes, with_bytes

X = ("x", "float32")
BYTES = Bytes("int8", -5, Requantisation("int8", 2))
DEPTHWISE = Convolution(1, 8, 8, 3, 3, (3, 3), pads=(1, 1, 1, 1), groups=3)

KERNELS: dict[str, Description] = {
    "a convolution": Convolution(1, 8, 10, 40, 72, (3, 3), pads=(1, 1, 1, 1)),
    "groups": Convolution(1, 8, 8, 24, 24, (3, 3), pads=(1, 1, 1, 1), groups=4),
    "a depthwise convolution": DEPTHWISE,
    "a depthwise convolution of bytes": with_bytes(DEPTHWISE, BYTES),
    "computed weights": Convolution(1, 9, 11, 20, 37, (3, 3), pads=(1, 1, 1, 1), computed=True),
    "computed depthwise weights": Convolution(1, 9, 9, 35, 35, (5, 5), groups=35, computed=True),
    "products of heads": HeadProduct(2, 2, 31, 9, 37, transposed=True),
    "a chain": Elementwise((3, 50), (X, ("y", "float32")), ("exp", ("add", "x", ("sin", "y")))),
    "softmax": RowSoftmax(3, 70),
    "softmax of rows side by side": RowSoftmax(4, 9, True, 20),
    "norm": LayerNormalisation(3, 70, 1e-5),
    "sums": RowReduction(3, 70, "sum"),
    "pool": Pooling(1, 9, 10, 20, (3, 3), (1, 1)),
    "pool of a whole image": Pooling(1, 9, 10, 20, (9, 10), average=True),
    "indices of a pool": PoolingPlaces(1, 9, 10, 20, (3, 3), (1, 1)),
    "samples": LinearSamples(1, 3, 7, 9, 45),
}


NARROW = {
    "a chain of integers": Elementwise((3, 50), (("x", "int16"),), ("mul", "x", 3), "int16"),
    "rounding": Elementwise((3, 50), (X,), ("rounded", "x"), "int8"),
}
"""Kernels that take as many elements at a time on every level."""


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_code_depends_on_the_length_of_vectors_alone(kernel: str) -> None:
    texts = {level: lower_description(KERNELS[kernel], generic(level))[1].text for level in LEVELS}
    lanes = {level: LEVELS[level].lanes for level in LEVELS}
    for level, text in texts.items():
        (same,) = (each for each in VECTOR_LEVELS if lanes[each] == lanes[level])
        assert text == texts[same], level
    assert len(set(texts.values())) == len(VECTOR_LEVELS)


@pytest.mark.parametrize("kernel", NARROW)
def test_narrow_results_have_the_same_code_everywhere(kernel: str) -> None:
    texts = {lower_description(NARROW[kernel], generic(level))[1].text for level in LEVELS}
    assert len(texts) == 1
