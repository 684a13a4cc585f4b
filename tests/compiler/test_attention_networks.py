"""Quantised attention with masks, rotary embedding, shared heads and gates, in exporters' forms."""

import numpy as np
import onnx
import pytest

from tests.compiler.attention_networks import Attention, Writer, compiled, quantised
from tests.compiler.onnx_models import model, node, run_onnxruntime, scalars, value
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import Builder, Output, Quantisation, TensorType, Value, evaluate
from tilewright.compiler.graph.operators import QMatMul, QMaxPool, Reshape, Transpose
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes.move_pixels import move_pixels
from tilewright.compiler.passes.recognise_rows import recognise_rows
from tilewright.compiler.pipeline import compile_module
from tilewright.flows.verify.programs.random_configurations import verification_configurations
from tilewright.isa.configuration import PRESETS, Memory
from tilewright.isa.instructions import Load
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

ROWS = PRESETS["8x8"].replace(name="rows-8x8", row_statistics="all")


CASES = {
    "causal, halves": Attention(4, 2, 8, 12, "added", "halves", gated=True),
    "causal, pairs": Attention(4, 4, 6, 9, "added", "pairs", gated=True),
    "replaced, rotate half": Attention(3, 1, 8, 10, "replaced", "rotate half", before_heads=False),
    "kept, pairs": Attention(2, 2, 10, 7, "kept", "pairs", before_heads=False),
    "padding": Attention(3, 1, 8, 11, "padding", "none"),
    "padding and causal": Attention(4, 2, 4, 8, "padding and causal", "halves"),
    "boolean padding": Attention(2, 1, 12, 9, "boolean", "none"),
    "joined, split": Attention(4, 1, 8, 9, "added", "halves", joined="split", gated=True),
    "joined, sliced": Attention(3, 1, 8, 11, "kept", "none", joined="slices"),
    "joined, selected": Attention(2, 1, 12, 10, "none", "none", joined="select", gated=True),
    "joined, of images": Attention(2, 1, 8, 7, "none", "none", joined="select", images=3),
    "joined, by head": Attention(3, 1, 8, 9, "padding", "rotate half", False, joined="by head"),
}


@pytest.mark.parametrize("form", CASES.values(), ids=CASES)
def test_attention_is_one_program(form):
    graph, module, given = compiled(form, ROWS)
    ops = [one.op for one in module.graph.nodes]
    assert len(module.segments) == 1, ops
    assert "softmax" not in ops
    assert not {"expand", "gather", "slice", "transpose"} & set(ops)
    assert ops.count("qrotate") == (0 if form.rotary == "none" else 2)
    (found,) = Session(module, open_device("sim", ROWS)).run(given).outputs.values()
    (expected,) = evaluate(module.graph, given).values()
    assert np.array_equal(found, expected)
    (in_float,) = evaluate(graph, given).values()
    noise = np.square(found - in_float).mean()
    assert 10 * np.log10(np.square(in_float).mean() / noise) > 22


def test_keys_are_transposed_by_runs():
    """A machine with the option needs no loads of single bytes, and takes less time."""
    found = []
    for option in ("none", "int8"):
        machine = ROWS.replace(transposed_weights=option)
        _, module, given = compiled(CASES["padding"], machine)
        session = Session(module, open_device("sim", machine))
        outcome = session.run(given)
        (segment,) = module.segments
        loads = [one for one in segment.program if isinstance(one, Load)]
        columns = {one.length for one in loads if one.destination is Memory.WGT and one.transpose}
        found.append((outcome, columns, min(one.length for one in loads)))
    (bytewise, none, shortest), (turned, columns, _) = found
    assert (none, shortest, columns) == (set(), 1, {CASES["padding"].size})
    for name, expected in bytewise.outputs.items():
        assert np.array_equal(turned.outputs[name], expected)
    assert turned.profile.cycles < bytewise.profile.cycles


# Images -------------------------------------------------------------------------------------------


def vision_transformer() -> onnx.ModelProto:
    """The form of PyTorch: patches of a convolution, a class token, positions, a head on it."""
    form = Attention(2, 1, 12, 10, "none", "none", joined="select", gated=True)
    writer, width = Writer(form), form.channels
    chance = np.random.default_rng(8)
    kernel = chance.normal(0, 0.2, (width, 3, 4, 4)).astype(np.float32)
    patches = writer.emit("Conv", "image", kernel, strides=[4, 4], kernel_shape=[4, 4])
    rows = writer.emit("Reshape", patches, np.array([1, width, form.tokens - 1]))
    rows = writer.emit("Transpose", rows, perm=[0, 2, 1])
    token = chance.normal(0, 1, (1, 1, width)).astype(np.float32)
    joined = writer.emit("Concat", token, rows, axis=1)
    positions = chance.normal(0, 0.5, (1, form.tokens, width)).astype(np.float32)
    writer.nodes.append(node("Add", [joined, writer.hold(positions)], ["x"]))
    first = writer.emit("Gather", writer.block(), np.array(0), axis=1)
    weights = chance.normal(0, 0.4, (width, 6)).astype(np.float32)
    return of_images(writer, writer.emit("MatMul", first, weights))


