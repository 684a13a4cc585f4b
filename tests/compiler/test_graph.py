"""The graph IR: text round-trips, the verifier names what is broken, kernels equal plain loops."""

import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.graph import (
    Builder,
    Constant,
    Graph,
    Node,
    Output,
    QAvgPool,
    QConv,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    evaluate_operator,
    parse_graph,
    print_graph,
    verify,
)
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.graph.operator import operator
from tilewright.compiler.graph.operators import Expand, TopK
from tilewright.compiler.graph.text import OPERATORS
from tilewright.compiler.graph.types import DTYPES, Types
from tilewright.compiler.passes import merge_duplicates
from tilewright.errors import CompileError
from tilewright.isa.numbers import quantise_output

HALF = Quantisation(0.5, 3)


def small_graph() -> Graph:
    builder = Builder("small", [Value('odd "name"', TensorType("int8", (1, 4, 4, 2), HALF))])
    table = builder.constant(np.arange(-128, 128).astype(np.int8), "table")
    pool = builder.emit(ops.QMaxPool((2, 2), (2, 2), (0, 0, 0, 0)), ['odd "name"'], "pool/1;2:0")
    look = builder.emit(ops.QLut(), [pool, table], "look up", quantisation=HALF)
    real = builder.emit(ops.Dequantize((0.5,), (3,)), [look], "dequantise")
    return builder.graph([Output("y", real), Output("z", pool)])


GOLDEN = "\n".join(
    [
        'graph "small" {',
        '  input %"odd \\"name\\"" : int8[1,4,4,2] quant(0.5, 3)',
        "  constant %table : int8[256] digest 4fddfacaa0f99162",
        "  %pool/1;2:0.qmaxpool : int8[1,2,2,2] quant(0.5, 3) = "
        'qmaxpool(%"odd \\"name\\"") {kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), '
        'dilations=(1, 1), low=-128, high=127} @ "pool/1;2:0"',
        '  %"look up.qlut" : int8[1,2,2,2] quant(0.5, 3) = '
        'qlut(%pool/1;2:0.qmaxpool, %table) {} @ "look up"',
        "  %dequantise.dequantize : float32[1,2,2,2] = "
        'dequantize(%"look up.qlut") {scales=(0.5,), zero_points=(3,), axis=None} @ "dequantise"',
        '  output "y" = %dequantise.dequantize',
        '  output "z" = %pool/1;2:0.qmaxpool',
        "}",
        "",
    ]
)


def test_a_graph_prints_as_always() -> None:
    assert print_graph(small_graph()) == GOLDEN


def test_text_is_read_back() -> None:
    graph = small_graph()
    arrays = {constant.name: constant.data for constant in graph.constants}
    assert parse_graph(print_graph(graph), arrays) == graph


def arrays() -> dict[str, np.ndarray]:
    return {"table": np.arange(-128, 128).astype(np.int8)}


def test_the_registry_finds_every_operator_by_its_name() -> None:
    public = {kind for kind in vars(ops).values() if isinstance(kind, type) and kind.op}
    assert public <= set(OPERATORS.values())
    assert all(kind.op == name for name, kind in OPERATORS.items())


def test_a_new_operator_is_one_class(monkeypatch) -> None:
    monkeypatch.setitem(OPERATORS, "scaled_sum", ops.Operator)  # taken away again at the end

    @operator("scaled_sum", 1, 3)
    class ScaledSum(ops.Operator):
        """The sum of up to three tensors, times `factor`."""

        factor: float = 1.0

        def result_type(self, types: Types) -> TensorType:
            return TensorType(types[0].dtype, self.broadcast(types, *(t.shape for t in types)))

        def compute(self, *arrays: np.ndarray) -> np.ndarray:
            return np.multiply(sum(arrays), np.float32(self.factor))

    builder = Builder("new", [Value("x", TensorType("float32", (2, 3)))])
    y = builder.emit(ScaledSum(0.5), ["x", "x", "x"], "sum")
    graph = verify(builder.graph([Output("y", y)]))
    assert "= scaled_sum(%x, %x, %x) {factor=0.5}" in print_graph(graph)
    assert parse_graph(print_graph(graph), {}) == graph
    x = np.ones((2, 3), np.float32)
    assert (evaluate(graph, {"x": x})["y"] == 1.5).all()


