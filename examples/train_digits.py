"""Train a small residual network on scanned digits and write it as quantised ONNX.

Everything is NumPy and one thread, so the same machine writes the same bytes each time. The 1,797
scans of 8x8 pixels, 0 (paper) to 16 (ink), come with scikit-learn: E. Alpaydin, C. Kaynak, "Optical
Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.

    python examples/train_digits.py        # rewrites examples/digits, about half a minute
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.progress import track
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

FOLDER = Path(__file__).parent / "digits"
SEED = 2024
TEST_SCANS = 360
EPOCHS = 60
BATCH = 32
RATE = 4e-3

# name: (weight shape [out, in, height, width], stride); every convolution pads by one pixel.
CONVOLUTIONS = {
    "conv1": ((16, 1, 3, 3), 1),
    "conv2": ((32, 16, 3, 3), 2),
    "conv3": ((32, 32, 3, 3), 1),
}
CLASSES = 10

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Scans:
    """Images float32[count, 1, 8, 8] of pixels 0..16, and labels int64[count]."""

    images: np.ndarray
    labels: np.ndarray


def load_scans() -> tuple[Scans, Scans]:
    """Return the training scans and the `TEST_SCANS` test scans, split by a fixed shuffle."""
    pixels, digits = load_digits(return_X_y=True)
    images = np.asarray(pixels, np.float32).reshape(-1, 1, 8, 8)
    labels = np.asarray(digits, np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    test, train = order[:TEST_SCANS], order[TEST_SCANS:]
    return Scans(images[train], labels[train]), Scans(images[test], labels[test])


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray, stride: int):
    """Convolve x float32[n, in, h, w], padded by one; return the result and its patch matrix."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    n, _, height, width = windows.shape[:4]
    patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * height * width, -1)
    y = patches @ w.reshape(len(w), -1).T + b
    return y.reshape(n, height, width, len(w)).transpose(0, 3, 1, 2), patches


