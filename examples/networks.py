"""Write a well-known image network as quantised ONNX, with random weights and a few images.

The shapes are the published ones, with batch normalisation folded into the convolutions. The
weights are random, so nothing is downloaded. A network recognises nothing, but it has every layer,
range and byte count of the real one. The same machine writes the same bytes each time.

    python examples/networks.py resnet18 build/resnet18            # 12 MB, five seconds
    python examples/networks.py mobilenet_v2 build/small --size 64 --width 0.5 --classes 10
    python examples/networks.py resnet18 build/float --float       # 47 MB, not quantised
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

IMAGES_SUFFIX = "_images.npz"
SEED = 2015
SIZE, CLASSES = 224, 1000
CALIBRATION_IMAGES, TEST_IMAGES = 4, 2


class NetworkBuilder:
    """Nodes and weights of a network so far; `width` multiplies the published channel counts.

    Weights are drawn after He et al. (arXiv:1502.01852): a `gain` of 2 makes up for what a ReLU
    cuts off. A block has a lower gain before the sum with its shortcut, so ranges grow slowly
    with depth.
    """

    def __init__(self, width: float) -> None:
        self.width = width
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.channels = {"image": 3}

    def scaled(self, channels: int) -> int:
        """Return a published channel count times the width, as a multiple of eight."""
        return max(8, 8 * round(channels * self.width / 8))

    def add(self, op: str, name: str, *inputs: str, **attributes) -> str:
        """Append a node that keeps the channels; its output takes its name, which is returned."""
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.channels[name] = self.channels[inputs[0]]
        return name

    def draw(self, name: str, shape: tuple[int, ...], gain: float) -> str:
        """Draw weights [out, ...] that multiply the mean square of their input by the gain."""
        deviation = np.sqrt(gain / np.prod(shape[1:]))
        self.weights[name] = self.random.normal(0, deviation, shape).astype(np.float32)
        return name

    def convolve(
        self, name: str, x: str, channels: int, kernel: int, stride: int = 1, gain: float = 2.0
    ) -> str:
        """Convolve by a square kernel, padded so that stride 1 keeps the size."""
        return self._convolve(name, x, (channels, self.channels[x], kernel, kernel), stride, gain)

    def convolve_depthwise(self, name: str, x: str, stride: int) -> str:
        """Convolve each channel by its own 3x3 kernel."""
        channels = self.channels[x]
        return self._convolve(name, x, (channels, 1, 3, 3), stride, 2.0, group=channels)

    def _convolve(
        self, name: str, x: str, shape: tuple[int, ...], stride: int, gain: float, **attributes
    ) -> str:
        weight, bias = self.draw(f"{name}.weight", shape, gain), f"{name}.bias"
        self.weights[bias] = self.random.normal(0, 0.1, shape[0]).astype(np.float32)
        window = {"pads": [shape[2] // 2] * 4, "strides": [stride] * 2}
        self.add("Conv", name, x, weight, bias, **window, **attributes)
        self.channels[name] = shape[0]
        return name

    def relu6(self, name: str, x: str) -> str:
        """Clip to 0 to 6."""
        self.weights |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
        return self.add("Clip", name, x, "zero", "six")

    def classify(self, x: str, classes: int) -> None:
        """Average the image and end in a dense layer, `logits`."""
        x = self.add("Flatten", "flatten", self.add("GlobalAveragePool", "avgpool", x))
        weight = self.draw("fc.weight", (classes, self.channels[x]), 1.0)
        self.weights["fc.bias"] = np.zeros(classes, np.float32)
        self.add("Gemm", "logits", x, weight, "fc.bias", transB=1)


Convolutions = tuple[tuple[int, int, int], ...]
"""Convolutions of a residual block, in order: kernel, channels, stride."""


def basic_block(channels: int, stride: int) -> Convolutions:
    """Return two 3x3 convolutions."""
    return (3, channels, stride), (3, channels, 1)


def bottleneck(channels: int, stride: int) -> Convolutions:
    """Return a 3x3 convolution between two 1x1, the last of which has four times the channels."""
    return (1, channels, 1), (3, channels, stride), (1, 4 * channels, 1)


def resnet(
    net: NetworkBuilder, x: str, block: Callable[[int, int], Convolutions], depths: Sequence[int]
) -> str:
    """Residual networks: K. He et al., "Deep Residual Learning" (CVPR 2016), table 1.

    In bottlenecks the 3x3 convolution has the stride, not the 1x1 before it as in the paper: the
    version 1.5 that today's frameworks and published figures mean by ResNet-50.
    """
    x = net.add("Relu", "relu1", net.convolve("conv1", x, net.scaled(64), 7, 2))
    x = net.add("MaxPool", "maxpool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, depth in enumerate(depths, start=1):
        channels = net.scaled(32 << stage)
        for number in range(depth):
            stride = 2 if stage > 1 and number == 0 else 1
            x = residual_block(net, f"layer{stage}.{number}", x, block(channels, stride), stride)
    return x


def residual_block(
    net: NetworkBuilder, name: str, x: str, layers: Convolutions, stride: int
) -> str:
    """Append convolutions and a shortcut, which is convolved too if the shape changes."""
    y = x
    for number, (kernel, channels, step) in enumerate(layers[:-1], start=1):
        y = net.convolve(f"{name}.conv{number}", y, channels, kernel, step)
        y = net.add("Relu", f"{name}.relu{number}", y)
    kernel, channels, step = layers[-1]
    y = net.convolve(f"{name}.conv{len(layers)}", y, channels, kernel, step, gain=0.5)
    if stride != 1 or net.channels[x] != channels:
        x = net.convolve(f"{name}.shortcut", x, channels, 1, stride, gain=1.0)
    return net.add("Relu", f"{name}.relu{len(layers)}", net.add("Add", f"{name}.add", y, x))


MOBILENET_V1 = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
"""Channels and stride of the depthwise separable convolutions."""


def mobilenet_v1(net: NetworkBuilder, x: str) -> str:
    """A. Howard et al., "MobileNets" (arXiv:1704.04861), table 1."""
    x = net.add("Relu", "relu1", net.convolve("conv1", x, net.scaled(32), 3, 2))
    for number, (channels, stride) in enumerate(MOBILENET_V1, start=2):
        name = f"conv{number}"
        x = net.convolve_depthwise(f"{name}.depthwise", x, stride)
        x = net.add("Relu", f"{name}.relu1", x)
        x = net.convolve(f"{name}.pointwise", x, net.scaled(channels), 1)
        x = net.add("Relu", f"{name}.relu2", x)
    return x


MOBILENET_V2 = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
"""Expansion, channels, blocks, and stride of the first block, of each stage."""


def mobilenet_v2(net: NetworkBuilder, x: str) -> str:
    """M. Sandler et al., "MobileNetV2" (arXiv:1801.04381), table 2.

    As there, a width below 1 leaves the last convolution as wide as it is.
    """
    x = net.relu6("relu1", net.convolve("conv1", x, net.scaled(32), 3, 2))
    for stage, (expansion, channels, blocks, stride) in enumerate(MOBILENET_V2, start=1):
        for number in range(blocks):
            name, step = f"stage{stage}.{number}", 1 if number else stride
            x = inverted_residual(net, name, x, expansion, net.scaled(channels), step)
    x = net.convolve("conv2", x, max(1280, net.scaled(1280)), 1, gain=1.0)
    return net.relu6("relu2", x)


def inverted_residual(
    net: NetworkBuilder, name: str, x: str, expansion: int, channels: int, stride: int
) -> str:
    """Expand, filter depthwise, project; no ReLU follows, so that the next gain is 1, not 2."""
    y, keeps_shape = x, stride == 1 and net.channels[x] == channels
    if expansion > 1:
        y = net.convolve(f"{name}.expand", x, expansion * net.channels[x], 1, gain=1.0)
        y = net.relu6(f"{name}.relu1", y)
    y = net.relu6(f"{name}.relu2", net.convolve_depthwise(f"{name}.depthwise", y, stride))
    y = net.convolve(f"{name}.project", y, channels, 1, gain=0.5 if keeps_shape else 2.0)
    return net.add("Add", f"{name}.add", y, x) if keeps_shape else y


NETWORKS: dict[str, Callable[[NetworkBuilder, str], str]] = {
    "resnet18": partial(resnet, block=basic_block, depths=(2, 2, 2, 2)),
    "resnet50": partial(resnet, block=bottleneck, depths=(3, 4, 6, 3)),
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
}
"""Functions that append a network's layers, from image to last feature map, by its name."""


