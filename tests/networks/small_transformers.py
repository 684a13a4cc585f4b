"""Networks that must run whole on an accelerator, small enough to simulate on its netlist."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from tests.compiler.attention_networks import Attention, Writer
from tests.compiler.conformers import Conformer, conformer
from tests.compiler.onnx_models import model, node, value

WORDS, BANDS, FRAMES, HIDDEN = 13, 6, 3, 6
"""Vocabulary size; features per frame, number of frames, and state size of a cell."""


def floats(data: object) -> np.ndarray:
    return np.asarray(data, np.float32)


class SmallWriter(Writer):
    """Encoder and decoder layers in sequence."""

    def weights(self, *shape: int) -> np.ndarray:
        return floats(self.chance.normal(0, 0.4, shape))

    def layer_norm(self, x: str) -> str:
        gamma, beta = (self.weights(self.form.channels) + mean for mean in (1, 0))
        return self.emit("LayerNormalization", x, gamma, beta, axis=-1)

    def linear(self, x: str, columns: int, rows: int = 0) -> str:
        product = self.dense(x, rows or self.form.channels, columns)
        return self.emit("Add", product, self.weights(columns))

    def attention(self, x: str) -> str:
        form, width = self.form, self.form.channels
        q, k, v = (self.heads(self.linear(x, width), form.heads, "none") for _ in range(3))
        product = self.emit("MatMul", q, self.emit("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.emit("Div", product, floats(np.sqrt(form.size)))
        context = self.emit("MatMul", self.emit("Softmax", self.masked(scores), axis=-1), v)
        context = self.emit("Transpose", context, perm=[0, 2, 1, 3])
        rows = self.emit("Reshape", context, np.array([1, form.tokens, width]))
        return self.linear(rows, width)

    def encoded(self, x: str, layers: int, before: bool) -> str:
        """Layers with GELU, and norms before their parts or after the residual sums."""
        width = self.form.channels
        for _ in range(layers):
            for part in (self.attention, lambda x: self.linear(
                self.emit("Gelu", self.linear(x, 2 * width)), width, 2 * width
            )):  # fmt: skip
                given = self.layer_norm(x) if before else x
                x = self.emit("Add", x, part(given))
                x = x if before else self.layer_norm(x)
        return x

    def classified(self, x: str) -> str:
        first = self.emit("Gather", x, np.array(0), axis=1)
        return self.emit("MatMul", first, self.weights(self.form.channels, 5))

    def model(self, y: str, *inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
        return model(self.nodes, inputs, [y], self.constants, 20)


def with_token(writer: SmallWriter, rows: str) -> str:
    """A class token before the rows, and a table of positions."""
    form = writer.form
    rows = writer.emit("Concat", writer.weights(1, 1, form.channels), rows, axis=1)
    return writer.emit("Add", rows, writer.weights(1, form.tokens, form.channels))


def keywords() -> onnx.ModelProto:
    """KWT: frames of a spectrogram are tokens, norms come last."""
    writer = SmallWriter(Attention(1, 1, 8, 6, "none", "none"))
    rows = writer.linear("x", 8, BANDS)
    y = writer.classified(writer.encoded(with_token(writer, rows), 1, before=False))
    return writer.model(y, value("x", np.float32, (1, 5, BANDS)))


def images() -> onnx.ModelProto:
    """DeiT: patches are tokens, norms come first."""
    writer = SmallWriter(Attention(2, 1, 4, 5, "none", "none"))
    kernel = writer.weights(8, 3, 4, 4) / 2
    image = writer.emit("Conv", "x", kernel, strides=[4, 4], kernel_shape=[4, 4])
    rows = writer.emit("Reshape", image, np.array([1, 8, 4]))
    rows = writer.emit("Transpose", rows, perm=[0, 2, 1])
    y = writer.layer_norm(writer.encoded(with_token(writer, rows), 1, before=True))
    return writer.model(writer.classified(y), value("x", np.float32, (1, 3, 8, 8)))


def pixels() -> onnx.ModelProto:
    """MobileViT and TinyViT: inverted bottlenecks around attention over the pixels."""
    writer = SmallWriter(Attention(1, 1, 8, 9, "none", "none"))
    image = writer.emit("Conv", "x", writer.weights(8, 3, 3, 3), strides=[2, 2], pads=[1, 1, 0, 0])
    image = writer.emit("Mul", image, writer.emit("Sigmoid", image))
    taps = writer.weights(8, 1, 3, 3)
    inner = writer.emit("Clip", writer.emit("Conv", image, taps, group=8, pads=[1] * 4),
                        floats(0), floats(6))  # fmt: skip
    image = writer.emit("Add", image, writer.emit("Conv", inner, writer.weights(8, 8, 1, 1)))
    rows = writer.emit("Reshape", image, np.array([1, 8, 9]))
    rows = writer.encoded(writer.emit("Transpose", rows, perm=[0, 2, 1]), 1, before=True)
    whole = writer.emit("Transpose", rows, perm=[0, 2, 1])
    whole = writer.emit("Reshape", whole, np.array([1, 8, 3, 3]))
    y = writer.emit("Conv", writer.emit("Add", image, whole), writer.weights(5, 8, 1, 1))
    return writer.model(y, value("x", np.float32, (1, 3, 6, 6)))


def sentences() -> onnx.ModelProto:
    """BERT: two layers behind embeddings, and a mask of padding."""
    writer = SmallWriter(Attention(2, 1, 4, 5, "padding", "none"))
    words = writer.emit("Gather", writer.weights(WORDS, 8), "tokens")
    x = writer.layer_norm(writer.emit("Add", words, writer.weights(1, 5, 8)))
    inputs = [value(name, np.int64, (1, 5)) for name in ("tokens", "kept")]
    return writer.model(writer.encoded(x, 2, before=False), *inputs)


class LlamaWriter(SmallWriter):
    """Blocks with RMS norms."""

    def norm(self, x: str) -> str:
        return self.emit("RMSNormalization", x, 1 + self.weights(self.form.channels), axis=-1)


def stories() -> onnx.ModelProto:
    """Llama: RMS norms, rotary embedding, shared keys, a causal mask, SwiGLU."""
    writer = LlamaWriter(Attention(2, 2, 4, 5, "added", "pairs", gated=True, normed=True))
    words = writer.emit("Gather", writer.weights(WORDS, 8), "tokens")
    writer.nodes.append(node("Identity", [words], ["x"]))
    y = writer.emit("MatMul", writer.block(), writer.weights(8, WORDS))
    return model(writer.nodes, [value("tokens", np.int64, (1, 5))], [y], writer.constants, 23)


def cell(kind: str) -> onnx.ModelProto:
    """A recurrent layer whose states are inputs and outputs, as DTLN's and GTCRN's, and a mask."""
    chance, both = np.random.default_rng(6), 2 if kind == "GRU" else 1
    gates = HIDDEN * {"GRU": 3, "LSTM": 4}[kind]
    constants = {
        "w": floats(chance.normal(0, 0.5, (both, gates, BANDS))),
        "r": floats(chance.normal(0, 0.5, (both, gates, HIDDEN))),
        "b": floats(chance.normal(0, 0.3, (both, 2 * gates))),
        "m": floats(chance.normal(0, 0.5, (both * HIDDEN, BANDS))),
        "rows": np.array([FRAMES, both * HIDDEN]),
    }
    states = ["h", "c"][: 2 if kind == "LSTM" else 1]
    flags = {"linear_before_reset": 1, "direction": "bidirectional"} if kind == "GRU" else {}
    outputs = ["all", *(f"{state}_out" for state in states)]
    nodes = [
        node(kind, ["x", "w", "r", "b", "", *states], outputs, hidden_size=HIDDEN, **flags),
        node("Transpose", ["all"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "rows"], ["flat"]),
        node("MatMul", ["flat", "m"], ["product"]),
        node("Sigmoid", ["product"], ["y"]),
    ]
    inputs = [value("x", np.float32, (FRAMES, 1, BANDS))]
    inputs += [value(state, np.float32, (both, 1, HIDDEN)) for state in states]
    return model(nodes, inputs, ["y", *outputs[1:]], constants, 18)


@dataclass(frozen=True)
class SmallNetwork:
    """A network, and accelerator operators that it must contain."""

    build: Callable[[], onnx.ModelProto]
    layers: frozenset[str]


NETWORKS = {
    name: SmallNetwork(build, frozenset(layers.split()))
    for name, build, layers in (
        ("keywords, as KWT-1", keywords, "qsoftmax qnorm qmatmul qconcat qlut"),
        ("images, as DeiT", images, "qsoftmax qnorm qmatmul qconcat qlut"),
        ("pixels, as MobileViT", pixels, "qsoftmax qnorm qmatmul qconv qadd qlut"),
        ("sentences, as BERT", sentences, "qsoftmax qnorm qmatmul qlut"),
        ("stories, as Llama", stories, "qsoftmax qnorm qrotate qmul qmatmul"),
        ("conformer", partial(conformer, Conformer(
            attention=Attention(1, 1, 8, 5, "none", "none"), kernel=3)),
         "qsoftmax qnorm qmul qmatmul qconv"),
        ("LSTM, as DTLN", partial(cell, "LSTM"), "qblend qconv qlut"),
        ("GRU, as GTCRN", partial(cell, "GRU"), "qblend qconv qlut"),
    )
}  # fmt: skip


def draw(proto: onnx.ModelProto, count: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs, stacked by name: tokens, masks of padding, numbers."""
    chance = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for each in proto.graph.input:
        shape = count, *(extent.dim_value for extent in each.type.tensor_type.shape.dim)
        if each.name == "tokens":
            found[each.name] = chance.integers(0, WORDS, shape)
        elif each.name == "kept":
            lengths = chance.integers(2, shape[-1] + 1, (count, 1, 1))
            found[each.name] = (np.arange(shape[-1]) < lengths).astype(np.int64)
        else:
            found[each.name] = floats(chance.normal(0, 1, shape))
    return found
