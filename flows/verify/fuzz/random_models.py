"""Random quantised ONNX models (QDQ form), as exporters write them, to test the import too.

A model grows step by step from its seed. The same seed with fewer steps gives a prefix of the
model, so a failure is reduced to the fewest steps that fail.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .constant_producers import PRODUCERS

Grow = Callable[[str], str]
"""Adds a step behind a value and returns the name of its result."""

MAX_STEPS = 6
MAX_ACTIVATION = 4000

RESIZE_MODES = (
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_ceil"),
    ("half_pixel", "round_prefer_floor"),
    ("align_corners", "floor"),
)
"""Coordinate and rounding modes of Resize: mostly copies, the last one rarely."""


def random_model(seed: int, steps: int = MAX_STEPS) -> bytes:
    """A serialised model of at most `steps` quantised operators, input `x`, float32 outputs.

    Parameters
    ----------
    seed
        The same seed gives the same model.
    steps
        Fewer steps give the beginning of the same model.
    """
    return GrowingModel(seed).model(steps)


class GrowingModel:
    """A model under construction; values are float names, with shapes.

    Q/DQ follows every operator, as ONNX Runtime's static quantiser writes it; `styled_models` has
    other quantisers' styles.
    """

    opset = 18

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.scales: dict[str, float] = {}
        self.unsigned = self.chance.random() < 0.3
        self.count = 0

    def model(self, steps: int) -> bytes:
        """Grow at most `steps` operators and return the file."""
        chance = self.chance
        shape = (
            chance.choice((1, 1, 2)), chance.choice((1, 3, 4, 8, 13)), chance.randint(1, 12),
            chance.randint(1, 12),
        )  # fmt: skip
        self.shapes["x"] = shape
        current = self.quantised("x", 0.05)
        wanted = chance.randint(1, MAX_STEPS)
        for _ in range(min(wanted, steps)):
            current = chance.choice(self.kinds(current))(current)
        if not self.nodes:
            current = self.function(current)
        outputs = [current]
        if chance.random() < 0.3:
            outputs.append(chance.choice([n for n in self.scales if n != current] or [current]))
        held = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        graph = helper.make_graph(
            self.nodes,
            f"random-{len(self.nodes)}",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(outputs)],
            held,
        )
        sets = [helper.make_opsetid(*each) for each in (("", self.opset), ("com.microsoft", 1))]
        return self.finished(helper.make_model(graph, opset_imports=sets, ir_version=10))

    def finished(self, model: onnx.ModelProto) -> bytes:
        """Return the file of a complete model."""
        return model.SerializeToString()

    def kinds(self, source: str) -> Sequence[Grow]:
        """Return the steps that may follow a value."""
        image = len(self.shapes[source]) == 4
        convolution, residual, dense = self.convolution, self.residual, self.dense
        if not image:
            return dense, dense, self.function, self.product, residual
        return (
            convolution, convolution, convolution, convolution, self.pool, residual, residual,
            self.function, self.joined, self.resized, self.halved, self.global_pool, self.flatten,
            self.product,
        )  # fmt: skip

    # Pieces ------------------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        """Return an unused name."""
        self.count += 1
        return f"{kind}_{self.count}"

    def hold(self, array: np.ndarray, kind: str) -> str:
        """Add a constant and return its name."""
        name = self.name(kind)
        self.held[name] = array
        return name

    def node(
        self,
        operator: str,
        inputs: list[str],
        shape: tuple[int, ...],
        results: int = 1,
        **attributes,
    ) -> str:
        """Add a node and return the name of its first result, which has this shape."""
        names = [self.name(operator) for _ in range(results)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        self.shapes |= dict.fromkeys(names, shape)
        return names[0]

    def quantised(self, source: str, scale: float) -> str:
        """QuantizeLinear and DequantizeLinear, as after every operator."""
        kind = np.uint8 if self.unsigned else np.int8
        low, high = (0, 255) if self.unsigned else (-128, 127)
        zero = self.chance.choice((low, (low + high + 1) // 2, self.chance.randint(low, high)))
        held = [
            self.hold(np.array(scale, np.float32), "scale"),
            self.hold(np.array(zero, kind), "zero"),
        ]
        shape = self.shapes[source]
        integers = self.node("QuantizeLinear", [source, *held], shape)
        result = self.node("DequantizeLinear", [integers, *held], shape)
        self.scales[result] = float(np.float32(scale))
        return result

    def operand(self, source: str, depthwise: bool = False) -> str:
        """The operand of a product that holds a value; quantised already in this style."""
        return source

    def weights(self, source: str, shape: tuple[int, ...], axis: int) -> tuple[str, str]:
        """Dequantised weights and bias; per channel or per tensor."""
        channels = shape[axis]
        per_channel = self.chance.random() < 0.7
        count = (channels,) if per_channel else ()
        taps = int(np.prod(shape)) // channels
        scale = self.numbers.uniform(0.005, 0.02, count).astype(np.float32) / np.sqrt(taps)
        scale = np.asarray(scale, np.float32)
        integers = self.numbers.integers(-127, 128, shape).astype(np.int8)
        zero = np.zeros(count, np.int8)
        attributes = {"axis": axis} if per_channel else {}
        named = [self.hold(integers, "w"), self.hold(scale, "ws"), self.hold(zero, "wz")]
        made = self.node("DequantizeLinear", named, shape, **attributes)
        bias = self.numbers.integers(-3000, 3001, channels).astype(np.int32)
        bias_scale = np.asarray(scale * np.float32(self.scales[source]), np.float32)
        zero = np.zeros(count, np.int32)
        named = [self.hold(bias, "b"), self.hold(bias_scale, "bs"), self.hold(zero, "bz")]
        attributes = {"axis": 0} if per_channel else {}
        return made, self.node("DequantizeLinear", named, (channels,), **attributes)

    def activated(self, source: str) -> str:
        """Sometimes a Relu or Clip before the next quantisation."""
        shape, chosen = self.shapes[source], self.chance.random()
        if chosen < 0.3:
            return self.node("Relu", [source], shape)
        if chosen < 0.45:
            ends = [self.hold(np.array(end, np.float32), "end") for end in (0.0, 6.0)]
            return self.node("Clip", [source, *ends], shape)
        return source

    def constant(self, shape: tuple[int, ...]) -> str:
        """A constant that is quantised like an activation, computed in any way."""
        made = PRODUCERS[self.chance.choice(list(PRODUCERS))](self, shape)
        return self.quantised(made, self.chance.uniform(0.02, 0.06))

    # Steps -------------------------------------------------------------------------------------

    def convolution(self, source: str) -> str:
        """A convolution, dense or depthwise."""
        chance, (n, channels, height, width) = self.chance, self.shapes[source]
        kernel = [chance.randint(1, min(4, height)), chance.randint(1, min(4, width))]
        depthwise = chance.random() < 0.3
        group = channels if depthwise else 1
        made = channels if depthwise else chance.choice((1, 4, 7, 8, 16))
        strides = [chance.choice((1, 1, 2)), chance.choice((1, 1, 2))]
        pads = [k // 2 for k in kernel * 2] if chance.random() < 0.6 else [0, 0, 0, 0]
        shape = (n, made, *_extents((height, width), kernel, strides, pads))
        weights = (made, channels // group, *kernel)
        source = self.operand(source, depthwise)
        inputs = [source, *self.weights(source, weights, 0)]
        out = self.node(
            "Conv", inputs, shape, kernel_shape=kernel, strides=strides, pads=pads, group=group
        )
        return self.quantised(self.activated(out), chance.uniform(0.01, 0.06))

    def pool(self, source: str) -> str:
        """A pool of windows; a maximum keeps its operand's scale."""
        chance, (n, channels, height, width) = self.chance, self.shapes[source]
        kernel = [chance.randint(1, min(3, height)), chance.randint(1, min(3, width))]
        strides = [chance.choice((1, 2)), chance.choice((1, 2))]
        operator = chance.choice(("MaxPool", "MaxPool", "AveragePool"))
        shape = (n, channels, *_extents((height, width), kernel, strides, [0, 0, 0, 0]))
        out = self.node(operator, [source], shape, kernel_shape=kernel, strides=strides)
        if operator == "AveragePool":
            return self.quantised(out, chance.uniform(0.01, 0.06))
        self.scales[out] = self.scales[source]
        return out

    def global_pool(self, source: str) -> str:
        """The mean of each channel."""
        shape = (*self.shapes[source][:2], 1, 1)
        out = self.averaged(self.node("GlobalAveragePool", [source], shape))
        return self.quantised(out, self.chance.uniform(0.01, 0.06))

    def averaged(self, source: str) -> str:
        """An average as it is quantised."""
        return source

    def residual(self, source: str) -> str:
        """A sum or difference with a value of the same shape, itself or a constant."""
        shape, operator = self.shapes[source], self.chance.choice(("Add", "Add", "Sub"))
        alike = [name for name in self.scales if self.shapes[name] == shape]
        other = self.chance.choice(alike)
        operands = [source, self.constant(shape) if self.chance.random() < 0.4 else other]
        self.chance.shuffle(operands)
        out = self.node(operator, operands, shape)
        return self.quantised(self.activated(out), self.chance.uniform(0.02, 0.12))

    def joined(self, source: str) -> str:
        """Concatenation of values with the same pixels, sometimes with repetitions."""
        n, _, *pixels = self.shapes[source]
        alike = [name for name in self.scales if list(self.shapes[name][2:]) == pixels]
        count = self.chance.choice((1, 1, 2))
        parts = [source, *(self.chance.choice(alike) for _ in range(count))]
        if self.chance.random() < 0.2:
            parts.append(self.constant(self.shapes[source]))
        self.chance.shuffle(parts)
        channels = sum(self.shapes[part][1] for part in parts)
        out = self.node("Concat", parts, (n, channels, *pixels), axis=1)
        return self.quantised(self.activated(out), self.chance.uniform(0.02, 0.08))

    def halved(self, source: str) -> str:
        """One of two parts of the channels; the other may be read later."""
        n, channels, *pixels = self.shapes[source]
        if channels < 2:
            return source
        first = self.chance.randint(1, channels - 1)
        sizes = self.hold(np.array([first, channels - first], np.int64), "sizes")
        results = [self.name("Split") for _ in range(2)]
        self.nodes.append(helper.make_node("Split", [source, sizes], results, axis=1))
        for result, size in zip(results, (first, channels - first), strict=True):
            self.shapes[result] = (n, size, *pixels)
            self.scales[result] = self.scales[source]
        return self.chance.choice(results)

    def resized(self, source: str) -> str:
        """Nearest-pixel resizing; sometimes unquantised, as some exporters write it."""
        chance, (n, channels, height, width) = self.chance, self.shapes[source]
        factors = chance.choice(((2, 2), (2, 2), (1, 2), (3, 1), (1.5, 2)))
        rows, columns = int(height * factors[0]), int(width * factors[1])
        if n * channels * rows * columns > MAX_ACTIVATION:
            return source
        coordinates, rounding = chance.choice(RESIZE_MODES)
        scales = self.hold(np.array([1, 1, *factors], np.float32), "scales")
        out = self.node(
            "Resize",
            [source, "", scales],
            (n, channels, rows, columns),
            mode="nearest",
            coordinate_transformation_mode=coordinates,
            nearest_mode=rounding,
        )
        if chance.random() < 0.5:
            return self.quantised(out, chance.uniform(0.02, 0.06))
        self.scales[out] = self.scales[source]
        return out

    def function(self, source: str) -> str:
        """An elementwise function with a range of about 1."""
        operator = self.chance.choice(("Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Relu"))
        out = self.node(operator, [source], self.shapes[source])
        return self.quantised(out, self.chance.uniform(0.004, 0.02))

    def flatten(self, source: str) -> str:
        """An image as rows, unquantised."""
        n, *rest = self.shapes[source]
        out = self.node("Flatten", [source], (n, int(np.prod(rest))), axis=1)
        self.scales[out] = self.scales[source]
        return out

    def product(self, source: str) -> str:
        """A product with quantised constants, one matrix or a batch of them."""
        *outer, depth = self.shapes[source]
        columns = self.chance.choice((1, 5, 8, 12))
        batch = tuple(outer[:-1]) if self.chance.random() < 0.5 else ()
        weights = self.constant((*batch, depth, columns))
        out = self.node("MatMul", [self.operand(source), weights], (*outer, columns))
        return self.quantised(self.activated(out), self.chance.uniform(0.05, 0.2))

    def dense(self, source: str) -> str:
        """A dense layer with a bias."""
        n, inner = self.shapes[source]
        columns = self.chance.choice((1, 5, 8, 12))
        source = self.operand(source)
        weights, bias = self.weights(source, (columns, inner), 0)
        out = self.node("Gemm", [source, weights, bias], (n, columns), transB=1)
        return self.quantised(self.activated(out), self.chance.uniform(0.01, 0.06))


def _extents(size, kernel, strides, pads) -> tuple[int, int]:
    y, x = ((size[i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i in range(2))
    return y, x
