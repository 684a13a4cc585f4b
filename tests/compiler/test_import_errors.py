"""Every mistake of a model file is one sentence: what, where, expected, got, what to do."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.frontend import import_model
from tilewright.compiler.importers import import_onnx
from tilewright.errors import ImportModelError, TilewrightError

from .onnx_models import integers, model, node, scalars, value

IMAGE = [value("x", np.float32, [1, 3, 8, 8])]


def quantise(scale: float, **more: Any) -> onnx.ModelProto:
    """A model that quantises its input with a scale."""
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["y"], name="quantise", **more)]
    constants = {"s": np.float32(scale), "z": np.int8(0)}
    return model(nodes, [value("x", np.float32, [1, 4])], ["y"], constants)


def conv(weights: np.ndarray, **attributes: Any) -> onnx.ModelProto:
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv1", **attributes)]
    return model(nodes, IMAGE, ["y"], {"w": weights})


def damaged_initialiser() -> onnx.ModelProto:
    proto = conv(np.zeros((4, 3, 3, 3), np.float32))
    proto.graph.initializer[0].raw_data = b"\0" * 5
    return proto


def damaged_constant() -> onnx.ModelProto:
    tensor = onnx.numpy_helper.from_array(np.zeros(8, np.float32), "t")
    tensor.raw_data = b"\0" * 5
    nodes = [node("Constant", [], ["c"], value=tensor), node("Add", ["x", "c"], ["y"])]
    return model(nodes, IMAGE, ["y"])


def external_initialiser() -> onnx.ModelProto:
    proto = conv(np.zeros((4, 3, 3, 3), np.float32))
    proto.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    return proto


def unsupported() -> onnx.ModelProto:
    nodes = [
        node("ImageDecoder", ["x"], ["a"], name="picture"),
        node("Relu", ["a"], ["b"]),
        node("Bernoulli", ["b"], ["c"], name="coin"),
        node("Bernoulli", ["c"], ["d"]),
        node("Magic", ["d"], ["y"], domain="com.example", name="spell"),
    ]
    return model(nodes, IMAGE, ["y"])


def recursive() -> onnx.ModelProto:
    opsets = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid("test", 1)]
    body = [node("Again", ["a"], ["b"], domain="test")]
    proto = model([node("Again", ["x"], ["y"], name="again", domain="test")], IMAGE, ["y"])
    proto.functions.append(onnx.helper.make_function("test", "Again", ["a"], ["b"], body, opsets))
    return proto


FIFTEEN_KERNEL = np.zeros((4, 3, 15, 15), np.float32)

MISTAKES: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "unsupported operators": (
        unsupported,
        "model `model`: expected supported operators, got `ImageDecoder` (node `picture`); "
        "`Bernoulli` (nodes `coin`, `d`); `com.example.Magic` (node `spell`); replace "
        "them before export, or register them with `tilewright.register_operator`, for commands in "
        "a file that `--operators` names",
    ),
    "dynamic shape": (
        lambda: model(
            [node("Relu", ["x"], ["y"])], [value("x", np.float32, ["N", 3, "height", "w"])], ["y"]
        ),
        "model `model`: expected the extents of all dimensions, got none for `height` (dimension 2 "
        "of `x`), `w` (dimension 3 of `x`); export the model with a static shape or give `--dim "
        "height=EXTENT --dim w=EXTENT`",
    ),
    "NaN scale": (
        lambda: quantise(float("nan")),
        "model `model`: node `quantise` (QuantizeLinear): expected positive, finite scales, got "
        "`nan`; quantise the model again with calibration data that reaches this tensor",
    ),
    "infinite scale": (
        lambda: quantise(float("inf")),
        "model `model`: node `quantise` (QuantizeLinear): expected positive, finite scales, got "
        "`inf`; the tensor holds infinities, as masks do: leave it in float, or give the float "
        "model to `tilewright quantise`",
    ),
    "zero scale": (
        lambda: quantise(0.0),
        "model `model`: node `quantise` (QuantizeLinear): expected positive, finite scales, got "
        "`0.0`; quantise the model again with calibration data that reaches this tensor",
    ),
    "negative scale": (
        lambda: quantise(-0.5),
        "model `model`: node `quantise` (QuantizeLinear): expected positive, finite scales, got "
        "`-0.5`; quantise the model again with calibration data that reaches this tensor",
    ),
    "blocked quantisation": (
        lambda: quantise(0.5, block_size=2),
        "model `model`: node `quantise` (QuantizeLinear): `general_quantize`: expected a scale for "
        "each index or block of axis 0, got float32[1, 4], float32[], int8[]; correct the operands",
    ),
    "32-bit quantisation": (
        lambda: model(
            [node("QuantizeLinear", ["x", "s", "z"], ["y"], name="quantise")],
            IMAGE,
            ["y"],
            {"s": np.float32(1), "z": np.int32(0)},
        ),
        "model `model`: node `quantise` (QuantizeLinear): `general_quantize`: expected floats and "
        "a zero point of int32, got float32[1, 3, 8, 8], float32[], int32[]; correct the operands",
    ),
    "shape computed at run time": (
        lambda: model(
            [
                node("Cast", ["x"], ["s"], to=onnx.TensorProto.INT64),
                node("Reshape", ["x", "s"], ["y"], name="flatten"),
            ],
            [value("x", np.float32, [1])],
            ["y"],
        ),
        "model `model`: node `flatten` (Reshape): expected input 1 (`s`) to be a constant, got a "
        "value computed at run time; fix the input that it depends on (`x`; `--fix NAME=VALUE`), "
        "or export the model with static shapes and parameters",
    ),
    "enormous tensor": (
        lambda: model(
            [node("Expand", ["x", "s"], ["y"], name="grow")],
            [value("x", np.float32, [1])],
            ["y"],
            {"s": integers([1 << 20, 1 << 20])},
        ),
        "model `model`: node `grow` (Expand): a tensor of float32[1048576, 1048576] takes "
        "4,398,046,511,104 bytes, expected at most 2,147,483,648; split it, or correct the shape",
    ),
    "enormous constant": (
        lambda: model(
            [node("ConstantOfShape", ["s"], ["c"], name="fill"), node("Add", ["x", "c"], ["y"])],
            [value("x", np.float32, [1])],
            ["y"],
            {"s": integers([1 << 40])},
        ),
        "model `model`: node `fill` (ConstantOfShape): a tensor of float32[1099511627776] takes "
        "4,398,046,511,104 bytes, expected at most 268,435,456; split it, or correct the shape",
    ),
    "indices out of range": (
        lambda: model(
            [node("GatherND", ["c", "i"], ["y"], name="pick")],
            IMAGE,
            ["y"],
            {"c": np.zeros(4, np.float32), "i": integers([[9]])},
        ),
        "model `model`: node `pick` (GatherND): `gather_nd`: expected values that it can compute "
        "with, got `index 9 of 4 elements`; correct the operands",
    ),
    "indices too far from the end": (
        lambda: model(
            [node("Gather", ["x", "i"], ["y"], name="pick", axis=1)],
            [value("x", np.float32, [1, 4])],
            ["y"],
            {"i": integers([3, -5])},
        ),
        "model `model`: node `pick` (Gather): expected indices from -4 to 3, got `-5`; correct the "
        "indices",
    ),
    "channels and scales": (
        lambda: model(
            [node("DequantizeLinear", ["x", "s", "z"], ["y"], name="weights", axis=1)],
            [value("x", np.int8, [1, 4])],
            ["y"],
            {"s": np.ones(3, np.float32), "z": np.zeros(3, np.int8)},
        ),
        "model `model`: node `weights` (DequantizeLinear): expected 4 scales (axis 1), got 3; give "
        "one for each channel",
    ),
    "Upsample where there is none any more": (
        lambda: model(
            [node("Upsample", ["x", "s"], ["y"], name="larger")],
            IMAGE,
            ["y"],
            {"s": np.array([1, 1, 2, 2], np.float32)},
            13,
        ),
        "model `model`: node `larger` (Upsample): expected Resize, which took the place of "
        "Upsample in operator set 10, got Upsample in operator set 13; export the model again, or "
        "declare operator set 9",
    ),
    "missing initialiser": (
        lambda: model([node("Add", ["x", "w"], ["y"], name="add1")], IMAGE, ["y"]),
        "model `model`: node `add1` (Add): expected input `w` to be an initialiser, a model input "
        "or an earlier node's output, got none of them; add the missing initialiser or export the "
        "model again",
    ),
    "missing output": (
        lambda: model([node("Relu", ["x"], ["y"])], IMAGE, ["z"]),
        "model `model`: output `z`: expected a node to produce it, got none; export the model "
        "again",
    ),
    "wrong rank": (
        lambda: conv(np.zeros((4, 3, 3, 3, 3), np.float32)),
        "model `model`: node `conv1` (Conv): expected an image and a kernel of one rank, 3 or "
        "more, got ranks 4 and 5; correct the model",
    ),
    "wrong channels": (
        lambda: conv(np.zeros((4, 5, 3, 3), np.float32)),
        "model `model`: node `conv1` (Conv): `conv`: expected float32 [N,Ci,H,W], "
        "[Co,Ci/groups,KH,KW] and [Co], got float32[1, 3, 8, 8], float32[4, 5, 3, 3]; correct the "
        "operands",
    ),
    "wrong kernel_shape": (
        lambda: conv(np.zeros((4, 3, 3, 3), np.float32), kernel_shape=[5, 5]),
        "model `model`: node `conv1` (Conv): expected `kernel_shape` = [3, 3], got [5, 5]; export "
        "it again",
    ),
    "kernel larger than the image": (
        lambda: conv(FIFTEEN_KERNEL),
        "model `model`: node `conv1` (Conv): window: expected it to fit the padded input of 8 "
        "elements, got a span of 15 (kernel 15, stride 1, dilation 1); correct the model's kernel "
        "or padding",
    ),
    "enormous pads": (
        lambda: conv(np.zeros((4, 3, 3, 3), np.float32), pads=[0, 1 << 40, 0, 0]),
        "model `model`: node `conv1` (Conv): window: expected padding of 0 to 1,048,576 "
        "elements on an axis, got 1,099,511,627,776; correct the model's padding",
    ),
    "negative pads": (
        lambda: conv(np.zeros((4, 3, 3, 3), np.float32), pads=[0, -1, 0, 0]),
        "model `model`: node `conv1` (Conv): expected `pads` of 4 integers, 0 or more, got [0, -1, "
        "0, 0]; correct the model",
    ),
    "impossible reshape": (
        lambda: model(
            [node("Reshape", ["x", "s"], ["y"], name="flatten")],
            IMAGE,
            ["y"],
            {"s": integers([1, 7])},
        ),
        "model `model`: node `flatten` (Reshape): `reshape`: expected the 7 elements of [1, 7], "
        "got float32[1, 3, 8, 8]; correct the operands",
    ),
    "shapes that do not broadcast": (
        lambda: model(
            [node("Add", ["x", "c"], ["y"], name="add1")], IMAGE, ["y"], {"c": np.zeros(5, "f")}
        ),
        "model `model`: node `add1` (Add): `binary`: expected shapes that broadcast, got "
        "float32[1, 3, 8, 8], float32[5]; correct the operands",
    ),
    "damaged initialiser": (
        damaged_initialiser,
        "model `model`: initialiser `w`: expected float32[4, 3, 3, 3], got 5 bytes that do not "
        "make it; export the model again",
    ),
    "damaged constant": (
        damaged_constant,
        "model `model`: node `c` (Constant): attribute `value`: expected float32[8], got 5 bytes "
        "that do not make it; export the model again",
    ),
    "external data": (
        external_initialiser,
        "model `model`: initialiser `w`: expected its data in the file, got a reference to another "
        "file; save the model with `save_as_external_data=False`",
    ),
    "old operator set": (
        lambda: model([node("Add", ["x", "x"], ["y"])], IMAGE, ["y"], opset=6),
        "model `model`: expected ONNX operator set 7 or newer, got version 6; convert it with "
        "`onnx.version_converter`",
    ),
    "unknown pad mode": (
        lambda: model(
            [node("Pad", ["x", "p"], ["y"], mode="mirror", name="pad1")],
            IMAGE,
            ["y"],
            {"p": np.zeros(8, np.int64)},
        ),
        "model `model`: node `pad1` (Pad): expected `mode` constant, reflect, edge, wrap, got "
        "`mirror`; correct the model",
    ),
    "function that calls itself": (
        recursive,
        "model `model`: node `again` (Again): in its definition: node `b` (Again): expected no "
        "functions that call themselves, got `test.Again`; break the recursion",
    ),
    "training": (
        lambda: model(
            [node("Dropout", ["x", "r", "t"], ["y"], name="drop")],
            IMAGE,
            ["y"],
            {"r": np.float32(0.5), "t": np.array(True)},
        ),
        "model `model`: node `drop` (Dropout): expected no random numbers, got `training_mode`; "
        "export the model for inference",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises(ImportModelError, match=f"^{re.escape(message)}$") as caught:
        import_onnx(make().SerializeToString())
    assert caught.value.exit_code == 1


def test_a_missing_file_is_named(tmp_path) -> None:
    path = tmp_path / "absent.onnx"
    message = f"model `{path}`: expected a readable file, got `No such file or directory`; check"
    with pytest.raises(
        ImportModelError, match=f"^{re.escape(message)} the path and its permissions$"
    ):
        import_onnx(path)


def test_a_text_file_is_not_a_model(tmp_path) -> None:
    path = tmp_path / "notes.onnx"
    path.write_text("These are notes, not a network.\n")
    message = (
        "model `notes`: expected an ONNX file, got 32 bytes that are not one or are cut off; "
        "export or copy it again"
    )
    with pytest.raises(ImportModelError, match=f"^{re.escape(message)}$"):
        import_onnx(path)


def test_an_artifact_is_not_a_model() -> None:
    message = "expected an ONNX file, got an archive, such as `tilewright compile` makes; name the"
    with pytest.raises(ImportModelError, match=re.escape(message)):
        import_onnx(b"PK\x03\x04" + bytes(40))


def test_an_empty_file_is_not_a_model() -> None:
    message = (
        "model `model`: expected an ONNX model with nodes and outputs, got 0 nodes and 0 outputs "
        "in 0 bytes; export or copy it again"
    )
    with pytest.raises(ImportModelError, match=f"^{re.escape(message)}$"):
        import_onnx(b"")


def test_a_file_cut_off_anywhere_is_refused() -> None:
    data = conv(np.zeros((4, 3, 3, 3), np.float32)).SerializeToString()
    # The last field names an operator set that this model does not use.
    used = data.rindex(b"com.microsoft") - 4
    for length in range(used):
        with pytest.raises(ImportModelError) as caught:
            import_onnx(data[:length])
        assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6), st.integers(0, 255))
def test_damaged_bytes_never_escape_as_other_errors(a: int, b: int, c: int, d: int) -> None:
    weights = np.ones((2, 3, 3, 3), np.int8)
    constants = {"w": weights, **scalars(s=0.5, z=np.int8(1), zero=np.int8(0))}
    nodes = [
        node("QLinearConv", ["x", "s", "z", "w", "s", "zero", "s", "z"], ["c"], name="conv"),
        node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    proto = model(nodes, [value("x", np.int8, [1, 3, 4, 4])], ["y"], constants)
    data = bytearray(proto.SerializeToString())
    data[a % len(data)] = b
    data[c % len(data)] = d
    message = ""
    try:
        import_model(bytes(data))
    except TilewrightError as error:
        message = str(error)
    assert "\n" not in message


def test_a_batch_that_the_model_does_not_have_is_refused() -> None:
    data = model([node("Relu", ["x"], ["y"])], IMAGE, ["y"]).SerializeToString()
    message = (
        "model `model`: input `x`: expected a batch of 4, got a model fixed to 1; export "
        "the model with an open leading dimension"
    )
    with pytest.raises(ImportModelError, match=f"^{re.escape(message)}$"):
        import_onnx(data, batch=4)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"activations": ["Swish"]}, r"expected activations among Affine, .*, got `Swish`"),
        ({"clip": -1.0}, "expected a `clip` of 0 or more, got -1"),
    ],
)
def test_attributes_of_recurrent_layers_are_checked(attributes: Any, expected: str) -> None:
    held = {"w": np.zeros((1, 5, 4), np.float32), "r": np.zeros((1, 5, 5), np.float32)}
    layer = node("RNN", ["x", "w", "r"], ["y"], hidden_size=5, name="cell", **attributes)
    proto = model([layer], [value("x", np.float32, [3, 2, 4])], ["y"], held)
    with pytest.raises(ImportModelError, match=f"node `cell`.*{expected}; correct"):
        import_onnx(proto.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "shape", "held", "bytes_"),
    [
        ("DFT", [1, 8, 1], [1 << 31, 1], 1 << 34),
        ("Col2Im", [1, 8, 16], [[1 << 15, 1 << 15], [2, 2]], 1 << 33),
        ("STFT", [1, 1 << 20, 1], [1, None, 1 << 18], 786_433 << 21),
    ],
)
def test_rare_operators_allocate_nothing_beyond_the_limit(kind, shape, held, bytes_):
    """The run that finds their types would take many GiB."""
    names = ["" if one is None else f"c{i}" for i, one in enumerate(held)]
    given = {f"c{i}": integers(one) for i, one in enumerate(held) if one is not None}
    made = node(kind, ["x", *names], ["y"])
    proto = model([made], [value("x", np.float32, shape)], ["y"], given, 20)
    with pytest.raises(ImportModelError, match=f"takes {bytes_:,} bytes, expected at most"):
        import_onnx(proto.SerializeToString())
