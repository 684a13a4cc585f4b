"""Recurrent layers as kernels: the definition's numbers, with states that come from outside."""

import numpy as np
import pytest

from tilewright.compiler.cpu import MatrixProduct
from tilewright.compiler.cpu.kernels.recurrent import RecurrentUpdate
from tilewright.compiler.graph import Builder, Graph, Output, TensorType, Value, evaluate
from tilewright.compiler.graph.operators.recurrent import DIRECTIONS, GATES, Recurrent
from tilewright.compiler.host import host_target
from tilewright.compiler.host.recurrence import Recurrence
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Comparison, Run, Session, open_device
from tilewright.runtime.compare import TOLERANCE

pytestmark = pytest.mark.processor

SMALL = PRESETS["8x16"]
USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def layer(
    kind: str,
    direction: str = "forward",
    steps: int = 7,
    samples: int = 1,
    features: int = 10,
    hidden: int = 19,
    activations: tuple[str, ...] | None = None,
    lengths: tuple[int, ...] | str | None = None,
    parameters: tuple[float, float] = (0.0, 0.0),
    peepholes: float = 0.0,
    dtype: str = "float32",
    weights: str = "",
    **attributes,
) -> Graph:
    """One layer; x and the first states are inputs. `weights` is the type of those with scales.

    `lengths` may be an input of that name; `parameters` are those of all activations.
    """
    chance, count = np.random.default_rng(0), DIRECTIONS[direction]
    builder = Builder(kind, (Value("x", TensorType(dtype, (steps, samples, features))),))
    state = Value("h", TensorType(dtype, (count, samples, hidden)))

    def constant(*shape: int, factor: float = 0.4) -> str:
        return builder.constant((factor * chance.standard_normal(shape)).astype(dtype))

    gates = GATES[kind] * hidden
    if weights:
        most = {"int8": 127, "int16": 255}[weights]
        operands = [
            builder.constant(chance.integers(-most, most, (count, gates, n)).astype(weights))
            for n in (features, hidden)
        ]
        scales = [
            builder.constant((chance.uniform(0.2, 0.4, (count, gates)) / most).astype("float32"))
            for _ in operands
        ]
        operands.insert(0, "x")
    else:
        operands = ["x", constant(count, gates, features), constant(count, gates, hidden)]
        scales = []
    operands.append(constant(count, 2 * gates))
    if isinstance(lengths, str):
        operands.append(builder.input(Value(lengths, TensorType("int32", (samples,)))))
    else:
        given = np.full(samples, steps if lengths is None else lengths, np.int32)
        operands.append(builder.constant(given))
    operands.append(builder.input(state))
    if kind == "LSTM":
        operands.append(builder.input(Value("c", state.type)))
        operands.append(constant(count, 3 * hidden, factor=peepholes))
    names = tuple((name, *parameters) for name in (activations or USUAL[kind]) * count)
    if kind == "GRU":
        attributes = {"linear_before_reset": True, **attributes}
    operator = Recurrent(kind, direction, names, **attributes)
    shown = [f"{kind}.{index}" for index in range(3 if kind == "LSTM" else 2)]
    results = builder.emit_outputs(operator, [*operands, *scales], kind, shown)
    return builder.graph([Output(f"out{index}", name) for index, name in enumerate(results)])


def tolerance() -> float:
    """How far kernels may be from the definition: more where products are rounded before sums."""
    target = host_target()
    return 2e-6 if target is None or target.fused else 4e-6


def inputs_of(graph: Graph, seed: int = 1) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    return {
        value.name: chance.integers(0, 8, value.type.shape, np.int32)
        if value.type.dtype == "int32"
        else chance.standard_normal(value.type.shape).astype(value.type.dtype)
        for value in graph.inputs
    }