def mobile_vision_transformer() -> onnx.ModelProto:
    """Convolutions around attention over the pixels of equal place in patches of 2 x 2."""
    form = Attention(2, 1, 8, 9, "none", "none", joined="select", images=4)
    writer, width = Writer(form), form.channels
    chance = np.random.default_rng(4)
    kernel = chance.normal(0, 0.2, (width, 3, 2, 2)).astype(np.float32)
    image = writer.emit("Conv", "image", kernel, strides=[2, 2], kernel_shape=[2, 2])
    image = writer.emit("Mul", image, writer.emit("Sigmoid", image))
    apart = writer.emit("Reshape", image, np.array([1, width, 3, 2, 3, 2]))
    apart = writer.emit("Transpose", apart, perm=[0, 3, 5, 2, 4, 1])
    writer.nodes.append(node("Reshape", [apart, writer.hold(np.array([4, 9, width]))], ["x"]))
    rows = writer.emit("Reshape", writer.block(), np.array([1, 2, 2, 3, 3, width]))
    rows = writer.emit("Transpose", rows, perm=[0, 5, 3, 1, 4, 2])
    whole = writer.emit("Reshape", rows, np.array([1, width, 6, 6]))
    last = chance.normal(0, 0.4, (5, width, 1, 1)).astype(np.float32)
    y = writer.emit("Conv", writer.emit("Add", image, whole), last, kernel_shape=[1, 1])
    return of_images(writer, y)


def of_images(writer: Writer, y: str) -> onnx.ModelProto:
    inputs = [value("image", np.float32, (1, 3, 12, 12))]
    return model(writer.nodes, inputs, [y], writer.constants, 18)


@pytest.mark.parametrize("network", [vision_transformer, mobile_vision_transformer])
def test_images_with_attention_are_one_program(network):
    graph = import_onnx(network().SerializeToString())
    images = np.random.default_rng(3).normal(0, 1, (13, 1, 3, 12, 12)).astype(np.float32)
    module = quantised(graph, {"image": images[1:]}, ROWS)
    ops = [one.op for one in module.graph.nodes]
    assert len(module.segments) == 1, ops
    inside = ops[ops.index("qconv") : len(ops) - ops[::-1].index("qconv")]
    assert all(each.startswith("q") or each == "reshape" for each in inside), ops
    (expected,) = evaluate(module.graph, {"image": images[0]}).values()
    (found,) = Session(module, open_device("sim", ROWS)).run(images[0]).outputs.values()
    assert np.array_equal(found, expected)
    (in_float,) = evaluate(graph, {"image": images[0]}).values()
    assert 10 * np.log10(np.square(in_float).mean() / np.square(found - in_float).mean()) > 17


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "images"), [(2, 2, 1), (3, 1, 1), (1, 4, 2), (2, 3, 2)]
)
def test_pixels_move_to_phases_and_back(rows, columns, images, back):
    channels = 5
    image = images, 2 * rows, 3 * columns, channels
    phases = rows * columns * images, 2, 3, channels
    apart, order = (images, 2, rows, 3, columns, channels), (2, 4, 0, 1, 3, 5)
    given, wanted = image, phases
    if back:
        given, wanted = phases, image
        apart, order = (rows, columns, images, 2, 3, channels), (2, 3, 0, 4, 1, 5)
    same = QMaxPool((1, 1), (1, 1), (0, 0, 0, 0))
    builder = Builder("moved", [Value("x", TensorType("int8", given, Quantisation(0.1, 2)))])
    split = builder.emit(Reshape(apart), [builder.emit(same, ["x"])])
    moved = builder.emit(Reshape(wanted), [builder.emit(Transpose(order), [split])])
    graph = builder.graph([Output("y", builder.emit(same, [moved]))])
    found = move_pixels(graph)
    ops = [each.op for each in found.nodes]
    assert all(each.startswith("q") for each in ops)
    assert "qconcat" in ops or (back and "qinterleave" in ops)
    x = np.random.default_rng(1).integers(-128, 128, given).astype(np.int8)
    assert np.array_equal(evaluate(found, {"x": x})["y"], evaluate(graph, {"x": x})["y"])


@pytest.mark.slow
@pytest.mark.parametrize("option", ["none", "int8"])
def test_the_hardware_agrees(option):
    configuration = verification_configurations()["narrow-rows"].replace(transposed_weights=option)
    _, module, given = compiled(Attention(2, 2, 4, 4, "added", "pairs"), configuration)
    devices = (open_device(name, configuration) for name in ("sim", "rtl"))
    first, second = (Session(module, device).run(given) for device in devices)
    (expected,) = evaluate(module.graph, given).values()
    for one in (first, second):
        (found,) = one.outputs.values()
        assert np.array_equal(found, expected)
    assert first.profile.cycles == second.profile.cycles


