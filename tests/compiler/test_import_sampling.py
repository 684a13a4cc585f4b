"""GridSample, RoiAlign, OneHot and CumSum have onnxruntime's values in all their modes."""

import itertools

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.compiler.graph import evaluate, parse_graph, print_graph
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.errors import ImportModelError

from .onnx_models import floats, integers, model, node, run_onnxruntime, value

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
IMAGES = ((2, 3, 5, 4), (1, 2, 1, 3), (2, 2, 3, 4, 5))
COMPARED = [
    (mode, image)
    for mode, image in itertools.product(MODES, IMAGES)
    if (mode, len(image)) != ("cubic", 5)
]
"""Modes and images that onnxruntime computes; it has no cubics of volumes."""

FORMS = list(itertools.product(MODES, PADDINGS))
POOLS = list(itertools.product(("avg", "max"), (0, 1, 3)))
OLDER = {"linear": "bilinear", "cubic": "bicubic"}


def imported(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    graph = import_onnx(proto.SerializeToString())
    assert parse_graph(print_graph(graph), {c.name: c.data for c in graph.constants}) == graph
    return evaluate(graph, feeds)["y"]


def one(kind: str, feeds: dict[str, np.ndarray], opset: int, constants=None, **attributes):
    """Return a model of one node whose operands are the feeds and constants, in their order."""
    inputs = [value(name, array.dtype, array.shape) for name, array in feeds.items()]
    given = constants or {}
    nodes = [node(kind, [*feeds, *given], ["y"], name="one", **attributes)]
    return model(nodes, inputs, ["y"], given, opset)


def sampled(image: tuple[int, ...], places: tuple[int, ...], reach: float, seed: int = 0):
    """Return an image, and a grid of which every third position is a multiple of 1/4."""
    chance = np.random.default_rng(seed)
    x = chance.standard_normal(image).astype(np.float32)
    grid = chance.uniform(-reach, reach, (image[0], *places, len(places))).astype(np.float32)
    grid.ravel()[::3] = np.round(grid.ravel()[::3] * 4) / 4
    return {"x": x, "grid": grid}


@pytest.mark.parametrize(("mode", "image"), COMPARED)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("corners", [0, 1])
def test_a_grid_samples_what_onnxruntime_samples(mode, image, padding, corners) -> None:
    attributes = {"padding_mode": padding, "align_corners": corners}
    for reach, opset in ((1.2, 20), (9.0, 16 if len(image) == 4 else 20)):
        feeds = sampled(image, (6, 5, 3)[: len(image) - 2], reach)
        name = OLDER.get(mode, mode) if opset == 16 else mode
        proto = one("GridSample", feeds, opset, mode=name, **attributes)
        expected = run_onnxruntime(proto, feeds)["y"]
        np.testing.assert_allclose(imported(proto, feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", ["zeros", "reflection"])
def test_cubics_of_volumes_and_lines_have_the_values_of_the_reference(padding: str) -> None:
    for image, places in (((1, 1, 3, 2, 4), (2, 2, 1)), ((2, 2, 5), (4,))):
        feeds = sampled(image, places, 1.6)
        proto = one("GridSample", feeds, 20, mode="cubic", padding_mode=padding)
        (expected,) = map(np.asarray, ReferenceEvaluator(proto).run(None, feeds))
        np.testing.assert_allclose(imported(proto, feeds), expected, rtol=1e-4, atol=1e-5)


def test_sampled_integers_round_and_saturate() -> None:
    x = np.array([[[0, 255, 255, 255]]], np.uint8)
    grid = np.array([[[-0.5], [0.0], [5.0]]], np.float32)
    found = ops.GridSample("cubic", "border", False).compute(x, grid)
    assert found.dtype == np.uint8
    assert found.ravel().tolist() == [128, 255, 255]
    found = ops.GridSample("nearest", "zeros", False).compute(x > 0, grid)
    assert found.ravel().tolist() == [False, True, False]


@pytest.mark.parametrize(("mode", "padding"), FORMS)
def test_a_grid_may_have_any_values(mode: str, padding: str) -> None:
    strange = np.array([np.nan, np.inf, -np.inf, 3e38, -1e20], np.float32)
    grid = np.stack(np.meshgrid(strange, strange), axis=-1)[None]
    for corners in (False, True):
        operator = ops.GridSample(mode, padding, corners)
        found = operator.compute(np.ones((1, 1, 3, 2), np.float32), grid)
        finite = np.all(np.isfinite(grid[0]), axis=-1)
        if padding != "reflection":  # the position of a mirror image beyond all floats is unknown
            assert (found[0, 0][finite] == float(padding == "border")).all()
        assert operator.compute(np.ones((1, 0, 3, 2), np.float32), grid).shape == (1, 0, 5, 5)
        assert operator.compute(np.ones((1, 1, 3, 2), np.float32), grid[:, :0]).shape[2] == 0


def test_a_grid_of_other_axes_is_an_error() -> None:
    feeds = {"x": np.ones((1, 1, 3, 2), np.float32), "grid": np.ones((1, 4, 4, 3), np.float32)}
    proto = one("GridSample", feeds, 20)
    with pytest.raises(ImportModelError, match="`grid_sample`: expected an image"):
        import_onnx(proto.SerializeToString())


BOXES = floats([[0, 0, 3, 4], [-4, 2, 20, 9], [5, 5, 5.5, 5.25], [6, 6, 2, 1], [30, 30, 40, 40]])


@pytest.mark.parametrize(("mode", "samples"), POOLS)
@pytest.mark.parametrize("shift", ["half_pixel", "output_half_pixel", None])
def test_boxes_are_pooled_as_by_onnxruntime(mode: str, samples: int, shift: str | None) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)
    feeds = {"x": x, "boxes": BOXES, "images": integers([0, 1, 1, 0, 1])}
    attributes = {"output_height": 3, "output_width": 2, "spatial_scale": 0.75}
    given = {"coordinate_transformation_mode": shift} if shift else {}
    attributes |= {"mode": mode, "sampling_ratio": samples, **given}
    proto = one("RoiAlign", feeds, 16 if shift else 10, **attributes)
    expected = run_onnxruntime(proto, feeds)["y"]
    np.testing.assert_allclose(imported(proto, feeds), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "samples"), POOLS)
def test_boxes_may_have_any_values(mode: str, samples: int) -> None:
    """A box whose edges are not finite has no samples, and a huge one has few in the image."""
    edges = [[0, 0, np.nan, 3], [-np.inf, 0, np.inf, 2], [0, 0, 3e38, 3e38], [-1e9, -1e9, 1e9, 1e9]]
    x, images = np.ones((1, 2, 3, 3), np.float32), np.zeros(4, np.int64)
    for half_pixel in (False, True):
        operator = ops.RoiAlign(mode, (2, 2), samples, 1.0, half_pixel)
        assert not operator.compute(x, floats(edges), images).any()
    assert operator.compute(x, np.zeros((0, 4), np.float32), images[:0]).shape == (0, 2, 2, 2)


def test_an_unknown_shift_of_boxes_is_an_error() -> None:
    feeds = {"x": np.ones((1, 1, 3, 2), np.float32), "boxes": BOXES, "images": integers([0] * 5)}
    proto = one("RoiAlign", feeds, 16, coordinate_transformation_mode="quarter_pixel")
    expected = "half_pixel or output_half_pixel, got `quarter_pixel`"
    with pytest.raises(ImportModelError, match=expected):
        import_onnx(proto.SerializeToString())


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_indices_out_of_range_and_with_fractions_are_hot_as_in_onnxruntime(axis: int) -> None:
    for indices in (
        integers([[0, 3, 4], [-1, -4, -5]]),
        floats([[0.5, 3.75, 4], [-0.5, -1.5, -4.25]]),
    ):
        values = {"depth": np.array([4], indices.dtype), "values": floats([-0.5, 3])}
        proto = one("OneHot", {"x": indices}, 11, values, axis=axis)
        expected = run_onnxruntime(proto, {"x": indices})["y"]
        np.testing.assert_array_equal(imported(proto, {"x": indices}), expected)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums_are_those_of_onnxruntime(exclusive: int, reverse: int) -> None:
    flags = {"exclusive": exclusive, "reverse": reverse}
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 4))
    for axis in (-1, 0, 1):
        proto = one("CumSum", {"x": x}, 14, {"axis": np.int64(axis)}, **flags)
        expected = run_onnxruntime(proto, {"x": x})["y"]
        np.testing.assert_array_equal(imported(proto, {"x": x}), expected)
        feeds = {"x": x, "axis": np.array(axis)}
        np.testing.assert_array_equal(imported(one("CumSum", feeds, 14, **flags), feeds), expected)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(1, 2, 4, 5), (2, 1, 3, 3), (1, 1, 3, 2, 4)])
