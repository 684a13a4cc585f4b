"""Softmax and norms of int8 rows: definition, expression, schedule and instructions agree."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.onnx_models import model, node, run_onnxruntime, scalars, value
from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.lower_bound import demand_of
from tilewright.compiler.accelerator.search import legal_candidates
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import (
    Builder,
    Graph,
    Output,
    Quantisation,
    TensorType,
    Value,
    evaluate,
    parse_graph,
    print_graph,
)
from tilewright.compiler.graph.operators import QNorm, QSoftmax
from tilewright.compiler.passes.recognise_rows import recognise_rows
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import STRICT_PLACEMENT
from tilewright.compiler.te import ScheduleError, interpret
from tilewright.compiler.te.loop_steps import Split
from tilewright.compiler.tensor import evaluate as evaluate_kernel
from tilewright.errors import UnfitError
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.flows.verify.programs.random_configurations import verification_configurations
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.meanings import norm_constants
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

KINDS = ("softmax", "layer norm", "RMS norm")


def machine(name: str, **changes) -> Configuration:
    return PRESETS[name].replace(name=f"rows-{name}", row_statistics="all", **changes)


def network(kind: str, shape: tuple[int, int, int, int], seed: int = 0) -> Graph:
    """A graph of one operator on int8[shape]."""
    chance = np.random.default_rng(seed)
    builder = Builder("rows", [Value("x", TensorType("int8", shape, Quantisation(0.05, -3)))])
    if kind == "softmax":
        quantisation = Quantisation(1 / 256, -128)
        name = builder.emit(QSoftmax(0.05, 1 / 256, -128), ["x"], kind, quantisation=quantisation)
        return builder.graph([Output("y", name)])
    gamma, beta = chance.normal(1, 0.5, shape[3]), chance.normal(0, 0.5, shape[3])
    held = norm_constants(gamma, beta, 1e-5, 0.05, 0.03)
    operator = QNorm(kind == "layer norm", held.epsilon, held.factor, -3, 4, low=-120)
    operands = builder.constant(held.bias, "beta"), builder.constant(held.scale, "gamma")
    quantisation = Quantisation(0.03, 4)
    name = builder.emit(operator, ["x", *operands], "norm", quantisation=quantisation)
    return builder.graph([Output("y", name)])


def rows_of(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(3, 40, shape)
    return np.clip(np.rint(drawn), -128, 127).astype(np.int8)


def run(graph: Graph, configuration: Configuration, x: np.ndarray, device: str = "sim"):
    compiled = compile_module(graph, configuration)
    assert compiled.steps == (0,), "one segment, nothing on the host"
    return Session(compiled, open_device(device, configuration)).run(x)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["4x4", "8x16", "16x8", "16x16", "gowin20"]),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 23), st.integers(1, 70)),
    st.integers(0, 1000),
)
def test_any_shape_equals_the_definition(kind, name, shape, seed):
    graph, x = network(kind, shape, seed), rows_of(shape, seed)
    assert np.array_equal(run(graph, machine(name), x).outputs["y"], evaluate(graph, {"x": x})["y"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_expression_is_the_definition(kind):
    graph, x = network(kind, (1, 2, 3, 6)), rows_of((1, 2, 3, 6))
    kernel = build_kernel(graph.nodes[0], graph, machine("4x4"))
    padded = np.full((1, 2, 3, 8), 9, np.int8)
    padded[..., :6] = x
    expected = evaluate(graph, {"x": x})["y"]
    found = evaluate_kernel(kernel, {"x": padded})
    assert np.array_equal(found[..., :6], expected)
    schedule = next(legal_candidates(kernel, machine("4x4"))).schedule(kernel, machine("4x4"))
    assert np.array_equal(interpret(schedule.program(), {"x": padded}), found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_hardware_agrees(kind):
    shape = (1, 1, 5, 10)
    graph, x = network(kind, shape), rows_of(shape)
    configuration = verification_configurations()["narrow-rows"]
    runs = [run(graph, configuration, x, device) for device in ("sim", "rtl")]
    expected = evaluate(graph, {"x": x})["y"]
    assert all(np.array_equal(one.outputs["y"], expected) for one in runs)
    assert runs[0].profile.cycles == runs[1].profile.cycles


@pytest.mark.parametrize("kind", KINDS)
def test_no_schedule_is_faster_than_the_bound(kind):
    graph, configuration = network(kind, (1, 1, 40, 64)), machine("16x16")
    layer = compile_graph(graph, configuration, cache=False).report
    least = demand_of(build_kernel(graph.nodes[0], graph, configuration), configuration).cycles
    assert 3 * 40 * 64 // configuration.vector_lanes < least <= layer["cycles"]


def test_a_row_stays_whole():
    graph, configuration = network("softmax", (1, 1, 4, 64)), machine("4x4")
    kernel = build_kernel(graph.nodes[0], graph, configuration)
    schedule = next(legal_candidates(kernel, configuration)).schedule(kernel, configuration)
    steps = [step for step in schedule.steps if str(step) != "arena()"]
    with pytest.raises(ScheduleError, match="statistics of rows need rows of ACC and of PARAM"):
        type(schedule)(kernel, schedule.target).apply(*steps)
    cut = [replace(one, factor=8) if isinstance(one, Split) and one.loop == "c" else one
           for one in schedule.steps]  # fmt: skip
    assert cut != list(schedule.steps)
    with pytest.raises(ScheduleError, match="statistics are of all of `c`"):
        type(schedule)(kernel, schedule.target).apply(*cut)


def test_rows_that_do_not_fit_run_on_the_host():
    graph, x = network("softmax", (1, 1, 2, 4100)), rows_of((1, 1, 2, 4100))
    configuration = machine("4x4")
    with pytest.raises(UnfitError):
        compile_module(graph, configuration, placement=STRICT_PLACEMENT)
    compiled = compile_module(graph, configuration)
    assert not compiled.segments
    found = Session(compiled, open_device("sim", configuration)).run(x).outputs["y"]
    assert np.array_equal(found, evaluate(graph, {"x": x})["y"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_survive_as_text(kind):
    graph = network(kind, (1, 2, 3, 8))
    constants = {each.name: each.data for each in graph.constants}
    assert parse_graph(print_graph(graph), constants) == graph


# Recognition ------------------------------------------------------------------------------------


def quantised_softmax(axis: int, shape: tuple[int, ...]):
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("Softmax", ["f"], ["p"], axis=axis),
        node("QuantizeLinear", ["p", "t", "low"], ["y"]),
    ]
    constants = scalars(s=0.06, z=np.int8(5), t=1 / 255, low=np.int8(-128))
    return model(nodes, [value("x", np.int8, shape)], ["y"], constants)


@pytest.mark.parametrize("shape", [(2, 3, 7, 31), (5, 40), (1, 9, 17)])
def test_softmax_between_integers_runs_on_the_accelerator(shape):
    proto, configuration = quantised_softmax(-1, shape), machine("8x8")
    graph = import_model(proto.SerializeToString())
    x = rows_of(shape)
    compiled = compile_module(graph, configuration)
    assert [node.op for node in compiled.graph.nodes if node.op != "reshape"] == ["qsoftmax"]
    found = Session(compiled, open_device("sim", configuration)).run(x).outputs["y"]
    assert np.array_equal(found, evaluate(compiled.graph, {"x": x})["y"])
    reference = run_onnxruntime(proto, {"x": x}, optimise=False)["y"]
    off = np.abs(found.astype(int) - reference)
    assert off.max() <= 1
    assert np.mean(off > 0) < 0.01


def test_other_machines_and_other_axes_keep_softmax_in_float():
    last, other = (
        import_model(quantised_softmax(axis, (1, 4, 6, 8)).SerializeToString()) for axis in (-1, 2)
    )
    assert recognise_rows(last, PRESETS["8x8"]) is last
    assert recognise_rows(other, machine("8x8")).nodes == other.nodes
    assert "softmax" in [node.op for node in compile_module(last, PRESETS["8x8"]).graph.nodes]
