"""Write a transformer's encoder as quantised ONNX, with random weights and a few sequences.

Each block has attention with several heads and two layers with GELU between them, each behind a
layer norm and with a residual sum, as in Xiong et al. (arXiv:2002.04745). All matrix products are
int8; the accelerator runs them, and the host runs layer norms and softmax.

    python examples/encoder.py build/encoder                       # one block of 64 tokens
    tilewright run build/encoder/encoder_int8_qdq.onnx --input build/encoder/sequences.npz
    python examples/encoder.py build/small --tokens 32 --blocks 2 --zero-points
    python examples/encoder.py build/encoder --operators           # the same, in newer operators
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

MODEL, SEQUENCES = "encoder_int8_qdq.onnx", "sequences.npz"
SEED = 2017
CALIBRATION_SEQUENCES, TEST_SEQUENCES = 8, 2
EPSILON = 1e-5


class Encoder:
    """Nodes and weights of an encoder int8[1, tokens, width] -> the same.

    Parameters
    ----------
    tokens, width, heads, hidden
        Tokens of a sequence, channels of each, heads that share them, and channels between the two
        last layers of a block.
    blocks
        Number of blocks, one after the other.
    operators
        Whether a layer norm and GELU are one operator each, as today's exporters write them, or the
        sums, products and functions that older ones do. The weights are the same.
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        heads: int,
        hidden: int,
        blocks: int = 1,
        operators: bool = False,
    ) -> None:
        self.tokens, self.width, self.heads = tokens, width, heads
        self.operators = operators
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        x = "x"
        for block in range(blocks):
            x = self.block(f"block{block}", x, hidden)
        self.result = x

    def add(self, op: str, name: str, *inputs: str, **attributes) -> str:
        """Append a node; its output takes its name, which is returned."""
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def hold(self, name: str, array: np.ndarray) -> str:
        """Keep a constant."""
        self.weights[name] = array
        return name

    def number(self, name: str, value: float) -> str:
        """Keep a number."""
        return self.hold(name, np.array(value, np.float32))

    def draw(self, name: str, *shape: int) -> str:
        """Draw weights [inputs, outputs] that keep the mean square, or small biases."""
        deviation = shape[0] ** -0.5 if len(shape) > 1 else 0.1
        return self.hold(name, self.random.normal(0, deviation, shape).astype(np.float32))

    def block(self, name: str, x: str, hidden: int) -> str:
        """Append attention and two layers; each result is added to its operand."""
        attended = self.attention(f"{name}.attention", self.norm(f"{name}.norm1", x))
        x = self.add("Add", f"{name}.sum1", x, attended)
        inner = self.dense(f"{name}.expand", self.norm(f"{name}.norm2", x), self.width, hidden)
        outer = self.dense(f"{name}.contract", self.gelu(f"{name}.gelu", inner), hidden, self.width)
        return self.add("Add", f"{name}.sum2", x, outer)

    def dense(self, name: str, x: str, inputs: int, outputs: int) -> str:
        """A layer on each token."""
        weights = self.draw(f"{name}.weights", inputs, outputs)
        product = self.add("MatMul", f"{name}.product", x, weights)
        return self.add("Add", name, product, self.draw(f"{name}.bias", outputs))

    def norm(self, name: str, x: str) -> str:
        """Layer norm, of Ba et al. (arXiv:1607.06450)."""
        scale = self.random.uniform(0.5, 1.5, self.width).astype(np.float32)
        if self.operators:
            parameters = self.hold(f"{name}.scale", scale), self.draw(f"{name}.bias", self.width)
            return self.add("LayerNormalization", name, x, *parameters, epsilon=EPSILON)
        mean = self.add("ReduceMean", f"{name}.mean", x, axes=[-1])
        centred = self.add("Sub", f"{name}.centred", x, mean)
        square = self.add("Mul", f"{name}.square", centred, centred)
        variance = self.add("ReduceMean", f"{name}.variance", square, axes=[-1])
        epsilon = self.number(f"{name}.epsilon", EPSILON)
        positive = self.add("Add", f"{name}.positive", variance, epsilon)
        deviation = self.add("Sqrt", f"{name}.deviation", positive)
        unit = self.add("Div", f"{name}.unit", centred, deviation)
        scaled = self.add("Mul", f"{name}.scaled", unit, self.hold(f"{name}.scale", scale))
        return self.add("Add", name, scaled, self.draw(f"{name}.bias", self.width))

    def attention(self, name: str, x: str) -> str:
        """Append attention: sums of the tokens' values, weighted by query times key, per head."""
        width = self.width
        query, key, value = (
            self.split(f"{name}.{part}", self.dense(f"{name}.{part}", x, width, width), axes)
            for part, axes in (
                ("query", (0, 2, 1, 3)),
                ("key", (0, 2, 3, 1)),
                ("value", (0, 2, 1, 3)),
            )
        )
        products = self.add("MatMul", f"{name}.products", query, key)
        factor = self.number(f"{name}.factor", (width // self.heads) ** -0.5)
        scores = self.add("Mul", f"{name}.scores", products, factor)
        shares = self.add("Softmax", f"{name}.shares", scores, axis=-1)
        context = self.add("MatMul", f"{name}.context", shares, value)
        tokens = self.add("Transpose", f"{name}.tokens", context, perm=[0, 2, 1, 3])
        shape = self.hold(f"{name}.shape", np.array([1, self.tokens, width]))
        joined = self.add("Reshape", f"{name}.joined", tokens, shape)
        return self.dense(f"{name}.project", joined, width, width)

    def split(self, name: str, x: str, axes: Sequence[int]) -> str:
        """Channels as heads, which then come first."""
        shape = np.array([1, self.tokens, self.heads, self.width // self.heads])
        heads = self.add("Reshape", f"{name}.split", x, self.hold(f"{name}.heads", shape))
        return self.add("Transpose", f"{name}.turned", heads, perm=list(axes))

    def gelu(self, name: str, x: str) -> str:
        """`x * (1 + erf(x / sqrt(2))) / 2`, of Hendrycks and Gimpel (arXiv:1606.08415)."""
        if self.operators:
            return self.add("Gelu", name, x)
        scaled = self.add("Div", f"{name}.scaled", x, self.number(f"{name}.root", 2**0.5))
        raised = self.add(
            "Add",
            f"{name}.raised",
            self.add("Erf", f"{name}.erf", scaled),
            self.number(f"{name}.one", 1),
        )
        doubled = self.add("Mul", f"{name}.doubled", x, raised)
        return self.add("Mul", name, doubled, self.number(f"{name}.half", 0.5))

    def model(self) -> onnx.ModelProto:
        """The encoder in float32."""
        kind, shape = TensorProto.FLOAT, [1, self.tokens, self.width]
        graph = helper.make_graph(
            self.nodes,
            "encoder",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(self.result, kind, shape)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        opset, version = (20, 9) if self.operators else (17, 8)
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=version)

    def draw_sequences(self, count: int, seed: int) -> np.ndarray:
        """Inputs float32[count, tokens, width]."""
        random = np.random.default_rng(seed)
        return random.normal(0, 1, (count, self.tokens, self.width)).astype(np.float32)


class SequenceReader(quantization.CalibrationDataReader):
    """Hands sequences to the calibration, one by one."""

    def __init__(self, sequences: np.ndarray) -> None:
        self.batches = iter([{"x": sequence[None]} for sequence in sequences])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def quantise(encoder: Encoder, path: Path, zero_points: bool) -> None:
    """Write the encoder as QDQ, layer norms in float32.

    Activations are int8 without zero points, or uint8 with the ones that fit their ranges best.
    The first multiply in one pass, the others in two to six.
    """
    kinds = quantization.QuantType
    norms = [node.name for node in encoder.nodes if ".norm" in node.name]
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source.onnx"
        onnx.save(encoder.model(), source)
        quantization.quantize_static(
            source,
            path,
            SequenceReader(encoder.draw_sequences(CALIBRATION_SEQUENCES, SEED)),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=kinds.QUInt8 if zero_points else kinds.QInt8,
            weight_type=kinds.QInt8,
            nodes_to_exclude=norms,
            extra_options={"ActivationSymmetric": not zero_points},
        )


def outputs_of(model: bytes, sequences: np.ndarray) -> np.ndarray:
    """Return ONNX Runtime's outputs on one thread for the unoptimised model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.concatenate([np.asarray(session.run(None, {"x": s[None]})[0]) for s in sequences])


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, quantise, and write an encoder and test sequences with their outputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--tokens", type=int, default=64, help="of a sequence")
    parser.add_argument("--width", type=int, default=64, help="channels of a token")
    parser.add_argument("--heads", type=int, default=4, help="that share the channels")
    parser.add_argument("--hidden", type=int, default=256, help="channels inside of a block")
    parser.add_argument("--blocks", type=int, default=1, help="that follow each other")
    parser.add_argument("--zero-points", action="store_true", help="uint8 instead of int8")
    parser.add_argument(
        "--operators",
        action="store_true",
        help="LayerNormalization and Gelu instead of their parts",
    )
    options = parser.parse_args(arguments)
    sizes = (options.tokens, options.width, options.heads, options.hidden, options.blocks)
    if min(sizes) < 1 or options.width % options.heads:
        parser.error("expected sizes of 1 or more, and a `--width` that `--heads` divides")
    encoder = Encoder(*sizes, options.operators)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / MODEL
    quantise(encoder, path, options.zero_points)
    sequences = encoder.draw_sequences(TEST_SEQUENCES, SEED + 1)
    outputs = outputs_of(path.read_bytes(), sequences)
    np.savez_compressed(options.folder / SEQUENCES, inputs=sequences, outputs=outputs)
    print(f"wrote `{path}` and {TEST_SEQUENCES} sequences with their outputs, `{SEQUENCES}`")


if __name__ == "__main__":
    main()
