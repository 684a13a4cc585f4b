"""Choices of schedules: every point of a space computes the same, and strange ones are refused."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.cpu import (
    LEVELS,
    Convolution,
    Elementwise,
    Epilogue,
    HeadProduct,
    LayerNormalisation,
    MatrixProduct,
    Requantisation,
    RowReduction,
    RowSoftmax,
    compile_kernel,
    generic,
    host,
    real_epilogue,
)
from tilewright.compiler.cpu.execution.kernel import lower_description
from tilewright.compiler.cpu.kernels.choices import (
    Choice,
    choice_key,
    choice_of,
    choice_text,
    digest_of,
    space_of,
    with_recorded_choice,
    workload_of,
)
from tilewright.compiler.cpu.kernels.description import TunableDescription
from tilewright.errors import CompileError
from tilewright.flows.tuning.definitions import data_of, expected_of

from ...processor import VECTOR_LEVELS, target_at

BYTES = {"dtype": "uint8", "epilogue": Requantisation("uint8", 4).epilogue()}
WINDOW = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
KERNELS: dict[str, TunableDescription] = {
    "window": Convolution(1, 9, 10, 33, 40, **WINDOW),
    "window of bytes": Convolution(1, 9, 10, 16, 40, **WINDOW, narrow=True, **BYTES),
    "stride": Convolution(1, 12, 12, 8, 40, (1, 1), (2, 2), epilogue=real_epilogue("relu")),
    "depthwise": Convolution(1, 7, 6, 20, 20, **WINDOW, groups=20),
    "depthwise bytes": Convolution(1, 7, 6, 20, 20, **WINDOW, groups=20, narrow=True, **BYTES),
    "image in planes": Convolution(1, 12, 12, 3, 20, **WINDOW, planes=True),
    "product": MatrixProduct(20, 66, 100),
    "product of bytes": MatrixProduct(23, 64, 100, **BYTES),
    "heads": HeadProduct(2, 3, 23, 40, 70),
    "heads, one lies in columns": HeadProduct(
        1, 3, 33, 64, 33, transposed=True, joined=(True, False, True)
    ),
    "heads of bytes": HeadProduct(
        1, 2, 30, 24, 40, dtype="int8", zero_points=(3, -4), epilogue=Epilogue("sum", "int32")
    ),
    "softmax": RowSoftmax(7, 100),
    "softmax across": RowSoftmax(3, 20, log=True, inner=70),
    "layer normalisation": LayerNormalisation(5, 150),
    "sums of rows": RowReduction(6, 200, "mean"),
    "sums across": RowReduction(2, 30, "length", inner=150),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_first_point_is_the_default(name: str, level: str) -> None:
    target = generic(level)
    points = space_of(KERNELS[name], lambda one: one.questions(target))
    assert len(set(points)) == len(points) > 1
    plans = [KERNELS[name].with_choice(choice).plan(target) for choice in ((), points[0])]
    steps = [(list(map(str, plan.schedule.steps)), plan.layouts) for plan in plans]
    assert steps[0] == steps[1]


@pytest.mark.parametrize("level", ["avx2", "avx512vnni"])
def test_tiles_of_every_division_into_parts_are_legal(level: str) -> None:
    """The last part may be shorter, so no tile may begin behind its end."""
    product, target = MatrixProduct(125, 64, 64, **BYTES), generic(level)
    points = space_of(product, lambda one: one.questions(target))
    kinds: dict[tuple[int | str, ...], Choice] = {}
    for choice in points:
        answers = dict(choice)
        kinds.setdefault((answers["vectors"], answers["parts"], answers["rows"]), choice)
    assert any(125 % int(parts) for _, parts, _ in kinds)
    for choice in kinds.values():
        lower_description(product.with_choice(choice), target)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("name", KERNELS)
def test_points_compute_the_same(name: str, level: str) -> None:
    product, target = KERNELS[name], target_at(level)
    data = [(arrays, expected_of(product, arrays)) for arrays in data_of(product, 3)]
    points = random.Random(name + level).sample(
        space_of(product, lambda one: one.questions(target)), 3
    )
    for choice in points:
        kernel = compile_kernel(product.with_choice(choice), target, threads=2)
        for arrays, expected in data:
            difference = expected.difference(kernel(*arrays.values()))
            assert not difference, f"{choice_text(choice)}: {difference}"


@pytest.mark.parametrize("shape", [(40_000,), (30, 3, 999), (5,)])
def test_points_of_elementwise_kernels_compute_the_same(shape: tuple[int, ...]) -> None:
    formula = ("add", ("mul", "x", "y"), 2.0)
    one = (*(1 for _ in shape[1:]), shape[-1])
    kernel = Elementwise(
        shape, (("x", "float32"), ("y", "float32")), formula, broadcast=(("y", one),)
    )
    generator = np.random.default_rng(1)
    x, y = (generator.integers(-99, 99, size).astype(np.float32) for size in (shape, one))
    points = space_of(kernel, lambda one: one.questions(host()))
    assert len(points) == (1 if shape == (5,) else 9)
    for choice in points:
        got = compile_kernel(kernel.with_choice(choice), threads=2)(x, y)
        np.testing.assert_array_equal(got, x * y + 2)


def test_the_definition_notices_one_wrong_value() -> None:
    product = KERNELS["product of bytes"]
    for arrays in data_of(product, 0):
        expected = expected_of(product, arrays)
        assert not expected.difference(expected.values.astype(np.uint8))
        wrong = expected.values.astype(np.uint8)
        wrong[2, 3] ^= 1
        assert expected.difference(wrong).startswith("1 of 2,300 values differ from the definition")


def test_choices_survive_as_text() -> None:
    for choice in space_of(KERNELS["window"], lambda one: one.questions(generic("avx2"))):
        assert choice_of(choice_text(choice)) == choice
    assert choice_of("default") == ()


@pytest.mark.parametrize("text", ["", "rows", "rows=", "=3", "rows=1e9", "rows=-1", "a b=1"])
def test_other_texts_are_no_choices(text: str) -> None:
    if text == "rows=1e9":  # a name as a value, which no planner offers
        with pytest.raises(CompileError, match="`rows=1e9`: expected one of"):
            KERNELS["product"].with_choice(choice_of(text)).planner(generic("avx2"))
        return
    with pytest.raises(CompileError, match="expected choices as NAME=VALUE"):
        choice_of(text)


def test_illegal_and_unknown_choices_are_refused_with_those_that_exist() -> None:
    product, target = KERNELS["product"], generic("avx2")
    with pytest.raises(CompileError, match="`vectors=9`: expected one of 2, 1, 3, 4; leave it out"):
        product.with_choice((("vectors", 9),)).planner(target)
    with pytest.raises(CompileError, match="unknown choice `wings`; this one has vectors, parts"):
        product.with_choice((("wings", 2),)).planner(target)


def test_choices_hold_for_one_workload_on_one_target() -> None:
    product, target = MatrixProduct(20, 66, 100), generic("avx2")
    key = choice_key(digest_of(workload_of(product)), target)
    chosen = with_recorded_choice(product, target, {key: "vectors=1"})
    assert chosen == replace(product, choice=(("vectors", 1),))
    assert with_recorded_choice(product, generic("sse2"), {key: "vectors=1"}) is product
    other = replace(product, rows=21)
    assert with_recorded_choice(other, target, {key: "vectors=1"}) is other
    for strange in ("vectors=7", "wings=2", "no choice"):
        assert with_recorded_choice(product, target, {key: strange}) is product


def defaults(kernel: TunableDescription, level: str) -> dict[str, int | str]:
    """The planner's own answers."""
    return {name: legal[0] for name, legal in kernel.questions(generic(level)).items()}


