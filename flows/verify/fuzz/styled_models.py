"""Random quantised ONNX models in the styles of several quantisers."""

from typing import Any

import numpy as np
import onnx
from typing_extensions import override

from .quantiser_styles import (
    QOPERATOR,
    STYLES,
    with_dynamic_products,
    with_qlinear_operators,
)
from .random_models import MAX_ACTIVATION, MAX_STEPS, Grow, GrowingModel

NAMES = tuple(STYLES)


def style_of(seed: int) -> str:
    """Return the name of a seed's style; they take turns."""
    return NAMES[seed % len(NAMES)]


def styled_model(seed: int, steps: int = MAX_STEPS) -> bytes:
    """Return a serialised model in the style of a quantiser; see `random_model`."""
    return StyledModel(seed).model(steps)


class StyledModel(GrowingModel):
    """A model under construction in one of the styles."""

    opset = 21

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.format = style_of(seed)
        self.style = STYLES[self.format]
        self.dtype = self.chance.choice(list(self.style.types))
        self.bits = self.chance.choice(list(self.style.bits))
        self.operands: dict[str, str] = {}

    def finished(self, model: onnx.ModelProto) -> bytes:
        """Return the file, in one of ONNX Runtime's forms on integers if the style asks for it."""
        if self.format == QOPERATOR:
            model = with_qlinear_operators(model)
        if self.style.dynamic:
            model = with_dynamic_products(model)
        if self.style.any_order:
            nodes = list(model.graph.node)
            self.chance.shuffle(nodes)
            del model.graph.node[:]
            model.graph.node.extend(nodes)
        return model.SerializeToString()

    @override
    def kinds(self, source: str) -> tuple[Grow, ...]:
        more: tuple[Grow, ...] = (self.normalised, self.scaled, self.activation, self.shifted)
        if len(self.shapes[source]) == 4:
            more += (self.transposed, self.excited, self.convolution, self.convolution)
            more += (self.attention, self.attention, self.attention)
        else:
            more += (self.attention, self.softmax, self.dense, self.product)
        return (*super().kinds(source), *more)

    # Quantisation ------------------------------------------------------------------------------

    def quantised(self, source: str, scale: float) -> str:
        """Q/DQ behind an operator, or nothing where only inputs of products are quantised."""
        if not self.style.inputs_only:
            return self.rounded(source, scale)
        self.scales[source] = float(np.float32(scale))
        return source

    def rounded(self, source: str, scale: float) -> str:
        """Q/DQ; below 8 bits with a Clip between them."""
        low, high = (0, 255) if self.dtype == "uint8" else (-128, 127)
        zero = (low + high + 1) // 2
        if not self.style.symmetric:
            zero = self.chance.choice((low, (low + high + 1) // 2, self.chance.randint(low, high)))
        if self.bits < 8:
            low, high = (0, 2**self.bits - 1) if low == 0 else (-(2**self.bits) // 2, 0)
            high = high or -low - 1
            zero, scale = 0, scale * 2 ** (8 - self.bits)
        scale = self.allowed(scale)
        kind = np.dtype(self.dtype)
        held = [
            self.hold(np.array(scale, np.float32), "scale"),
            self.hold(np.array(zero, kind), "zero"),
        ]
        shape = self.shapes[source]
        integers = self.node("QuantizeLinear", [source, *held], shape)
        if self.bits < 8:
            integers = self.clipped(integers, low, high, kind)
        result = self.node("DequantizeLinear", [integers, *held], shape)
        self.scales[result] = float(np.float32(scale))
        return result

    def allowed(self, scale: Any) -> Any:
        """The scales that a style has near these."""
        return 2.0 ** np.rint(np.log2(scale)) if self.style.powers else scale

    def rounded_by_channel(self, source: str) -> str:
        """Q/DQ with a scale for each channel, and one zero point or one for each."""
        shape = self.shapes[source]
        scales = self.scales[source] * self.numbers.uniform(0.5, 1.5, shape[1])
        ends = np.iinfo(self.dtype)
        zeros = np.zeros(shape[1])
        if self.chance.random() < 0.5:
            zeros = self.numbers.integers(ends.min, ends.max + 1, shape[1])
        held = [
            self.hold(scales.astype(np.float32), "scale"),
            self.hold(np.asarray(zeros, self.dtype), "zero"),
        ]
        integers = self.node("QuantizeLinear", [source, *held], shape, axis=1)
        result = self.node("DequantizeLinear", [integers, *held], shape, axis=1)
        self.scales[result] = self.scales[source]
        return result

    @override
    def averaged(self, source: str) -> str:
        """An average times a number, where a processor divides by a shift."""
        if not self.style.powers:
            return source
        factor = self.hold(np.array(self.chance.uniform(0.9, 1.1), np.float32), "factor")
        return self.node("Mul", [source, factor], self.shapes[source])

    def clipped(self, source: str, low: int, high: int, kind: np.dtype) -> str:
        """A Clip of integers to fewer bits."""
        ends = [self.hold(np.array(end, kind), "end") for end in (low, high)]
        return self.node("Clip", [source, *ends], self.shapes[source])

    @override
    def operand(self, source: str, depthwise: bool = False) -> str:
        """The quantised operand of a product; several products may share it."""
        if self.style.dynamic or not self.style.inputs_only:
            return source
        if depthwise and self.style.by_channel:
            return self.rounded_by_channel(source)
        if source not in self.operands or self.chance.random() < 0.3:
            self.operands[source] = self.rounded(source, self.scales[source])
        return self.operands[source]

    def weights(self, source: str, shape: tuple[int, ...], axis: int) -> tuple[str, str]:
        """Weights and bias as the style has them."""
        channels, style, chance = shape[axis], self.style, self.chance
        wide = chance.random() < style.wide_weights and self.dtype == "uint8"
        per_channel = not wide and not style.dynamic and chance.random() < 0.7
        count = (channels,) if per_channel else ()
        taps = int(np.prod(shape)) // channels
        half = 2 ** (min(self.bits, 8) - 1)
        scale = self.numbers.uniform(0.7, 2.5, count) / half / np.sqrt(taps)
        scale = np.asarray(self.allowed(scale), np.float32)
        stored = wide or chance.random() >= style.float_weights
        if stored and style.signed_scales:
            scale = np.asarray(scale * self.numbers.choice((-1, 1), count), np.float32)
        kind = np.dtype(np.uint8 if wide else np.int8)
        zero = np.full(count, self.numbers.integers(60, 200) if wide else 0).astype(kind)
        parameters = [self.hold(scale, "ws"), self.hold(zero, "wz")]
        attributes = {"axis": axis} if per_channel else {}
        integers = self.numbers.integers(0 if wide else 1 - half, 256 if wide else half, shape)
        if not stored:
            spread = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
            real = (integers * (spread if per_channel else scale)).astype(np.float32)
            held = self.node(
                "QuantizeLinear", [self.hold(real, "w"), *parameters], shape, **attributes
            )
        else:
            held = self.hold(integers.astype(kind), "w")
            self.shapes[held] = shape
        if self.bits < 8:
            held = self.clipped(held, 1 - half, half - 1, kind)
        made = self.node("DequantizeLinear", [held, *parameters], shape, **attributes)
        return made, self.bias(source, scale, channels)

    def bias(self, source: str, scale: np.ndarray, channels: int) -> str:
        """A bias in float, or in int32 with the scale of the products.

        Floats are whole numbers of these scales too, to which the definition rounds a bias. Where
        few inputs differ, onnxruntime's own sums would often be on the other side of a step.
        """
        unit = np.asarray(scale * np.float32(self.scales[source]), np.float32)
        numbers = np.rint(self.numbers.normal(0, 0.5, channels) / unit)
        if self.style.float_bias:
            return self.hold((numbers * unit).astype(np.float32), "b")
        bias = self.hold(numbers.astype(np.int32), "b")
        held = [self.hold(unit, "bs"), self.hold(np.zeros(unit.shape, np.int32), "bz")]
        return self.node(
            "DequantizeLinear", [bias, *held], (channels,), **({"axis": 0} if unit.ndim else {})
        )

    # Steps -------------------------------------------------------------------------------------

    def convolution(self, source: str) -> str:
        """A convolution, sometimes between Transposes."""
        if not self.style.channels_last or self.chance.random() < 0.5:
            return super().convolution(source)
        last = self.turned(source, (0, 2, 3, 1))
        return super().convolution(self.turned(last, (0, 3, 1, 2)))

    def turned(self, source: str, order: tuple[int, ...]) -> str:
        """A Transpose, unquantised."""
        shape = tuple(self.shapes[source][axis] for axis in order)
        made = self.node("Transpose", [source], shape, perm=order)
        self.scales[made] = self.scales[source]
        return made

    def along_channels(self, source: str, low: float, high: float) -> str:
        """A float constant for each channel."""
        shape = self.shapes[source]
        channels = shape[1] if len(shape) == 4 else shape[-1]
        numbers = self.numbers.uniform(low, high, channels).astype(np.float32)
        return self.hold(numbers.reshape((-1, 1, 1)) if len(shape) == 4 else numbers, "channel")

    def normalised(self, source: str) -> str:
        """Batch normalisation of images, normalisation of rows."""
        shape = self.shapes[source]
        if len(shape) == 4:
            parameters = [
                self.hold(self.numbers.uniform(*ends, shape[1]).astype(np.float32), "bn")
                for ends in ((-0.5, 1.5), (-0.5, 0.5), (-0.5, 0.5), (0.5, 2.0))
            ]
            out = self.node("BatchNormalization", [source, *parameters], shape)
        else:
            parameters = [self.along_channels(source, *ends) for ends in ((0.5, 1.5), (-1, 1))]
            out = self.node("LayerNormalization", [source, *parameters], shape, axis=-1)
        return self.quantised(self.activated(out), self.chance.uniform(0.01, 0.06))

    def scaled(self, source: str) -> str:
        """A factor for each channel."""
        factors = self.along_channels(source, -1.5, 1.5)
        out = self.node("Mul", [source, factors], self.shapes[source])
        return self.quantised(out, self.chance.uniform(0.01, 0.06))

    def shifted(self, source: str) -> str:
        """An addend for each channel."""
        out = self.node("Add", [source, self.along_channels(source, -1, 1)], self.shapes[source])
        return self.quantised(self.activated(out), self.chance.uniform(0.01, 0.06))

    def activation(self, source: str) -> str:
        """An activation, some of several operators."""
        shape, kind = (
            self.shapes[source],
            self.chance.choice(
                (
                    "LeakyRelu",
                    "PRelu",
                    "Sigmoid",
                    "Tanh",
                    "HardSwish",
                    "SiLU",
                    "GELU",
                    "Elu",
                    "Mish",
                )
            ),
        )
        if kind == "PRelu":
            out = self.node(kind, [source, self.along_channels(source, 0.01, 0.3)], shape)
        elif kind == "SiLU":
            gate = self.node("Sigmoid", [source], shape)
            if self.chance.random() < 0.5:
                gate = self.quantised(gate, 1 / 255)
            out = self.node("Mul", [source, gate], shape)
        elif kind == "GELU":
            out = self.node("Gelu", [source], shape)
        else:
            out = self.node(kind, [source], shape)
        return self.quantised(out, self.chance.uniform(0.01, 0.06))

    def excited(self, source: str) -> str:
        """Combine an image with one number for each channel or each pixel, in either order."""
        shape, chance = self.shapes[source], self.chance
        by_channel = chance.random() < 0.6
        small, inner = (*shape[:2], 1, 1), source
        if by_channel:  # squeeze-and-excite, or a term for each channel
            mean = self.node("GlobalAveragePool", [source], small)
            inner = self.quantised(self.averaged(mean), 0.03)
        else:  # attention by position
            small = (shape[0], 1, *shape[2:])
        inner = self.operand(inner)
        weights = self.weights(inner, (small[1], shape[1], 1, 1), 0)
        gate = self.quantised(self.node("Conv", [inner, *weights], small), 0.05)
        gate = self.node(chance.choice(("Sigmoid", "HardSigmoid")), [gate], small)
        pair = [source, self.quantised(gate, 1 / 255)]
        chance.shuffle(pair)
        out = self.node(chance.choice(("Mul", "Mul", "Add", "Sub")), pair, shape)
        return self.quantised(out, chance.uniform(0.01, 0.06))

    def transposed(self, source: str) -> str:
        """A transposed convolution."""
        n, channels, height, width = self.shapes[source]
        made = self.chance.choice((1, 4, 8))
        if n * made * height * width * 4 > MAX_ACTIVATION:
            return source
        inner = self.operand(source)
        inputs = [inner, *self.weights(inner, (channels, made, 2, 2), 1)]
        shape = (n, made, 2 * height, 2 * width)
        out = self.node("ConvTranspose", inputs, shape, kernel_shape=[2, 2], strides=[2, 2])
        return self.quantised(self.activated(out), self.chance.uniform(0.01, 0.06))

    def softmax(self, source: str) -> str:
        """Softmax of rows, with the scale that converters give it."""
        out = self.node("Softmax", [source], self.shapes[source], axis=-1)
        return self.quantised(out, 1 / 255)

    def attention(self, source: str) -> str:
        """Attention over the pixels of an image, or over rows, with one head or more.

        Queries, keys and values have their own zero points; sometimes they are one value.
        """
        chance, shape = self.chance, self.shapes[source]
        n, rows = (shape[0], shape[2] * shape[3]) if len(shape) == 4 else (1, shape[0])
        heads = chance.choice((1, 1, 2, 3))
        if n * heads * rows * rows > MAX_ACTIVATION:
            return source
        tokens = self.tokens(source)
        alone = heads == 1 and chance.random() < 0.3
        width = self.shapes[tokens][2] if alone else heads * chance.choice((1, 4, 8, 9))
        q, k, v = (
            self.split_heads(tokens if alone else self.projected(tokens, width), heads, order)
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scores = self.node("MatMul", [self.operand(q), self.operand(k)], (n, heads, rows, rows))
        scores = self.quantised(scores, 0.2)
        if chance.random() < 0.7:
            factor = self.hold(np.array(chance.choice((0.2, 0.5)), np.float32), "factor")
            scaled = self.node(chance.choice(("Mul", "Div")), [scores, factor], self.shapes[scores])
            scores = self.quantised(scaled, 0.1)
        weights = self.operand(self.softmax(self.masked(scores)))
        out = self.node("MatMul", [weights, self.operand(v)], (n, heads, rows, width // heads))
        out = self.quantised(out, chance.uniform(0.01, 0.06))
        return self.merge_heads(out, shape)

    def tokens(self, source: str) -> str:
        """The pixels of an image as rows, or rows as one sequence of them."""
        shape = self.shapes[source]
        if len(shape) == 2:
            return self.reshaped(source, (1, *shape))
        n, channels, height, width = shape
        return self.turned(self.reshaped(source, (n, channels, height * width)), (0, 2, 1))

    def merge_heads(self, source: str, shape: tuple[int, ...]) -> str:
        """The channels of all heads together, in the form of a value of this shape."""
        n, heads, rows, channels = self.shapes[source]
        if len(shape) == 2:
            joined = self.turned(source, (0, 2, 1, 3))
            return self.reshaped(joined, (rows, heads * channels))
        return self.reshaped(self.turned(source, (0, 1, 3, 2)), (n, heads * channels, *shape[2:]))

    def split_heads(self, source: str, heads: int, order: tuple[int, ...]) -> str:
        """Rows of several heads, with the heads before the rows."""
        n, rows, channels = self.shapes[source]
        apart = self.reshaped(source, (n, rows, heads, channels // heads))
        return self.turned(apart, order)

    def projected(self, source: str, width: int) -> str:
        """A product of rows with weights, and its bias."""
        n, rows, channels = self.shapes[source]
        inner = self.operand(source)
        weights, bias = self.weights(inner, (channels, width), 1)
        out = self.node("MatMul", [inner, weights], (n, rows, width))
        if self.chance.random() < 0.5:
            out = self.node("Add", [out, bias], (n, rows, width))
        return self.quantised(out, self.chance.uniform(0.01, 0.06))

    def masked(self, source: str) -> str:
        """Scores with a mask of later keys or of some keys, by a sum or a choice; or without."""
        shape = self.shapes[source]
        rows, kind = shape[-1], self.chance.choice(("", "causal", "padding"))
        if not kind:
            return source
        away = np.triu(np.ones((rows, rows), bool), 1)
        if kind == "padding":
            away = np.arange(rows)[None, None, None, :] >= self.chance.randint(1, rows)
        lowest = self.chance.choice((-1e4, -1e9, float(np.finfo(np.float32).min)))
        if self.chance.random() < 0.5:
            mask = self.hold(np.where(away, lowest, 0).astype(np.float32), "mask")
            made = self.node("Add", [source, mask], shape)
        else:
            excluded = self.hold(np.array(lowest, np.float32), "lowest")
            made = self.node("Where", [self.hold(~away, "mask"), source, excluded], shape)
        self.scales[made] = self.scales[source]
        return made

    def reshaped(self, source: str, shape: tuple[int, ...]) -> str:
        """A Reshape, unquantised."""
        made = self.node("Reshape", [source, self.hold(np.array(shape), "shape")], shape)
        self.scales[made] = self.scales[source]
        return made
