"""Each pass keeps what the graph computes and does what its name says."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler import passes
from tilewright.compiler.frontend import RECIPE, import_model, recognise_layers
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QLut,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    is_accelerated,
    verify,
)
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes.recognise_rows import recognise_rows
from tilewright.isa.configuration import PRESETS

from .onnx_models import integers, model, node, run_onnxruntime, scalars, value

EXACT = {
    step
    for step in RECIPE
    if step.__name__
    not in (
        *("recognise_convolutions", "recognise_matmuls", "recognise_biases"),
        *("recognise_adds", "recognise_pools"),
    )
}


def quantised_network(dtype: type, last: bool = False):
    """A network with every pattern: QDQ form, all layouts changes that exporters write."""
    rng = np.random.default_rng(11)
    offset = 128 if dtype == np.uint8 else 0
    constants: dict[str, np.ndarray] = {}
    nodes = []
    count = 0

    def quantised(name: str, scale: float, point: int) -> str:
        nonlocal count
        count += 1
        s, z = f"s{count}", f"z{count}"
        constants.update(scalars(**{s: scale}) | {z: dtype(point + offset)})
        nodes.append(node("QuantizeLinear", [name, s, z], [f"q{count}"]))
        nodes.append(node("DequantizeLinear", [f"q{count}", s, z], [f"d{count}"]))
        return f"d{count}"

    def layer(op: str, names: list[str], **attributes: Any) -> str:
        output = f"{op.lower()}{len(nodes)}"
        nodes.append(node(op, names, [output], name=output, **attributes))
        return output

    def weights(name: str, *shape: int) -> str:
        count = shape[0]
        constants[f"{name}_w"] = rng.integers(-127, 128, shape).astype(np.int8)
        constants[f"{name}_s"] = rng.uniform(0.001, 0.01, count).astype(np.float32)
        constants[f"{name}_z"] = np.zeros(count, np.int8)
        names = [f"{name}_w", f"{name}_s", f"{name}_z"]
        nodes.append(node("DequantizeLinear", names, [name], axis=0))
        return name

    x = quantised("x", 0.02, 3)
    if last:
        x = layer("Transpose", [x], perm=[0, 3, 1, 2])
    a = layer("Conv", [x, weights("w1", 8, 3, 3, 3)], pads=[1, 1, 1, 1], strides=[2, 2])
    a = quantised(layer("Relu", [a]), 0.03, -128)
    pad = layer("Pad", [a, "pads"])
    constants["pads"] = integers([0, 0, 1, 1, 0, 0, 0, 1])
    b = layer("Conv", [pad, weights("w2", 8, 1, 3, 3)], group=8, pads=[0, 0, 1, 0])
    constants["offset"] = rng.standard_normal((8, 1, 1)).astype(np.float32)
    b = quantised(layer("Add", [b, "offset"]), 0.02, 7)
    c = layer("Mul", [b, quantised(layer("Sigmoid", [b]), 1 / 256, -128)])
    c = quantised(c, 0.021, -5)
    c = quantised(layer("Clip", [layer("Add", [c, a]), "low", "high"]), 0.05, -30)
    constants.update(scalars(low=-1.0, high=3.0))
    d = layer("MaxPool", [c], kernel_shape=[2, 2], strides=[2, 2])
    e = quantised(layer("LeakyRelu", [d], alpha=0.1), 0.04, 0)
    f = quantised(layer("Concat", [e, d], axis=1), 0.05, -3)
    g = layer("AveragePool", [f], kernel_shape=[2, 2], strides=[2, 2])
    g = quantised(g, 0.051, 0)
    h = layer("Flatten", [g])
    h = layer("MatMul", [h, layer("Transpose", [weights("w3", 10, 64)], perm=[1, 0])])
    constants["last"] = rng.standard_normal(10).astype(np.float32)
    h = layer("Softmax", [quantised(layer("Add", [h, "last"]), 0.1, 1)])
    nodes.append(node("Identity", [h], ["y"]))
    shape = ["N", 16, 16, 3] if last else ["N", 3, 16, 16]
    return model(nodes, [value("x", np.float32, shape)], ["y"], constants)


@pytest.fixture(params=[np.int8, np.uint8], ids=["int8", "uint8"])
def network(request):
    return quantised_network(request.param)


def samples(graph: Graph, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {v.name: rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs}


def test_all_passes_but_the_recognising_ones_keep_every_bit(network) -> None:
    graph = import_onnx(network.SerializeToString(), batch=4)
    inputs = samples(graph)
    for step in RECIPE:
        after = verify(step(graph), step.__name__)
        if step in EXACT:
            before, now = evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"]
            np.testing.assert_array_equal(before, now, err_msg=step.__name__)
        graph = after


def test_every_pattern_is_recognised(network) -> None:
    graph = import_model(network.SerializeToString(), batch=4)
    kinds = [type(n.attributes) for n in graph.nodes if is_accelerated(n)]
    assert kinds.count(QConv) == 3
    assert kinds.count(QAdd) == kinds.count(QAvgPool) == kinds.count(QMaxPool) == 1
    assert kinds.count(QConcat) == 1
    # x * sigmoid(x); the leaky Relu and its change of scale for the join in one; d's for the join.
    assert kinds.count(QLut) == 3
    hosts = [n.op for n in graph.nodes if not is_accelerated(n)]
    assert sorted(hosts) == sorted(["quantize", "transpose", "reshape", "dequantize", "softmax"])


def test_the_result_is_near_onnxruntimes(network) -> None:
    graph = import_model(network.SerializeToString(), batch=4)
    inputs = samples(graph)
    expected = run_onnxruntime(network, inputs, optimise=False)["y"]
    np.testing.assert_allclose(evaluate(graph, inputs)["y"], expected, atol=0.05)


def test_a_channels_last_input_needs_no_transpose() -> None:
    graph = import_model(quantised_network(np.int8, last=True).SerializeToString())
    assert "transpose" not in [n.op for n in graph.nodes]


def test_the_recipe_changes_nothing_the_second_time(network) -> None:
    graph = import_model(network.SerializeToString())
    assert recognise_layers(graph) == graph


def test_clamps_of_relu_and_clip_become_bounds(network) -> None:
    graph = import_model(network.SerializeToString())
    bounds = {
        (type(n.attributes), n.attributes.low, n.attributes.high)
        for n in graph.nodes
        if isinstance(n.attributes, (QConv, QAdd))
    }
    assert (QConv, -128, 127) in bounds
    assert (QAdd, -50, 30) in bounds


def image(quantisation: Quantisation | None, *shape: int) -> Builder:
    return Builder("test", [Value("x", TensorType("int8", shape, quantisation))])


ONE = Quantisation(1.0, 0)


def finish(builder: Builder, result: str) -> Graph:
    return verify(builder.graph([Output("y", result)]))


def random_input(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    (x,) = graph.inputs
    return {x.name: rng.integers(-128, 128, x.type.shape).astype(np.int8)}


def emit_dense(builder: Builder, x: str, count: int) -> str:
    rng = np.random.default_rng(3)
    operator = ops.QConv("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0)
    operands = [
        builder.constant(rng.integers(-127, 128, (1, 1, count, 5)).astype(np.int8)),
        builder.constant(np.zeros(5, np.int32)),
        builder.constant(np.full(5, 0.001, np.float32)),
    ]
    return builder.emit(operator, [x, *operands], "dense", quantisation=ONE)


@pytest.mark.parametrize("first", [False, True])
def test_a_dense_layer_absorbs_the_flatten_of_either_layout(first: bool) -> None:
    builder = image(ONE, 2, 6, 8, 3)
    x = builder.emit(ops.QMaxPool((2, 2), (2, 2), (0, 0, 0, 0)), ["x"])
    if first:
        x = builder.emit(ops.Transpose((0, 3, 1, 2)), [x])
    x = builder.emit(ops.Reshape((2, 1, 1, 36)), [x])
    graph = finish(builder, emit_dense(builder, x, 36))
    after = verify(passes.absorb_flatten(graph))
    assert [n.op for n in after.nodes] == ["qmaxpool", "qconv"]
    assert after.data(after.nodes[1].inputs[1]).shape == (3, 4, 3, 5)
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


@pytest.mark.parametrize("pad_value", [-128, 4])
def test_a_window_absorbs_padding_of_its_own_value_only(pad_value: int) -> None:
    builder = image(ONE, 1, 5, 5, 2)
    x = builder.emit(ops.Pad((0, 1, 0, 0), (0, 2, 3, 0), pad_value), ["x"])
    graph = finish(builder, builder.emit(ops.QMaxPool((2, 2), (1, 1), (0, 1, 0, 0)), [x]))
    after = verify(passes.absorb_padding(graph))
    if pad_value == -128:
        assert [n.attributes for n in after.nodes] == [ops.QMaxPool((2, 2), (1, 1), (1, 1, 2, 3))]
    else:
        assert after == graph
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


def test_a_shared_layer_keeps_its_bounds_beside_a_clamping_table() -> None:
    builder = image(ONE, 1, 4, 4, 2)
    pool = builder.emit(ops.QMaxPool((2, 2), (2, 2), (0, 0, 0, 0)), ["x"])
    relu = builder.constant(np.maximum(np.arange(-128, 128), 0).astype(np.int8))
    table = builder.emit(ops.QLut(), [pool, relu], quantisation=ONE)
    shared = verify(builder.graph([Output("y", table), Output("z", pool)]))
    assert passes.fold_tables(shared) == shared
    (folded,) = passes.fold_tables(verify(builder.graph([Output("y", table)]))).nodes
    assert folded.attributes == ops.QMaxPool((2, 2), (2, 2), (0, 0, 0, 0), low=0)


@pytest.mark.parametrize("zero_point", [0, 9])
@pytest.mark.parametrize("ratio", [0.125, 0.2])
def test_a_factor_between_scales_of_its_ratio_is_no_step(zero_point: int, ratio: float) -> None:
    """As 1 / sqrt(d) behind the scores of attention: the same integers have another scale."""
    products, scaled = Quantisation(0.05, zero_point), Quantisation(0.00625, zero_point)
    builder = image(products, 1, 4, 4, 2)
    pool = builder.emit(ops.QMaxPool((2, 2), (2, 2), (0, 0, 0, 0)), ["x"], quantisation=products)
    x = (np.arange(-128, 128) - zero_point) * 0.05 * ratio / 0.00625 + zero_point
    table = builder.constant(np.clip(np.rint(x), -128, 127).astype(np.int8))
    graph = finish(builder, builder.emit(ops.QLut(), [pool, table], quantisation=scaled))
    after = verify(passes.fold_tables(graph))
    assert [n.op for n in after.nodes] == ["qmaxpool"] + ["qlut"] * (ratio != 0.125)
    assert after.types[after.outputs[0].value].quantisation == scaled
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


def test_two_tables_become_one() -> None:
    builder = image(ONE, 1, 4, 4, 2)
    rng = np.random.default_rng(4)
    x = "x"
    for _ in range(2):
        table = builder.constant(rng.integers(-128, 128, 256).astype(np.int8))
        x = builder.emit(ops.QLut(), [x, table], quantisation=ONE)
    graph = finish(builder, x)
    after = verify(passes.fold_tables(graph))
    assert [n.op for n in after.nodes] == ["qlut"]
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


def test_a_table_of_one_pixel_goes_above_its_change_of_layout() -> None:
    builder = image(ONE, 2, 1, 1, 6)
    turned = builder.emit(ops.Transpose((0, 3, 1, 2)), ["x"])
    table = builder.constant(np.random.default_rng(4).integers(-128, 128, 256).astype(np.int8))
    looked_up = builder.emit(ops.QLut(), [turned, table], quantisation=ONE)
    graph = finish(builder, builder.emit(ops.Transpose((0, 2, 3, 1)), [looked_up]))
    after = verify(passes.arrange_layout(graph))
    assert [n.op for n in after.nodes] == ["qlut"]
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 5), 0), ((3, 5), 1), ((2, 3, 5), 0), ((2, 3, 5), 1), ((2, 3, 5), 2)]
)
@pytest.mark.parametrize("constant", [False, True])
def test_vectors_and_rows_are_joined_as_images(
    shape: tuple[int, ...], axis: int, constant: bool
) -> None:
    builder = Builder("made", [Value("x", TensorType("int8", shape, ONE))])
    other = builder.constant(np.full(shape, 7, np.int8)) if constant else "x"
    graph = finish(builder, builder.emit(ops.Concat(axis), ["x", other]))
    after = verify(passes.arrange_layout(passes.recognise_concats(graph)))
    assert [n.op for n in after.nodes if is_accelerated(n)] == ["qconcat"]
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


def test_equal_nodes_are_computed_once() -> None:
    builder = image(ONE, 1, 4, 4, 2)
    pools = [builder.emit(ops.QMaxPool((2, 2), (2, 2), (0, 0, 0, 0)), ["x"]) for _ in range(2)]
    add = ops.QAdd((1, 1), 0, 0.5, 0)
    graph = finish(builder, builder.emit(add, pools, quantisation=ONE))
    after = verify(passes.merge_duplicates(graph))
    assert [n.op for n in after.nodes] == ["qmaxpool", "qadd"]
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


def test_a_new_value_may_take_the_name_of_a_dropped_one() -> None:
    """The second Transpose of `n` is dropped first; then the other one is replaced, and so on."""
    builder = image(ONE, 1, 1, 1, 4)
    pool = ops.QMaxPool((1, 1), (1, 1), (0, 0, 0, 0))
    x = builder.emit(ops.Transpose((0, 3, 1, 2)), [builder.emit(pool, ["x"], "p")], "q")
    for shape in ((1, 4), (1, 4, 1, 1)):
        x = builder.emit(ops.Reshape(shape), [x], "r")
    x = builder.emit(ops.Transpose((0, 2, 3, 1)), [x], "n")
    x = builder.emit(ops.Transpose((0, 3, 1, 2)), [builder.emit(pool, [x], "n")], "n")
    graph = finish(builder, builder.emit(ops.Shift(), [x], "v"))
    after = verify(passes.arrange_layout(graph))
    assert [n.op for n in after.nodes] == ["qmaxpool", "qmaxpool", "shift", "reshape"]
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (0, 2, 3, 1)])
def test_an_add_of_two_layouts_ends(order: tuple[int, ...]) -> None:
    builder = image(ONE, 1, 4, 4, 4)
    turned = builder.emit(ops.Transpose(order), ["x"])
    add = builder.emit(ops.QAdd((1, 1), 0, 0.5, 0), [turned, "x"], quantisation=ONE)
    graph = finish(builder, add)
    after = verify(passes.arrange_layout(graph))
    inputs = random_input(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)["y"], evaluate(after, inputs)["y"])


@pytest.mark.parametrize(
    ("indices", "cut"),
    [([2], True), ([-1], True), ([1, 3], True), ([-3, -2], True), ([2, 1], False)],
)
def test_even_indices_are_a_slice(indices, cut):
    builder = Builder("made", [Value("x", TensorType("int8", (1, 4, 6)))])
    at = builder.constant(np.array(indices), "at")
    graph = builder.graph([Output("y", builder.emit(ops.Gather(1), ["x", at]))])
    found = passes.recognise_slices(graph)
    assert ("gather" in [node.op for node in found.nodes]) != cut
    x = np.arange(24).astype(np.int8).reshape(1, 4, 6)
    assert (evaluate(found, {"x": x})["y"] == x[:, indices]).all()


DEPTH = 2000


@pytest.mark.parametrize(
    "form", ["in a row", "of two equal terms", "of two equal terms, quantised"]
)
def test_deep_functions_of_one_value_end(form):
    """Walks that visit a value on every path to it would never end."""
    scaled = {"s": 0.1, "z": np.int8(0)}
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["v0"])]
    count = DEPTH if form == "in a row" else 60
    for index in range(count):
        given, result = f"v{index}", f"v{index + 1}"
        if form == "in a row":
            nodes.append(node("Neg", [given], [result]))
        elif form == "of two equal terms":
            nodes.append(node("Add", [given, given], [result]))
        else:
            nodes += [
                node("Add", [given, given], [f"sum{index}"]),
                node("QuantizeLinear", [f"sum{index}", "s", "z"], [f"held{index}"]),
                node("DequantizeLinear", [f"held{index}", "s", "z"], [result]),
            ]
    nodes.append(node("QuantizeLinear", [f"v{count}", "s", "z"], ["y"]))
    proto = model(nodes, [value("x", np.int8, (1, 3, 4))], ["y"], scalars(**scaled))
    graph = import_model(proto.SerializeToString())
    rows = recognise_rows(graph, PRESETS["8x8"].replace(name="rows", row_statistics="all"))
    x = np.arange(-6, 6).astype(np.int8).reshape(1, 3, 4)
    expected = x if form == "in a row" else np.where(x, np.where(x < 0, -128, 127), 0)
    for each in (graph, rows):
        assert np.array_equal(evaluate(each, {"x": x})["y"], expected)
