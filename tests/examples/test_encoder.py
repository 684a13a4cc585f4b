"""The encoder of a transformer, as its script writes it: the accelerator multiplies."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.cpu import generic
from tilewright.compiler.frontend import import_model, recognise_layers
from tilewright.compiler.graph import Graph, QConv, QMatMul, evaluate, is_accelerated
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import accelerated_share, make_batches, quantise
from tilewright.flows.tuning.machines import CpuMachine
from tilewright.flows.tuning.tasks import tasks_of, without_space
from tilewright.isa.configuration import PRESETS
from tilewright.runtime import Session, open_device

SCRIPT = Path(__file__).parents[2] / "examples" / "encoder.py"
SIZES = {"tokens": 32, "width": 64, "heads": 4, "hidden": 128}


@pytest.fixture(scope="module")
def script():
    """The example as a module; the examples are no package."""
    spec = importlib.util.spec_from_file_location("encoder", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module", params=[False, True], ids=["parts", "operators"])
def encoder(request, script):
    """One small block in float32, layer norms and GELU in either form."""
    return script.Encoder(**SIZES, operators=request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["symmetric", "zero-points"])
def quantised(request, script, encoder, tmp_path_factory) -> bytes:
    """The block in QDQ form."""
    path = tmp_path_factory.mktemp("encoder") / "model.onnx"
    script.quantise(encoder, path, request.param)
    return path.read_bytes()


@pytest.fixture(scope="module")
def graph(quantised) -> Graph:
    """What the front end makes of it."""
    return import_model(quantised)


def test_both_forms_are_one_network(script):
    """In float, on the host, beside ONNX Runtime."""
    x = script.Encoder(**SIZES).draw_sequences(1, seed=6)
    results = []
    for operators in (False, True):
        encoder = script.Encoder(**SIZES, blocks=2, operators=operators)
        kinds = {node.op_type for node in encoder.nodes}
        norms, gelus = "LayerNormalization" in kinds, "Gelu" in kinds
        assert norms == gelus == operators
        model = encoder.model().SerializeToString()
        graph = import_model(model)
        assert accelerated_share(graph) == 0
        results += [defined(graph, x), script.outputs_of(model, x)]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=0, atol=2e-5)


def test_every_kernel_of_a_block_has_a_space_of_schedules(encoder, graph):
    """A table of bytes has one schedule."""
    machine = CpuMachine(generic("avx2"), 1)
    numbers = recognise_layers(import_model(encoder.model().SerializeToString()))
    for each, others in ((numbers, set()), (graph, {"ByteTable"})):
        tasks = tasks_of(each, machine)
        assert {"HeadProduct", "RowSoftmax", "LayerNormalisation"} <= {
            type(task.product).__name__ for task in tasks
        }
        assert all(len(task.space()) > 1 for task in tasks)
        assert set(without_space(each, machine)) <= others


def test_only_norms_and_the_softmax_are_left_to_the_host(graph):
    kinds = Counter(
        node.attributes.kind if isinstance(node.attributes, QConv) else node.op
        for node in graph.nodes
        if is_accelerated(node)
    )
    hosts = {
        node.name
        for node in graph.nodes
        if not (is_accelerated(node) or ".norm" in node.name)
        and node.op not in ("reshape", "softmax", "quantize", "dequantize")
    }
    # A bias behind each layer, GELU as a table, two sums; the factor of the scores is in a scale.
    assert kinds == {"dense": 6, "depthwise": 6, "qmatmul": 2, "qlut": 1, "qadd": 2}
    assert hosts == set()
    assert accelerated_share(graph) == 1


def test_heads_are_read_and_written_where_they_lie(graph):
    scores, context = (node.attributes for node in graph.nodes if node.op == "qmatmul")
    assert isinstance(scores, QMatMul)
    assert isinstance(context, QMatMul)
    assert (scores.heads, scores.transposed, scores.joined) == (4, True, (True, True, False))
    assert (context.heads, context.transposed, context.joined) == (4, False, (False, True, True))
    assert not any(node.op == "transpose" for node in graph.nodes)


def output_of(device: str, graph: Graph, name: str, x: np.ndarray) -> np.ndarray:
    with open_device(device, PRESETS[name]) as opened:
        module = compile_module(graph, PRESETS[name])
        (output,) = Session(module, opened).run({"x": x}).outputs.values()
    return output


def defined(graph: Graph, x: np.ndarray) -> np.ndarray:
    (output,) = evaluate(graph, {"x": x}).values()
    return output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4x4", "8x16", "16x16", "32x32"])
def test_a_block_has_the_bits_of_its_definition(encoder, graph, name):
    x = encoder.draw_sequences(1, seed=7)
    np.testing.assert_array_equal(output_of("sim", graph, name, x), defined(graph, x))


def test_the_project_quantises_a_block_by_itself(encoder):
    graph = import_onnx(encoder.model().SerializeToString())
    batches = make_batches(graph, {"x": encoder.draw_sequences(8, seed=10)[:, None]})
    integer = quantise(graph, batches).integer_graph()
    assert accelerated_share(integer) == 1
    x = encoder.draw_sequences(1, seed=11)
    output = output_of("sim", integer, "16x16", x)
    np.testing.assert_array_equal(output, defined(integer, x))
    wanted = defined(graph, x)
    noise = np.square(output - wanted).sum() / np.square(wanted).sum()
    assert -10 * np.log10(noise) > 30, "dB of signal to noise"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4x4", "16x16"])
def test_a_block_has_the_bits_of_its_definition_on_the_hardware(encoder, graph, name):
    x = encoder.draw_sequences(1, seed=8)
    np.testing.assert_array_equal(output_of("rtl", graph, name, x), defined(graph, x))


def test_a_block_agrees_with_onnxruntime(script, encoder, quantised, graph):
    """ONNX Runtime rounds products, factors and biases in float32, rarely the other way.

    It agrees with itself, optimised or not, on 58 to 99 of 100 outputs of such networks.
    """
    *_, last = (node.attributes for node in graph.nodes if node.op == "dequantize")
    sequences = encoder.draw_sequences(3, seed=9)
    expected = script.outputs_of(quantised, sequences)
    for x, y in zip(sequences, expected, strict=True):
        steps = np.rint((defined(graph, x[None])[0] - y) / last.scales[0])
        assert np.abs(steps).max() <= 2
        assert (steps == 0).mean() > 0.96


def test_the_script_writes_blocks_that_follow_each_other(script, tmp_path, capsys):
    sizes = ["--tokens", "8", "--width", "16", "--heads", "2", "--hidden", "16", "--blocks", "2"]
    script.main([str(tmp_path), *sizes])
    assert "wrote" in capsys.readouterr().out
    model = onnx.load(tmp_path / script.MODEL)
    operators = Counter(node.op_type for node in model.graph.node)
    assert (operators["MatMul"], operators["Softmax"], operators["Erf"]) == (16, 2, 2)
    found = np.load(tmp_path / script.SEQUENCES)
    graph = import_model(tmp_path / script.MODEL)
    for x, y in zip(found["inputs"], found["outputs"], strict=True):
        assert np.abs(defined(graph, x[None])[0] - y).max() < 0.2


def test_the_script_refuses_heads_that_do_not_divide_the_width(script, tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main([str(tmp_path), "--width", "10", "--heads", "4"])
    assert "a `--width` that `--heads` divides" in capsys.readouterr().err
