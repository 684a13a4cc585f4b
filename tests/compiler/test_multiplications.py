"""Elementwise products of two activations: definition, kernels and instructions agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.search import legal_candidates
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    QAvgPool,
    QMul,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    verify,
)
from tilewright.compiler.graph.fit import fit_product
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import Placement
from tilewright.isa.configuration import PRESETS
from tilewright.isa.semantics import Machine
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .test_constant_operands import Model, agree

CONFIGURATIONS = ["4x4", "8x16", "16x8", "16x16", "32x32"]

POINTS = st.sampled_from([0, 0, -128, 127, 1, -5])


def product(operator: QMul, shape: tuple[int, ...], small: tuple[int, ...]) -> Graph:
    """A graph of one product."""
    kinds = zip("ab", (shape, small), strict=True)
    builder = Builder("product", [Value(name, TensorType("int8", size)) for name, size in kinds])
    kind = Quantisation(0.1, operator.zero_point_y)
    return verify(
        builder.graph([Output("y", builder.emit(operator, ["a", "b"], "mul", "y", kind))])
    )


@st.composite
def products(draw, same_channels: bool = True):
    shape = tuple(draw(st.integers(1, size)) for size in (2, 9, 9, 70))
    kept = [draw(st.booleans()) for _ in range(3)] + [same_channels or draw(st.booleans())]
    small = tuple(size if keep else 1 for size, keep in zip(shape, kept, strict=True))
    operator = QMul(
        draw(st.sampled_from([0.002, 0.0078125, 0.03])),
        *(draw(POINTS), draw(POINTS), draw(st.integers(-128, 127))),
        *(-120, 125),
    )
    return product(operator, shape, small)


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
@pytest.mark.parametrize("small", [(1, 5, 6, 20), (1, 1, 1, 20)])
def test_devices_give_the_product(device, small):
    graph = product(QMul(0.01, 5, -128, 3), (1, 5, 6, 20), small)
    inputs = inputs_of(graph)
    with open_device(device, PRESETS["4x4"]) as opened:
        session = Session(compile_module(graph, PRESETS["4x4"]), opened)
        np.testing.assert_array_equal(
            session.run(inputs).outputs["y"], evaluate(graph, inputs)["y"]
        )


@settings(max_examples=20, deadline=None)
@given(products(same_channels=False))
def test_the_host_multiplies_as_the_definition(graph):
    inputs = inputs_of(graph)
    with open_device("sim", PRESETS["16x16"]) as opened:
        module = compile_module(graph, PRESETS["16x16"], placement=Placement("host"))
        assert not module.segments
        found = Session(module, opened).run(inputs).outputs["y"]
    np.testing.assert_array_equal(found, evaluate(graph, inputs)["y"])


def test_one_factor_for_several_channels_runs_on_the_host():
    graph = product(QMul(0.01, 5, -128, 3), (1, 5, 6, 20), (1, 5, 6, 1))
    assert not compile_module(graph, PRESETS["16x16"]).segments


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


@pytest.mark.parametrize("between", [False, True], ids=["expand", "expand, quantised"])
def test_a_gate_that_is_expanded_is_read_as_it_is(between):
    """As PyTorch's `expand_as` leaves it."""
    build = Model()
    x, gate = (build.quantised(name, zero=zero) for name, zero in (("x", -3), ("gate", -128)))
    gate = build.node("Expand", [gate, build.hold(np.array((1, 24, 5, 6)), "shape")])
    gate = build.quantised(gate, zero=-128) if between else gate
    made = build.quantised(build.node("Mul", [gate, x]), 0.0837)
    graph = agree(build.made([made], x=(1, 24, 5, 6), gate=(1, 24, 1, 1)))
    assert [node.op for node in graph.nodes].count("qmul") == 1
    assert "expand" not in {node.op for node in graph.nodes}


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