@pytest.mark.parametrize("constant", [True, False])
def test_an_affine_grid_is_that_of_onnxruntime(size, corners: int, constant: bool) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(7).normal(size=(size[0], rank, rank + 1)).astype(np.float32)
    held = {"size": integers(size)}
    held |= {"theta": theta} if constant else {}
    inputs = [value("x", np.float32, [1])]
    inputs += [] if constant else [value("theta", np.float32, theta.shape)]
    nodes = [
        node("AffineGrid", ["theta", "size"], ["grid"], align_corners=corners),
        node("Add", ["grid", "x"], ["y"]),
    ]
    proto = model(nodes, inputs, ["y"], held, 20)
    given = {"x": floats([0.5])} | ({} if constant else {"theta": theta})
    found = evaluate(import_onnx(proto.SerializeToString()), given)["y"]
    expected = run_onnxruntime(proto, given)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


DEFORMED = {
    "plain": {},
    "groups of offsets": {"offset_group": 2},
    "groups of both": {"offset_group": 4, "group": 2},
    "strides": {"strides": [2, 1]},
    "dilations": {"dilations": [1, 2]},
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", DEFORMED)
def test_a_deformed_convolution_has_the_values_of_the_reference(name: str, masked: bool) -> None:
    """It is a GridSample and a convolution: ONNX's reference takes minutes for small images."""
    given = {"offset_group": 1, "group": 1, "strides": [1, 1], "dilations": [1, 1]}
    given |= DEFORMED[name]
    pads, kernel = [1, 0, 1, 1], [3, 2]
    rows, columns = (
        (size + pads[i] + pads[i + 2] - given["dilations"][i] * (kernel[i] - 1) - 1)
        // given["strides"][i]
        + 1
        for i, size in enumerate((5, 6))
    )
    chance, offsets = np.random.default_rng(8), given["offset_group"] * 6
    feeds = {
        "x": chance.normal(size=(2, 4, 5, 6)).astype(np.float32),
        "w": chance.normal(size=(6, 4 // given["group"], *kernel)).astype(np.float32),
        "offset": chance.normal(size=(2, 2 * offsets, rows, columns)).astype(np.float32),
        "bias": chance.normal(size=6).astype(np.float32),
    }
    if masked:
        feeds["mask"] = chance.uniform(size=(2, offsets, rows, columns)).astype(np.float32)
    proto = one("DeformConv", feeds, 19, pads=pads, kernel_shape=kernel, **given)
    (expected,) = map(np.asarray, ReferenceEvaluator(proto).run(None, feeds))
    np.testing.assert_allclose(imported(proto, feeds), expected, rtol=1e-4, atol=1e-4)


def test_offsets_of_other_windows_are_an_error() -> None:
    shapes = {"x": (1, 4, 5, 6), "w": (6, 4, 3, 3), "offset": (1, 9, 3, 4)}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    proto = one("DeformConv", feeds, 19)
    with pytest.raises(ImportModelError, match=r"offsets \[1, 18, rows, columns\] of 1 groups"):
        import_onnx(proto.SerializeToString())
