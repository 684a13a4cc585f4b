"""Resizing to the nearest element has onnxruntime's bits, and is a QResize where it only copies.

Interpolated integers have the values of ONNX's reference evaluator.
"""

import itertools

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import QResize, evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.importers.onnx_resize import COORDINATES, ROUNDINGS
from tilewright.errors import ImportModelError

from .onnx_models import floats, integers, model, node, run_onnxruntime, value

SHAPE = (1, 2, 5, 6)
MODES = tuple(itertools.product(COORDINATES, ROUNDINGS))


def resize(opset: int = 13, scales=None, sizes=None, shape=SHAPE, **attributes) -> onnx.ModelProto:
    """A model of one Resize, by scales or sizes."""
    given = {"roi": floats([])}
    names = ["x", "roi"]
    if scales is not None:
        given["scales"], names = floats(scales), [*names, "scales"]
    else:
        given["sizes"], names = integers(sizes), [*names, "", "sizes"]
    nodes = [node("Resize", names, ["y"], mode="nearest", name="up", **attributes)]
    return model(nodes, [value("x", np.float32, shape)], ["y"], given, opset)


def compare(proto: onnx.ModelProto) -> None:
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    expected = run_onnxruntime(proto, {"x": x})["y"]
    found = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    np.testing.assert_array_equal(found, expected)


def quantised(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same between quantised values."""
    pair = {"s": np.float32(0.1), "z": np.int8(3)}
    held = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in pair.items()]
    proto.graph.initializer.extend(held)
    (inner,) = proto.graph.node
    inner.input[0], inner.output[0] = "a", "b"
    del proto.graph.node[:]
    proto.graph.node.extend(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["a"]),
            inner,
            node("QuantizeLinear", ["b", "s", "z"], ["r"]),
            node("DequantizeLinear", ["r", "s", "z"], ["y"]),
        ]
    )
    return proto


@pytest.mark.parametrize("scales", [(2.0, 2.0), (3.0, 1.0), (1.5, 2.7), (0.5, 0.4), (1.0, 1.0)])
def test_all_modes_have_the_bits_of_onnxruntime(scales):
    for coordinates, rounding in MODES:
        opset = 19 if coordinates == "half_pixel_symmetric" else 11
        compare(
            resize(
                opset,
                (1.0, 1.0, *scales),
                coordinate_transformation_mode=coordinates,
                nearest_mode=rounding,
            )
        )


@pytest.mark.parametrize("sizes", [(1, 2, 10, 12), (1, 2, 7, 3), (2, 4, 1, 1)])
def test_sizes_have_the_bits_of_onnxruntime(sizes):
    for coordinates, rounding in MODES:
        if coordinates not in ("half_pixel_symmetric", "tf_half_pixel_for_nn"):
            compare(
                resize(
                    13,
                    sizes=sizes,
                    coordinate_transformation_mode=coordinates,
                    nearest_mode=rounding,
                )
            )


@pytest.mark.parametrize(
    ("before", "after"),
    [((7, 3), (17, 4)), ((7, 14), (2, 9)), ((11, 10), (15, 6)), ((7, 9), (1, 5))],
)
def test_sizes_have_the_bits_of_the_reference_evaluator(before, after):
    """Positions in binary32 would round some of these ties otherwise.

    Aligned corners have onnxruntime's bits: the evaluator takes the extent from a rounded scale.
    """
    x = np.arange(np.prod(before), dtype=np.float32).reshape(1, 1, *before)
    for coordinates, rounding in MODES:
        if coordinates == "tf_half_pixel_for_nn":
            continue  # not in the operator sets that the evaluator knows
        proto = resize(
            19,
            sizes=(1, 1, *after),
            shape=x.shape,
            coordinate_transformation_mode=coordinates,
            nearest_mode=rounding,
        )
        (expected,) = ReferenceEvaluator(proto).run(["y"], {"x": x})
        if coordinates == "align_corners":
            expected = run_onnxruntime(proto, {"x": x})["y"]
        found = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
        np.testing.assert_array_equal(found, expected, f"{coordinates}, {rounding}")


def integer_resize(dtype: str, x: np.ndarray, scales, **attributes) -> onnx.ModelProto:
    """A model of one Resize of integers by scales."""
    resized = node("Resize", ["x", "", "scales"], ["y"], **attributes)
    return model([resized], [value("x", dtype, x.shape)], ["y"], {"scales": floats(scales)}, 19)


def drawn(dtype: str, *shape: int) -> np.ndarray:
    """Integers from the ends and from the middle of a type's range, or of 16 bits of it."""
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(1 << 15)), min(limits.max, 1 << 15)
    generator = np.random.default_rng(4)
    x = generator.integers(low, high, shape, endpoint=True)
    return np.where(generator.random(shape) < 0.5, np.where(x > (low + high) / 2, high, low), x)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_interpolated_integers_are_rounded_once(dtype: str, mode: str, antialias: int):
    for scales in [(1, 1, 2, 2), (1, 1, 0.5, 0.25), (1, 1, 1, 4), (2, 1, 2, 0.5), (1, 2, 1, 1)]:
        x = drawn(dtype, 2, 3, 8, 12).astype(dtype)
        proto = integer_resize(dtype, x, scales, mode=mode, antialias=antialias)
        (expected,) = ReferenceEvaluator(proto).run(["y"], {"x": x})
        found = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
        np.testing.assert_array_equal(found, expected, str(scales))


