"""Networks of others, whole, from ONNX to the RTL: every value that reaches main memory.

How often the outputs equal ONNX Runtime's is printed (`pytest -rP` shows it). The command line
runs all samples: `tilewright run MODEL --device rtl --input FILE --compare`.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, QConv, is_accelerated
from tilewright.compiler.module import Module
from tilewright.compiler.options import Options
from tilewright.compiler.pipeline import compile_module
from tilewright.flows.execution.run_samples import run_samples
from tilewright.flows.execution.samples import read_samples
from tilewright.flows.reports.terminal import agreement
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import open_device

MODELS = Path(__file__).parents[2] / "shared" / "models"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.is_dir(), reason=f"no shared models at `{MODELS}`"),
]


@dataclass(frozen=True)
class Network:
    """A model of `shared/models`, the samples that each device runs, and what is known of it.

    Parameters
    ----------
    nodes
        On the accelerator; layers may hold several.
    equal_values
        Least share of outputs that equal ONNX Runtime's.
    """

    path: str
    nodes: int
    equal_values: float = 1.0


SAMPLES = {"sim": 20, "rtl": 4, "reference": 1}
"""By device. All take the same instructions, so that more of them add values only, which tests of
the units cover; `networks/test_shared_models.py` finds the accuracy on a hundred of them."""

NETWORKS = {
    "kws": Network("kws_dscnn/kws_int8_qdq", 11),
    # ONNX Runtime averages in binary32, so that ties of its average pooling fall either way.
    "resnet8": Network("ic_resnet8/ic_int8_qdq", 14, 0.9),
    "autoencoder": Network("ad01_autoencoder/ad01_int8_qdq", 10),
}


@cache
def imported(name: str) -> Graph:
    return import_model(MODELS / f"{NETWORKS[name].path}.onnx")


@cache
def compiled(name: str, configuration: str) -> Module:
    return compile_module(imported(name), PRESETS[configuration], keep_all=True)


@pytest.mark.parametrize("device", ["reference", "sim", "rtl"])
@pytest.mark.parametrize("configuration", ["16x16", "8x16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_accelerator_layer_equals_the_integer_reference(name, configuration, device):
    network, machine = NETWORKS[name], PRESETS[configuration]
    model = MODELS / f"{network.path}.onnx"
    module = compiled(name, configuration)
    samples = read_samples(model.with_suffix(".npz"), module.graph).first(SAMPLES[device])
    with open_device(device, machine) as opened:
        outcome = run_samples(module, opened, samples, compare=True, compare_with=device != "sim")
    comparison = outcome.comparison
    assert comparison is not None
    assert comparison.equal, comparison.first_difference()
    assert comparison.not_kept == []
    assert len(comparison.layers) + len(comparison.on_chip) == network.nodes
    found = agreement(outcome.outputs, samples)
    print(f"\n{name}, {configuration}, {device}: {samples.count} samples, {found}")
    print(f"{outcome.profile.cycles} cycles a sample, use {outcome.profile.utilisation}")
    assert found["equal_values"] >= network.equal_values


@pytest.mark.parametrize("configuration", ["16x16", "8x16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_node_equals_the_integer_reference(name, configuration):
    """Compiled so that nothing stays on chip, which no comparison sees."""
    network, machine = NETWORKS[name], PRESETS[configuration]
    model = MODELS / f"{network.path}.onnx"
    graph = imported(name)
    module = compile_module(graph, machine, keep_all=True, options=Options(fuse=False))
    samples = read_samples(model.with_suffix(".npz"), graph).first(2)
    with open_device("sim", machine) as sim:
        comparison = run_samples(module, sim, samples, compare=True).comparison
    assert comparison is not None
    assert comparison.equal, comparison.first_difference()
    assert comparison.not_kept == comparison.on_chip == []
    assert len(comparison.layers) == network.nodes


@pytest.mark.parametrize("configuration", ["16x16", "8x16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_sim_knows_every_cycle_of_the_hardware(name, configuration):
    machine = PRESETS[configuration]
    graph = imported(name)
    module = compile_module(graph, machine)
    for memory in (MemoryModel(), MemoryModel(latency_cycles=200, beats=1, cycles=2)):
        with (
            open_device("sim", machine, memory) as sim,
            open_device("rtl", machine, memory) as rtl,
        ):
            for segment in module.segments:
                zeros = {each.name: np.zeros(each.shape, np.int8) for each in segment.inputs}
                expected = rtl.run(segment.program, segment.image(zeros))
                found = sim.run(segment.program, segment.image(zeros))
                assert found.exact
                assert found.cycles == expected.cycles
                assert found.counters == expected.counters
                np.testing.assert_array_equal(found.spans, expected.spans)
                print(f"{name}, {configuration}, {memory}: {found.cycles} cycles on both")


@pytest.mark.parametrize("name", NETWORKS)
def test_every_convolution_and_dense_layer_is_on_the_accelerator(name):
    """No product is left to the host, whatever glue is."""
    graph = imported(name)
    products = [node for node in graph.nodes if isinstance(node.attributes, QConv)]
    assert products
    hosted = {node.op for node in graph.nodes if not is_accelerated(node)}
    assert hosted <= {"reshape", "quantize", "dequantize", "softmax"}