def test_nodes_of_several_outputs_are_read_back_merged_and_dropped() -> None:
    builder = Builder("several", [Value("x", TensorType("float32", (2, 5)))])
    pairs = [
        builder.emit_outputs(TopK(1, 2), ["x"], f"top{i}", [f"values{i}", f"places{i}"])
        for i in range(3)
    ]
    graph = builder.graph([Output("a", pairs[0][0]), Output("b", pairs[1][1])])
    assert parse_graph(print_graph(graph), {}) == verify(graph)
    merged = verify(merge_duplicates(graph))
    assert [node.name for node in merged.nodes] == ["top0"]
    x = np.array([[3, 1, 2, 5, 4], [1, 5, 5, 0, 0]], np.float32)
    for one in (graph, merged):
        results = evaluate(one, {"x": x})
        np.testing.assert_array_equal(results["a"], [[5, 4], [5, 5]])
        np.testing.assert_array_equal(results["b"], [[3, 4], [1, 2]])


def test_an_enormous_tensor_is_refused() -> None:
    builder = Builder("enormous", [Value("x", TensorType("float32", (1,)))])
    message = re.escape("a tensor of float32[1048576, 1048576] takes 4,398,046,511,104 bytes")
    with pytest.raises(CompileError, match=message):
        builder.emit(Expand((1 << 20, 1 << 20)), ["x"])


def test_narrow_types_live_in_files_of_arrays() -> None:
    data = np.arange(4).astype(ml_dtypes.bfloat16)
    builder = Builder("narrow")
    constant = builder.constant(data, "c")
    graph = builder.graph([Output("y", constant)])
    kept = data.view("V2")  # as `.npy` files are read
    assert parse_graph(print_graph(graph), {"c": kept}) == graph


TEXT_MISTAKES = {
    "no header": (
        lambda text: text.replace("graph", "gruph"),
        'graph text: expected `graph "NAME" {` first and `}` last, got something else; print a '
        "graph to see the form",
    ),
    "unknown operator": (
        lambda text: text.replace("qlut(", "qlot("),
        "graph text: line 5: expected one of " + ", ".join(OPERATORS) + ", got `qlot`; "
        "correct the operator",
    ),
    "wrong attributes": (
        lambda text: text.replace("axis=None", "axle=None"),
        "graph text: line 6: expected `dequantize` with attributes scales, zero_points, axis, got "
        "`scales=(0.5,), zero_points=(3,), axle=None`; correct them",
    ),
    "attribute of bytes": (
        lambda text: text.replace("zero_points=(3,), axis=None", "zero_points=b'3', axis=None"),
        "graph text: line 6: expected `dequantize` with attributes scales, zero_points, axis, got "
        "`scales=(0.5,), zero_points=b'3', axis=None`; correct them",
    ),
    "element of text": (
        lambda text: text.replace("zero_points=(3,), axis=None", "zero_points=('3',), axis=None"),
        "graph text: line 6: expected `dequantize` with attributes scales, zero_points, axis, got "
        "`scales=(0.5,), zero_points=('3',), axis=None`; correct them",
    ),
    "truth for a number": (
        lambda text: text.replace("zero_points=(3,), axis=None", "zero_points=(3,), axis=True"),
        "graph text: line 6: expected `dequantize` with attributes scales, zero_points, axis, got "
        "`scales=(0.5,), zero_points=(3,), axis=True`; correct them",
    ),
    "calls in attributes": (
        lambda text: text.replace("axis=None", "axis=print()"),
        "graph text: line 6: expected `dequantize` with attributes scales, zero_points, axis, got "
        "`scales=(0.5,), zero_points=(3,), axis=print()`; correct them",
    ),
    "unknown line": (
        lambda text: text.replace("output", "outlet", 1),
        "graph text: line 7: expected an input, a constant, a node or an output, got `outlet "
        '"y" = %dequantise.dequantize`; print a graph to see the form',
    ),
    "unknown type": (
        lambda text: text.replace("float32", "complex64"),
        f"graph text: line 6: expected one of {', '.join(DTYPES)}, got `complex64`; correct the "
        "element type",
    ),
    "another shape": (
        lambda text: text.replace("%table : int8[256]", "%table : int8[16,16]"),
        "graph text: line 3: constant `table`: expected int8[16, 16], got int8[256]; pass the "
        "arrays that belong to this text",
    ),
    "another array": (
        lambda text: re.sub("digest .*", "digest 0123456789abcdef", text),
        "graph text: line 3: constant `table`: expected digest `0123456789abcdef`, got "
        "`4fddfacaa0f99162`; pass the arrays that belong to this text",
    ),
    "no array": (
        lambda text: text.replace("%table", "%other"),
        "graph text: line 3: constant `other`: expected its array in the side table, got none; "
        "pass the arrays that belong to this text",
    ),
}