@pytest.mark.parametrize(
    ("level", "rows", "columns", "vectors"),
    [
        ("avx2", 1, 256, 4),
        ("avx2", 4, 256, 3),
        ("avx2", 7, 256, 3),
        ("avx2", 6, 256, 2),
        ("avx2", 784, 24, 3),  # else the last of two panels would have one vector alone
        ("avx2", 784, 256, 2),
        ("avx512vnni", 1, 256, 4),
        ("avx512vnni", 4, 64, 4),
        ("avx512vnni", 7, 256, 2),
        ("sse2", 1, 256, 2),  # sums do not wait for products
    ],
)
def test_few_rows_take_wider_panels_so_that_multipliers_stay_busy(
    level: str, rows: int, columns: int, vectors: int
) -> None:
    assert defaults(MatrixProduct(rows, 256, columns), level)["vectors"] == vectors


def test_panels_of_bytes_widen_where_one_instruction_also_adds() -> None:
    product = MatrixProduct(2, 256, 256, **BYTES)
    assert defaults(product, "avx512vnni")["vectors"] == 4
    assert defaults(product, "avx2")["vectors"] == 2


@pytest.mark.parametrize(("size", "tile"), [(7, (2, 4)), (28, (2, 3))])
def test_tiles_of_depthwise_kernels_have_two_rows(size: int, tile: tuple[int, int]) -> None:
    window = {"kernel": (3, 3), "pads": (1, 1, 1, 1), "groups": 64}
    found = defaults(Convolution(1, size, size, 64, 64, **window), "avx2")
    assert (found["rows"], found["pixels"]) == tile


@pytest.mark.parametrize(
    ("level", "size", "channels", "window", "copied"),
    [
        ("avx512vnni", 32, 768, 7, 1),
        ("avx512vnni", 32, 768, 9, 1),
        ("avx512vnni", 32, 768, 5, 0),  # the copy takes what it saves
        ("avx512vnni", 56, 96, 7, 0),  # whole pixels lie side by side
        ("avx2", 56, 96, 7, 1),
        ("avx2", 7, 768, 7, 0),  # most taps meet padding
    ],
)
def test_large_windows_over_wide_pixels_read_copied_bands(
    level: str, size: int, channels: int, window: int, copied: int
) -> None:
    """At 768 channels, one band made a layer 1.8 times as fast, and four times with 9x9."""
    pad = window // 2
    extents, kernel = (1, size, size, channels, channels), (window, window)
    layer = Convolution(*extents, kernel=kernel, pads=(pad, pad, pad, pad))
    assert defaults(replace(layer, groups=channels), level)["copied"] == copied


@pytest.mark.parametrize(("level", "method"), [("avx2", "winograd"), ("avx512vnni", "direct")])
def test_few_tiles_are_worth_large_weights_where_multiplying_takes_longer(
    level: str, method: str
) -> None:
    window = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
    found = defaults(Convolution(1, 7, 7, 512, 512, **window), level)
    assert found["method"] == method