@pytest.mark.parametrize("scales", [(1, 1, 2.3, 1.7), (1, 1, 0.6, 0.45), (1, 1, 3, 3)])
def test_linear_bytes_are_within_one_of_onnxruntime_and_equal_ones_remain(scales):
    for dtype in ("uint8", "int8"):
        for x in (drawn(dtype, 1, 2, 9, 7), np.full((1, 2, 9, 7), np.iinfo(dtype).max)):
            x = x.astype(dtype)
            proto = integer_resize(dtype, x, scales, mode="linear")
            expected = run_onnxruntime(proto, {"x": x})["y"]
            found = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
            assert np.abs(found.astype(int) - expected).max() <= 1
            assert x.min() < x.max() or (found == x[0, 0, 0, 0]).all()


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_integers_outside_the_tensor_saturate(mode: str):
    x = drawn("uint8", 1, 1, 4, 4).astype(np.uint8)
    resized = node(
        *("Resize", ["x", "roi", "scales"], ["y"]),
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=300.0,
    )
    held = {"roi": floats([0, 0, 0, 0, 1, 1, 1, 2]), "scales": floats([1, 1, 1, 1])}
    proto = model([resized], [value("x", np.uint8, x.shape)], ["y"], held, 13)
    found = evaluate(import_onnx(proto.SerializeToString()), {"x": x})["y"]
    np.testing.assert_array_equal(found[..., 2:], 255)
    np.testing.assert_array_equal(found[..., 0], x[..., 0])


def test_axes_may_be_named():
    compare(resize(18, (3.0, 2.0), axes=[3, -2], coordinate_transformation_mode="asymmetric"))
    compare(resize(18, sizes=(13, 11), axes=[2, 3]))


@pytest.mark.parametrize("opset", [7, 9, 10])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (1.5, 3.0), (0.6, 0.5)])
def test_older_forms_have_the_bits_of_onnxruntime(opset, scales):
    operator = "Upsample" if opset < 10 else "Resize"
    if operator == "Upsample" and min(scales) < 1:
        return
    all_scales = [1.0, 1.0, *scales]
    if opset == 7:
        made, held = node("Upsample", ["x"], ["y"], mode="nearest", scales=all_scales), {}
    else:
        made = node(operator, ["x", "scales"], ["y"], mode="nearest")
        held = {"scales": floats(all_scales)}
    compare(model([made], [value("x", np.float32, SHAPE)], ["y"], held, opset))


