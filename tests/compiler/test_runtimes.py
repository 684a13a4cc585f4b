"""Results of ONNX Runtime decide where ONNX's reference evaluator stands alone.

The cases are those that `docs/reference/conformance.md` lists.
"""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.errors import ImportModelError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .onnx_models import floats, integers, model, node, run_onnxruntime, value


def agree(proto: onnx.ModelProto, *, reference_differs: bool = False, **inputs: np.ndarray) -> None:
    """Compare with ONNX Runtime, and tell that the reference evaluator gives another result."""
    given = {name: np.asarray(array, np.float32) for name, array in inputs.items()}
    expected = run_onnxruntime(proto, given)
    got = evaluate(import_onnx(proto.SerializeToString()), given)
    for name, array in expected.items():
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=2e-5)
    if reference_differs:
        with np.errstate(all="ignore"):
            (other,) = ReferenceEvaluator(proto).run(None, given)
        (array,) = expected.values()
        assert not np.allclose(array, other, rtol=1e-3)


def resize(mode: str, coordinates: str, *, scales=None, sizes=None, size=7, **attributes):
    """A model of one Resize of an image of `size` by `size`."""
    held = {"roi": floats([0, 0, -0.1, 0.3, 1, 1, 0.7, 0.9])}
    names = ["x", "roi"]
    if scales is not None:
        held["scales"], names = floats([1, 1, scales, scales]), [*names, "scales"]
    else:
        held["sizes"], names = integers([1, 2, sizes, sizes]), [*names, "", "sizes"]
    made = node(
        "Resize", names, ["y"], mode=mode, coordinate_transformation_mode=coordinates, **attributes
    )
    return model([made], [value("x", np.float32, [1, 2, size, size])], ["y"], held, 19)


def image(size: int = 7) -> np.ndarray:
    return np.random.default_rng(size).normal(size=(1, 2, size, size))


@pytest.mark.parametrize("coordinates", ["align_corners", "tf_crop_and_resize"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [1.5, 0.7, 2.3])
@pytest.mark.parametrize("antialias", [0, 1])
def test_a_fractional_extent_is_rounded_before_it_divides(mode, coordinates, scale, antialias):
    proto = resize(mode, coordinates, scales=scale, antialias=antialias)
    agree(proto, reference_differs=not antialias, x=image())


def test_corners_map_to_corners():
    nodes = [
        node(
            "Resize", ["x", "", "s"], ["y"],
            mode="linear", coordinate_transformation_mode="align_corners",
        )
    ]  # fmt: skip
    held = {"s": floats([1, 1, 1, 1.5])}
    proto = model(nodes, [value("x", np.float32, [1, 1, 1, 7])], ["y"], held, 19)
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)
    got = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    np.testing.assert_allclose(got.ravel()[[0, 3, 9]], [0, 2, 6], atol=1e-6)


