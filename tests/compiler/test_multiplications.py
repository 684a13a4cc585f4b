"""Products and sums of two activations, one of them broadcast: all meanings agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.search import legal_candidates
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QAvgPool,
    QMul,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    operators,
    verify,
)
from tilewright.compiler.graph.fit import fit_product
from tilewright.compiler.passes.recognise_rotary import recognise_rotary
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import Placement
from tilewright.isa.configuration import PRESETS
from tilewright.isa.semantics import Machine
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .test_constant_operands import Model, agree

CONFIGURATIONS = ["4x4", "8x16", "16x8", "16x16", "32x32"]

POINTS = st.sampled_from([0, 0, -128, 127, 1, -5])


def product(operator: QAdd | QMul, shape: tuple[int, ...], small: tuple[int, ...]) -> Graph:
    """A graph of one product or sum."""
    kinds = zip("ab", (shape, small), strict=True)
    builder = Builder("product", [Value(name, TensorType("int8", size)) for name, size in kinds])
    kind = Quantisation(0.1, operator.zero_point_y)
    return verify(
        builder.graph([Output("y", builder.emit(operator, ["a", "b"], "mul", "y", kind))])
    )


@st.composite
def products(draw):
    shape = tuple(draw(st.integers(1, size)) for size in (2, 9, 9, 70))
    small = tuple(size if draw(st.booleans()) else 1 for size in shape)
    point, limits = draw(st.integers(-128, 127)), (-120, 125)
    scale = draw(st.sampled_from([0.002, 0.0078125, 0.03]))
    if draw(st.booleans()):
        return product(QAdd((draw(st.integers(-90, 90)), 37), 50, scale, point, *limits),
                       shape, small)  # fmt: skip
    return product(QMul(scale, draw(POINTS), draw(POINTS), point, *limits), shape, small)


def inputs_of(graph: Graph) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(7)
    return {
        value.name: chance.integers(-128, 128, value.type.shape).astype(np.int8)
        for value in graph.inputs
    }


@settings(max_examples=40, deadline=None)
@given(products(), st.sampled_from(CONFIGURATIONS))
def test_instructions_give_the_product(graph, configuration):
    inputs = inputs_of(graph)
    (segment,) = compile_module(graph, PRESETS[configuration]).segments
    image = segment.image(inputs)
    Machine(PRESETS[configuration], image).run(segment.program)
    np.testing.assert_array_equal(segment.outputs[0].read(image), evaluate(graph, inputs)["y"])


def test_tiles_of_sums_are_whole_rows_of_a_machine_with_narrow_vectors():
    machine = PRESETS["ecp5-85"]
    graph = product(QMul(0.01, 5, -7, 3), (1, 1, 64, 176), (1, 1, 64, 176))
    inputs = inputs_of(graph)
    for candidate in legal_candidates(build_kernel(graph.nodes[0], graph, machine), machine):
        assert all(dict(tile)["c"] % machine.lanes_out == 0 for tile in candidate.tiles)
    (segment,) = compile_module(graph, machine).segments
    image = segment.image(inputs)
    Machine(machine, image).run(segment.program)
    np.testing.assert_array_equal(segment.outputs[0].read(image), evaluate(graph, inputs)["y"])


@pytest.mark.parametrize("device", ["sim", "rtl"])
@pytest.mark.parametrize("operator", [QMul(0.01, 5, -128, 3), QAdd((-9, 37), 5, 0.01, 3)], ids=str)
@pytest.mark.parametrize("small", [(1, 5, 6, 20), (1, 1, 1, 20), (1, 1, 6, 1)], ids=str)
def test_devices_give_the_product(device, small, operator):
    graph = product(operator, (1, 5, 6, 20), small)
    inputs = inputs_of(graph)
    with open_device(device, PRESETS["4x4"]) as opened:
        session = Session(compile_module(graph, PRESETS["4x4"]), opened)
        np.testing.assert_array_equal(
            session.run(inputs).outputs["y"], evaluate(graph, inputs)["y"]
        )


@settings(max_examples=20, deadline=None)
@given(products())
def test_the_host_multiplies_as_the_definition(graph):
    inputs = inputs_of(graph)
    with open_device("sim", PRESETS["16x16"]) as opened:
        module = compile_module(graph, PRESETS["16x16"], placement=Placement("host"))
        assert not module.segments
        found = Session(module, opened).run(inputs).outputs["y"]
    np.testing.assert_array_equal(found, evaluate(graph, inputs)["y"])


AXES = {
    (1, 24, 9): {"channel": (1, 24, 1), "position": (1, 1, 9), "number": (1, 1, 1)},
    (2, 24, 5, 6): {
        "channel": (2, 24, 1, 1), "channel of all samples": (24, 1, 1), "position": (2, 1, 5, 6),
        "row": (5, 1), "column": (1, 1, 1, 6), "channel and row": (1, 24, 5, 1),
    },
    (2, 24, 3, 4, 5): {
        "channel": (2, 24, 1, 1, 1), "position": (1, 1, 3, 4, 5), "row": (1, 1, 1, 4, 1),
        "depth": (1, 1, 3, 1, 1), "channel and depth": (2, 24, 3, 1, 1),
    },
}  # fmt: skip
BROADCAST = [(whole, small) for whole, kinds in AXES.items() for small in kinds.values()]


@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
@pytest.mark.parametrize("operator", ["Mul", "Add", "Sub"])
@pytest.mark.parametrize(("whole", "small"), BROADCAST, ids=str)
def test_a_value_between_layers_meets_a_smaller_one_on_the_accelerator(
    whole, small, operator, swapped
):
    """As of gates and terms by channel, position, row and depth, computed at run time."""
    build = Model()
    point = (whole[1], whole[1], *(1,) * (len(whole) - 2))
    made = build.node("Conv", [build.quantised("x"), build.weights(*point)])
    pair = [build.quantised(made, 0.05, 5), build.quantised("gate", 0.02, 4)]
    made = build.quantised(build.node(operator, pair[::-1] if swapped else pair), 0.04, 7)
    made = build.node("Conv", [made, build.weights(*point)])
    graph = agree(build.made([build.quantised(made)], x=whole, gate=small), most_apart=2)
    combined = "qmul" if operator == "Mul" else "qadd"
    kinds = [node.op for node in graph.nodes]
    assert kinds.count(combined) == 1
    assert {*kinds} <= {combined, "qconv", "quantize", "dequantize", "transpose", "reshape"}


@pytest.mark.parametrize("gated", [False, True], ids=["residual", "gated"])
def test_volumes_are_combined_as_their_layers_store_them(gated):
    """No movement stands between the layers of a residual block or of squeeze-and-excite."""
    build, weights = Model(), (24, 24, 1, 1, 1)

    def layer(x: str) -> str:
        return build.quantised(build.node("Conv", [x, build.weights(*weights)]), 0.05, 5)

    x = layer(build.quantised("x"))
    other = layer(build.quantised(build.node("GlobalAveragePool", [x]), 0.03) if gated else x)
    made = build.quantised(build.node("Mul" if gated else "Add", [x, other]), 0.04, 7)
    graph = agree(build.made([layer(made)], x=(1, 24, 3, 4, 5)), most_apart=2)
    kinds = [node.op for node in graph.nodes]
    assert kinds.count("reshape") == kinds.count("transpose") == 2  # at the ends


def test_a_sum_with_a_smaller_value_is_no_part_of_a_layer_on_the_host():
    build = Model()
    made = build.node("Conv", [build.quantised("x"), build.weights(24, 24, 1, 1)])
    pair = [build.quantised(made, 0.05, 5), build.quantised("term", 0.02, 4)]
    made = build.quantised(build.node("Add", pair), 0.04, 7)
    proto = build.made([made], x=(1, 24, 5, 6), term=(1, 24, 1, 1))
    graph = import_model(proto.SerializeToString())
    module = compile_module(graph, PRESETS["8x8"], placement=Placement("host"))
    given = {v.name: inputs.astype(np.float32) / 40 for v, inputs in zip(
        graph.inputs, inputs_of(graph).values(), strict=True)}  # fmt: skip
    with open_device("sim", PRESETS["8x8"]) as opened:
        found = Session(module, opened).run(given).outputs
    for name, expected in evaluate(graph, given).items():
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize(
    ("shape", "factors"), [((1, 24, 5, 6), (1, 24, 1, 1)), ((1, 7, 24), (24,)), ((2, 9), (2, 9))]
)
def test_quantised_products_are_recognised(shape, factors):
    """As of squeeze-and-excite, of a gate for each channel, and element by element."""
    build = Model()
    x, gate = (build.quantised(name, zero=zero) for name, zero in (("x", -3), ("gate", -128)))
    made = build.quantised(build.node("Mul", [gate, x]), 0.0837)
    graph = agree(build.made([made], x=shape, gate=factors))
    assert [node.op for node in graph.nodes].count("qmul") == 1


@pytest.mark.parametrize("operator", ["Mul", "Add", "Sub"])
@pytest.mark.parametrize("between", [False, True], ids=["expand", "expand, quantised"])
def test_a_gate_that_is_expanded_is_read_as_it_is(between, operator):
    """As PyTorch's `expand_as` leaves it."""
    build = Model()
    x, gate = (build.quantised(name, zero=zero) for name, zero in (("x", -3), ("gate", -128)))
    gate = build.node("Expand", [gate, build.hold(np.array((1, 24, 5, 6)), "shape")])
    gate = build.quantised(gate, zero=-128) if between else gate
    made = build.quantised(build.node(operator, [gate, x]), 0.0837)
    graph = agree(build.made([made], x=(1, 24, 5, 6), gate=(1, 24, 1, 1)), 1)
    assert [node.op for node in graph.nodes].count("qmul" if operator == "Mul" else "qadd") == 1
    assert "expand" not in {node.op for node in graph.nodes}


