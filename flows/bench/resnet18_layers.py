"""ResNet-18's convolution layers as one-node graphs, a common benchmark.

Shapes are those of the 224x224 network (He et al., CVPR 2016, table 1), named C1 to C11 as in the
TVM and VTA papers; weights are random, from a fixed seed.
"""

from dataclasses import dataclass

import numpy as np

from ...compiler.graph import Constant, Graph, Node, Output, QConv, TensorType, Value


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """A square convolution: extents in pixels, channels, and its number in ResNet-18."""

    name: str
    size: int
    channels_in: int
    channels_out: int
    kernel: int
    stride: int
    times: int

    @property
    def padding(self) -> int:
        """Pixels on every side."""
        return self.kernel // 2

    @property
    def size_out(self) -> int:
        """Extent of the output in pixels."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def macs(self) -> int:
        """Multiplications."""
        taps = self.kernel * self.kernel * self.channels_in
        return self.size_out * self.size_out * taps * self.channels_out


RESNET18 = (
    ConvolutionShape("C2", 56, 64, 64, 3, 1, 4),
    ConvolutionShape("C3", 56, 64, 128, 3, 2, 1),
    ConvolutionShape("C4", 56, 64, 128, 1, 2, 1),
    ConvolutionShape("C5", 28, 128, 128, 3, 1, 3),
    ConvolutionShape("C6", 28, 128, 256, 3, 2, 1),
    ConvolutionShape("C7", 28, 128, 256, 1, 2, 1),
    ConvolutionShape("C8", 14, 256, 256, 3, 1, 3),
    ConvolutionShape("C9", 14, 256, 512, 3, 2, 1),
    ConvolutionShape("C10", 14, 256, 512, 1, 2, 1),
    ConvolutionShape("C11", 7, 512, 512, 3, 1, 3),
)
"""C2 to C11; C1 is excluded, because its three input channels do not fill the lanes."""


def layer_graph(shape: ConvolutionShape, seed: int = 0) -> Graph:
    """One quantised convolution with random weights, input `x`, output `out`."""
    generator = np.random.default_rng(seed)
    kernel = (shape.kernel, shape.kernel, shape.channels_in, shape.channels_out)
    spread = 40.0 / np.sqrt(kernel[0] * kernel[1] * kernel[2]) / 73**2
    constants = (
        Constant("w", generator.integers(-127, 128, kernel).astype(np.int8)),
        Constant("bias", generator.integers(-1000, 1000, kernel[3]).astype(np.int32)),
        Constant("scale", np.full(kernel[3], spread, dtype=np.float32)),
    )
    x = Value("x", TensorType("int8", (1, shape.size, shape.size, shape.channels_in)))
    out_shape = (1, shape.size_out, shape.size_out, shape.channels_out)
    out = Value("out", TensorType("int8", out_shape))
    attributes = QConv(
        kind="conv",
        strides=(shape.stride, shape.stride),
        pads=(shape.padding, shape.padding, shape.padding, shape.padding),
        dilations=(1, 1),
        groups=1,
        zero_point_x=3,
        zero_point_y=-4,
    )
    node = Node(shape.name, attributes, ("x", "w", "bias", "scale"), (out,))
    return Graph(shape.name, (x,), (Output("out", "out"),), (node,), constants)