def convolve_backward(dy: np.ndarray, patches: np.ndarray, x_shape: tuple, w: np.ndarray, stride):
    """Return the gradients of `convolve` with respect to x, w and b."""
    n, outputs, height, width = dy.shape
    rows = dy.transpose(0, 2, 3, 1).reshape(-1, outputs)
    dw = (rows.T @ patches).reshape(w.shape)
    taps = (rows @ w.reshape(outputs, -1)).reshape(n, height, width, *w.shape[1:])
    padded = np.zeros((n, x_shape[1], x_shape[2] + 2, x_shape[3] + 2), np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows_hit = slice(i, i + stride * height, stride)
            columns_hit = slice(j, j + stride * width, stride)
            padded[:, :, rows_hit, columns_hit] += taps[..., i, j].transpose(0, 3, 1, 2)
    return padded[:, :, 1:-1, 1:-1], dw, rows.sum(axis=0)


def initial_parameters(random: np.random.Generator) -> Parameters:
    """Return weights drawn after He et al. (arXiv:1502.01852) and zero biases."""
    shapes: dict[str, tuple[int, ...]] = {name: shape for name, (shape, _) in CONVOLUTIONS.items()}
    shapes["dense"] = (CLASSES, CONVOLUTIONS["conv3"][0][0])
    parameters: Parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        parameters[f"{name}.weight"] = random.normal(0, deviation, shape).astype(np.float32)
        parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return parameters


def forward(p: Parameters, x: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return logits float32[n, 10] and the inputs of `gradients`; x is scaled to 0..1."""
    kept = {"x0": x}
    y, kept["patches1"] = convolve(x, p["conv1.weight"], p["conv1.bias"], 1)
    kept["x1"] = np.maximum(y, 0)
    y, kept["patches2"] = convolve(kept["x1"], p["conv2.weight"], p["conv2.bias"], 2)
    kept["x2"] = np.maximum(y, 0)
    y, kept["patches3"] = convolve(kept["x2"], p["conv3.weight"], p["conv3.bias"], 1)
    kept["x3"] = np.maximum(y + kept["x2"], 0)
    kept["features"] = kept["x3"].mean(axis=(2, 3))
    return kept["features"] @ p["dense.weight"].T + p["dense.bias"], kept


def gradients(p: Parameters, x: np.ndarray, labels: np.ndarray) -> Parameters:
    """Return the gradient of the mean cross-entropy for each parameter."""
    logits, kept = forward(p, x)
    d = np.exp(logits - logits.max(axis=1, keepdims=True))
    d /= d.sum(axis=1, keepdims=True)
    d[np.arange(len(labels)), labels] -= 1
    d /= len(labels)
    g = {"dense.weight": d.T @ kept["features"], "dense.bias": d.sum(axis=0)}

    pixels = kept["x3"].shape[2] * kept["x3"].shape[3]
    d3 = (d @ p["dense.weight"])[:, :, None, None] / np.float32(pixels) * (kept["x3"] > 0)
    through, g["conv3.weight"], g["conv3.bias"] = convolve_backward(
        d3, kept["patches3"], kept["x2"].shape, p["conv3.weight"], 1
    )
    d2 = (through + d3) * (kept["x2"] > 0)
    through, g["conv2.weight"], g["conv2.bias"] = convolve_backward(
        d2, kept["patches2"], kept["x1"].shape, p["conv2.weight"], 2
    )
    d1 = through * (kept["x1"] > 0)
    _, g["conv1.weight"], g["conv1.bias"] = convolve_backward(
        d1, kept["patches1"], kept["x0"].shape, p["conv1.weight"], 1
    )
    return g


def shifted(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the scans, each moved by up to one pixel, so that position is not learnt."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = random.integers(0, 3, size=(len(x), 2))
    return np.stack([s[:, i : i + 8, j : j + 8] for s, (i, j) in zip(padded, moves, strict=True)])


def train(scans: Scans) -> Parameters:
    """Train with Adam (arXiv:1412.6980) under a cosine rate; one fixed seed draws everything."""
    random = np.random.default_rng(SEED)
    p = initial_parameters(random)
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    steps_per_epoch = len(scans.labels) // BATCH
    step = 0
    for _ in track(range(EPOCHS), "training"):
        order = random.permutation(len(scans.labels))
        for start in range(0, steps_per_epoch * BATCH, BATCH):
            chosen = order[start : start + BATCH]
            x = shifted(scans.images[chosen] / np.float32(16), random)
            step += 1
            rate = RATE * (1 + np.cos(np.pi * step / (EPOCHS * steps_per_epoch))) / 2
            rate *= np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            for name, g in gradients(p, x, scans.labels[chosen]).items():
                mean[name] += np.float32(0.1) * (g - mean[name])
                square[name] += np.float32(0.001) * (g * g - square[name])
                p[name] -= np.float32(rate) * mean[name] / (np.sqrt(square[name]) + 1e-7)
    return p


def float_model(p: Parameters) -> onnx.ModelProto:
    """Return the network as float ONNX: `scan` float32[batch, 1, 8, 8] to `logits`."""

    def convolution(source: str, name: str, target: str) -> onnx.NodeProto:
        inputs = [source, f"{name}.weight", f"{name}.bias"]
        stride = CONVOLUTIONS[name][1]
        return helper.make_node(
            "Conv", inputs, [target], name=name, pads=[1, 1, 1, 1], strides=[stride, stride]
        )

    nodes = [
        convolution("scan", "conv1", "conv1.out"),
        helper.make_node("Relu", ["conv1.out"], ["relu1.out"], name="relu1"),
        convolution("relu1.out", "conv2", "conv2.out"),
        helper.make_node("Relu", ["conv2.out"], ["relu2.out"], name="relu2"),
        convolution("relu2.out", "conv3", "conv3.out"),
        helper.make_node("Add", ["conv3.out", "relu2.out"], ["residual.out"], name="residual"),
        helper.make_node("Relu", ["residual.out"], ["relu3.out"], name="relu3"),
        helper.make_node("GlobalAveragePool", ["relu3.out"], ["pool.out"], name="pool"),
        helper.make_node("Flatten", ["pool.out"], ["flatten.out"], name="flatten"),
        helper.make_node(
            "Gemm", ["flatten.out", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1
        ),
    ]
    weights = dict(p)
    weights["conv1.weight"] = p["conv1.weight"] / np.float32(16)  # takes pixels as they are
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("scan", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, producer_name="tilewright", opset_imports=[opset])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


class TrainingScans(quantization.CalibrationDataReader):
    """Hands the training scans to the calibration, in one batch."""

    def __init__(self, scans: Scans) -> None:
        self.batches = iter([{"scan": scans.images}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def quantise(model: onnx.ModelProto, scans: Scans, path: Path) -> None:
    """Write the model as QDQ: int8 activations, symmetric int8 weights per output channel."""
    with TemporaryDirectory() as folder:
        source, prepared = Path(folder) / "source.onnx", Path(folder) / "prepared.onnx"
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_optimization=True, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared,
            path,
            TrainingScans(scans),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            extra_options={"WeightSymmetric": True, "ActivationSymmetric": False},
        )


def logits_of(model: bytes, images: np.ndarray) -> np.ndarray:
    """Return ONNX Runtime's outputs on one thread, float32[count, 10].

    Nothing is fused: the integer kernels of fused layers saturate on processors without VNNI.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"scan": images})[0])


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of scans whose largest logit is the label's."""
    return float(np.mean(logits.argmax(axis=1) == labels))


def main() -> None:
    """Train, quantise, measure and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)

    training, test = load_scans()
    with threadpool_limits(limits=1):
        model = float_model(train(training))
    path = folder / "digits_int8_qdq.onnx"
    quantise(model, training, path)

    before = logits_of(model.SerializeToString(), test.images)
    after = logits_of(path.read_bytes(), test.images)
    np.savez_compressed(
        folder / "test_digits.npz", inputs=test.images, labels=test.labels, outputs=after
    )
    print(
        f"{len(test.labels)} test scans: {accuracy(before, test.labels):.2%} right in float, "
        f"{accuracy(after, test.labels):.2%} in int8; wrote `{folder}`"
    )


if __name__ == "__main__":
    main()
