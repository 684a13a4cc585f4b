"""Convolutions in groups on every feature set, against one plain convolution per group."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    Requantisation,
    compile_kernel,
    generic,
    has_small_pairs,
    real_epilogue,
)
from tilewright.compiler.cpu.kernels.grouped_convolution import GroupedPlanner
from tilewright.errors import CompileError

from ...processor import VECTOR_LEVELS, target_at
from .arrays import Bytes, convolved, normal, requantised, whole, with_bytes


def grouped(*extents: int, pads: tuple[int, int, int, int] = (1, 1, 1, 1), **more) -> Convolution:
    """A convolution of windows of 3x3."""
    return Convolution(*extents, kernel=(3, 3), pads=pads, **more)


SHAPES = {
    "groups that fill vectors": grouped(1, 9, 10, 32, 64, groups=2),
    "joined groups": grouped(2, 7, 9, 32, 32, groups=8, strides=(2, 1)),
    "few channels in all": grouped(1, 6, 8, 6, 4, groups=2, pads=(0, 1, 2, 0)),
    "groups that no number joins well": grouped(1, 6, 7, 40, 40, groups=5),
    "more channels out than in": grouped(1, 8, 8, 12, 36, groups=12, dilations=(1, 2)),
}


def operands_of(layer: Convolution) -> dict[str, np.ndarray]:
    """Arrays for every operand."""
    made = {}
    for name, array in layer.operands.items():
        real = array.dtype == "float32"
        made[name] = normal(*array.shape) if real else whole(array.dtype, *array.shape)
    if "scale" in made:
        made["bias"] = made["bias"] % 1000
        made["scale"] = (0.0005 + np.abs(made["scale"]) / 1000).astype(np.float32)
    return made


def by_groups(layer: Convolution, arrays: dict[str, np.ndarray], finish) -> np.ndarray:
    """What plain convolutions of each group's channels give, side by side."""
    parts = []
    depth, part = layer.channels_in // layer.groups, layer.channels_out // layer.groups
    for group in range(layer.groups):
        plain = Convolution(
            *(layer.batch, layer.height, layer.width, depth, part),
            kernel=layer.kernel,
            strides=layer.strides,
            pads=layer.pads,
            dilations=layer.dilations,
            dtype=layer.dtype,
            zero_point=layer.zero_point,
            epilogue=layer.epilogue,
        )
        inner, outer = (slice(group * size, (group + 1) * size) for size in (depth, part))
        own = {name: array[..., outer] for name, array in arrays.items()}
        parts.append(finish(plain, {**own, "x": arrays["x"][..., inner]}))
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_group_has_its_own_channels(shape: str, level: str) -> None:
    layer = replace(SHAPES[shape], epilogue=real_epilogue("relu", residual=True))
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    expected = np.maximum(by_groups(layer, arrays, convolved) + arrays["residual"], 0)
    sizes = by_groups(layer, {name: np.abs(array) for name, array in arrays.items()}, convolved)
    taps = layer.kernel[0] * layer.kernel[1] * layer.channels_in // layer.groups
    assert np.all(np.abs(got - expected) <= 4e-7 * np.sqrt(taps) * sizes)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_exact(dtype: str, shape: str, level: str) -> None:
    rounding = Requantisation("uint8", 100)
    layer = with_bytes(SHAPES[shape], Bytes(dtype, 5, rounding))
    arrays = operands_of(layer)
    got = compile_kernel(layer, target_at(level))(*arrays.values())
    expected = by_groups(layer, arrays, partial(requantised, rounding=rounding))
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(got, expected)


def test_small_weights_are_exact_in_groups() -> None:
    """Bytes of seven bits, of which two products with 255 always fit int16 together."""
    numbers = Bytes("uint8", 0, Requantisation())
    layer = replace(with_bytes(SHAPES["joined groups"], numbers), small_pairs=True)
    arrays = operands_of(layer)
    arrays["w"] //= 2
    arrays["x"] |= 0xC0
    assert has_small_pairs(arrays["w"])
    got = compile_kernel(layer, target_at("avx2"))(*arrays.values())
    expected = by_groups(layer, arrays, partial(requantised, rounding=numbers.rounding))
    np.testing.assert_array_equal(got, expected)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    layer = with_bytes(SHAPES["joined groups"], Bytes("int8", 0, Requantisation("int8")))
    arrays = operands_of(layer)
    one, three = (compile_kernel(layer, threads=count)(*arrays.values()) for count in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_groups_divide_the_channels() -> None:
    with pytest.raises(CompileError, match="4 groups do not divide 6 and 8 channels"):
        grouped(1, 8, 8, 6, 8, groups=4)


def test_a_window_larger_than_its_image_is_refused() -> None:
    with pytest.raises(CompileError, match=r"the window \(5, 5\) does not fit 3x3"):
        Convolution(1, 3, 3, 4, 4, (5, 5), groups=2)


@pytest.mark.parametrize(
    ("level", "channels", "groups", "joined"),
    [
        ("avx512vnni", 104, 13, 1),  # 13 groups in one product would be 13 times the work
        ("avx512vnni", 208, 26, 2),
        ("avx512vnni", 60, 10, 2),
        ("avx2", 104, 13, 1),
        ("avx2", 128, 32, 2),
    ],
)
def test_groups_are_joined_only_where_that_fills_lanes(
    level: str, channels: int, groups: int, joined: int
) -> None:
    planner = grouped(1, 28, 28, channels, channels, groups=groups).planner(generic(level))
    assert isinstance(planner, GroupedPlanner)
    assert planner.joined == joined
