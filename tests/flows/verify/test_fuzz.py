"""Random graphs keep their meaning on the machine, and a failing one becomes a small one."""

import json
import random

import numpy as np
import onnx
import pytest

from tilewright.compiler.accelerator.search import Candidate, choose_candidate, legal_candidates
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import (
    Graph,
    QConv,
    QLut,
    QMatMul,
    QMul,
    evaluate,
    print_graph,
    verify,
)
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.tensor import Kernel
from tilewright.errors import CompileError
from tilewright.flows.verify.fuzz.__main__ import (
    fuzz,
    fuzz_models,
    main,
    peer_difference,
    report,
)
from tilewright.flows.verify.fuzz.fuzz_runs import FuzzOutcome, FuzzRunner, random_inputs
from tilewright.flows.verify.fuzz.graph_specs import REALISE, NodeSpec, Sketch, realise
from tilewright.flows.verify.fuzz.quantiser_styles import QOPERATOR, STYLES
from tilewright.flows.verify.fuzz.random_graphs import random_sketch
from tilewright.flows.verify.fuzz.random_models import random_model
from tilewright.flows.verify.fuzz.shrink_graphs import shrink_sketch
from tilewright.flows.verify.fuzz.styled_models import style_of, styled_model
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.isa.instructions import Halt
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from ...compiler.onnx_models import run_onnxruntime

ADD = {"multipliers": (3, -2), "constant": 5, "gain": 0, "zero_point_y": 1, "low": -90, "high": 90}


def test_graphs_are_equal_in_every_layer():
    """`make fuzz` has many more of them, and of the models below."""
    with FuzzRunner() as run:
        tally = fuzz(range(1, 41), run)
    assert tally.failures == [], report(tally)
    assert tally.graphs == 40
    assert tally.equal > 28
    assert tally.equal + tally.refused == 40
    assert tally.layers > 60


@pytest.mark.slow
def test_any_legal_schedule_keeps_the_meaning(monkeypatch):
    """The best schedules of small graphs seldom cut; others cut everywhere."""
    chance = random.Random(0)
    cuts = 0

    def any_schedule(kernel: Kernel, configuration: Configuration, depth: int) -> Candidate:
        nonlocal cuts
        legal = tuple(legal_candidates(kernel, configuration, depth))
        if not legal:
            return choose_candidate(kernel, configuration, depth)
        cuts += len(legal) > 1
        return chance.choice(legal)

    monkeypatch.setattr("tilewright.compiler.scheduling.fusion.choose_candidate", any_schedule)
    with FuzzRunner() as run:
        tally = fuzz(range(500, 540), run)
    assert tally.failures == [], report(tally)
    assert tally.equal > 30
    assert cuts > 60


@pytest.mark.slow
def test_graphs_are_equal_on_the_hardware():
    with FuzzRunner() as run:
        for seed in (2, 12, 22):
            outcome = run(realise(random_sketch(seed)), PRESETS["4x4"], seed, "rtl")
            assert outcome.kind == "equal", f"seed {seed}: {outcome.text}"
            assert outcome.values > 0


def test_a_seed_gives_its_graph_again_and_all_operators_are_drawn():
    sketches = [random_sketch(seed) for seed in range(60)]
    assert sketches == [random_sketch(seed) for seed in range(60)]
    assert {step.kind for sketch in sketches for step in sketch.steps} == set(REALISE)
    graphs = [verify(realise(sketch)) for sketch in sketches]
    assert any(len(graph.outputs) > 1 for graph in graphs)
    assert any(len(graph.inputs) > 1 for graph in graphs)
    assert any(graph.inputs[0].type.shape[0] > 1 for graph in graphs)
    convolutions = [
        n.attributes for g in graphs for n in g.nodes if isinstance(n.attributes, QConv)
    ]
    assert {1, 2} <= {c.groups for c in convolutions}
    assert any(c.kind == "depthwise" for c in convolutions)
    assert any(c.dilations != (1, 1) for c in convolutions)


def test_products_of_all_kinds_of_operands_are_drawn():
    """Element by element, by a factor for each channel, and by one for several channels."""
    kinds = set()
    for seed in range(1, 201):
        graph = realise(random_sketch(seed))
        for node in graph.nodes:
            if isinstance(node.attributes, QMul):
                shape, small = (graph.types[name].shape for name in node.inputs)
                kinds.add("equal" if small == shape else "" if small[3] != shape[3] else "channel")
                zeros = node.attributes.zero_point_a, node.attributes.zero_point_b
                kinds.add(tuple(map(bool, zeros)))
    flags = (False, True)
    assert kinds == {"equal", "channel", "", *((a, b) for a in flags for b in flags)}