def run(graph: Graph, inputs: dict[str, np.ndarray], **options) -> Run:
    module = compile_module(graph, SMALL)
    with open_device("sim", SMALL) as sim:
        return Session(module, sim, keep_all=True, **options).run(inputs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(("samples", "hidden"), [(1, 32), (3, 19)])
@pytest.mark.cpu_kernels
def test_kernels_agree_with_the_definition(kind, direction, samples, hidden):
    graph = layer(kind, direction, samples=samples, hidden=hidden)
    inputs = inputs_of(graph)
    ran = run(graph, inputs)
    assert [row.target for row in ran.profile.layers] == ["host"]
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_allclose(ran.outputs[name], expected, tolerance(), tolerance())
    comparison = Comparison(compile_module(graph, SMALL))
    comparison.add(inputs, ran)
    assert comparison.equal
    assert len(comparison.kernels) == len(graph.outputs)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize(("samples", "weights"), [(1, "int8"), (3, "int16")])
@pytest.mark.cpu_kernels
def test_weights_of_bytes_stay_bytes(kind, direction, samples, weights):
    graph = layer(kind, direction, samples=samples, hidden=40, weights=weights)
    inputs = inputs_of(graph)
    ran = run(graph, inputs)
    (step,) = ran.host.kernels
    updates = [d for d in step.descriptions() if not isinstance(d, MatrixProduct)]
    products = [d for d in step.descriptions() if isinstance(d, MatrixProduct)]
    assert {type(d) for d in updates} == {RecurrentUpdate}
    assert {d.factors[1].dtype for d in products} == {weights}
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_allclose(ran.outputs[name], expected, atol=TOLERANCE / 4)
    comparison = Comparison(compile_module(graph, SMALL))
    comparison.add(inputs, ran)
    assert comparison.equal


FORMS = {
    "a plain layer with Relu": {"kind": "RNN", "activations": ("Relu",)},
    "Affine": {"kind": "RNN", "activations": ("Affine",), "parameters": (0.5, 0.25)},
    "ScaledTanh": {"kind": "RNN", "activations": ("ScaledTanh",), "parameters": (0.75, 0.5)},
    "ThresholdedRelu": {"kind": "RNN", "activations": ("ThresholdedRelu",), "parameters": (0.2, 0)},
    "peepholes": {"kind": "LSTM", "peepholes": 0.5},
    "clipped": {"kind": "LSTM", "clip": 0.75},
    "coupled gates": {"kind": "LSTM", "input_forget": True},
    "coupled gates with peepholes": {"kind": "LSTM", "input_forget": True, "peepholes": -0.5},
    "HardSigmoid": {
        "kind": "LSTM",
        "activations": ("HardSigmoid", "Tanh", "Relu"),
        "parameters": (0.2, 0.5),
    },
    "reset before the product": {"kind": "GRU", "linear_before_reset": False},
    "bytes reset before the product": {
        "kind": "GRU",
        "linear_before_reset": False,
        "weights": "int8",
    },
    "bytes of a plain layer": {"kind": "RNN", "weights": "int8"},
}


LENGTHS = [None, (5, 0, 3), (4, 4, 4), "read"]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.cpu_kernels
def test_all_forms_of_a_layer_are_kernels(form, lengths):
    """Each form and each kind of lengths meets both directions."""
    options = FORMS[form]
    order = list(FORMS).index(form) + LENGTHS.index(lengths)
    direction = ("forward", "bidirectional")[order % 2]
    graph = layer(direction=direction, samples=3, lengths=lengths, **options)
    inputs = inputs_of(graph)
    ran = run(graph, inputs)
    assert [row.target for row in ran.profile.layers] == ["host"]
    (step,) = ran.host.kernels
    computed = {None: 7, (5, 0, 3): 5, (4, 4, 4): 4, "read": 7}
    assert isinstance(step, Recurrence)
    assert step.steps == computed[lengths]
    assert (step.live is None) == (lengths in (None, (4, 4, 4)))
    allowed = TOLERANCE / 4 if "weights" in options else tolerance()
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_allclose(ran.outputs[name], expected, allowed, allowed)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_state_that_is_carried_over_goes_on_where_it_was(kind):
    """Two halves of a sequence, the second from the first one's last states, are the whole."""
    whole, half = layer(kind, steps=8), layer(kind, steps=4)
    inputs = inputs_of(whole)
    expected = run(whole, inputs).outputs
    first = run(half, {**inputs, "x": inputs["x"][:4]}).outputs
    states = dict(zip(("h", "c"), list(first.values())[1:], strict=False))
    second = run(half, {"x": inputs["x"][4:], **states}).outputs
    joined = np.concatenate([first["out0"], second["out0"]])
    np.testing.assert_array_equal(joined, expected["out0"])
    np.testing.assert_array_equal(second["out1"], expected["out1"])


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "RNN", "dtype": "float64"},
        {"kind": "GRU", "lengths": (0,)},
        {"kind": "RNN", "activations": ("LeakyRelu",), "parameters": (float("nan"), 0.0)},
    ],
)
def test_what_kernels_do_not_cover_numpy_computes(options):
    graph = layer(**options)
    inputs = inputs_of(graph)
    ran = run(graph, inputs)
    assert [row.target for row in ran.profile.layers] == ["numpy"]
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(ran.outputs[name], expected)


def test_weights_that_are_not_constant_stay_in_numpy():
    graph = layer("LSTM")
    builder = Builder("open", graph.inputs)
    weights = builder.input(Value("w", graph.types[graph.nodes[0].inputs[1]]))
    for constant in graph.constants:
        builder.adopt(constant)
    (node,) = graph.nodes
    operands = [node.inputs[0], weights, *node.inputs[2:]]
    results = builder.emit_outputs(node.attributes, operands, "LSTM", ["a", "b", "c"])
    opened = builder.graph([Output("out", results[0])])
    assert [row.target for row in run(opened, inputs_of(opened)).profile.layers] == ["numpy"]


@pytest.mark.parametrize("size", [{"samples": 0}, {"features": 0}, {"hidden": 0}])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_layers_without_elements_stay_in_numpy(kind, size):
    graph = layer(kind, **size)
    inputs = inputs_of(graph)
    ran = run(graph, inputs)
    assert ran.host.kernels == ()
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(ran.outputs[name], expected)