# Shared heads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("joined", [(True, True, True), (False, False, False), (True, False, True)])
@pytest.mark.parametrize("points", [(0, 0), (3, 0), (0, -5), (7, -128)])
@pytest.mark.parametrize("transposed", [True, False])
def test_products_read_shared_heads(joined, points, transposed):
    heads, repeats, rows, depth, columns = 6, 2, 5, 12, 9
    images = 1 if any(joined) else 2
    inner = (columns, depth) if transposed else (depth, columns)
    shapes = (heads, rows, depth), (heads // repeats, *inner)
    shapes = [
        (images, 1, height, count * width) if together else (images, count, height, width)
        for (count, height, width), together in zip(shapes, joined, strict=False)
    ]
    types = [
        TensorType("int8", shape, Quantisation(0.1, point))
        for shape, point in zip(shapes, points, strict=True)
    ]
    builder = Builder("shared", [Value(n, kind) for n, kind in zip("ab", types, strict=True)])
    za, zb = points
    operator = QMatMul(heads, 0.002, za, zb, 4, transposed, joined, repeats=repeats)
    made = builder.emit(operator, ["a", "b"], "product", quantisation=Quantisation(0.1, 4))
    graph = builder.graph([Output("y", made)])
    chance = np.random.default_rng(3)
    given = {name: chance.integers(-128, 128, shape).astype(np.int8)
             for name, shape in zip("ab", shapes, strict=True)}  # fmt: skip
    expected = evaluate(graph, given)["y"]
    module = compile_module(graph, ROWS)
    assert module.steps == (0,), "nothing on the host"
    found = Session(module, open_device("sim", ROWS)).run(given).outputs["y"]
    assert np.array_equal(found, expected)


# Rotations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [1.0, 30.0])
def test_rotations_equal_float_but_for_one_step(largest):
    chance = np.random.default_rng(2)
    angles = np.arange(7)[:, None] * 0.8 ** np.arange(6)
    cos, sin = (np.tile(f(angles), 2).astype(np.float32)[None] for f in (np.cos, np.sin))
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("Split", ["f"], ["one", "other"], axis=2),
        node("Neg", ["other"], ["less"]),
        node("Concat", ["less", "one"], ["swapped"], axis=2),
        node("Mul", ["f", "cos"], ["kept"]),
        node("Mul", ["swapped", "sin"], ["turned"]),
        node("Add", ["turned", "kept"], ["sum"]),
        node("QuantizeLinear", ["sum", "t", "w"], ["y"]),
    ]
    constants = {"cos": cos, "sin": largest * sin} | scalars(
        s=0.05, z=np.int8(-6), t=0.06, w=np.int8(3)
    )
    proto = model(nodes, [value("x", np.int8, (1, 7, 12))], ["y"], constants)
    graph = recognise_rows(import_model(proto.SerializeToString()), ROWS)
    assert ("qrotate" in [one.op for one in graph.nodes]) == (largest == 1)
    x = chance.integers(-128, 128, (1, 7, 12)).astype(np.int8)
    expected = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    off = np.abs(evaluate(graph, {"x": x})["y"].astype(int) - expected)
    assert off.max() <= 1
    assert np.mean(off > 0) < 0.2


@pytest.mark.parametrize("partners", ["halves", "of another row", "different in each row"])
def test_only_partners_in_equal_places_of_each_row_are_rotations(partners):
    chance = np.random.default_rng(5)
    at = np.arange(7 * 12).reshape(7, 12)
    moved = {
        "halves": np.roll(at, 6, axis=1),
        "of another row": np.roll(at, 1, axis=0),
        "different in each row": np.stack([np.roll(row, place) for place, row in enumerate(at)]),
    }[partners]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("Reshape", ["f", "flat"], ["line"]),
        node("Gather", ["line", "moved"], ["swapped"]),
        node("Mul", ["f", "cos"], ["kept"]),
        node("Mul", ["swapped", "sin"], ["turned"]),
        node("Add", ["turned", "kept"], ["sum"]),
        node("QuantizeLinear", ["sum", "t", "w"], ["y"]),
    ]
    factors = {n: chance.uniform(-1, 1, (1, 7, 12)).astype(np.float32) for n in ("cos", "sin")}
    constants = {"flat": np.array([84]), "moved": moved[None], **factors} | scalars(
        s=0.05, z=np.int8(0), t=0.06, w=np.int8(3)
    )
    proto = model(nodes, [value("x", np.int8, (1, 7, 12))], ["y"], constants)
    graph = recognise_rows(import_model(proto.SerializeToString()), ROWS)
    assert ("qrotate" in [one.op for one in graph.nodes]) == (partners == "halves")
    x = chance.integers(-128, 128, (1, 7, 12)).astype(np.int8)
    expected = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    assert np.abs(evaluate(graph, {"x": x})["y"].astype(int) - expected).max() <= 1
