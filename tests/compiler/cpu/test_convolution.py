"""Convolutions and matrix products on every feature set, against binary64 and integer sums."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    Epilogue,
    MatrixProduct,
    Requantisation,
    compile_kernel,
    generic,
    has_small_pairs,
    host,
    real_epilogue,
)
from tilewright.compiler.cpu.kernels.matrix_product import MatrixPlanner
from tilewright.compiler.cpu.kernels.winograd import WinogradPlanner
from tilewright.errors import CompileError, InputError

from ...processor import VECTOR_LEVELS, target_at
from .arrays import Bytes, convolved, operands_of, requantised, with_bytes

SHAPES: dict[str, Convolution | MatrixProduct] = {
    "whole tiles": Convolution(1, 14, 14, 32, 64, (3, 3), pads=(1, 1, 1, 1)),
    "few pixels wide": Convolution(1, 7, 7, 16, 64, (3, 3), pads=(1, 1, 1, 1)),
    "tails everywhere": Convolution(2, 9, 17, 5, 21, (3, 2), pads=(1, 0, 2, 1)),
    "a stride": Convolution(1, 15, 15, 8, 40, (1, 1), (2, 2)),
    "a first layer": Convolution(1, 23, 23, 3, 16, (7, 7), (2, 2), (3, 3, 3, 3)),
    "a dilation": Convolution(1, 12, 12, 6, 33, (3, 3), (1, 2), (2, 2, 2, 2), (2, 2)),
    "few channels out": Convolution(1, 6, 6, 8, 3, (3, 3), pads=(1, 1, 1, 1)),
    "fewer products": Convolution(2, 8, 10, 40, 72, (3, 3), pads=(1, 1, 1, 1)),
    "fewer products, tiles cut off": Convolution(2, 7, 9, 33, 40, (3, 3), pads=(1, 1, 1, 1)),
    "fewer products of the whole image": Convolution(1, 4, 140, 33, 34, (3, 3), pads=(1, 0, 1, 2)),
    "pixels in equal parts": Convolution(1, 24, 24, 10, 40),
    "a part of pixels cut off": Convolution(1, 7, 7, 12, 40),
    "rows in parts": Convolution(2, 12, 9, 7, 36, (3, 3), (1, 2), (1, 1, 1, 1)),
    "a matrix product": MatrixProduct(20, 66, 100),
    "rows a page apart": MatrixProduct(9, 4096, 40),
    "a vector times a matrix": MatrixProduct(1, 130, 33),
}
BYTES = (
    Bytes("uint8", 7, Requantisation("uint8", 3)),
    Bytes("int8", -5, Requantisation("int8", 4, low=-20, high=90)),
    Bytes("int8", 0, Requantisation("uint8", 128)),
)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_float32_convolution_is_within_rounding(shape: str, level: str) -> None:
    layer = SHAPES[shape]
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    sizes = {name: np.abs(array) for name, array in arrays.items()}
    allowed = 4e-7 * np.sqrt(np.prod(layer.operands["w"].shape[:-1]))
    error = np.abs(got - convolved(layer, arrays))
    assert np.all(error <= allowed * convolved(layer, sizes))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_exact(shape: str, level: str) -> None:
    kind = (list(SHAPES).index(shape) + list(LEVELS).index(level)) % len(BYTES)
    layer = with_bytes(SHAPES[shape], BYTES[kind])
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    expected = requantised(layer, arrays, BYTES[kind].rounding)
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(got, expected)


PAIRS = np.array([(64, 64), (-64, -64), (127, 1), (-128, 0), (127, -128), (0, 127)], np.int8)
"""The largest neighbouring weights whose products with uint8 fit int16 together."""


def test_pairs_of_small_weights_are_exact_at_their_limits() -> None:
    """All activations are 255, and each channel repeats a pair of the largest weights."""
    shape = Convolution(1, 5, 7, 24, 40, (3, 3), pads=(1, 1, 1, 1), winograd=False)
    layer = replace(with_bytes(shape, BYTES[0]), small_pairs=True)
    arrays = operands_of(layer)
    arrays["x"][...] = 255
    arrays["w"][...] = np.resize(PAIRS, (40, 2)).T[np.arange(24) % 2]
    got = compile_kernel(layer, target_at("avx2"))(*arrays.values())
    np.testing.assert_array_equal(got, requantised(layer, arrays, BYTES[0].rounding))


def test_large_pairs_of_weights_are_not_taken_for_small_ones() -> None:
    layer = replace(with_bytes(SHAPES["a stride"], BYTES[0]), small_pairs=True)
    arrays = operands_of(layer)
    arrays["w"][...] = 100
    with pytest.raises(InputError, match="are too large for `small_pairs`; describe the convolu"):
        compile_kernel(layer)(*arrays.values())


@pytest.mark.parametrize(
    ("row", "small"),
    [
        ((64, 64, 64), True),
        ((65, 64), False),
        ((0, 64, 65), False),
        ((-64, -64), True),
        ((-128, -1), False),
        ((127, -128, 127), True),
        ((127,), True),
    ],
)
def test_pairs_of_small_weights(row: tuple[int, ...], small: bool) -> None:
    weights = np.zeros((2, 1, len(row), 3), np.int8)
    weights[1, 0, :, 2] = row
    assert has_small_pairs(weights) is small


@pytest.mark.parametrize("level", LEVELS)
def test_a_vector_of_one_byte_leaves_its_neighbours_alone(level: str) -> None:
    """The last channel of a pixel is written after the first ones of the next pixel."""
    numbers = Bytes("uint8", 0, Requantisation())
    layer = with_bytes(MatrixProduct(2, 8, 33), numbers)
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    np.testing.assert_array_equal(got, requantised(layer, arrays, numbers.rounding))


def test_fewer_products_are_as_near_as_direct_ones() -> None:
    layer = Convolution(1, 12, 12, 64, 32, (3, 3), pads=(1, 1, 1, 1))
    assert isinstance(layer.planner(host()), WinogradPlanner)
    arrays = operands_of(layer)
    expected = convolved(layer, arrays)
    few, direct = (
        np.max(np.abs(compile_kernel(replace(layer, winograd=w))(*arrays.values()) - expected))
        for w in (True, False)
    )
    assert few <= 1.2 * direct


@pytest.mark.parametrize(
    ("extent", "channels", "few"), [(7, 512, False), (7, 128, True), (14, 512, True)]
)
def test_fewer_products_are_not_worth_more_weights_from_memory(
    extent: int, channels: int, few: bool
) -> None:
    layer = Convolution(1, extent, extent, channels, channels, (3, 3), pads=(1, 1, 1, 1))
    assert isinstance(layer.planner(host()), WinogradPlanner) is few


@pytest.mark.parametrize("level", ["avx512vnni", "avx2"])
@pytest.mark.parametrize(
    ("extent", "channels", "by_blocks"),
    [(28, 128, True), (128, 128, True), (14, 160, False), (14, 512, False)],
)
def test_weights_beyond_the_cache_are_read_once(
    extent: int, channels: int, by_blocks: bool, level: str
) -> None:
    """The rows of a 14x14 image with 512 channels took twice the time of the whole image."""
    layer = Convolution(1, extent, extent, channels, channels, (3, 3), pads=(1, 1, 1, 1))
    planner = layer.planner(generic(level))
    assert isinstance(planner, WinogradPlanner)
    assert planner.by_blocks is by_blocks


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [75, 131])
def test_rows_of_tiles_that_do_not_fit_the_stack_are_cut(columns: int, level: str) -> None:
    """Those of a whole image with 128 channels at 128x128 took 1.5 times as long."""
    layer = Convolution(1, 3, columns, 128, 32, (3, 3), pads=(1, 1, 1, 1))
    planner = layer.planner(generic(level))
    assert isinstance(planner, WinogradPlanner)
    assert planner.pixels <= planner.block < planner.across
    arrays = operands_of(layer)
    by_blocks, whole = (
        compile_kernel(layer.with_choice((("by_blocks", answer),)), target_at(level))
        for answer in (1, 0)
    )
    got = by_blocks(*arrays.values())
    np.testing.assert_allclose(got, convolved(layer, arrays), atol=1e-3)
    np.testing.assert_array_equal(got, whole(*arrays.values()))


def test_what_follows_is_done_in_the_kernel() -> None:
    layer = Convolution(1, 5, 6, 8, 20, epilogue=real_epilogue("relu6", residual=True))
    arrays = operands_of(layer)
    bound = compile_kernel(layer).bind(w=arrays["w"], bias=arrays["bias"])
    out = np.empty(layer.output.shape, np.float32)
    got = bound(arrays["x"], arrays["residual"], out=out)
    assert got is out
    expected = np.clip(convolved(layer, arrays) + arrays["residual"], 0, 6)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    with pytest.raises(InputError, match="`out` shares memory with `residual`"):
        bound(arrays["x"], arrays["residual"], out=arrays["residual"])


@pytest.mark.parametrize(
    ("activation", "level", "rows"),
    [
        *(("relu", "avx512vnni", 14), ("gelu", "avx512vnni", 13), ("silu", "avx512vnni", 13)),
        *(("relu", "avx2", 6), ("gelu", "avx2", 6)),
    ],
)
def test_polynomials_leave_registers_to_the_sums(activation: str, level: str, rows: int) -> None:
    layer = MatrixProduct(182, 384, 1536, epilogue=real_epilogue(activation))
    planner = layer.planner(generic(level))
    assert isinstance(planner, MatrixPlanner)
    assert planner.tile_rows == rows


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "gelu"])
def test_activations_are_functions(activation: str) -> None:
    layer = MatrixProduct(3, 4, 5, epilogue=real_epilogue(activation))
    arrays = operands_of(layer)
    plain = convolved(layer, arrays)
    erf = 2 / (1 + np.exp(-2 * 0.7978845608 * (plain + 0.044715 * plain**3)))
    known = {"sigmoid": 1 / (1 + np.exp(-plain)), "tanh": np.tanh(plain), "gelu": plain * erf / 2}
    got = compile_kernel(layer)(*arrays.values())
    np.testing.assert_allclose(got, known[activation], atol=1e-3)


def test_a_window_larger_than_its_image_is_refused() -> None:
    with pytest.raises(CompileError, match=r"the window \(5, 5\) does not fit 3x3"):
        Convolution(1, 3, 3, 4, 4, (5, 5))


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(CompileError, match="unknown activation `swish`; choose relu, relu6"):
        real_epilogue("swish")


def test_sums_of_integers_need_a_bias() -> None:
    with pytest.raises(CompileError, match=r"product: .* reads `sum` other than as `sum \+ bias`"):
        MatrixProduct(2, 2, 2, "int8", Epilogue("sum", "int32"))


def test_an_epilogue_is_any_expression() -> None:
    """A leaky rectifier of the sum, without a bias, and its square, as no network's layer has."""
    layer = MatrixProduct(9, 20, 37)
    arrays = {name: operands_of(layer)[name] for name in ("x", "w")}
    total = convolved(layer, {**arrays, "bias": np.float32(0)})
    leaky = Epilogue(("max", "sum", ("mul", "sum", 0.25)), "float32")
    for epilogue, expected in (
        (leaky, np.maximum(total, total / 4)),
        (Epilogue(("mul", "sum", "sum"), "float32"), total * total),
    ):
        got = compile_kernel(replace(layer, epilogue=epilogue))(*arrays.values())
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
