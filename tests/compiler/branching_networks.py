"""Small quantised networks whose branches meet again, as exporters write them (QDQ form)."""

import numpy as np
import onnx

from .onnx_models import floats, model, node, value

Shape = tuple[int, int, int, int]
Pair = tuple[int, int]


class Network:
    """A model being made; values are float names behind a DequantizeLinear.

    Parameters
    ----------
    shape
        float32[N, C, H, W] of the input `x`.
    even
        Whether all activations have one quantisation, or each its own.
    """

    def __init__(self, shape: Shape, *, even: bool) -> None:
        self.chance = np.random.default_rng(7)
        self.even = even
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, np.ndarray] = {}
        self.shape = shape
        self.channels = {"x": shape[1]}
        self.x = self._quantised("x", shape[1])

    def _add(self, operator: str, inputs: list[str], channels: int, **attributes) -> str:
        result = f"{operator}{len(self.nodes)}"
        self.nodes.append(node(operator, inputs, [result], name=f"node {result}", **attributes))
        self.channels[result] = channels
        return result

    def _hold(self, array: np.ndarray) -> str:
        name = f"held{len(self.held)}"
        self.held[name] = array
        return name

    def _quantised(self, source: str, channels: int) -> str:
        scale = 0.04 if self.even else self.chance.uniform(0.02, 0.06)
        zero = 0 if self.even else self.chance.integers(-30, 30)
        held = [self._hold(np.array(scale, np.float32)), self._hold(np.array(zero, np.int8))]
        integers = self._add("QuantizeLinear", [source, *held], channels)
        return self._add("DequantizeLinear", [integers, *held], channels)

    def conv(self, source: str, channels: int, kernel: int = 3, stride: int = 1) -> str:
        """Convolution with per-channel weights, and Relu."""
        depth = self.channels[source]
        taps = depth * kernel * kernel
        weights = self.chance.integers(-127, 128, (channels, depth, kernel, kernel))
        scales = self.chance.uniform(0.7, 1.3, channels) / 73 / np.sqrt(taps)
        held = [
            self._hold(weights.astype(np.int8)),
            self._hold(scales.astype(np.float32)),
            self._hold(np.zeros(channels, np.int8)),
        ]
        kernels = self._add("DequantizeLinear", held, channels, axis=0)
        out = self._add(
            "Conv",
            [source, kernels],
            channels,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )
        return self._quantised(self._add("Relu", [out], channels), channels)

    def transposed(
        self, source: str, channels: int, kernel: Pair, stride: Pair, groups: int = 1, **window
    ) -> str:
        """Transposed convolution with weights per channel, and Relu."""
        depth = self.channels[source]
        taps = depth // groups * np.prod(kernel) / np.prod(stride)
        weights = self.chance.integers(-127, 128, (depth, channels // groups, *kernel))
        scales = self.chance.uniform(0.7, 1.3, channels // groups) / 73 / np.sqrt(taps)
        held = [
            self._hold(weights.astype(np.int8)),
            self._hold(scales.astype(np.float32)),
            self._hold(np.zeros(channels // groups, np.int8)),
        ]
        kernels = self._add("DequantizeLinear", held, channels, axis=1)
        out = self._add(
            "ConvTranspose",
            [source, kernels],
            channels,
            kernel_shape=[*kernel],
            strides=[*stride],
            group=groups,
            **window,
        )
        return self._quantised(self._add("Relu", [out], channels), channels)

    def shuffled(self, source: str, mode: str, block: int = 2) -> str:
        """Pixels from channels."""
        channels = self.channels[source] // block**2
        return self._add("DepthToSpace", [source], channels, blocksize=block, mode=mode)

    def shrunk(self, source: str) -> str:
        """Maximum of two by two pixels."""
        channels = self.channels[source]
        out = self._add("MaxPool", [source], channels, kernel_shape=[2, 2], strides=[2, 2])
        return self._quantised(out, channels) if not self.even else out

    def grown(self, source: str, factor: int = 2) -> str:
        """Each pixel several times."""
        scales = self._hold(floats([1, 1, factor, factor]))
        out = self._add(
            "Resize",
            [source, "", scales],
            self.channels[source],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        return self._quantised(out, self.channels[source]) if not self.even else out

    def halves(self, source: str) -> tuple[str, str]:
        """The first half of the channels, and the second."""
        channels = self.channels[source] // 2
        results = f"first{len(self.nodes)}", f"second{len(self.nodes)}"
        self.nodes.append(node("Split", [source], [*results], name="node split", axis=1))
        self.channels |= dict.fromkeys(results, channels)
        return results

    def joined(self, *sources: str) -> str:
        """Side by side along channels."""
        channels = sum(self.channels[source] for source in sources)
        return self._quantised(self._add("Concat", [*sources], channels, axis=1), channels)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished model."""
        shown = [value("x", np.float32, self.shape)]
        return model(self.nodes, shown, outputs, self.held)


def unet(base: int = 16, size: int = 16, *, even: bool = True) -> onnx.ModelProto:
    """Two levels down, two up, with what was there before beside what comes up."""
    made = Network((1, 3, size, size), even=even)
    first = made.conv(made.x, base)
    second = made.conv(made.shrunk(first), 2 * base)
    deep = made.conv(made.shrunk(second), 2 * base)
    middle = made.conv(made.joined(made.grown(deep), second), base)
    top = made.conv(made.joined(made.grown(middle), first), base)
    return made.model(made.conv(top, 2, kernel=1))


def fire(squeezed: int = 16, expanded: int = 32, *, even: bool = True) -> onnx.ModelProto:
    """Two fire modules of SqueezeNet, and a pool between."""
    made = Network((1, 8, 14, 14), even=even)
    value_ = made.conv(made.x, 2 * squeezed, stride=2)
    for _ in range(2):
        narrow = made.conv(value_, squeezed, kernel=1)
        wide = made.joined(made.conv(narrow, expanded, kernel=1), made.conv(narrow, expanded))
        value_ = made.shrunk(wide) if value_ != wide else wide
    return made.model(made.conv(value_, 10, kernel=1))


def dense_block(growth: int = 12, layers: int = 4, *, even: bool = True) -> onnx.ModelProto:
    """Every layer reads all before it, as in DenseNet."""
    made = Network((1, 8, 12, 12), even=even)
    known = made.conv(made.x, 2 * growth)
    for _ in range(layers):
        known = made.joined(known, made.conv(made.conv(known, 2 * growth, kernel=1), growth))
    return made.model(made.conv(known, 10, kernel=1))


def pyramid(base: int = 16, *, even: bool = True) -> onnx.ModelProto:
    """Two outputs at two scales, the coarser one brought up beside the finer, as in YOLO."""
    made = Network((1, 3, 32, 24), even=even)
    fine = made.conv(made.conv(made.x, base, stride=2), 2 * base, stride=2)
    coarse = made.conv(fine, 4 * base, stride=2)
    beside = made.joined(made.grown(made.conv(coarse, base, kernel=1)), fine)
    return made.model(made.conv(coarse, 9, kernel=1), made.conv(beside, 9, kernel=1))


def cross_stage(base: int = 16, *, even: bool = True) -> onnx.ModelProto:
    """Half of the channels goes through two layers more, and all meet, as in later YOLOs."""
    made = Network((1, 8, 16, 12), even=even)
    first, second = made.halves(made.conv(made.x, 2 * base))
    third = made.conv(second, base)
    fourth = made.conv(third, base)
    together = made.joined(first, second, third, fourth)
    return made.model(made.conv(together, 9, kernel=1))


def decoder(base: int = 16, *, even: bool = True) -> onnx.ModelProto:
    """Transposed convolutions of many forms, and pixels from channels, as decoders have them."""
    made = Network((1, 8, 5, 6), even=even)
    first = made.conv(made.x, 2 * base)
    second = made.transposed(first, base, (2, 2), (2, 2))
    third = made.transposed(second, base, (3, 3), (2, 2), base, pads=[1] * 4, output_padding=[1, 1])
    fourth = made.transposed(third, 12, (1, 5), (1, 2), 2, pads=[0, 2, 0, 2])
    fifth = made.transposed(fourth, base, (4, 3), (2, 1), pads=[1, 1, 1, 1])
    beside = made.shuffled(made.conv(fifth, 8, kernel=1), "DCR")
    below = made.shuffled(made.conv(fifth, 20, kernel=1), "CRD")
    ends = [made.conv(each, 4, kernel=1) for each in (beside, below)]
    return made.model(*ends, made.transposed(second, 2, (4, 4), (2, 2), pads=[1] * 4))


NETWORKS = {
    "decoder": decoder,
    "unet": unet,
    "fire": fire,
    "dense block": dense_block,
    "pyramid": pyramid,
    "cross stage": cross_stage,
}