def float_model(
    name: str, size: int = SIZE, width: float = 1.0, classes: int = CLASSES
) -> onnx.ModelProto:
    """Return a network as float ONNX: `image` float32[1, 3, size, size] to `logits`."""
    net = NetworkBuilder(width)
    net.classify(NETWORKS[name](net, "image"), classes)
    graph = helper.make_graph(
        net.nodes,
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, classes])],
        [numpy_helper.from_array(value, name) for name, value in net.weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, producer_name="tilewright", opset_imports=[opset])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def draw_images(count: int, seed: int, size: int = SIZE) -> np.ndarray:
    """Return smooth random images about as bright as normalised photographs.

    float32[count, 3, size, size]: noise of several scales, since natural images hold most of their
    power in coarse structure.
    """
    random = np.random.default_rng(seed)
    images = np.zeros((count, 3, size, size), np.float32)
    cells = (size // 4, size // 8, size // 16, size // 32, 1)
    for cell in cells:
        noise = random.normal(0, 1, (count, 3, size // cell, size // cell)).astype(np.float32)
        share = np.float32(np.sqrt(cell / sum(cells)))
        images += noise.repeat(cell, axis=2).repeat(cell, axis=3) * share
    return images


class ImageReader(quantization.CalibrationDataReader):
    """Hands images to the calibration, one by one."""

    def __init__(self, images: np.ndarray) -> None:
        self.batches = iter([{"image": image[None]} for image in images])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def quantise(model: onnx.ModelProto, images: np.ndarray, path: Path) -> None:
    """Write the model as QDQ: int8 activations, symmetric int8 weights per output channel."""
    with TemporaryDirectory() as folder:
        source, prepared = Path(folder) / "source.onnx", Path(folder) / "prepared.onnx"
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_optimization=True, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared,
            path,
            ImageReader(images),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            extra_options={"WeightSymmetric": True, "ActivationSymmetric": False},
        )


def logits_of(model: bytes, images: np.ndarray) -> np.ndarray:
    """Return ONNX Runtime's outputs on one thread, float32[count, classes].

    Nothing is fused: the integer kernels of fused layers saturate on processors without VNNI.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([np.asarray(session.run(None, {"image": i[None]})[0]) for i in images])


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, quantise, and write a network and the test images with their outputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=NETWORKS, help="network")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--size", type=int, default=SIZE, help="images' width and height")
    parser.add_argument("--width", type=float, default=1.0, help="multiplier of the channels")
    parser.add_argument("--classes", type=int, default=CLASSES, help="number of outputs")
    parser.add_argument("--float", action="store_true", help="write the float network alone")
    options = parser.parse_args(arguments)
    if options.size < 32 or options.size % 32:
        parser.error(f"`--size`: expected a multiple of 32 pixels, got `{options.size}`")
    if not 0 < options.width <= 4 or options.classes < 1:
        parser.error("expected a `--width` above 0, up to 4, and one or more `--classes`")
    model = options.folder / f"{options.name}_int8_qdq.onnx"
    images = options.folder / f"{options.name}{IMAGES_SUFFIX}"
    options.folder.mkdir(parents=True, exist_ok=True)
    network = float_model(options.name, options.size, options.width, options.classes)
    if options.float:
        onnx.save(network, options.folder / f"{options.name}.onnx")
        print(f"wrote `{options.folder / options.name}.onnx`")
        return
    quantise(network, draw_images(CALIBRATION_IMAGES, SEED, options.size), model)
    samples = draw_images(TEST_IMAGES, SEED + 1, options.size)
    outputs = logits_of(model.read_bytes(), samples)
    np.savez_compressed(images, inputs=samples, outputs=outputs)
    print(f"wrote `{model}`, and {TEST_IMAGES} images with their outputs in `{images}`")


if __name__ == "__main__":
    main()
