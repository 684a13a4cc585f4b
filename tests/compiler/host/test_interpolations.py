"""Resizing between neighbours as kernels."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.cpu.kernels.interpolation import Interpolation
from tilewright.compiler.cpu.kernels.sampling import LinearSamples
from tilewright.compiler.graph import evaluate
from tilewright.compiler.graph import operators as ops

from ...processor import VECTOR_LEVELS, target_at
from .agreement import assert_agrees, run_kernels, selected
from .networks import built, imported, normal

pytestmark = pytest.mark.processor

MODES = [
    ("linear", "half_pixel"),
    ("linear", "align_corners"),
    ("linear", "asymmetric"),
    ("cubic", "half_pixel"),
]


@pytest.mark.parametrize("sizes", [(1, 3, 16, 20), (1, 3, 13, 33), (1, 3, 5, 4)])
@pytest.mark.parametrize(("mode", "coordinates"), MODES)
def test_images_of_other_sizes(mode: str, coordinates: str, sizes: tuple[int, ...]) -> None:
    x = normal(1, 3, 8, 10)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    resize = onnx.helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    graph = imported([resize], {"x": x}, {"sizes": np.array(sizes, np.int64)})
    kernels = assert_agrees(graph, {"x": x}, 1e-5, 1e-5)
    assert [type(kernel.description) for kernel in kernels] == [Interpolation] * 2


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_of_bytes_are_resized_as_floats(mode: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.where(normal(1, 3, 8, 10) < 0, limits.min, limits.max).astype(dtype)
    resize = onnx.helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)
    graph = imported([resize], {"x": x}, {"sizes": np.array((1, 3, 16, 20), np.int64)})
    kernels = assert_agrees(graph, {"x": x})
    covered = {one.output.name for kernel in kernels for one in kernel.nodes}
    assert covered == {one.output.name for one in graph.nodes}


def test_long_windows_stay_with_the_definition() -> None:
    x = normal(60, 7)
    places = np.array([[0, 59], [30, 1]], np.int64)

    def make(builder):
        weights = builder.constant(np.ones((2, 2), np.float32))
        return builder.emit(ops.Interpolate(0), ["x", builder.constant(places), weights])

    assert assert_agrees(built({"x": x}, make), {"x": x}) == ()


def test_bytes_stay_with_the_definition() -> None:
    x = np.arange(24, dtype=np.int8).reshape(4, 6)
    places = np.array([[0, 1], [1, 2], [2, 3]], np.int64)

    def make(builder):
        weights = builder.constant(np.full((3, 2), 0.5, np.float32))
        return builder.emit(ops.Interpolate(0), ["x", builder.constant(places), weights])

    assert assert_agrees(built({"x": x}, make), {"x": x}) == ()


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("shape", [(2, 3, 7, 9, 5, 9), (1, 17, 4, 1, 1, 1), (1, 1, 6, 33, 8, 16)])
def test_samples_lie_between_four_pixels(
    shape: tuple[int, ...], padding: str, align_corners: bool, level: str
) -> None:
    n, c, height, width, *places = shape
    x = normal(n, c, height, width)
    grid = np.random.default_rng(4).uniform(-1.5, 1.5, (n, *places, 2)).astype(np.float32)
    if grid.size > 2:  # far outside, not a number, and infinite pixels that nothing reaches
        corners = grid.reshape(-1)
        corners[:6] = -1, 1, np.nan, 0, np.inf, -np.inf
        corners[6:10] = 3e38, -7, 1, -1
        x[0, 0, 0, 0] = np.inf
    operator = ops.GridSample("linear", padding, align_corners)
    graph = built({"x": x, "grid": grid}, lambda b: b.emit(operator, ["x", "grid"]))
    (kernel,) = selected(graph, target_at(level))
    assert isinstance(kernel.description, LinearSamples)
    inputs = {"x": x, "grid": grid}
    got = run_kernels(graph, inputs, target_at(level))[graph.outputs[0].value]
    (expected,) = evaluate(graph, inputs).values()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)


def test_samples_in_reflections_stay_with_numpy() -> None:
    x, grid = normal(1, 2, 5, 5), normal(1, 3, 3, 2)
    for mode, padding in (("linear", "reflection"), ("nearest", "zeros"), ("cubic", "border")):
        operator = ops.GridSample(mode, padding, False)
        graph = built({"x": x, "grid": grid}, lambda b, o=operator: b.emit(o, ["x", "grid"]))
        assert not selected(graph)