def test_products_of_two_activations_are_drawn_as_attention_has_them():
    """With zero points on both sides, with heads that share keys, and scores behind a table."""
    kinds = set()
    for seed in range(1, 601):
        graph = realise(random_sketch(seed))
        made = {node.outputs[0].name: node for node in graph.nodes}
        for node in graph.nodes:
            if isinstance(found := node.attributes, QMatMul):
                kinds.add((bool(found.zero_point_a), bool(found.zero_point_b)))
                kinds |= {"shared"} if found.repeats > 1 else set()
                table = made.get(node.inputs[0])
                if table is not None and isinstance(table.attributes, QLut):
                    scores = made.get(table.inputs[0])
                    attends = scores is not None and isinstance(scores.attributes, QMatMul)
                    kinds |= {"attention"} if attends else set()
    flags = (False, True)
    assert kinds == {"shared", "attention", *((a, b) for a in flags for b in flags)}


def test_attention_is_drawn_in_every_style_with_masks_and_several_heads():
    masks, drawn = set(), set()
    for seed in range(1, 201):
        model = onnx.load_from_string(styled_model(seed))
        makers = {name: node for node in model.graph.node for name in node.output}
        for node in model.graph.node:
            if node.op_type == "Softmax":
                drawn.add(style_of(seed))
                masks.add(makers[node.input[0]].op_type)
    assert drawn == set(STYLES)
    assert {"Add", "Where"} < masks  # and scores without a mask


def test_chains_that_are_fused_are_drawn_often():
    fused = 0
    for seed in range(1, 80, 2):
        try:
            module = compile_module(realise(random_sketch(seed)), PRESETS["8x8"])
        except CompileError:
            continue
        fused += any(layer.op.count("+") > 0 for s in module.segments for layer in s.layers)
    assert fused > 5


def outputs(sketch: Sketch, configuration: Configuration) -> dict[str, np.ndarray]:
    """What `sim` gives, after it has been compared with the definition."""
    graph = realise(sketch)
    chance = np.random.default_rng(0)
    inputs = {
        value.name: chance.integers(-128, 128, value.type.shape).astype(np.int8)
        for value in graph.inputs
    }
    with open_device("sim", configuration) as device:
        got = Session(compile_module(graph, configuration), device).run(inputs).outputs
    for name, expected in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(got[name], expected)
    return got


@pytest.mark.parametrize("name", ["4x4", "8x16", "16x8"])
def test_a_value_may_be_added_to_itself(name):
    """Both operands are read in one cycle, so that each needs a bank of its own."""
    sketch = Sketch(((1, 5, 3, 9),), (NodeSpec("add", (0, 0), ADD),), (1,))
    assert len(np.unique(outputs(sketch, PRESETS[name])["shown0"])) > 9


def test_activations_may_be_called_as_the_tensors_of_a_kernel():
    """The first values are named `acc`, `bias`, `scale`, `table` and `w`."""
    table = [NodeSpec("table", (value,), {"seed": value}) for value in range(4)]
    conv = {
        "kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1),
        "groups": 1, "channels": 5, "seed": 1, "sparse": 0, "gain": 0, "low": -128, "high": 127,
        "zero_point_x": 3, "zero_point_y": -4,
    }  # fmt: skip
    chain = [NodeSpec("conv", (value,), conv) for value in range(5)]
    sums = [NodeSpec("add", (value, value + 1), ADD) for value in range(4)]
    shape = (1, 4, 4, 5)
    for steps in (table, chain, sums):
        first = 1 if steps is not sums else 2
        shown = tuple(range(first, first + len(steps)))
        outputs(Sketch((shape,) * first, tuple(steps), shown), PRESETS["4x4"])


def test_models_are_equal_in_every_layer_and_have_the_bits_of_onnxruntime():
    with FuzzRunner() as run:
        tally = fuzz_models(range(1, 21), run)
    assert tally.failures == [], report(tally)
    assert tally.equal + tally.refused == tally.models == 20
    assert tally.layers > 30
    for seed in range(1, 11):
        model = random_model(seed)
        graph = import_model(model)
        inputs = random_inputs(graph, seed)
        expected = run_onnxruntime(onnx.load_from_string(model), inputs, optimise=False)
        got = evaluate(graph, inputs)
        assert set(got) == set(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=f"seed {seed}: {name}")