@pytest.mark.parametrize("operator", ["Mul", "Add"])
def test_two_values_that_are_both_expanded_keep_the_shape_of_their_result(operator):
    build = Model()
    wide = [build.hold(np.array((1, 24, 5, 6)), "shape") for _ in "ab"]
    pair = [
        build.node("Expand", [build.quantised(name), shape])
        for name, shape in zip("ab", wide, strict=True)
    ]
    made = build.quantised(build.node(operator, pair))
    agree(build.made([made], a=(1, 24, 1, 1), b=(1, 24, 5, 1)), 1)


def test_a_sum_with_a_smaller_value_is_no_rotary_embedding():
    """Here, a row that is added to all rows."""
    kind = Quantisation(0.1, 0)
    builder = Builder("sum", [Value("x", TensorType("int8", (1, 1, 6, 16), kind))])
    row = operators.QSlice((0, 0, 2, 0), (1, 1, 3, 16), (1, 1, 1, 1))
    cut = builder.emit(row, ["x"], "cut", "row", kind)
    total = builder.emit(QAdd((60, 37), 0, 0.01, 0), ["x", cut], "sum", "total", kind)
    turned = builder.emit(operators.Transpose((0, 2, 1, 3)), [total], "turn", "y", kind)
    graph = verify(builder.graph([Output("y", turned)]))
    assert recognise_rotary(graph, 8) == graph


@pytest.mark.parametrize("keep", [1, 0])
def test_a_mean_of_means_is_a_pool(keep):
    """Over columns, then rows, as some exporters write the mean of an image."""
    build = Model()
    held = [build.hold(np.array([axis]), "axis") for axis in (-1, 2)]
    inner = build.node("ReduceMean", [build.quantised("x"), held[0]], keepdims=keep)
    made = build.quantised(build.node("ReduceMean", [inner, held[1]], keepdims=keep), 0.01)
    graph = agree(build.made([made], x=(1, 24, 5, 6)), 1)
    assert any(isinstance(node.attributes, QAvgPool) for node in graph.nodes)
    assert "reduce" not in {node.op for node in graph.nodes}


def test_fitted_scale_equals_float32():
    chance = np.random.default_rng(3)
    for _ in range(20):
        a, b, y = (
            Quantisation(float(np.float32(chance.uniform(0.001, 0.1))), int(zero))
            for zero in chance.integers(-128, 128, 3)
        )
        fit = fit_product(a, b, Quantisation(y.scale * 10, y.zero_point))
        assert fit.mismatches <= 4
