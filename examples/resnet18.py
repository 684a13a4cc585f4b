"""Write ResNet-18 for 224x224 images as quantised ONNX, with random weights and a few images.

The shapes are those of K. He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016),
table 1, with batch normalisation folded into the convolutions. The weights are random, so that
nothing is downloaded: the network recognises nothing, but has every layer, range and byte count
of the real one. The same machine writes the same bytes each time.

    python examples/resnet18.py build/resnet18        # 12 MB, about a minute
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

MODEL, IMAGES = "resnet18_int8_qdq.onnx", "images.npz"
SEED = 2015
SIZE = 224
CLASSES = 1000
STAGES = (64, 128, 256, 512)
"""Channels of the four stages, of two residual blocks each; all but the first halve the image."""
CALIBRATION_IMAGES, TEST_IMAGES = 4, 2


class Builder:
    """Nodes and weights of the network so far, and the value that the last node gave.

    Weights are drawn after He et al. (arXiv:1502.01852). What a block adds to its shortcut is
    scaled down, so that ranges grow slowly with depth.
    """

    def __init__(self, source: str, random: np.random.Generator) -> None:
        self.random = random
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.last = source

    def add(self, op: str, name: str, *inputs: str, **attributes) -> str:
        """Append a node; its output takes its name."""
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.last = name
        return name

    def convolve(
        self, name: str, source: str, shape: tuple[int, ...], stride: int, gain: float = 2.0
    ) -> str:
        """Convolve by weights [out, in, height, width], padded so that stride 1 keeps the size."""
        deviation = np.sqrt(gain / np.prod(shape[1:]))
        self.weights[f"{name}.weight"] = self.random.normal(0, deviation, shape).astype(np.float32)
        self.weights[f"{name}.bias"] = self.random.normal(0, 0.1, shape[0]).astype(np.float32)
        inputs = source, f"{name}.weight", f"{name}.bias"
        pad = shape[2] // 2
        return self.add("Conv", name, *inputs, pads=[pad] * 4, strides=[stride] * 2)

    def block(self, name: str, channels_in: int, channels: int, stride: int) -> str:
        """A basic residual block: two 3x3 convolutions beside a shortcut."""
        source = shortcut = self.last
        self.convolve(f"{name}.conv1", source, (channels, channels_in, 3, 3), stride)
        inner = self.add("Relu", f"{name}.relu1", self.last)
        self.convolve(f"{name}.conv2", inner, (channels, channels, 3, 3), 1, gain=0.5)
        residual = self.last
        if stride != 1 or channels_in != channels:
            shape = channels, channels_in, 1, 1
            shortcut = self.convolve(f"{name}.shortcut", source, shape, stride, gain=1.0)
        self.add("Add", f"{name}.add", residual, shortcut)
        return self.add("Relu", f"{name}.relu2", self.last)


def float_model() -> onnx.ModelProto:
    """Return the network as float ONNX: `image` float32[1, 3, 224, 224] to `logits`."""
    random = np.random.default_rng(SEED)
    builder = Builder("image", random)
    builder.convolve("conv1", "image", (STAGES[0], 3, 7, 7), 2)
    builder.add("Relu", "relu1", builder.last)
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    builder.add("MaxPool", "maxpool", builder.last, **window)
    channels_in = STAGES[0]
    for stage, channels in enumerate(STAGES, start=1):
        builder.block(f"layer{stage}.0", channels_in, channels, 1 if stage == 1 else 2)
        builder.block(f"layer{stage}.1", channels, channels, 1)
        channels_in = channels
    builder.add("GlobalAveragePool", "avgpool", builder.last)
    builder.add("Flatten", "flatten", builder.last)
    shape = CLASSES, channels_in
    weight = random.normal(0, np.sqrt(1 / channels_in), shape).astype(np.float32)
    builder.weights |= {"fc.weight": weight, "fc.bias": np.zeros(CLASSES, np.float32)}
    builder.add("Gemm", "logits", builder.last, "fc.weight", "fc.bias", transB=1)

    graph = helper.make_graph(
        builder.nodes,
        "resnet18",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in builder.weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, producer_name="tilewright", opset_imports=[opset])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def draw_images(count: int, seed: int) -> np.ndarray:
    """Return smooth random images about as bright as normalised photographs.

    float32[count, 3, 224, 224]: noise of several scales, since natural images hold most of their
    power in coarse structure.
    """
    random = np.random.default_rng(seed)
    images = np.zeros((count, 3, SIZE, SIZE), np.float32)
    for cell in (56, 28, 14, 7, 1):
        noise = random.normal(0, 1, (count, 3, SIZE // cell, SIZE // cell)).astype(np.float32)
        images += noise.repeat(cell, axis=2).repeat(cell, axis=3) * np.float32(np.sqrt(cell / 106))
    return images


class Calibration(quantization.CalibrationDataReader):
    """Hands images to the calibration, one by one."""

    def __init__(self, images: np.ndarray) -> None:
        self.batches = iter([{"image": image[None]} for image in images])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch, or None after the last."""
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
            Calibration(images),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            extra_options={"WeightSymmetric": True, "ActivationSymmetric": False},
        )


def logits_of(model: bytes, images: np.ndarray) -> np.ndarray:
    """Return what ONNX Runtime gives on one thread, float32[count, 1000]."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([np.asarray(session.run(None, {"image": i[None]})[0]) for i in images])


def main() -> None:
    """Build, quantise, and write the network and the test images with their outputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to write")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    quantise(float_model(), draw_images(CALIBRATION_IMAGES, SEED), folder / MODEL)
    images = draw_images(TEST_IMAGES, SEED + 1)
    outputs = logits_of((folder / MODEL).read_bytes(), images)
    np.savez_compressed(folder / IMAGES, inputs=images, outputs=outputs)
    print(f"wrote `{folder / MODEL}` and {TEST_IMAGES} images with their outputs, `{IMAGES}`")


if __name__ == "__main__":
    main()
