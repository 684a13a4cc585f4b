"""Conformer blocks in exporters' forms: macaron feed-forwards, attention, a gated convolution."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from .attention_networks import Attention, Writer
from .onnx_models import model, value

BANDS = 16
"""Frequencies of the spectrogram."""

PLAIN = Attention(2, 1, 8, 12, "none", "none")


@dataclass(frozen=True)
class Conformer:
    """The forms of a block's parts."""

    gate: str = "split"
    """`split`, `slices`, `transposed` (on rows), or `two`: a layer each for value and gate."""
    channels: str = "first"
    """`first` as PyTorch, `last` but around the depthwise layer, `image` for Conv2d."""
    norm: str = "batch"
    """After the depthwise layer: `batch`, `layer`, or `none` where the exporter folded it."""
    swish: str = "products"
    causal: bool = False
    """The depthwise layer sees no later frames: a Pad before it."""
    attention: Attention = PLAIN
    kernel: int = 5
    front: bool = False
    """Two convolutions with stride 2 over the spectrogram, and a dense layer, come first."""
    tokens_first: bool = False
    """[T, N, C] but in the convolution, as torchaudio."""


FORMS = {
    "PyTorch": Conformer(),
    "slices": Conformer(gate="slices", swish="operator"),
    "folded": Conformer(gate="slices", norm="none"),
    "two layers": Conformer(gate="two"),
    "images": Conformer(channels="image"),
    "channels last": Conformer(channels="last"),
    "layer norm": Conformer(norm="layer"),
    "causal": Conformer(causal=True, norm="none"),
    "transposed gate": Conformer(gate="transposed"),
    "tokens first": Conformer(
        tokens_first=True, attention=Attention(2, 1, 8, 12, "none", "none", joined="tokens first")
    ),
    "spectrogram": Conformer(front=True, norm="none"),
    "module": Conformer(attention=Attention(2, 1, 8, 12, "none", "none", joined="select")),
    "padding": Conformer(attention=Attention(2, 1, 8, 12, "padding", "none")),
    "rotary": Conformer(
        gate="slices", channels="last", attention=Attention(2, 1, 8, 12, "none", "halves")
    ),
}


def floats(data: object) -> np.ndarray:
    return np.asarray(data, np.float32)


