"""Conformer blocks in exporters' forms: macaron feed-forwards, attention, a gated convolution."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from .attention_networks import Attention, Writer
from .onnx_models import model, value

PLAIN = Attention(2, 1, 8, 12, "none", "none")


@dataclass(frozen=True)
class Conformer:
    """The forms of a block's parts."""

    gate: str = "split"
    """`split`, `slices`, or `two`: a layer each for value and gate."""
    channels: str = "first"
    """`first` as PyTorch, `last` but around the depthwise layer, `image` for Conv2d."""
    norm: str = "batch"
    """After the depthwise layer: `batch`, `layer`, or `none` where the exporter folded it."""
    swish: str = "products"
    relative: bool = False
    """Scores of relative positions, shifted as in Transformer-XL."""
    causal: bool = False
    """The depthwise layer sees no later frames: a Pad before it."""
    attention: Attention = PLAIN
    kernel: int = 5


FORMS = {
    "PyTorch": Conformer(),
    "slices": Conformer(gate="slices", swish="operator"),
    "folded": Conformer(gate="slices", norm="none"),
    "two layers": Conformer(gate="two"),
    "images": Conformer(channels="image"),
    "channels last": Conformer(channels="last"),
    "layer norm": Conformer(norm="layer"),
    "causal": Conformer(causal=True, norm="none"),
    "relative": Conformer(relative=True),
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
        inner = self.layer_norm(x)
        rows = self.relative(inner) if self.kind.relative else self.context(inner)
        return self.emit("Add", x, rows)

    def context(self, x: str) -> str:
        """The attention of `Writer`, without its residual sum."""
        form, width = self.form, self.form.channels
        if form.joined:
            q, k, v = self.parts(x)
        else:
            q, k = (self.heads(self.linear(x, width, width), form.heads, form.rotary)
                    for _ in range(2))  # fmt: skip
            v = self.heads(self.linear(x, width, width), form.heads, "none")
        product = self.emit("MatMul", q, self.emit("Transpose", k, perm=[0, 1, 3, 2]))
        return self.mixed(product, v)

    def mixed(self, product: str, v: str) -> str:
        form, width = self.form, self.form.channels
        scores = self.masked(self.emit("Div", product, floats(np.sqrt(form.size))))
        context = self.emit("MatMul", self.emit("Softmax", scores, axis=-1), v)
        context = self.emit("Transpose", context, perm=[0, 2, 1, 3])
        rows = self.emit("Reshape", context, np.array([1, form.tokens, width]))
        return self.linear(rows, width, width)

    def relative(self, x: str) -> str:
        form, width = self.form, self.form.channels
        heads, size, tokens = form.heads, form.size, form.tokens
        q, k, v = (self.emit("Reshape", self.linear(x, width, width),
                             np.array([1, tokens, heads, size])) for _ in range(3))  # fmt: skip
        places = np.arange(tokens - 1, -tokens, -1)[:, None] * 0.6 ** np.arange(width // 2)
        sines = floats(np.concatenate([np.sin(places), np.cos(places)], 1))[None]
        p = self.emit("Reshape", self.dense(self.hold(sines), width, width),
                      np.array([1, 2 * tokens - 1, heads, size]))  # fmt: skip
        one, other = (
            self.emit(
                "Transpose", self.emit("Add", q, self.weights(heads, size)), perm=[0, 2, 1, 3]
            )
            for _ in range(2)
        )
        k, p = (self.emit("Transpose", each, perm=[0, 2, 3, 1]) for each in (k, p))
        content, places = self.emit("MatMul", one, k), self.emit("MatMul", other, p)
        padded = self.emit("Pad", places, np.array([0, 0, 0, 1, 0, 0, 0, 0]))
        turned = self.emit("Reshape", padded, np.array([1, heads, 2 * tokens, tokens]))
        turned = self.emit("Slice", turned, np.array([1]), np.array([2 * tokens]), np.array([2]))
        turned = self.emit("Reshape", turned, np.array([1, heads, tokens, 2 * tokens - 1]))
        shifted = self.emit("Slice", turned, np.array([0]), np.array([tokens]), np.array([3]))
        v = self.emit("Transpose", v, perm=[0, 2, 1, 3])
        return self.mixed(self.emit("Add", content, shifted), v)

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
        elif self.kind.gate == "split":
            both = self.pointwise(x, width, 2 * width)
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
        return self.emit("Mul", one, self.emit("Sigmoid", gate))

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
        x = "x"
        parts: tuple[Callable[[str], str], ...] = (
            self.feed_forward, self.attend, self.convolve, self.feed_forward, self.layer_norm
        )  # fmt: skip
        for part in parts:
            x = part(x)
        return x


def conformer(form: Conformer) -> onnx.ModelProto:
    writer = ConformerWriter(form)
    y = writer.conformer()
    inputs = [value("x", np.float32, (1, form.attention.tokens, form.attention.channels))]
    if form.attention.mask == "padding":
        inputs.append(value("kept", np.int64, (1, form.attention.tokens)))
    opset = 24 if form.swish == "operator" else 18
    return model(writer.nodes, inputs, [y], writer.constants, opset)
