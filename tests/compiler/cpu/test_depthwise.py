"""Depthwise convolutions on every feature set."""

import ctypes
import mmap
import time

import numpy as np
import pytest

from tilewright.compiler.cpu import Convolution, Requantisation, compile_kernel, real_epilogue
from tilewright.errors import CompileError

from ...processor import VECTOR_LEVELS, target_at
from .arrays import Bytes, convolved, operands_of, requantised, with_bytes

SHAPES = {
    "whole vectors": (1, 14, 14, 32),
    "tails": (2, 9, 11, 21),
    "few channels": (1, 8, 8, 3),
    "many tiles": (1, 6, 24, 32),
    "many tiles and tails": (1, 5, 28, 21),
}


def depthwise(
    shape: str, kernel: tuple[int, int], pads: tuple[int, int, int, int], **more
) -> Convolution:
    """A convolution with a group for each channel."""
    channels = SHAPES[shape][-1]
    extents = (*SHAPES[shape], channels)
    return Convolution(*extents, kernel=kernel, pads=pads, groups=channels, **more)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stride", [1, 2])
def test_every_channel_has_its_own_window(shape: str, stride: int, level: str) -> None:
    strides = (stride, stride)
    layer = depthwise(shape, (3, 3), (1, 1, 1, 1), strides=strides, epilogue=real_epilogue("relu"))
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    np.testing.assert_allclose(got, np.maximum(convolved(layer, arrays), 0), atol=2e-5)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_exact(shape: str, level: str) -> None:
    dtype = ("int8", "uint8")[(list(SHAPES).index(shape) + VECTOR_LEVELS.index(level)) % 2]
    zero = 5 if dtype == "uint8" else -5
    numbers = Bytes(dtype, zero, Requantisation(dtype, 2))
    layer = with_bytes(depthwise(shape, (5, 3), (2, 1, 2, 1)), numbers)
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    np.testing.assert_array_equal(got, requantised(layer, arrays, numbers.rounding))


@pytest.mark.slow
@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
def test_large_windows_reach_over_the_border(stride: int, level: str) -> None:
    strides, pads = (stride, stride), (2, 2, 2, 2)
    layer = depthwise("many tiles and tails", (5, 5), pads, strides=strides)
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    np.testing.assert_allclose(got, convolved(layer, arrays), atol=5e-5)


BANDS = {
    "one band": ((1, 16, 17, 32), (7, 7), (1, 1)),
    "bands and tails": ((1, 41, 100, 20), (9, 9), (1, 1)),
    "strides": ((2, 23, 20, 40), (15, 14), (2, 2)),
    "more window than image": ((1, 7, 7, 48), (13, 9), (1, 1)),
}


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("name", BANDS)
def test_copied_bands_do_not_change_a_bit(name: str, level: str) -> None:
    shape, kernel, strides = BANDS[name]
    down, across = (size // 2 for size in kernel)
    layer = Convolution(
        *(*shape, shape[-1]),
        kernel=kernel,
        strides=strides,
        pads=(down, across, down, across),
        groups=shape[-1],
    )
    arrays = operands_of(layer)
    copied, read = (
        compile_kernel(layer.with_choice((("copied", way),)), target_at(level), threads=2)
        for way in (1, 0)
    )
    got = copied(*arrays.values())
    np.testing.assert_array_equal(got, read(*arrays.values()))
    np.testing.assert_allclose(got, convolved(layer, arrays), atol=2e-4)


DILATED = {
    "far apart": ((1, 14, 14, 256), 3, True),
    "near": ((1, 14, 14, 64), 3, False),
    "many taps": ((1, 14, 15, 64), 5, True),
    "beyond L2": ((1, 65, 64, 256), 3, False),
}


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("name", DILATED)
def test_small_images_are_copied_for_dilated_windows(name: str, level: str) -> None:
    shape, size, copies = DILATED[name]
    pads = (size - 1,) * 4
    window = {"kernel": (size, size), "dilations": (2, 2), "groups": shape[-1]}
    layer = Convolution(*shape, shape[-1], pads=(pads[0], pads[1], pads[2], pads[3]), **window)
    assert layer.questions(target_at(level))["copied"][0] == copies
    if copies:
        arrays = operands_of(layer)
        got = compile_kernel(layer, target_at(level), threads=2)(*arrays.values())
        np.testing.assert_allclose(got, convolved(layer, arrays), atol=5e-5)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("narrow", [False, True])
def test_copied_bands_of_bytes_are_exact(narrow: bool, level: str) -> None:
    numbers = Bytes("uint8", 5, Requantisation("uint8", 2))
    layer = with_bytes(depthwise("tails", (9, 7), (4, 3, 4, 3), narrow=narrow), numbers)
    layer = layer.with_choice((("copied", 1),))
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    np.testing.assert_array_equal(got, requantised(layer, arrays, numbers.rounding))


def placed(image: np.ndarray, *, alone: bool) -> np.ndarray:
    """A copy of an image after as many bytes, which cannot be read if it is `alone`."""
    size = -(-image.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, 2 * size), np.uint8)
    memory[:] = 1
    if alone:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(size), 0) == 0
    found = memory[size : size + image.nbytes].view(image.dtype).reshape(image.shape)
    found[:] = image
    return found


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_rows_above_an_image_are_not_read(level: str) -> None:
    """A masked load from an unmapped page does not fault, but takes about 0.2 us.

    The layers with dilated windows of LR-ASPP took ten times as long as elsewhere in memory.
    """
    layer = Convolution(1, 14, 14, 960, 960, (5, 1), (1, 1), (4, 0, 4, 0), (2, 1), groups=960)
    x, *others = operands_of(layer).values()
    kernel = compile_kernel(layer, target_at(level))
    least = []
    for image in (placed(x, alone=False), placed(x, alone=True)):
        times = []
        for _ in range(20):
            before = time.thread_time()
            kernel(image, *others)
            times.append(time.thread_time() - before)
        least.append(min(times))
    assert least[1] < 3 * least[0]


def test_a_window_larger_than_its_image_is_refused() -> None:
    with pytest.raises(CompileError, match=r"the window \(5, 5\) does not fit 3x3"):
        Convolution(1, 3, 3, 4, 4, (5, 5), groups=4)
