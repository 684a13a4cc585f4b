"""Quantised transformers as one program on a machine with statistics over rows."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.onnx_models import model, node, run_onnxruntime, scalars, value
from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.passes.recognise_rows import recognise_rows
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.pipeline.place import place
from tilewright.compiler.pipeline.request import CompileRequest
from tilewright.compiler.quantiser import quantise
from tilewright.compiler.quantiser.batches import make_batches
from tilewright.compiler.quantiser.options import QuantiserOptions
from tilewright.flows.execution.compile_graph import compile_graph
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

STORIES = Path(__file__).parents[3] / "shared" / "models" / "stories260k"

PLAIN = PRESETS["8x8"]
ROWS = PLAIN.replace(name="rows-8x8", row_statistics="all")


def layer_norm(form: str) -> list:
    """Nodes of a layer norm of `f`, [.., 24], as exporters write them, with gamma and beta."""
    if form == "operator":
        return [node("LayerNormalization", ["f", "gamma", "beta"], ["n"], epsilon=1e-5)]
    square = (
        node("Mul", ["c", "c"], ["q"]) if form == "products" else node("Pow", ["c", "two"], ["q"])
    )
    return [
        node("ReduceMean", ["f"], ["m"], axes=[-1]),
        node("Sub", ["f", "m"], ["c"]),
        square,
        node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["d"]),
        node("Div", ["c", "d"], ["u"]),
        node("Mul", ["u", "gamma"], ["g"]),
        node("Add", ["g", "beta"], ["n"]),
    ]


RMS_NORM = [
    node("Pow", ["f", "two"], ["q"]),
    node("ReduceMean", ["q"], ["v"], axes=[-1]),
    node("Add", ["v", "eps"], ["e"]),
    node("Sqrt", ["e"], ["d"]),
    node("Reciprocal", ["d"], ["i"]),
    node("Mul", ["f", "i"], ["u"]),
    node("Mul", ["u", "gamma"], ["n"]),
]


def quantised_norm(nodes: list, opset: int = 17):
    chance = np.random.default_rng(7)
    constants = {
        **scalars(s=0.05, z=np.int8(9), t=0.03, y0=np.int8(-4), two=2.0, eps=1e-5),
        "gamma": chance.normal(1, 0.4, 24).astype(np.float32),
        "beta": chance.normal(0, 0.3, 24).astype(np.float32),
    }
    given = [name for one in nodes for name in one.input]
    held = {name: data for name, data in constants.items() if name in (*given, "s", "z", "t", "y0")}
    ends = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("QuantizeLinear", ["n", "t", "y0"], ["y"]),
    ]
    inputs = [value("x", np.int8, (2, 7, 24))]
    return model([ends[0], *nodes, ends[1]], inputs, ["y"], held, opset)


@pytest.mark.parametrize(
    "nodes",
    [layer_norm("operator"), layer_norm("products"), layer_norm("powers"), RMS_NORM],
    ids=["operator", "products", "powers", "RMS"],
)
def test_a_norm_between_integers_runs_on_the_accelerator(nodes):
    proto = quantised_norm(nodes)
    graph = import_model(proto.SerializeToString())
    x = np.random.default_rng(1).integers(-128, 128, (2, 7, 24)).astype(np.int8)
    assert recognise_rows(graph, PLAIN) is graph
    compiled = compile_module(graph, ROWS)
    assert [one.op for one in compiled.graph.nodes if one.op != "reshape"] == ["qnorm"]
    found = Session(compiled, open_device("sim", ROWS)).run(x).outputs["y"]
    assert np.array_equal(found, evaluate(compiled.graph, {"x": x})["y"])
    off = np.abs(found.astype(int) - run_onnxruntime(proto, {"x": x}, optimise=False)["y"])
    assert off.max() <= 1
    assert np.mean(off > 0) < 0.02


@pytest.mark.parametrize("axis", [1, 2])
def test_a_mean_over_another_axis_is_no_norm_of_rows(axis):
    nodes = [node("ReduceMean", one.input, one.output, axes=[axis]) if one.op_type == "ReduceMean"
             else one for one in layer_norm("products")]  # fmt: skip
    graph = import_model(quantised_norm(nodes).SerializeToString())
    kinds = {one.op for one in recognise_rows(graph, ROWS).nodes}
    assert ("qnorm" in kinds) == (axis == 2)


@pytest.mark.parametrize("again", [False, True])
def test_a_norm_of_integers_along_another_axis_is_turned(again):
    """[2, 24, 7] along 24, which is last in memory; the transpose may be quantised again."""
    chance = np.random.default_rng(8)
    constants = {
        **scalars(s=0.05, z=np.int8(9), t=0.03, y0=np.int8(-4), eps=1e-5),
        "gamma": chance.normal(1, 0.4, (24, 1)).astype(np.float32),
    }
    between = [
        node("QuantizeLinear", ["f.turned", "s", "z"], ["i"]),
        node("DequantizeLinear", ["i", "s", "z"], ["r"]),
    ]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("Transpose", ["f"], ["f.turned" if again else "r"], perm=[0, 2, 1]),
        *(between if again else []),
        node("ReduceMean", ["r"], ["m"], axes=[1]),
        node("Sub", ["r", "m"], ["c"]),
        node("Mul", ["c", "c"], ["q"]),
        node("ReduceMean", ["q"], ["v"], axes=[1]),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["d"]),
        node("Div", ["c", "d"], ["u"]),
        node("Mul", ["u", "gamma"], ["n"]),
        node("QuantizeLinear", ["n", "t", "y0"], ["y"]),
    ]
    proto = model(nodes, [value("x", np.int8, (2, 7, 24))], ["y"], constants, 17)
    compiled = compile_module(import_model(proto.SerializeToString()), ROWS)
    assert "qnorm" in [one.op for one in compiled.graph.nodes]
    x = chance.integers(-128, 128, (2, 7, 24)).astype(np.int8)
    found = Session(compiled, open_device("sim", ROWS)).run(x).outputs["y"]
    off = np.abs(found.astype(int) - run_onnxruntime(proto, {"x": x}, optimise=False)["y"])
    assert off.max() <= 1
    assert np.mean(off > 0) < 0.02


# Whole networks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder() -> Graph:
    """Two blocks of the example's encoder, quantised and read back from its file."""
    path = Path(__file__).parents[2] / "examples" / "encoder.py"
    spec = importlib.util.spec_from_file_location("encoder_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    del sys.modules[spec.name]
    made = module.Encoder(19, 24, 3, 48, 2)
    graph = import_onnx(made.model().SerializeToString())
    batches = make_batches(graph, {"x": made.draw_sequences(6, 5)[:, None]})
    result = quantise(graph, batches, QuantiserOptions(effort="quick"))
    assert result.end_db > 25
    return import_model(export_onnx(result.graph).SerializeToString())


def test_an_encoder_is_one_program(encoder):
    compiled = compile_module(encoder, ROWS)
    ops = [one.op for one in compiled.graph.nodes]
    assert len(compiled.segments) == 1
    assert {op: ops.count(op) for op in ("qsoftmax", "qnorm", "qmatmul", "qadd")} == {
        "qsoftmax": 2, "qnorm": 4, "qmatmul": 4, "qadd": 4
    }  # fmt: skip
    x = np.random.default_rng(3).normal(0, 1, (1, 19, 24)).astype(np.float32)
    (found,) = Session(compiled, open_device("sim", ROWS)).run(x).outputs.values()
    (expected,) = evaluate(compiled.graph, {"x": x}).values()
    assert np.array_equal(found, expected)
    (in_float,) = evaluate(encoder, {"x": x}).values()
    noise = np.square(found - in_float).mean()
    assert 10 * np.log10(np.square(in_float).mean() / noise) > 25


@pytest.mark.parametrize("device", ["sim", pytest.param("rtl", marks=pytest.mark.slow)])
def test_norms_run_with_the_product_before_and_its_sum_stays(encoder, device):
    """GEMM goes on while VECTOR passes over rows; a residual sum is stored for later, too."""
    machine = PRESETS["transformer-25"]
    module = compile_graph(encoder, machine, cache=False, keep_all=True)
    (segment,) = module.segments
    fused = [layer for layer in segment.layers if layer.op == "dense+qadd+qnorm"]
    assert len(fused) == 3
    for layer in fused:
        tiles = [
            note for note in (segment.notes[place] for place in layer.places) if "store" in note
        ]
        kept = [note for note in tiles if "store what" in note]
        assert len(kept) == len(tiles) - len(kept) > 1
    x = np.random.default_rng(5).normal(0, 1, (1, 19, 24)).astype(np.float32)
    run = Session(module, open_device(device, machine)).run(x)
    (found,), (expected,) = run.outputs.values(), evaluate(module.graph, {"x": x}).values()
    assert np.array_equal(found, expected)
    assert run.profile.cycles == module.report["cycles"]


@pytest.mark.slow
@pytest.mark.skipif(not STORIES.is_dir(), reason=f"no shared models at `{STORIES}`")
def test_a_language_model_is_one_program():
    graph = import_onnx(STORIES / "stories_prefill.onnx")
    tokens = np.load(STORIES / "stories_prefill.npz")["inputs"]
    batches = make_batches(graph, {"input_ids": tokens[:8, None]})
    result = quantise(graph, batches, QuantiserOptions(effort="quick"))
    integer = import_model(export_onnx(result.graph).SerializeToString())
    machine = PRESETS["16x16"].replace(name="rows-16x16", row_statistics="all")
    placed = place(CompileRequest(graph=integer, configuration=machine))
    ops = [one.op for one in placed.graph.nodes if not placed.decision.on_accelerator(one)]
    assert [op for op in ops if op != "reshape"] == ["gather", "dequantize"], "embedding and end"
    given = {"input_ids": tokens[20:21]}
    in_float, found = (next(iter(evaluate(g, given).values())) for g in (graph, placed.graph))
    noise = np.square(found - in_float).mean()
    assert 10 * np.log10(np.square(in_float).mean() / noise) > 24


@pytest.mark.parametrize("name", ["transformer-25", "transformer-85"])
def test_an_encoder_is_one_program_on_the_presets_for_transformers(encoder, name):
    compiled = compile_module(encoder, PRESETS[name])
    assert len(compiled.segments) == 1
    x = np.random.default_rng(4).normal(0, 1, (1, 19, 24)).astype(np.float32)
    (found,) = Session(compiled, open_device("sim", PRESETS[name])).run(x).outputs.values()
    (expected,) = evaluate(compiled.graph, {"x": x}).values()
    assert np.array_equal(found, expected)


def test_a_machine_without_the_option_keeps_the_graph(encoder):
    placed = place(CompileRequest(graph=encoder, configuration=PLAIN)).graph
    ops = [one.op for one in placed.nodes]
    assert {"qsoftmax", "qnorm"}.isdisjoint(ops)
    assert ops.count("softmax") == 2
    assert ops.count("reduce") == 8


# Beside the blocks --------------------------------------------------------------------------------


def class_token(tokens: int, channels: int, scale_y: float):
    """A dense layer, a class token before its rows, position embeddings, and the first row."""
    chance = np.random.default_rng(11)
    nodes = [
        node("DequantizeLinear", ["x", "sx", "zx"], ["f"]),
        node("DequantizeLinear", ["w", "sw", "zw"], ["wf"]),
        node("MatMul", ["f", "wf"], ["product"]),
        node("QuantizeLinear", ["product", "sd", "zd"], ["dq"]),
        node("DequantizeLinear", ["dq", "sd", "zd"], ["d"]),
        node("Concat", ["token", "d"], ["joined"], axis=1),
        node("Add", ["joined", "positions"], ["sum"]),
        node("QuantizeLinear", ["sum", "sy", "zy"], ["all"]),
        node("Slice", ["all", "first", "second", "one"], ["y"]),
    ]
    constants = scalars(
        sx=0.05, zx=np.int8(3), sw=0.02, zw=np.int8(0), sd=0.03, zd=np.int8(-11), sy=scale_y,
        zy=np.int8(2),
    ) | {
        "w": chance.integers(-64, 64, (40, channels)).astype(np.int8),
        "token": chance.normal(0, 2, (1, 1, channels)).astype(np.float32),
        "positions": chance.normal(0, 1, (1, tokens + 1, channels)).astype(np.float32),
        "first": np.array([0]), "second": np.array([3]), "one": np.array([1]),
    }  # fmt: skip
    inputs = [value("x", np.int8, (1, tokens, 40))]
    return model(nodes, inputs, ["all", "y"], constants)


def test_a_class_token_and_positions_stay_in_the_program():
    proto = class_token(9, 24, 0.05)
    graph = import_model(proto.SerializeToString())
    compiled = compile_module(graph, ROWS)
    assert len(compiled.segments) == 1
    ops = [one.op for one in compiled.graph.nodes if one.op != "reshape"]
    assert sorted(ops) == ["qadd", "qconcat", "qconv", "qslice"]
    x = np.random.default_rng(2).integers(-128, 128, (1, 9, 40)).astype(np.int8)
    found = Session(compiled, open_device("sim", ROWS)).run(x).outputs
    reference = run_onnxruntime(proto, {"x": x}, optimise=False)
    for name, expected in evaluate(compiled.graph, {"x": x}).items():
        assert np.array_equal(found[name], expected)
        assert np.abs(expected.astype(int) - reference[name]).max() <= 1
    token = reference["all"][:, :1]
    assert np.array_equal(found["all"][:, :1], token), "constants are quantised once, exactly"


def test_positions_too_coarse_in_8_bits_stay_in_float():
    graph = import_model(class_token(9, 24, 0.01).SerializeToString())
    assert "qadd" not in [one.op for one in recognise_rows(graph, ROWS).nodes]
