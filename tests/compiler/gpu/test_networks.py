"""Whole networks whose kernels run as PTX: they compute what the graph and the CPU target do."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright.compiler.cpu import compile_kernel as compile_for_cpu
from tilewright.compiler.cpu.target import host_levels
from tilewright.compiler.gpu.kernel import compile_kernel, planned_for
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.graph.evaluate import evaluate_node
from tilewright.compiler.host.kernel import HostKernel
from tilewright.compiler.host.plan import plan_host
from tilewright.examples import keywords

from ..onnx_models import model, value
from .running import draw, run_kernel

EXAMPLES = Path(tilewright.__file__).parent / "examples"
MODELS = Path(__file__).parents[4] / "shared" / "models"
KEYWORDS, IMAGES = MODELS / "kws_dscnn/kws_int8_qdq.onnx", MODELS / "ic_resnet8/ic_int8_qdq.onnx"


def run_network(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs, each kernel run as PTX, and compared with the CPU target's where that runs."""
    names = [node.outputs[0].name for node in graph.nodes]
    plan = plan_host(graph, names, [], planned_for(), least_work=0)
    steps = {step.output: step for step in plan.kernels if isinstance(step, HostKernel)}
    covered = {node.output.name for step in steps.values() for node in step.nodes}
    values = {constant.name: constant.data for constant in graph.constants} | dict(inputs)
    for node in graph.nodes:
        name = node.outputs[0].name
        if name in steps:
            values[name] = _run_step(steps[name], values).reshape(graph.types[name].shape)
        elif name not in covered:
            found = evaluate_node(node, [values[operand] for operand in node.inputs])
            values |= zip([output.name for output in node.outputs], found, strict=True)
    assert steps
    return {output.name: values[output.value] for output in graph.outputs}


def _run_step(step: HostKernel, values: Mapping[str, np.ndarray]) -> np.ndarray:
    description = step.description
    given = {
        operand: np.ascontiguousarray(values[name]).reshape(description.operands[operand].shape)
        for operand, name in step.inputs.items()
    }
    found = run_kernel(compile_kernel(description, GpuTarget()), given, step.constants)
    if planned_for().level in host_levels():
        kernel = compile_for_cpu(description, planned_for())
        compare(found, kernel.bind(**step.constants)(*given.values()))
    return found


def compare(found: np.ndarray, expected: np.ndarray) -> None:
    """Integers equal; float32 sums may be in another order."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, expected)


def digits() -> tuple[Graph, dict[str, np.ndarray]]:
    """An int8 network."""
    graph = tilewright.import_model(EXAMPLES / "digits/digits_int8_qdq.onnx")
    with np.load(EXAMPLES / "digits/test_digits.npz") as samples:
        (array,) = (samples[name][:1] for name in samples if samples[name].ndim == 4)
    return graph, {graph.inputs[0].name: array.astype(graph.types[graph.inputs[0].name].dtype)}


def spotter() -> tuple[Graph, dict[str, np.ndarray]]:
    """A float network of depthwise and pointwise convolutions."""
    graph = tilewright.import_model(keywords.network(keywords.random_weights()).SerializeToString())
    return graph, drawn(graph)


def transformer() -> tuple[Graph, dict[str, np.ndarray]]:
    """A transformer block: two heads of attention, norms and a GELU."""
    random = np.random.default_rng(1)
    constants: dict[str, np.ndarray] = {
        name: random.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in {
            "wq": (32, 32), "wk": (32, 32), "wv": (32, 32), "wo": (32, 32),
            "up": (32, 64), "down": (64, 32), "gain": (32,), "bias": (32,),
        }.items()
    }  # fmt: skip
    constants |= {"heads": np.array([0, 0, 2, 16]), "joined": np.array([0, 0, 32])}
    constants["scale"] = np.array(0.25, np.float32)
    nodes = [helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["n1"])]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["n1", f"w{name}"], [f"{name}0"]),
            helper.make_node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [name], perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["context"]),
        helper.make_node("Transpose", ["context"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "joined"], ["flat"]),
        helper.make_node("MatMul", ["flat", "wo"], ["projected"]),
        helper.make_node("Add", ["x", "projected"], ["sum1"]),
        helper.make_node("LayerNormalization", ["sum1", "gain", "bias"], ["n2"]),
        helper.make_node("MatMul", ["n2", "up"], ["wide"]),
        helper.make_node("Gelu", ["wide"], ["bent"]),
        helper.make_node("MatMul", ["bent", "down"], ["narrow"]),
        helper.make_node("Add", ["sum1", "narrow"], ["y"]),
    ]
    proto = model(nodes, [value("x", np.float32, [1, 20, 32])], ["y"], constants, opset=20)
    graph = tilewright.import_model(proto.SerializeToString())
    return graph, drawn(graph)


def drawn(graph: Graph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {given.name: draw(graph.types[given.name], random) for given in graph.inputs}


def layers() -> tuple[Graph, dict[str, np.ndarray]]:
    """A float network of convolutions, pooling, resizing, a norm and a softmax."""
    random = np.random.default_rng(3)
    constants: dict[str, np.ndarray] = {
        "w": random.normal(0, 0.2, (8, 3, 3, 3)).astype(np.float32),
        "d": random.normal(0, 0.2, (8, 1, 3, 3)).astype(np.float32),
        "bias": random.normal(0, 0.2, 8).astype(np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "bias"], ["conv"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["conv"], ["positive"]),
        helper.make_node("Conv", ["positive", "d"], ["deep"], group=8, pads=[1] * 4),
        helper.make_node("MaxPool", ["deep"], ["top"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("AveragePool", ["top"], ["mean"], kernel_shape=[2, 2]),
        helper.make_node("Resize", ["mean", "", "scales"], ["large"], mode="linear"),
        helper.make_node("InstanceNormalization", ["large", "bias", "bias"], ["normal"]),
        helper.make_node("Softmax", ["normal"], ["share"], axis=1),
        helper.make_node("Tanh", ["large"], ["bent"]),
        helper.make_node("Mul", ["share", "bent"], ["product"]),
        helper.make_node("Transpose", ["product"], ["y"], perm=[0, 2, 3, 1]),
    ]
    proto = model(nodes, [value("x", np.float32, [1, 3, 17, 19])], ["y"], constants, opset=20)
    graph = tilewright.import_model(proto.SerializeToString())
    return graph, drawn(graph)


def commands() -> tuple[Graph, dict[str, np.ndarray]]:
    """DS-CNN, which spots keywords, in int8."""
    graph = tilewright.import_model(KEYWORDS)
    return graph, drawn(graph)


def images() -> tuple[Graph, dict[str, np.ndarray]]:
    """ResNet-8, which classifies images, in int8."""
    graph = tilewright.import_model(IMAGES)
    return graph, drawn(graph)


Network = Callable[[], tuple[Graph, dict[str, np.ndarray]]]
"""Makes a network and its inputs."""


@pytest.mark.parametrize(
    "network", [digits, spotter, transformer, layers], ids=lambda make: make.__name__
)
def test_whole_networks_run_as_ptx(network: Network):
    graph, inputs = network()
    found = run_network(graph, inputs)
    for name, expected in evaluate(graph, inputs).items():
        compare(found[name], expected)


@pytest.mark.skipif(not IMAGES.exists(), reason=f"no shared models: {MODELS}")
@pytest.mark.parametrize("network", [commands, images], ids=lambda make: make.__name__)
def test_int8_networks_of_convolutions_run_as_ptx(network: Network):
    test_whole_networks_run_as_ptx(network)
