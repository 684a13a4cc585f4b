"""Winograd's way with bytes gives the very sums of direct convolution, whatever the numbers."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    Requantisation,
    Residual,
    compile_kernel,
    generic,
    load_kernel,
)
from tilewright.compiler.cpu.kernels.byte_winograd import CHANGE_IN, LIMIT, ByteWinogradPlanner
from tilewright.compiler.cpu.kernels.direct_convolution import DirectPlanner
from tilewright.errors import InputError

from ...processor import target_at
from .arrays import Bytes, operands_of, requantised, with_bytes

WITHOUT_MATRICES = tuple(level for level in LEVELS if level != "amx")
"""Levels on which direct convolution may be slower."""

PADS = (1, 1, 1, 1)
BYTES = (
    Bytes("uint8", 7, Requantisation("uint8", 3)),
    Bytes("int8", -5, Requantisation("int8", 4, low=-20, high=90)),
    Bytes("int8", 0, Requantisation("uint8", 128)),
)
SHAPES = {
    "whole tiles": Convolution(1, 12, 12, 64, 64, (3, 3), pads=PADS),
    "tiles cut off": Convolution(1, 14, 18, 64, 48, (3, 3), pads=PADS),
    "several images": Convolution(3, 10, 16, 64, 64, (3, 3), pads=(0, 1, 0, 1)),
    "an odd number of channels": Convolution(1, 15, 16, 65, 50, (3, 3), pads=PADS),
    "a wide border": Convolution(1, 11, 18, 96, 32, (3, 3), pads=(3, 2, 0, 2)),
    "a row of tiles at a time": Convolution(3, 44, 60, 64, 32, (3, 3), pads=PADS),
}


def described(shape: str, numbers: Bytes, added: Residual | None = None) -> Convolution:
    return replace(with_bytes(SHAPES[shape], numbers, added), narrow=True)


@pytest.mark.parametrize("level", WITHOUT_MATRICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_those_of_direct_convolution(shape: str, level: str) -> None:
    order = list(SHAPES).index(shape) + WITHOUT_MATRICES.index(level)
    numbers, target = BYTES[order % len(BYTES)], target_at(level)
    layer = described(shape, numbers)
    planner = layer.planner(target)
    assert isinstance(planner, ByteWinogradPlanner)
    assert planner.whole == (shape != "a row of tiles at a time")
    arrays = operands_of(layer)
    got = compile_kernel(layer, target, threads=1 + order % 2)(*arrays.values())
    direct = compile_kernel(replace(layer, winograd=False), target)(*arrays.values())
    np.testing.assert_array_equal(got, direct)
    assert len(np.unique(got)) > 50
    np.testing.assert_array_equal(got, requantised(layer, arrays, numbers.rounding))


@pytest.mark.parametrize("level", WITHOUT_MATRICES)
@pytest.mark.parametrize("number", ["uint8", "int8"])
def test_the_largest_numbers_do_not_overflow(level: str, number: str) -> None:
    """Inputs and weights at their limits, in the signs in which changes add them all up."""
    numbers = Bytes(number, 0, Requantisation("int8"))
    layer, target = described("whole tiles", numbers), target_at(level)
    generator = np.random.default_rng(3)
    limits = np.iinfo(number)
    arrays = operands_of(layer)
    arrays["x"][...] = generator.choice([limits.min, limits.max], arrays["x"].shape)
    # the extreme of every changed input of some tile: one sign along rows, one along columns
    for pattern in range(36):
        signs = np.outer(*(np.sign(CHANGE_IN[part]) for part in divmod(pattern, 6)))
        tile = np.where(signs > 0, limits.max, limits.min)
        arrays["x"][0, 3:9, 3:9, pattern] = tile
    arrays["w"][...] = generator.choice([-128, 127], arrays["w"].shape)
    arrays["w"][..., :8] = -128
    arrays["w"][..., 8:16] = 127
    arrays["scale"][...] = 1e-4
    assert isinstance(layer.planner(target), ByteWinogradPlanner)
    got = compile_kernel(layer, target)(*arrays.values())
    np.testing.assert_array_equal(got, requantised(layer, arrays, numbers.rounding))
    assert len(np.unique(got)) > 50


@pytest.mark.parametrize("level", WITHOUT_MATRICES)
def test_bytes_are_added_where_tiles_are_cut_off(level: str) -> None:
    added = Residual((3, 5), -77, 0.11, Requantisation("int8", -3))
    layer = described("tiles cut off", BYTES[1], added)
    assert isinstance(layer.planner(target_at(level)), ByteWinogradPlanner)
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level), threads=2)(*arrays.values())
    direct = compile_kernel(replace(layer, winograd=False), target_at(level))(*arrays.values())
    np.testing.assert_array_equal(got, direct)


def test_sums_that_could_wrap_are_refused() -> None:
    layer = replace(described("whole tiles", BYTES[0]), channels_in=300)
    assert isinstance(layer.planner(target_at("sse2")), ByteWinogradPlanner)
    arrays = operands_of(layer)
    arrays["w"][...] = 100
    constants = {name: arrays[name] for name in layer.constants}
    with pytest.raises(InputError, match=rf"sums can reach \d+.*below {LIMIT}; .*winograd=False"):
        compile_kernel(layer, target_at("sse2")).bind(**constants)


def test_it_needs_a_promise_and_plain_requantisation() -> None:
    layer = described("whole tiles", BYTES[0])
    for other in (
        replace(layer, narrow=False),
        replace(layer, winograd=False),
        replace(layer, epilogue=replace(BYTES[0].rounding, guarded=True).epilogue()),
        replace(layer, strides=(2, 2)),
        replace(layer, height=4, width=4),
    ):
        assert not isinstance(other.planner(generic("avx512vnni")), ByteWinogradPlanner), other


def test_instructions_on_matrices_are_faster() -> None:
    layer = described("whole tiles", BYTES[0])
    assert isinstance(layer.planner(generic("amx")), DirectPlanner)


def test_machine_code_is_kept() -> None:
    layer = described("tiles cut off", BYTES[0])
    arrays = operands_of(layer)
    kernel = compile_kernel(layer)
    again = load_kernel(kernel.to_bytes(), layer)
    assert again.code == kernel.code
    np.testing.assert_array_equal(again(*arrays.values()), kernel(*arrays.values()))
