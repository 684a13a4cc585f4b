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