@pytest.mark.parametrize("mistake", TEXT_MISTAKES)
def test_a_mistake_in_text_names_its_line(mistake: str) -> None:
    change, message = TEXT_MISTAKES[mistake]
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        parse_graph(change(GOLDEN), arrays())


def changed(node: Node | None = None, **fields: object) -> Graph:
    """The small graph with its first node, or fields of itself, replaced."""
    graph = small_graph()
    if node is not None:
        fields["nodes"] = (node, *graph.nodes[1:])
    return dataclasses.replace(graph, **fields)


POOL = small_graph().nodes[0]
BROKEN = {
    "two producers": (
        changed(
            constants=(*small_graph().constants, Constant(POOL.output.name, np.zeros(1, complex)))
        ),
        "graph `small`: value `pool/1;2:0.qmaxpool`: expected one of "
        f"{', '.join(DTYPES)}, got `complex128`; cast it",
    ),
    "produced twice": (
        changed(nodes=(POOL, *small_graph().nodes)),
        "graph `small`: node `pool/1;2:0` (`qmaxpool`): value `pool/1;2:0.qmaxpool`: expected to "
        "be produced once, got a second producer; rename one of them",
    ),
    "order": (
        changed(nodes=small_graph().nodes[::-1]),
        "graph `small`: node `dequantise` (`dequantize`): input `look up.qlut`: expected a value "
        "produced before, got none; order the nodes topologically",
    ),
    "type": (
        changed(dataclasses.replace(POOL, outputs=(Value("p", TensorType("int8", (1, 3, 2, 2))),))),
        "graph `small`: node `pool/1;2:0` (`qmaxpool`): expected an output of int8[1, 2, 2, 2], "
        "got int8[1, 3, 2, 2]; correct the node's type",
    ),
    "operands": (
        changed(dataclasses.replace(POOL, inputs=("table",))),
        "graph `small`: node `pool/1;2:0` (`qmaxpool`): `qmaxpool`: expected int8 [N,H,W,C], got "
        "int8[256]; correct the operands",
    ),
    "arity": (
        changed(dataclasses.replace(POOL, inputs=POOL.inputs * 2)),
        "graph `small`: node `pool/1;2:0` (`qmaxpool`): `qmaxpool`: expected 1 input, got 2; give "
        "the missing ones or drop the surplus ones",
    ),
    "clamp": (
        changed(
            dataclasses.replace(POOL, attributes=dataclasses.replace(POOL.attributes, low=128))
        ),
        "graph `small`: node `pool/1;2:0` (`qmaxpool`): expected -128 <= low <= high <= 127, got "
        "low `128` and high `127`; correct the clamp",
    ),
    "pads": (
        changed(
            dataclasses.replace(
                POOL, attributes=dataclasses.replace(POOL.attributes, pads=(0, 0, 1, -1))
            )
        ),
        "graph `small`: node `pool/1;2:0` (`qmaxpool`): window: expected padding of 0 to 1,048,576 "
        "elements on an axis, got -1; correct the model's padding",
    ),
    "output": (
        changed(outputs=(Output("y", "nowhere"),)),
        "graph `small`: output `y`: expected a value of the graph, got `nowhere`, which nothing "
        "produces; produce it or drop the output",
    ),
    "zero point": (
        changed(inputs=(Value("x", TensorType("int8", (2,), Quantisation(1.0, 128))),)),
        "graph `small`: value `x`: expected a zero point of `int8`, got `128`; correct its "
        "quantisation",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named(rule: str) -> None:
    graph, message = BROKEN[rule]
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        verify(graph)


def test_inputs_of_another_shape_are_refused() -> None:
    message = (
        'graph `small`: input `odd "name"`: expected int8[1, 4, 4, 2], got int8[1, 4, 4, 3]; '
        "convert it"
    )
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        evaluate(small_graph(), {'odd "name"': np.zeros((1, 4, 4, 3), np.int8)})


def test_inner_values_can_be_kept() -> None:
    graph = small_graph()
    x = np.arange(32).reshape(1, 4, 4, 2).astype(np.int8)
    values = evaluate(graph, {'odd "name"': x}, keep=["look up.qlut"])
    assert sorted(values) == ["look up.qlut", "y", "z"]
    np.testing.assert_array_equal(values["z"], values["look up.qlut"])
    np.testing.assert_array_equal(values["y"], (values["z"] - 3) * np.float32(0.5))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_convolution_equals_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, depth, part = (int(v) for v in rng.integers(1, 4, 3))
    window = [int(v) for v in rng.integers(1, 4, 2)]
    strides, dilations = ((int(a), int(b)) for a, b in rng.integers(1, 3, (2, 2)))
    t, left, b, right = (int(v) for v in rng.integers(0, 3, 4))
    zero_x, zero_y = (int(v) for v in rng.integers(-128, 128, 2))
    x = rng.integers(-128, 128, (2, 7, 6, groups * depth)).astype(np.int8)
    w = rng.integers(-128, 128, (*window, depth, groups * part)).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, groups * part).astype(np.int32)
    scale = rng.uniform(1e-4, 1e-2, groups * part).astype(np.float32)
    operator = QConv(
        "conv", strides, (t, left, b, right), dilations, groups, zero_x, zero_y, -100, 90
    )
    got = evaluate_operator(operator, [x, w, bias, scale])
    for n, y, column, channel in np.ndindex(*got.shape):
        total = int(bias[channel])
        for ky, kx, k in np.ndindex(*window, depth):
            row = y * strides[0] + ky * dilations[0] - t
            place = column * strides[1] + kx * dilations[1] - left
            inside = 0 <= row < 7 and 0 <= place < 6
            source = channel // part * depth + k
            total += int(w[ky, kx, k, channel]) * (
                int(x[n, row, place, source]) if inside else zero_x
            )
        expected = quantise_output(total, scale[channel], zero_y, -100, 90)
        assert got[n, y, column, channel] == expected


@pytest.mark.parametrize("extreme", [-128, 127])
def test_large_sums_stay_exact(extreme: int) -> None:
    # 600,000,000 is beyond what float32 counts exactly; one odd product tells.
    w = np.full((1, 1, 40000, 1), extreme, np.int8)
    x = np.full((1, 1, 1, 40000), extreme, np.int8)
    w[0, 0, 0, 0] = 1
    x[0, 0, 0, 0] = 3
    operator = QConv("dense", (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, 0)
    bias = np.array([-39999 * extreme * extreme], np.int32)
    got = evaluate_operator(operator, [x, w, bias, np.ones(1, np.float32)])
    assert got.ravel() == [3]


def test_pools_equal_plain_windows() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-128, 128, (1, 5, 6, 2)).astype(np.int8)
    average = QAvgPool((2, 3), (2, 1), (1, 0, 0, 1), 9, -54, 1 / 6, 4)
    largest = QMaxPool((2, 3), (2, 1), (1, 0, 0, 1), (2, 1), -5, 100)
    nine = np.pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)), constant_values=9)
    lowest = np.pad(x, ((0, 0), (1, 0), (0, 1), (0, 0)), constant_values=-128)
    got = evaluate_operator(average, [x])
    for y, column in np.ndindex(*got.shape[1:3]):
        total = nine[0, 2 * y : 2 * y + 2, column : column + 3].astype(np.int32).sum((0, 1))
        expected = quantise_output(total - 54, np.float32(1 / 6), 4)
        np.testing.assert_array_equal(got[0, y, column], expected)
    got = evaluate_operator(largest, [x])
    for y, column in np.ndindex(*got.shape[1:3]):
        window = lowest[0, 2 * y : 2 * y + 3 : 2, column : column + 3].max((0, 1))
        np.testing.assert_array_equal(got[0, y, column], np.clip(window, -5, 100))


def test_a_field_must_not_hide_what_every_operator_has() -> None:
    with pytest.raises(AssertionError, match="fields of `hides` hide what every operator has"):

        @operator("hides")
        class Hides(ops.Softmax):
            activation_count: int = 0

    assert "hides" not in OPERATORS
