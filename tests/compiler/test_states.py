"""Steps of 16-bit states: definition, kernel, instructions and recognition agree."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.frontend import recognise_layers
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
    verify,
)
from tilewright.compiler.graph import operators as ops
from tilewright.compiler.passes.recognise_states import GATE
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.placement import STRICT_PLACEMENT
from tilewright.compiler.tensor import evaluate as evaluate_kernel
from tilewright.errors import CompileError
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

PARTS = ("high", "low", "gate", "increment")


def step(shape: tuple[int, ...], multiplier: int, zero_point: int) -> Graph:
    """Both bytes of a step of a state, from bytes."""
    builder = Builder("step", [Value(name, TensorType("int8", shape)) for name in PARTS])
    made = [builder.emit(ops.QBlend(low, multiplier, zero_point), PARTS) for low in (False, True)]
    return builder.graph([Output(f"y{place}", name) for place, name in enumerate(made)])


def draw(shape: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    values = {name: chance.integers(-128, 128, shape).astype(np.int8) for name in PARTS}
    ends = chance.random(shape) < 0.2
    return {name: np.where(ends, np.sign(a) * 127, a).astype(np.int8) for name, a in values.items()}


@pytest.mark.parametrize("preset", ["16x16", "8x16", "4x4"])
@pytest.mark.parametrize(
    ("shape", "numbers"), [((1, 1, 1, 128), (32767, -128)), ((2, 3, 5, 20), (3000, 7))]
)
def test_programs_step_states_to_the_letter(preset, shape, numbers):
    graph, inputs = step(shape, *numbers), draw(shape, 3)
    module = compile_module(graph, PRESETS[preset], placement=STRICT_PLACEMENT)
    with open_device("sim", PRESETS[preset]) as device:
        found = Session(module, device).run(inputs).outputs
    for name, array in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(found[name], array)


def test_the_expression_is_the_definition():
    shape = (1, 2, 3, 16)
    graph, inputs = step(shape, 5000, -3), draw(shape, 4)
    for node in graph.nodes:
        kernel = build_kernel(node, graph, PRESETS["16x16"])
        found = evaluate_kernel(kernel, inputs)
        np.testing.assert_array_equal(found, node.attributes.compute(*inputs.values()))


def test_one_value_in_two_places_is_left_to_the_host():
    builder = Builder("twice", [Value("x", TensorType("int8", (1, 1, 1, 16)))])
    made = builder.emit(ops.QBlend(False, 100, 0), ["x"] * 4)
    graph = builder.graph([Output("y", made)])
    with pytest.raises(CompileError, match="two operands are the same; the host runs it"):
        compile_module(graph, PRESETS["16x16"], placement=STRICT_PLACEMENT)
    assert not compile_module(graph, PRESETS["16x16"]).segments


@pytest.mark.parametrize("multiplier", [0, 32768])
def test_multipliers_that_no_instruction_has_are_refused(multiplier):
    with pytest.raises(CompileError, match="expected a multiplier of 1 to 32767"):
        verify(step((1, 1, 1, 16), multiplier, 0))


def test_the_text_form_keeps_the_operator():
    graph = step((1, 1, 1, 16), 77, -5)
    assert parse_graph(print_graph(graph), {}) == graph


HIGH, LOW = Quantisation(0.125, 0), Quantisation(0.125 / 128, 0)
KINDS = {"high": HIGH, "low": LOW, "gate": GATE, "increment": Quantisation(0.01, 3)}


def written_out(kinds: dict[str, Quantisation], result: Quantisation = HIGH) -> Graph:
    """The step as the quantiser writes it, in floats between Dequantize and Quantize."""
    typed = [Value(name, TensorType("int8", (1, 24))) for name in PARTS]
    builder = Builder("step", typed)

    def scaled(name: str, kind: Quantisation) -> str:
        return builder.emit(ops.Dequantize((kind.scale,), (kind.zero_point,)), [name])

    def rounded(name: str, kind: Quantisation) -> str:
        return builder.emit(ops.Quantize((kind.scale,), (kind.zero_point,), "int8"), [name])

    high, low, gate, increment = (scaled(name, kinds[name]) for name in PARTS)
    state = builder.emit(ops.Binary("Add"), [high, low])
    kept = builder.emit(ops.Binary("Mul"), [gate, state])
    total = builder.emit(ops.Binary("Add"), [kept, increment])
    first = rounded(total, result)
    rest = builder.emit(ops.Binary("Sub"), [total, scaled(first, result)])
    last = rounded(rest, kinds["low"])
    return builder.graph([Output("first", first), Output("last", last)])


def blends(graph: Graph) -> list[bool]:
    return [n.attributes.low for n in graph.nodes if isinstance(n.attributes, ops.QBlend)]


def test_a_step_is_recognised_and_near_the_float_operators():
    graph = written_out(KINDS)
    integer = recognise_layers(graph)
    assert blends(integer) == [False, True]
    inputs = draw((1, 24), 5)
    found, expected = evaluate(integer, inputs), evaluate(graph, inputs)

    def values(outputs: dict[str, np.ndarray]) -> np.ndarray:
        return outputs["first"].astype(int) * 128 + outputs["last"]

    assert np.abs(values(found) - values(expected)).max() <= 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("high", Quantisation(0.125, 1)),
        ("low", Quantisation(0.001, 0)),
        ("gate", Quantisation(1 / 256, -128)),
        ("increment", Quantisation(0.2, 0)),
    ],
)
def test_other_quantisations_stay_in_float(name, kind):
    assert not blends(recognise_layers(written_out({**KINDS, name: kind})))


def test_a_state_whose_scale_changes_stays_in_float():
    assert not blends(recognise_layers(written_out(KINDS, replace(HIGH, scale=0.25))))