class ConformerWriter(Writer):
    """The nodes and constants of a conformer block."""

    def __init__(self, form: Conformer) -> None:
        super().__init__(form.attention)
        self.kind = form

    def weights(self, *shape: int) -> np.ndarray:
        return floats(self.chance.normal(0, 1.2 / np.sqrt(np.prod(shape[1:])), shape))

    def vector(self, mean: float, count: int) -> np.ndarray:
        return floats(self.chance.normal(mean, 0.2, count))

    def layer_norm(self, x: str) -> str:
        width = self.form.channels
        vectors = self.vector(1, width), self.vector(0, width)
        return self.emit("LayerNormalization", x, *vectors, axis=-1)

    def swish(self, x: str) -> str:
        if self.kind.swish == "operator":
            return self.emit("Swish", x)
        return self.emit("Mul", x, self.emit("Sigmoid", x))

    def linear(self, x: str, rows: int, columns: int) -> str:
        return self.emit("Add", self.dense(x, rows, columns), self.vector(0, columns))

    def feed_forward(self, x: str) -> str:
        width = self.form.channels
        inner = self.swish(self.linear(self.layer_norm(x), width, 2 * width))
        half = self.emit("Mul", self.linear(inner, 2 * width, width), floats(0.5))
        return self.emit("Add", x, half)

    def attend(self, x: str) -> str:
        return self.emit("Add", x, self.context(self.layer_norm(x)))

    def context(self, x: str) -> str:
        """The attention of `Writer`, without its residual sum."""
        form, width = self.form, self.form.channels
        if form.joined == "tokens first":
            return self.by_tokens(x)
        if form.joined:
            q, k, v = self.parts(x)
        else:
            q, k = (self.heads(self.linear(x, width, width), form.heads, form.rotary)
                    for _ in range(2))  # fmt: skip
            v = self.heads(self.linear(x, width, width), form.heads, "none")
        product = self.emit("MatMul", q, self.emit("Transpose", k, perm=[0, 1, 3, 2]))
        return self.mixed(product, v)

    def by_tokens(self, x: str) -> str:
        """PyTorch's module on [T, N, C]: heads are images."""
        form, width = self.form, self.form.channels
        shape, rows = np.array([form.tokens, form.heads, form.size]), np.array([form.tokens, width])
        q, k, v = (self.emit("Reshape", self.linear(x, width, width), shape) for _ in range(3))
        q, v = (self.emit("Transpose", each, perm=[1, 0, 2]) for each in (q, v))
        q = self.emit("Mul", q, floats(form.size**-0.5))
        scores = self.emit("MatMul", q, self.emit("Transpose", k, perm=[1, 2, 0]))
        context = self.emit("MatMul", self.emit("Softmax", scores, axis=-1), v)
        flat = self.emit("Reshape", self.emit("Transpose", context, perm=[1, 0, 2]), rows)
        y = self.emit("Gemm", flat, self.weights(width, width), self.vector(0, width), transB=1)
        return self.emit("Reshape", y, np.array([form.tokens, 1, width]))

    def mixed(self, product: str, v: str) -> str:
        form, width = self.form, self.form.channels
        scores = self.masked(self.emit("Div", product, floats(np.sqrt(form.size))))
        context = self.emit("MatMul", self.emit("Softmax", scores, axis=-1), v)
        context = self.emit("Transpose", context, perm=[0, 2, 1, 3])
        rows = self.emit("Reshape", context, np.array([1, form.tokens, width]))
        return self.linear(rows, width, width)

    # The convolution ------------------------------------------------------------------------------

    def pointwise(self, x: str, rows: int, columns: int) -> str:
        if self.kind.channels == "last":
            return self.linear(x, rows, columns)
        ends = (1, 1) if self.kind.channels == "image" else (1,)
        weights = self.weights(columns, rows, *ends)
        return self.emit("Conv", x, weights, self.vector(0, columns), kernel_shape=[*ends])

    def gated(self, x: str) -> str:
        width, axis = self.form.channels, 2 if self.kind.channels == "last" else 1
        if self.kind.gate == "two":
            one, gate = (self.pointwise(x, width, width) for _ in range(2))
        elif self.kind.gate in ("split", "transposed"):
            both = self.pointwise(x, width, 2 * width)
            if self.kind.gate == "transposed":
                both, axis = self.emit("Transpose", both, perm=[0, 2, 1]), 2
            one, gate = f"{both}.value", f"{both}.gate"
            self.nodes.append(
                onnx.helper.make_node("Split", [both], [one, gate], axis=axis, num_outputs=2)
            )
        else:
            both = self.pointwise(x, width, 2 * width)
            one, gate = (
                self.emit("Slice", both, np.array([low]), np.array([low + width]), np.array([axis]))
                for low in (0, width)
            )
        y = self.emit("Mul", one, self.emit("Sigmoid", gate))
        return self.emit("Transpose", y, perm=[0, 2, 1]) if self.kind.gate == "transposed" else y

    def depthwise(self, x: str) -> str:
        width, taps = self.form.channels, self.kind.kernel
        image = self.kind.channels == "image"
        shape = (1, taps) if image else (taps,)
        before, after = (taps - 1, 0) if self.kind.causal else (taps // 2, taps // 2)
        pads = [0, before, 0, after] if image else [before, after]
        if self.kind.causal:
            rank = 4 if image else 3
            x = self.emit("Pad", x, np.array([*[0] * (rank - 1), before, *[0] * rank]))
            pads = [0] * len(pads)
        weights = self.weights(width, 1, *shape)
        return self.emit(
            "Conv", x, weights, self.vector(0, width), group=width, kernel_shape=[*shape], pads=pads
        )

    def normalised(self, x: str) -> str:
        width = self.form.channels
        if self.kind.norm == "batch":
            variance = floats(self.chance.uniform(0.5, 2, width))
            vectors = self.vector(1, width), self.vector(0, width), self.vector(0, width), variance
            return self.emit("BatchNormalization", x, *vectors)
        if self.kind.norm == "layer":
            rows = self.layer_norm(self.emit("Transpose", x, perm=[0, 2, 1]))
            return self.emit("Transpose", rows, perm=[0, 2, 1])
        return x

    def convolve(self, x: str) -> str:
        if self.kind.tokens_first:
            x = self.emit("Transpose", x, perm=[1, 0, 2])
            return self.emit("Transpose", self.convolved(x), perm=[1, 0, 2])
        return self.convolved(x)

    def subsampled(self, x: str) -> str:
        width = self.form.channels
        for rows in (1, width):
            weights = self.weights(width, rows, 3, 3)
            x = self.emit("Conv", x, weights, self.vector(0, width), strides=[2, 2],
                          pads=[1, 1, 1, 1], kernel_shape=[3, 3])  # fmt: skip
            x = self.emit("Relu", x)
        x = self.emit("Transpose", x, perm=[0, 2, 1, 3])
        x = self.emit("Reshape", x, np.array([1, self.form.tokens, width * BANDS // 4]))
        return self.linear(x, width * BANDS // 4, width)

    def convolved(self, x: str) -> str:
        width, channels = self.form.channels, self.kind.channels
        inner = self.layer_norm(x)
        if channels != "last":
            inner = self.emit("Transpose", inner, perm=[0, 2, 1])
        if channels == "image":
            inner = self.emit("Unsqueeze", inner, np.array([2]))
        inner = self.gated(inner)
        if channels == "last":
            inner = self.emit("Transpose", inner, perm=[0, 2, 1])
        inner = self.swish(self.normalised(self.depthwise(inner)))
        if channels == "last":
            inner = self.emit("Transpose", inner, perm=[0, 2, 1])
        inner = self.pointwise(inner, width, width)
        if channels == "image":
            inner = self.emit("Squeeze", inner, np.array([2]))
        if channels != "last":
            inner = self.emit("Transpose", inner, perm=[0, 2, 1])
        return self.emit("Add", x, inner)

    def conformer(self) -> str:
        x = self.subsampled("x") if self.kind.front else "x"
        parts: tuple[Callable[[str], str], ...] = (
            self.feed_forward, self.attend, self.convolve, self.feed_forward, self.layer_norm
        )  # fmt: skip
        if self.kind.tokens_first:
            x = self.emit("Transpose", x, perm=[1, 0, 2])
        for part in parts:
            x = part(x)
        return self.emit("Transpose", x, perm=[1, 0, 2]) if self.kind.tokens_first else x


def conformer(form: Conformer) -> onnx.ModelProto:
    writer = ConformerWriter(form)
    y, rows = writer.conformer(), form.attention
    shape = (1, 1, 4 * rows.tokens, BANDS) if form.front else (1, rows.tokens, rows.channels)
    inputs = [value("x", np.float32, shape)]
    if rows.mask == "padding":
        inputs.append(value("kept", np.int64, (1, rows.tokens)))
    opset = 24 if form.swish == "operator" else 18
    return model(writer.nodes, inputs, [y], writer.constants, opset)


def inputs_of(form: Conformer, count: int, seed: int) -> dict[str, np.ndarray]:
    """Draw inputs, stacked by name."""
    chance, rows = np.random.default_rng(seed), form.attention
    shape = (1, 1, 4 * rows.tokens, BANDS) if form.front else (1, rows.tokens, rows.channels)
    found = {"x": floats(chance.normal(0, 1, (count, *shape)))}
    if rows.mask == "padding":
        lengths = chance.integers(2, rows.tokens + 1, (count, 1, 1))
        found["kept"] = (np.arange(rows.tokens) < lengths).astype(np.int64)
    return found
