"""Activations in the data window: padding channels, borders, and files that describe them wrongly.

An image is a network's input with a border, as a first layer gathers windows from it.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.graph import (
    Constant,
    Graph,
    Node,
    Output,
    QConv,
    Quantisation,
    TensorType,
    Value,
    evaluate,
)
from tilewright.compiler.module import Binding, Module
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import ArtifactError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, load, open_device, save
from tilewright.runtime.manifest import describe_segment, read_segment

SMALL = PRESETS["8x8"]
ZERO_POINT = -7


@st.composite
def bindings(draw) -> Binding:
    """An activation with any border and padding channels, somewhere in a window of memory."""
    n, height, width, channels = (draw(st.integers(1, most)) for most in (2, 4, 4, 5))
    top, left, bottom, right, padding = (draw(st.integers(0, 3)) for _ in range(5))
    return Binding(
        "x",
        draw(st.integers(0, 9)),
        (n, top + height + bottom, left + width + right, channels + padding),
        (n, height, width, channels),
        (top, left),
        draw(st.integers(-128, 127)),
    )


@given(binding=bindings(), seed=st.integers(0, 99))
def test_what_was_written_is_read_and_lies_inside_its_border(binding, seed):
    generator = np.random.default_rng(seed)
    window = generator.integers(0, 256, binding.offset + binding.size + 5).astype(np.uint8)
    before = window.copy()
    values = generator.integers(-128, 128, binding.shape).astype(np.int8)
    binding.write(window, values)
    np.testing.assert_array_equal(binding.read(window), values)

    n, height, width, channels = binding.shape
    (top, left), (_, rows, columns, stored) = binding.corner, binding.stored_shape
    expected = np.full((n, rows, columns, stored), binding.fill, np.int8)
    expected[:, top : top + height, left : left + width, :channels] = values
    expected[:, top : top + height, left : left + width, channels:] = 0
    place = slice(binding.offset, binding.offset + math.prod(binding.stored_shape))
    np.testing.assert_array_equal(
        window[place].view(np.int8).reshape(binding.stored_shape), expected
    )
    np.testing.assert_array_equal(window[: place.start], before[: place.start])
    np.testing.assert_array_equal(window[place.stop :], before[place.stop :])


PART = Binding("part", 7, (1, 2, 2, 3), (1, 2, 2, 3), whole="whole", strides=(64, 32, 16, 1))
"""Three channels of pixels of 16 bytes."""


def test_a_part_is_read_from_between_others():
    window = np.random.default_rng(0).integers(0, 256, 64).astype(np.uint8)
    assert PART.size == 1 + 32 + 16 + 2
    whole = window[7 : 7 + PART.size]
    expected = [[[[whole.view(np.int8)[32 * y + 16 * x + c] for c in range(3)] for x in range(2)]
                 for y in range(2)]]  # fmt: skip
    np.testing.assert_array_equal(PART.read(window), expected)
    before = window.copy()
    PART.write(window, np.zeros((1, 2, 2, 3), np.int8))
    assert not PART.read(window).any()
    assert np.count_nonzero(window != before) == np.count_nonzero(expected)


def test_parts_of_one_value_do_not_overwrite_each_other():
    whole = Binding("whole", 0, (1, 2, 2, 16), (1, 2, 2, 16))
    other = Binding("other", 57, (1, 1, 1, 1), (1, 1, 1, 1))
    beyond = Binding("beyond", 58, (1, 1, 1, 1), (1, 1, 1, 1))
    assert not whole.overwrites(PART)
    assert not PART.overwrites(whole)
    assert other.overwrites(PART)
    assert other.overwrites(whole)
    assert not beyond.overwrites(PART)


def test_what_was_read_is_a_copy():
    binding = Binding("x", 0, (1, 2, 2, 4), (1, 2, 2, 3))
    window = np.zeros(binding.size, np.uint8)
    found = binding.read(window)
    window[:] = 1
    assert not found.any()


@pytest.fixture(scope="module")
def module() -> Module:
    """A first layer that gathers windows of an image with a border of its zero point."""
    generator = np.random.default_rng(3)
    constants = (
        Constant("w", generator.integers(-128, 128, (3, 3, 2, 8)).astype(np.int8)),
        Constant("bias", generator.integers(-999, 1000, 8).astype(np.int32)),
        Constant("scale", np.full(8, 0.001, np.float32)),
    )
    conv = QConv("conv", (2, 1), (1, 1, 0, 1), (1, 1), 1, ZERO_POINT, 4)
    x = Value("x", TensorType("int8", (1, 9, 6, 2), Quantisation(0.1, ZERO_POINT)))
    y = Value("y", TensorType("int8", (1, 4, 6, 8), Quantisation(0.1, 4)))
    node = Node("conv", conv, ("x", "w", "bias", "scale"), (y,))
    graph = Graph("first", (x,), (Output("y", "y"),), (node,), constants)
    return compile_module(graph, SMALL)


@pytest.fixture
def image(module) -> np.ndarray:
    return np.random.default_rng(4).integers(-128, 128, (1, 9, 6, 2)).astype(np.int8)


def test_a_first_layer_reads_an_image(module, image):
    (binding,) = module.segments[0].inputs
    assert (binding.shape, binding.stored_shape) == ((1, 9, 6, 2), (1, 10, 8, 2))
    assert (binding.corner, binding.fill) == ((1, 1), ZERO_POINT)
    expected = evaluate(module.graph, {"x": image})["y"]
    with open_device("sim", SMALL) as sim:
        session = Session(module, sim)
        for _ in range(2):
            np.testing.assert_array_equal(session.run(image).outputs["y"], expected)
    assert len(np.unique(expected)) > 20, "saturated outputs would compare equal too easily"


def test_an_image_survives_the_artifact(module, image, tmp_path):
    path: Path = tmp_path / "first.tw"
    save(module, path)
    loaded = load(path)
    assert loaded.segments == module.segments
    with open_device("sim", SMALL) as sim:
        expected = Session(module, sim).run(image)
        found = Session(loaded, sim).run(image)
    np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
    np.testing.assert_array_equal(found.results[0].dram, expected.results[0].dram)


def refused(module: Module, **changes: Any) -> str:
    """What is said of a manifest whose image is described in other words."""
    (segment,) = module.segments
    described = json.loads(json.dumps(describe_segment(segment)))
    (entry,) = (each for each in described["activations"] if each["name"] == "x")
    entry.update(changes)
    with pytest.raises(ArtifactError) as raised:
        read_segment(described, segment.program, segment.constants)
    return str(raised.value)


def test_the_manifest_as_it_was_written_is_read(module):
    (segment,) = module.segments
    described = json.loads(json.dumps(describe_segment(segment)))
    assert read_segment(described, segment.program, segment.constants) == segment


@pytest.mark.parametrize(
    ("changes", "got"),
    [
        ({"corner": [2, 1]}, "shape [1, 9, 6, 2] at [2, 1] of [1, 10, 8, 2], border -7"),
        ({"corner": [1, 3]}, "shape [1, 9, 6, 2] at [1, 3] of [1, 10, 8, 2], border -7"),
        ({"corner": [-1, 1]}, "shape [1, 9, 6, 2] at [-1, 1] of [1, 10, 8, 2], border -7"),
        ({"fill": 128}, "shape [1, 9, 6, 2] at [1, 1] of [1, 10, 8, 2], border 128"),
        ({"fill": -129}, "shape [1, 9, 6, 2] at [1, 1] of [1, 10, 8, 2], border -129"),
        ({"shape": [1, 9, 6, 3]}, "shape [1, 9, 6, 3] at [1, 1] of [1, 10, 8, 2], border -7"),
        ({"shape": [2, 9, 6, 2]}, "shape [2, 9, 6, 2] at [1, 1] of [1, 10, 8, 2], border -7"),
        ({"shape": [1, 9, 6]}, "shape [1, 9, 6] at [1, 1] of [1, 10, 8, 2], border -7"),
        ({"shape": [1, 0, 6, 2]}, "shape [1, 0, 6, 2] at [1, 1] of [1, 10, 8, 2], border -7"),
        ({"stored_shape": [1, 9, 8, 2]}, "shape [1, 9, 6, 2] at [1, 1] of [1, 9, 8, 2], border -7"),
    ],
    ids=str,
)
def test_an_activation_outside_its_place_is_refused(module, changes, got):
    assert refused(module, **changes) == f"activation `x`: expected it inside its place, got {got}"


def test_an_empty_batch_survives_the_round_trip(tmp_path):
    """A place of no bytes is a place."""
    kind = TensorType("int8", (0, 3, 3, 8), Quantisation(1.0, 0))
    x, out = (Value(name, kind) for name in ("x", "out"))
    constants = (
        Constant("w", np.ones((1, 1, 8, 8), np.int8)),
        Constant("bias", np.zeros(8, np.int32)),
        Constant("scale", np.ones(8, np.float32)),
    )
    layer = QConv("conv", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0)
    node = Node("layer", layer, ("x", "w", "bias", "scale"), (out,))
    graph = Graph("empty", (x,), (Output("out", "out"),), (node,), constants)
    module = compile_module(graph, SMALL)
    save(module, tmp_path / "empty.tw")
    loaded = load(tmp_path / "empty.tw")
    assert loaded.segments == module.segments
    with open_device("sim", SMALL) as sim:
        ran = Session(loaded, sim).run(np.zeros((0, 3, 3, 8), np.int8))
    assert ran.outputs["out"].shape == (0, 3, 3, 8)


def test_a_part_outside_its_place_is_refused(module):
    assert refused(module, strides=[1, 1, 1]) == (
        "activation `x`: expected a stride for each of 4 dimensions, at most 4,294,967,296, got "
        "[1, 1, 1]"
    )
    assert refused(module, strides=[0, -(1 << 33), 2, 1]) == (
        "activation `x`: expected a stride for each of 4 dimensions, at most 4,294,967,296, got "
        "[0, -8589934592, 2, 1]"
    )
    window = module.segments[0].data_bytes
    message = refused(module, offset=0, strides=[0, -8, 2, 1])
    expected = rf"`x`: expected a place inside .* {window} bytes, got \d+ bytes at -\d+"
    assert re.match(expected, message)
    message = refused(module, strides=[0, 10 * window, 2, 1])
    assert message.startswith(
        f"`x`: expected a place inside the data window of {window} bytes, got "
    )


def test_values_of_other_types_are_refused(module):
    assert refused(module, whole=3) == "manifest: `whole`: expected str, got int"
    assert refused(module, fill="0") == "manifest: `fill`: expected int, got str"
    assert refused(module, fill=True) == "manifest: `fill`: expected int, got bool"
    assert refused(module, corner=[1, 1, 0]) == (
        "manifest: `corner`: expected a row and a column, got [1, 1, 0]"
    )
    assert refused(module, corner=4) == "manifest: `corner`: expected list, got int"
    assert refused(module, corner=[0.5, 1]) == (
        "manifest: `corner`: expected whole numbers, got 0.5"
    )