def test_models_in_the_styles_of_quantisers_are_equal_and_explain_host_products():
    with FuzzRunner() as run:
        tally = fuzz_models(range(36), run, build=styled_model, peer=True)
    assert tally.failures == [], report(tally)
    assert tally.equal == tally.models == 36
    assert tally.products > 30
    assert {style_of(seed) for seed in range(36)} == set(STYLES)


@pytest.mark.parametrize("style", STYLES)
def test_a_style_writes_what_its_quantiser_writes(style):
    """All operators of one style over some seeds, not counting the network's own."""
    seeds = [seed for seed in range(96) if style_of(seed) == style]
    models = [onnx.load_from_string(styled_model(seed)) for seed in seeds]
    found = {node.op_type for proto in models for node in proto.graph.node}
    dynamic = STYLES[style].dynamic
    assert ({"ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"} <= found) == dynamic
    assert dynamic or {"QuantizeLinear", "DequantizeLinear"} <= found
    assert ("QLinearConv" in found) == (style == QOPERATOR)
    followers = {
        node.op_type
        for proto in models
        for conv in proto.graph.node
        if conv.op_type == "Conv" or (dynamic and conv.op_type == "Add")
        for node in proto.graph.node
        if conv.output[0] in node.input
    }
    floats = {"BatchNormalization", "LeakyRelu", "HardSigmoid", "HardSwish", "PRelu", "Sigmoid"}
    assert bool({*floats, "Mul"} & followers) == STYLES[style].inputs_only


def test_a_product_that_the_report_does_not_name_is_a_failure(monkeypatch):
    monkeypatch.setattr(
        "tilewright.compiler.pipeline.compile.host_products", lambda graph, decision: []
    )
    seeds = [seed for seed in range(60) if style_of(seed) == "onnxruntime-qdq"]
    monkeypatch.setattr(
        "tilewright.flows.verify.fuzz.__main__.import_model",
        lambda model: import_onnx(model),  # without recognition, all products stay in float
    )
    with FuzzRunner() as run:
        tally = fuzz_models(range(seeds[2], seeds[2] + 1), run, build=styled_model)
    (failure,) = tally.failures
    assert "multiplications on the host without a reason" in failure.text


def test_elementwise_products_are_not_counted_as_products_of_layers(monkeypatch):
    row = {"macs": 0, "reasons": {"no division of integers": 2}}
    monkeypatch.setattr(
        "tilewright.compiler.pipeline.compile.host_combinations", lambda graph: [row]
    )
    with FuzzRunner() as run:
        outcome = run(realise(random_sketch(2)), PRESETS["4x4"], 2, "sim")
    assert outcome.kind == "equal"
    assert not outcome.reasons


@pytest.mark.parametrize("build", [random_model, styled_model])
def test_fewer_steps_give_the_beginning_of_a_model(build):
    """The weights of the first layers stay, so that a failure stays too."""
    whole = onnx.load_from_string(build(4))
    for steps in range(1, 6):
        part = onnx.load_from_string(build(4, steps))
        held = {array.name: array.raw_data for array in whole.graph.initializer}
        assert all(held[array.name] == array.raw_data for array in part.graph.initializer)
        assert list(part.graph.node) == list(whole.graph.node)[: len(part.graph.node)]


def test_a_failing_model_is_cut_to_its_first_steps_that_fail():
    def fails(graph: Graph, configuration: Configuration, seed: int, device: str) -> FuzzOutcome:
        convolutions = [node for node in graph.nodes if isinstance(node.attributes, QConv)]
        return FuzzOutcome("failed", "wrong") if len(convolutions) > 1 else FuzzOutcome("equal")

    tally = fuzz_models(range(1, 30), fails)
    assert len(tally.failures) > 5
    for failure in tally.failures:
        assert isinstance(failure.smallest, tuple)
        seed, steps = failure.smallest
        assert failure.graph.count("= qconv(") > 1
        assert print_graph(import_model(random_model(seed, steps - 1))).count("= qconv(") < 2
    assert f"smallest: {tally.failures[0].smallest}" in report(tally)


def refuses_strides(
    graph: Graph, configuration: Configuration, seed: int, device: str
) -> FuzzOutcome:
    """A compiler with a mistake: convolutions of stride 2 on more than two channels."""
    for node in graph.nodes:
        channels = graph.types[node.inputs[0]].shape[3]
        if isinstance(node.attributes, QConv) and node.attributes.strides[0] > 1 and channels > 2:
            return FuzzOutcome("failed", "wrong")
    return FuzzOutcome("equal", layers=1)


