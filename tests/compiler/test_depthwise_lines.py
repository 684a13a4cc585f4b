"""Depthwise convolutions on machines that keep lines: fewer steps, and the same integers."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.accelerator.sliding import Slide, Window
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import DEFAULT, PRESETS, Configuration
from tilewright.isa.instructions import Gemm
from tilewright.isa.pipeline import LINE_STEPS
from tilewright.runtime import Session, open_device

from .onnx_models import model, node, value

LINES = DEFAULT.replace(name="lines", depthwise_lines="two")
NARROW = PRESETS["16x8"].replace(name="narrow", depthwise_lines="two")
PAIRS = PRESETS["8x8"].replace(name="pairs", depthwise_taps=2, depthwise_lines="two")


def layer(
    height: int, width: int, channels: int, kernel: tuple[int, int] = (3, 3), **attributes: Any
) -> tuple[Graph, np.ndarray]:
    """A QLinearConv, and its input; weights have nine bits where `wz` is not 128."""
    random = np.random.default_rng([height, width, channels, *kernel])
    zero_point = attributes.pop("wz", 128)
    held = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "ws": np.float32(0.01),
        "ys": np.float32(0.2), "yz": np.uint8(130), "wz": np.uint8(zero_point),
        "w": random.integers(0, 256, (channels, 1, *kernel)).astype(np.uint8),
    }  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [node("QLinearConv", names, ["y"], group=channels, **attributes)]
    shape = [1, channels, height, width]
    graph = import_model(
        model(nodes, [value("x", np.uint8, shape)], ["y"], held).SerializeToString()
    )
    return graph, random.integers(0, 256, shape).astype(np.uint8)


def gemms(module: Module) -> list[Gemm]:
    (segment,) = module.segments
    return [one for one in segment.program if isinstance(one, Gemm)]


def joins_lines(module: Module) -> bool:
    return any(one.run_lines(module.configuration) > 1 for one in gemms(module) if one.depthwise)


def assert_equal_on(device: str, module: Module, x: np.ndarray) -> int:
    """Compare the outputs with the definition; return the cycles."""
    with open_device(device, module.configuration) as machine:
        run = Session(module, machine).run({"x": x})
    for name, array in evaluate(module.graph, {"x": x}).items():
        np.testing.assert_array_equal(run.outputs[name], array)
    return sum(result.cycles or 0 for result in run.results)


PADDED = {"pads": [1, 1, 1, 1]}
CASES: list[tuple[tuple[int, ...], tuple[int, int], dict[str, Any], bool]] = [
    ((7, 7, 40), (3, 3), PADDED, True),
    ((14, 14, 32), (3, 3), PADDED, True),
    ((6, LINE_STEPS - 2, 16), (3, 3), PADDED, True),
    ((6, LINE_STEPS - 1, 16), (3, 3), PADDED, False),  # an odd number that has no half
    ((6, LINE_STEPS, 16), (3, 3), PADDED, True),
    ((20, 66, 16), (3, 3), PADDED, True),
    ((9, 15, 24), (3, 3), {"pads": [0, 1, 2, 1]}, True),
    ((14, 14, 16), (5, 5), {"pads": [2, 2, 2, 2]}, True),
    ((10, 12, 16), (7, 7), {"pads": [3, 3, 3, 3]}, True),
    ((11, 12, 16), (4, 2), {}, True),
    ((13, 13, 16), (3, 3), {"strides": [2, 2], **PADDED}, True),
    ((12, 13, 16), (3, 3), {"strides": [1, 2], **PADDED}, True),
    ((12, 12, 16), (3, 3), {"strides": [2, 1], **PADDED}, True),
    ((12, 12, 16), (3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}, True),
    ((12, 12, 16), (3, 3), {"dilations": [1, 3], "pads": [1, 3, 1, 3]}, True),
    ((9, 9, 16), (3, 1), {"pads": [1, 0, 1, 0]}, False),
    ((9, 9, 16), (1, 3), {"pads": [0, 1, 0, 1]}, False),
    ((9, 1, 16), (3, 3), PADDED, False),  # of whose taps only the middle column meets a pixel
    ((1, 9, 16), (3, 3), PADDED, False),
    ((9, 37, 16), (3, 3), {"strides": [2, 2], **PADDED}, False),
    ((28, 56, 16), (3, 3), {"strides": [2, 2], **PADDED}, True),
    ((12, 74, 16), (3, 3), {"strides": [2, 2], **PADDED}, False),  # no divisor of 37 outputs
    ((40, 60, 16), (3, 3), {"strides": [2, 2], **PADDED}, True),
    ((9, 2, 16), (3, 3), {"strides": [2, 2], **PADDED}, True),
    ((13, 14, 16), (5, 5), {"strides": [2, 2], "pads": [2, 2, 2, 2]}, True),
    ((13, 14, 16), (4, 4), {"strides": [3, 3]}, True),
    ((8, 9, 16), (3, 3), {"wz": 0, **PADDED}, True),
    ((8, 9, 32), (5, 5), {"wz": 40, "pads": [2, 2, 2, 2]}, True),
]


@pytest.mark.parametrize(("shape", "kernel", "attributes", "joins"), CASES, ids=str)
def test_a_convolution_over_lines_is_exact(
    shape: tuple[int, ...], kernel: tuple[int, int], attributes: dict[str, Any], joins: bool
):
    graph, x = layer(*shape, kernel=kernel, **attributes)
    module = compile_module(graph, LINES)
    assert_equal_on("sim", module, x)
    assert joins_lines(module) == joins


@pytest.mark.parametrize("configuration", [NARROW, PAIRS], ids=lambda one: one.name)
@pytest.mark.parametrize(("shape", "kernel", "attributes", "joins"), CASES[::3], ids=str)
def test_other_machines_are_exact(
    shape: tuple[int, ...],
    kernel: tuple[int, int],
    attributes: dict[str, Any],
    joins: bool,
    configuration: Configuration,
):
    graph, x = layer(*shape, kernel=kernel, **attributes)
    module = compile_module(graph, configuration)
    assert_equal_on("sim", module, x)
    if joins:
        assert joins_lines(module)


@pytest.mark.parametrize(("shape", "kernel", "attributes", "joins"), CASES[::4], ids=str)
def test_no_convolution_loses_by_lines(
    shape: tuple[int, ...], kernel: tuple[int, int], attributes: dict[str, Any], joins: bool
):
    """Without lines, GEMM still multiplies by the rows of three, so LOAD brings all of them."""
    graph, x = layer(*shape, kernel=kernel, **attributes)
    modules = [compile_module(graph, machine) for machine in (LINES, DEFAULT)]
    with_lines, without = (assert_equal_on("sim", module, x) for module in modules)
    tiles = 0 if joins else sum(one.tiles() for one in gemms(modules[0]) if one.depthwise)
    more = tiles * (LINES.window_rows - DEFAULT.window_rows) * LINES.lanes_out
    assert with_lines <= without + more // LINES.bus_bytes


def test_a_window_without_lines_has_no_weights_for_earlier_ones():
    """The rows of WGT behind a layer's only tap would hold those of the dense layer before."""
    machine = PRESETS["4x4"].replace(
        name="one tap", depthwise_taps=1, depthwise_lines="two", wgt_depth=64
    )
    random = np.random.default_rng(5)
    held: dict[str, Any] = {
        "xs": np.float32(0.05), "ws": np.float32(0.01), "z": np.int8(0),
        "dense": random.integers(-99, 99, (16, 16, 1, 1)).astype(np.int8),
        "apart": random.integers(-99, 99, (16, 1, 3, 3)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        node("QLinearConv", ["x", "xs", "z", "dense", "ws", "z", "xs", "z"], ["y"]),
        node("QLinearConv", ["y", "xs", "z", "apart", "ws", "z", "xs", "z"], ["out"],
             group=16, pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    shape = [1, 16, 12, 12]
    network = model(nodes, [value("x", np.int8, shape)], ["out"], held)
    module = compile_module(import_model(network.SerializeToString()), machine)
    assert any(one.depthwise for one in gemms(module))
    assert_equal_on("sim", module, random.integers(-128, 128, shape).astype(np.int8))


def test_a_line_has_no_more_steps_than_the_machine_keeps():
    graph, _ = layer(12, 112, 16, pads=[1, 1, 1, 1])
    module = compile_module(graph, LINES)
    assert joins_lines(module)
    assert all(one.run_steps() <= LINE_STEPS for one in gemms(module))


def test_a_deep_layer_takes_less_than_half_of_the_steps():
    graph, _ = layer(7, 7, 160, pads=[1, 1, 1, 1])
    steps = {
        machine.name: sum(one.tiles() * max(one.rows(), machine.lanes_in) for one in gemms(module))
        for machine in (DEFAULT, LINES)
        for module in [compile_module(graph, machine)]
    }
    assert steps == {DEFAULT.name: 10 * 3 * 63, LINES.name: 10 * 81}


def test_one_pixel_less_of_acc_leaves_lines_out():
    """A tile of few rows computes most of its sums in vain."""
    slides = Slide("x", "kx", 1, 1, 3), Slide("y", "ky", 1, 1, 3)
    window = Window(*slides, height=28, width=28)
    joined = {depth: len(window.slides(LINES.replace(acc_depth=depth))) for depth in (64, 128, 256)}
    assert joined == {64: 1, 128: 2, 256: 2}


@pytest.mark.slow
def test_lines_on_the_hardware():
    graph, x = layer(8, 9, 16, pads=[1, 1, 1, 1])
    module = compile_module(graph, LINES.replace(name="small", lanes_out=4, vector_lanes=4))
    assert joins_lines(module)
    assert_equal_on("rtl", module, x)
