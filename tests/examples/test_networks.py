"""The well-known networks, as their script writes them: the published layers, all right on `sim`.

Reduced variants, small images and few channels, stand for the full networks where speed matters.
"""

import importlib.util
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import evaluate, is_accelerated
from tilewright.compiler.pipeline import compile_module
from tilewright.isa.configuration import DEFAULT
from tilewright.runtime import Comparison, Session, open_device

SCRIPT = Path(__file__).parents[2] / "examples" / "networks.py"
SMALL = ("--size", "64", "--width", "0.5", "--classes", "10")


@dataclass(frozen=True)
class Published:
    """What a network of 224x224 images and 1000 classes has.

    `weights` leaves out biases; `multiplications` are those of convolutions and classifier;
    `layers` is what the accelerator runs: all but the ReLUs, which end a layer, and Flatten.
    """

    operators: dict[str, int]
    weights: int
    multiplications: int

    @property
    def layers(self) -> int:
        return sum(self.operators.values()) - sum(
            self.operators.get(kind, 0) for kind in ("Relu", "Clip", "Flatten")
        )


END = {"GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1}
PUBLISHED = {
    "resnet18": Published(
        {"Conv": 20, "Relu": 17, "Add": 8, "MaxPool": 1} | END, 11_678_912, 1_814_073_344
    ),
    "resnet50": Published(
        {"Conv": 53, "Relu": 49, "Add": 16, "MaxPool": 1} | END, 25_502_912, 4_089_184_256
    ),
    "mobilenet_v1": Published({"Conv": 27, "Relu": 27} | END, 4_209_088, 568_740_352),
    "mobilenet_v2": Published({"Conv": 52, "Clip": 35, "Add": 10} | END, 3_469_760, 300_774_272),
}
every_network = pytest.mark.parametrize("name", PUBLISHED)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("networks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def small(script, tmp_path_factory) -> Path:
    """One folder with a reduced variant of each network: none overwrites another's files."""
    folder = tmp_path_factory.mktemp("small")
    for name in PUBLISHED:
        script.main([name, str(folder), *SMALL])
    return folder


def model_in(folder: Path, name: str) -> Path:
    return folder / f"{name}_int8_qdq.onnx"


def images_in(folder: Path, name: str) -> Path:
    return folder / f"{name}_images.npz"


def multiplications(model: onnx.ModelProto) -> int:
    """Of the convolutions and dense layers of a float model, from the shapes alone."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    for value in (*inferred.value_info, *inferred.output):
        shapes[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    return sum(
        math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
        for node in inferred.node
        if node.op_type in ("Conv", "Gemm")
    )


@pytest.mark.slow
@every_network
def test_the_float_network_has_the_published_layers(script, name):
    model, published = script.float_model(name), PUBLISHED[name]
    assert Counter(node.op_type for node in model.graph.node) == published.operators
    weights = [w for w in model.graph.initializer if w.name.endswith("weight")]
    assert sum(math.prod(w.dims) for w in weights) == published.weights
    assert multiplications(model) == published.multiplications


def test_bottlenecks_stride_in_the_3x3_convolution(script):
    model = script.float_model("resnet50", 64, 0.25, 10)
    strides = {
        node.name: next(a.ints[0] for a in node.attribute if a.name == "strides")
        for node in model.graph.node
        if node.op_type == "Conv"
    }
    striding = {name for name, stride in strides.items() if stride == 2}
    blocks = ("layer2.0", "layer3.0", "layer4.0")
    assert striding == {"conv1", *(f"{b}.{c}" for b in blocks for c in ("conv2", "shortcut"))}


def test_a_narrower_mobilenet_v2_keeps_its_last_convolution(script):
    model = script.float_model("mobilenet_v2", 64, 0.35)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    assert shapes["conv1.weight"] == (8, 3, 3, 3)
    assert shapes["conv2.weight"] == (1280, 112, 1, 1)


@pytest.mark.slow
def test_relu6_ends_the_range_at_six(small):
    """Quantisation takes the Clip's place, so its range must be the Clip's."""
    model = onnx.load(model_in(small, "mobilenet_v2"))
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    ranges = {
        node.output[0]: 255 * float(constants[node.input[1]])
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" and ".relu" in node.output[0]
    }
    assert len(ranges) == 33
    assert max(ranges.values()) == pytest.approx(6)


@pytest.mark.slow
@every_network
def test_the_same_bytes_are_written_each_time(script, small, name, tmp_path):
    script.main([name, str(tmp_path), *SMALL])
    for file in (model_in, images_in):
        assert file(tmp_path, name).read_bytes() == file(small, name).read_bytes()


def quantised_values(folder: Path, name: str) -> dict[str, tuple[np.ndarray, int]]:
    """Each activation of a quantised model over its images, int8, and its zero point.

    Computed by ONNX Runtime as the file stands, without fusing.
    """
    model = onnx.load(model_in(folder, name))
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    names = [node.output[0] for node in nodes]
    zero_points = [int(numpy_helper.to_array(constants[node.input[2]])) for node in nodes]
    int8 = onnx.TensorProto.INT8
    model.graph.output.extend(onnx.helper.make_tensor_value_info(n, int8, None) for n in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    images = np.load(images_in(folder, name))["inputs"]
    runs = [session.run(names, {"image": image[None]}) for image in images]
    values = [np.concatenate(arrays) for arrays in zip(*runs, strict=True)]
    return dict(zip(names, zip(values, zero_points, strict=True), strict=True))


def assert_alive(folder: Path, network: str) -> None:
    """Every activation uses its range: few zeros, few values at its ends, images told apart."""
    for name, (values, zero_point) in quantised_values(folder, network).items():
        assert np.mean(values != zero_point) > 0.3, name
        assert values.std() > 8, name
        assert np.mean(values[0] != values[1]) > 0.25, name
        if values[0].size >= 1000:
            at_end = np.isin(values, (-128, 127)) & (values != zero_point)
            assert np.mean(at_end) < 0.05, name


@every_network
def test_activations_neither_die_nor_saturate(small, name):
    assert_alive(small, name)


@every_network
def test_small_networks_agree_with_onnxruntime(small, name):
    graph = import_model(model_in(small, name))
    layers = [node for node in graph.nodes if is_accelerated(node)]
    assert len(layers) == PUBLISHED[name].layers
    hosts = {node.op for node in graph.nodes if not is_accelerated(node)}
    assert hosts == {"quantize", "transpose", "reshape", "dequantize"}
    samples = np.load(images_in(small, name))
    for image, expected in zip(samples["inputs"], samples["outputs"], strict=True):
        (logits,) = evaluate(graph, {"image": image[None]}).values()
        assert np.corrcoef(logits[0], expected)[0, 1] > 0.99


@pytest.mark.slow
@every_network
def test_every_layer_equals_the_integer_reference_on_sim(script, name, tmp_path):
    script.main([name, str(tmp_path)])
    assert_alive(tmp_path, name)
    graph = import_model(model_in(tmp_path, name))
    module = compile_module(graph, DEFAULT, keep_all=True)
    samples = np.load(images_in(tmp_path, name))
    assert samples["outputs"].shape == (script.TEST_IMAGES, script.CLASSES)
    comparison = Comparison(module)
    with open_device("sim", DEFAULT) as sim:
        session = Session(module, sim)
        for image, expected in zip(samples["inputs"], samples["outputs"], strict=True):
            run = session.run(image[None])
            comparison.add({"image": image[None]}, run)
            (logits,) = run.outputs.values()
            assert np.corrcoef(logits[0], expected)[0, 1] > 0.99
    assert comparison.first_difference() is None
    assert comparison.not_kept == []
    for node in filter(is_accelerated, graph.nodes):
        if node.output.name not in comparison.layers:  # stays on chip, for what alone reads it
            (reader,) = graph.users(node.output.name)
            assert is_accelerated(reader)
            kinds = {getattr(one.attributes, "kind", "") for one in (node, reader)}
            assert reader.op != "qconv" or "depthwise" in kinds
    assert run.profile.macs == PUBLISHED[name].multiplications


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "100"], "`--size`: expected a multiple of 32 pixels, got `100`"),
        (["--width", "0"], "expected a `--width` above 0, up to 4, and one or more `--classes`"),
        (["--classes", "0"], "expected a `--width` above 0, up to 4, and one or more `--classes`"),
    ],
)
def test_impossible_sizes_are_refused(script, arguments, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        script.main(["resnet18", str(tmp_path / "none"), *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {message}")
    assert not (tmp_path / "none").exists()