def test_a_failing_graph_is_shrunk_to_the_operator_that_fails():
    tally = fuzz(range(1, 60), refuses_strides)
    assert len(tally.failures) > 3
    for failure in tally.failures:
        assert isinstance(failure.smallest, Sketch)
        (step,) = failure.smallest.steps
        ((n, height, width, channels),) = failure.smallest.inputs
        assert step.kind == "conv"
        assert (n, height, width, channels) == (1, 1, 1, 3)
        assert step.pair("strides")[0] == 2
        assert (step.many("kernel"), step.many("pads")) == ((1, 1), (0, 0, 0, 0))
        assert "qconv" in failure.graph
    text = report(tally)
    assert f"failed: seed {tally.failures[0].seed}" in text
    assert "smallest: Sketch(inputs=((1, 1, 1, 3),)" in text


def test_shrinking_keeps_both_operands_where_both_matter():
    steps = (
        NodeSpec("table", (0,), {"seed": 1}),
        NodeSpec("host", (0,), {"way": 1}),
        NodeSpec("table", (1,), {"seed": 2}),
        NodeSpec("add", (1, 3), ADD),
    )
    sketch = Sketch(((1, 4, 4, 8),), steps, (4, 2))

    def adds_two_values(candidate: Sketch) -> bool:
        return any(s.kind == "add" and len(set(s.sources)) == 2 for s in candidate.steps)

    smallest = shrink_sketch(sketch, adds_two_values)
    assert [step.kind for step in smallest.steps] == ["add"]
    assert smallest.inputs == ((1, 1, 1, 1),) * 2
    assert smallest.steps[0].numbers["low"] == -128


def test_an_illegal_program_is_a_failure_and_no_refusal(monkeypatch):
    """A program that the checker refuses is the compiler's fault, not the user's."""
    monkeypatch.setattr(
        "tilewright.compiler.scheduling.issue_order.synthesise_tokens",
        lambda stream, configuration: (*stream, Halt()),
    )
    with FuzzRunner() as run:
        outcome = run(realise(random_sketch(1)), PRESETS["8x8"], 1, "sim")
    assert outcome.kind == "failed"
    assert "ProgramError" in outcome.text


def test_a_wrong_result_is_a_failure(monkeypatch):
    graph = realise(Sketch(((1, 3, 3, 4),), (NodeSpec("table", (0,), {"seed": 3}),), (1,)))
    with FuzzRunner() as run:
        assert run(graph, PRESETS["4x4"], 1, "sim").kind == "equal"
        monkeypatch.setattr(
            "tilewright.compiler.module.Binding.read",
            lambda binding, window: np.zeros(binding.shape, dtype=np.int8),
        )
        outcome = run(graph, PRESETS["4x4"], 1, "sim")
    assert outcome.kind == "failed"
    assert "values differ" in outcome.text


def test_fewer_cycles_than_the_bound_are_a_failure(monkeypatch):
    graph = realise(Sketch(((1, 3, 3, 4),), (NodeSpec("table", (0,), {"seed": 3}),), (1,)))
    monkeypatch.setattr(
        "tilewright.compiler.pipeline.compile._bound", lambda linked, request: 10**6
    )
    with FuzzRunner() as run:
        outcome = run(graph, PRESETS["4x4"], 1, "sim")
    assert outcome.kind == "failed"
    assert "cycles are less than the bound, 1,000,000" in outcome.text


def test_the_command_prints_figures_and_stops_when_the_time_is_up(capsys):
    assert main(["--graphs", "3", "--models", "2", "--seed", "40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["graphs"], found["models"]) == (3, 2)
    assert found["failures"] == []
    assert main(["--graphs", "1000000", "--seed", "40", "--budget", "0.5"]) == 0
    assert "0 failed" in capsys.readouterr().out


def test_the_command_refuses_fewer_than_no_graphs(capsys):
    assert main(["--graphs", "-1"]) == 2
    assert capsys.readouterr().err == (
        "error: fuzz: expected --graphs, --models and --styled of at least 0 and --rtl-share "
        "from 0 to 1\n"
    )


@pytest.mark.parametrize("seed", [198, 702059, 702254])
def test_float_biases_are_where_the_definition_has_them(seed: int) -> None:
    """Attention over few values spreads one step; these seeds were up to 4 % apart."""
    model = styled_model(seed)
    assert peer_difference(model, import_model(model), seed) == ""


def test_dynamic_products_multiply_bytes_alone() -> None:
    """Seed 701498 draws a mask of booleans in front of a product."""
    import_model(styled_model(701498))