@pytest.mark.parametrize(("size", "scale"), [(4, 1.5), (5, 2.3), (7, 2.3)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_the_edge_of_a_cropped_region_is_that_of_binary32(mode, size, scale):
    proto = resize(mode, "tf_crop_and_resize", scales=scale, size=size, extrapolation_value=9.0)
    for region in ([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.2], [0, 0, -0.1, 0.3, 1, 1, 0.7, 0.9]):
        held = onnx.numpy_helper.from_array(floats(region), "roi")
        (place,) = (i for i, one in enumerate(proto.graph.initializer) if one.name == "roi")
        proto.graph.initializer[place].CopyFrom(held)
        agree(proto, x=image(size))


@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_single_element_of_pytorch_half_pixel_is_the_first(mode, antialias):
    differs = mode == "cubic" or bool(antialias)
    cases: tuple[dict[str, Any], ...] = ({"sizes": 1}, {"scales": 0.2})
    for asked in cases:
        proto = resize(mode, "pytorch_half_pixel", antialias=antialias, **asked)
        agree(proto, reference_differs=differs and "sizes" in asked, x=image())


def test_other_coordinates_agree_for_all_scales():
    modes = itertools.product(
        ("linear", "cubic", "nearest"), ("asymmetric", "half_pixel", "half_pixel_symmetric")
    )
    cases: tuple[dict[str, Any], ...] = (
        {"scales": 1.5},
        {"scales": 0.3},
        {"sizes": 3},
        {"sizes": 10},
    )
    for mode, coordinates in modes:
        for asked in cases:
            agree(resize(mode, coordinates, **asked), x=image())


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("p", [1, 2])
def test_rows_are_divided_by_the_sum_of_magnitudes(p, axis):
    proto = model(
        [node("LpNormalization", ["x"], ["y"], p=p, axis=axis)],
        [value("x", np.float32, [2, 3, 4])],
        ["y"],
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    x[0, 0], x[0, :, 0] = 0, 0
    agree(proto, reference_differs=p == 1, x=x)


def recurrent(kind: str, gates: int, **attributes) -> tuple[onnx.ModelProto, np.ndarray]:
    chance = np.random.default_rng(3)

    def drawn(*shape: int) -> np.ndarray:
        return (chance.normal(size=shape) * 0.4).astype(np.float32)

    held = {"w": drawn(2, gates * 5, 6), "r": drawn(2, gates * 5, 5), "b": drawn(2, gates * 10)}
    made = node(
        kind, ["x", "w", "r", "b"], ["y"], hidden_size=5, direction="bidirectional", **attributes
    )
    proto = model([made], [value("x", np.float32, [7, 2, 6])], ["y"], held, 17)
    return proto, (2 * chance.normal(size=(7, 2, 6))).astype(np.float32)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_clipping_limits_the_gates_alone(kind, gates):
    clipped, x = recurrent(kind, gates, clip=0.3)
    agree(clipped, x=x)
    free, _ = recurrent(kind, gates)
    apart = run_onnxruntime(clipped, {"x": x})["y"] - run_onnxruntime(free, {"x": x})["y"]
    assert np.abs(apart).max() > 0.05
    graph = import_model(clipped.SerializeToString())
    with open_device("sim", PRESETS["8x8"]) as device:
        got = Session(compile_module(graph, PRESETS["8x8"]), device).run({"x": x}).outputs["y"]
    np.testing.assert_allclose(got, run_onnxruntime(clipped, {"x": x})["y"], atol=2e-6)


def made_of(kind: str, x: np.ndarray, held: dict[str, np.ndarray], opset: int, **attributes):
    """A model of one operator whose operands after the first are constants."""
    made = node(kind, ["x", *held], ["y"], **attributes)
    return model([made], [value("x", np.float32, x.shape)], ["y"], held, opset)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_symmetric_half_pixels_round_to_binary32_once(nearest):
    for size, scale in itertools.product(range(3, 11), (0.35, 0.8, 1.5, 2.7, 3.3)):
        proto = resize("nearest", "half_pixel_symmetric", scales=scale, size=size)
        proto.graph.node[0].attribute.append(onnx.helper.make_attribute("nearest_mode", nearest))
        agree(proto, x=image(size))


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_a_kept_aspect_ratio_maps_corners_to_corners(policy):
    x = drawn(1, 2, 6, 5)
    for mode, sizes in itertools.product(("linear", "cubic"), ((7, 8), (3, 4), (9, 3))):
        made = node(
            "Resize", ["x", "", "", "sizes"], ["y"], mode=mode, axes=[2, 3],
            coordinate_transformation_mode="align_corners", keep_aspect_ratio_policy=policy,
        )  # fmt: skip
        held = {"sizes": integers(sizes)}
        agree(model([made], [value("x", np.float32, x.shape)], ["y"], held, 19), x=x)


@pytest.mark.parametrize("shape", [(5, 5), (4, 4), (4, 7), (6, 9)])
def test_indices_of_an_unpooled_image_count_its_given_shape(shape):
    """PyTorch exports `max_unpool2d` so, for images whose extents are no multiple of the stride."""
    x, count = drawn(1, 2, 2, 2), 2 * shape[0] * shape[1]
    indices = np.random.default_rng(1).permutation(count)[:8].reshape(x.shape)
    made = node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    held = {"i": integers(indices), "s": integers([1, 2, *shape])}
    agree(model([made], [value("x", np.float32, x.shape)], ["y"], held, 11), x=x)


@pytest.mark.parametrize("shape", [[1, 3, 4, 4], [1, 2, 3, 4], [1, 2, 4]])
def test_a_shape_that_an_image_cannot_have_is_refused(shape):
    held = {"i": integers(np.arange(8).reshape(1, 2, 2, 2)), "s": integers(shape)}
    proto = made_of("MaxUnpool", drawn(1, 2, 2, 2), held, 11, kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(ImportModelError, match=r"expected an `output_shape` of \[1, 2, 4, 4\] or"):
        import_onnx(proto.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "attributes", "pads"),
    [
        ("AveragePool", {"strides": [3, 2], "count_include_pad": 1}, [1, 0, 0, 2]),
        ("AveragePool", {"strides": [3, 2], "count_include_pad": 0}, [0, 0, 0, 0]),
        ("AveragePool", {"strides": [3, 2], "dilations": [2, 2]}, [1, 1, 1, 1]),
        ("LpPool", {"strides": [2, 2]}, [1, 1, 1, 1]),
        ("LpPool", {"strides": [2, 2], "dilations": [2, 2]}, [0, 0, 0, 0]),
        ("MaxPool", {"strides": [1, 1]}, [1, 1, 1, 1]),
        ("MaxPool", {"strides": [3, 2]}, [0, 1, 1, 0]),
    ],
)
def test_windows_beyond_the_padding_are_cut_off(kind, attributes, pads):
    for size in (6, 7, 8):
        x = drawn(1, 2, size, size)
        window = {"kernel_shape": [3, 3], "pads": pads, "ceil_mode": 1}
        agree(made_of(kind, x, {}, 22, **window, **attributes), x=x)


@pytest.mark.parametrize("padding", ["SAME_LOWER", "SAME_UPPER", "VALID"])
def test_padding_follows_from_the_extents(padding):
    x = drawn(1, 2, 7, 8)
    window = {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": padding}
    agree(made_of("MaxPool", x, {}, 22, **window), x=x)


@pytest.mark.parametrize("corners", [0, 1])
def test_cubics_beyond_a_border_weight_repeated_elements(corners):
    x = drawn(1, 2, 4, 5)
    grid = np.random.default_rng(2).uniform(-3, 3, (1, 3, 4, 2)).astype(np.float32)
    attributes = {"mode": "cubic", "padding_mode": "border", "align_corners": corners}
    proto = made_of("GridSample", x, {"grid": grid}, 20, **attributes)
    agree(proto, reference_differs=True, x=x)


@pytest.mark.parametrize("corners", [0, 1])
def test_a_single_element_of_a_grid_is_in_the_middle(corners):
    """As in PyTorch's `affine_grid`; the mean of ONNX Runtime's and the evaluator's positions."""
    for size in ([1, 1, 1, 4], [1, 2, 3, 1], [1, 1, 2, 2, 1]):
        axes = len(size) - 2
        theta = drawn(1, axes, axes + 1)
        proto = made_of("AffineGrid", theta, {"size": integers(size)}, 20, align_corners=corners)
        ours = evaluate(import_onnx(proto.SerializeToString()), {"x": theta})["y"]
        runtime = run_onnxruntime(proto, {"x": theta})["y"]
        (other,) = map(np.asarray, ReferenceEvaluator(proto).run(None, {"x": theta}))
        np.testing.assert_allclose(ours, (runtime + other) / 2, atol=1e-5)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_each_sequence_ends_at_its_length(kind, gates):
    x, n = drawn(4, 3, 2), gates * 4
    held = {"w": drawn(1, n, 2), "r": drawn(1, n, 4), "b": drawn(1, 2 * n)}
    held["lens"] = integers([2, 4, 1]).astype(np.int32)
    agree(made_of(kind, x, held, 17, hidden_size=4), reference_differs=True, x=x)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_local_response_counts_all_channels(size):
    x = drawn(1, 6, 3, 3)
    proto = made_of("LRN", x, {}, 21, size=size, alpha=0.1, beta=0.75, bias=1.0)
    agree(proto, reference_differs=True, x=x)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
def test_rows_of_older_sets_end_with_the_tensor(kind):
    x = drawn(2, 3, 4)
    agree(made_of(kind, x, {}, 11, axis=1), reference_differs=True, x=x)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_boxes_of_older_sets_are_not_shifted(mode):
    x, images = drawn(2, 2, 8, 9), integers([0, 1])
    boxes = floats([[0, 0, 4, 4], [1.3, 2.1, 6.7, 7.9]])
    size = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 1.0}
    proto = made_of("RoiAlign", x, {"boxes": boxes, "images": images}, 10, mode=mode, **size)
    agree(proto, reference_differs=True, x=x)


def test_an_axis_that_stays_is_cropped_or_resampled_all_the_same():
    """ONNX Runtime copies it; the evaluator, PyTorch and TensorFlow agree with us."""
    cropped = resize("linear", "tf_crop_and_resize", sizes=7, extrapolation_value=9.0)
    for proto in (cropped, resize("nearest", "asymmetric", scales=1.1, nearest_mode="floor")):
        given = {"x": image().astype(np.float32)}
        (expected,) = map(np.asarray, ReferenceEvaluator(proto).run(None, given))
        np.testing.assert_allclose(
            evaluate(import_onnx(proto.SerializeToString()), given)["y"], expected, atol=1e-5
        )
        assert not np.allclose(run_onnxruntime(proto, given)["y"], expected)


def test_a_ratio_is_kept_along_negative_axes_too():
    x = drawn(1, 2, 6, 5)
    found = []
    for axes in ([2, 3], [-2, -1]):
        made = node(
            "Resize", ["x", "", "", "sizes"], ["y"], mode="linear", axes=axes,
            keep_aspect_ratio_policy="not_larger",
        )  # fmt: skip
        proto = model(
            [made], [value("x", np.float32, x.shape)], ["y"], {"sizes": integers([3, 4])}, 19
        )
        found.append(evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"])
    np.testing.assert_array_equal(*found)
    assert found[0].shape == (1, 2, 3, 3)