ROUND = frozenset({"round_prefer_floor", "round_prefer_ceil"})
FLOOR = frozenset({"floor"})
COPIES: dict[str, dict[int, frozenset[str]]] = {
    "align_corners": {2: ROUND},
    "asymmetric": {2: FLOOR | {"round_prefer_floor"}, 3: FLOOR, 4: FLOOR},
    "half_pixel": {2: ROUND, 3: ROUND, 4: ROUND},
    "pytorch_half_pixel": {2: ROUND, 3: ROUND, 4: ROUND},
    "half_pixel_symmetric": {2: ROUND, 3: ROUND, 4: ROUND},
    "tf_half_pixel_for_nn": {2: FLOOR, 3: FLOOR, 4: FLOOR},
}
"""Coordinates -> factor -> roundings that give a copy of each pixel as often as any other."""


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_it_stays_on_the_accelerator_exactly_where_it_copies(coordinates):
    for factor, rounding in itertools.product((2, 3, 4), ROUNDINGS):
        opset = 19 if coordinates == "half_pixel_symmetric" else 11
        proto = resize(
            opset,
            (1.0, 1.0, factor, factor),
            coordinate_transformation_mode=coordinates,
            nearest_mode=rounding,
        )
        graph = import_model(quantised(proto).SerializeToString())
        found = [n.attributes for n in graph.nodes if isinstance(n.attributes, QResize)]
        copies = rounding in COPIES[coordinates].get(factor, ())
        assert found == [QResize((factor, factor))] * copies, (coordinates, rounding, factor)


def test_columns_alone_and_several_steps_are_one_resize():
    proto = resize(13, (1.0, 1.0, 1.0, 3.0))
    proto.graph.node.append(node("Resize", ["y", "roi", "more"], ["w"], mode="nearest"))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(floats([1, 1, 2, 2]), "more"))
    first, second = proto.graph.node
    del proto.graph.node[:]
    proto.graph.node.append(first)
    quantised(proto)
    second.input[0], second.output[0] = "b", "c"
    proto.graph.node.insert(3, second)
    proto.graph.node[4].input[0] = "c"
    graph = import_model(proto.SerializeToString())
    found = [n.attributes for n in graph.nodes if isinstance(n.attributes, QResize)]
    assert found == [QResize((2, 6))]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"nearest_mode": "even"},
            "expected `nearest_mode` round_prefer_floor or round_prefer_ceil or floor or ceil, got "
            "`even`; correct the model",
        ),
        (
            {"coordinate_transformation_mode": "centred"},
            "expected `coordinate_transformation_mode` align_corners or asymmetric or half_pixel "
            "or half_pixel_symmetric or pytorch_half_pixel or tf_half_pixel_for_nn or "
            "tf_crop_and_resize, got `centred`; correct the model",
        ),
    ],
)
def test_modes_that_there_are_not_are_refused(attributes, message):
    with pytest.raises(ImportModelError) as raised:
        import_onnx(resize(13, (1.0, 1.0, 2.0, 2.0), **attributes).SerializeToString())
    assert str(raised.value) == f"model `model`: node `up` (Resize): {message}"


@pytest.mark.parametrize(
    ("wishes", "kind", "got"),
    [
        ({"scales": (1.0, 2.0)}, "scales", "[1.0, 2.0]"),
        ({"scales": (1.0, 1.0, 0.0, 2.0)}, "scales", "[1.0, 1.0, 0.0, 2.0]"),
        ({"sizes": (1, 2, 0, 3)}, "sizes", "[1, 2, 0, 3]"),
        ({"sizes": (1, 2, 3, 1 << 40)}, "sizes", "[1, 2, 3, 1099511627776]"),
    ],
)
def test_extents_that_do_not_fit_are_refused(wishes, kind, got):
    with pytest.raises(ImportModelError) as raised:
        import_onnx(resize(13, **wishes).SerializeToString())
    expected = f"4 positive {kind} below 2,147,483,648, got {got}; give one for each axis"
    assert str(raised.value) == f"model `model`: node `up` (Resize): expected {expected}"
