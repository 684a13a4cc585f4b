"""Operators that ONNX does not have, inside a network: registered once, and there in every part.

The network has two convolutions, the activation squareplus (J. T. Barron, 2021) between them, and
the local correlation of both results, as networks for optical flow have (A. Dosovitskiy et al.,
FlowNet, 2015). ONNX knows neither squareplus nor the correlation. A law declares the first, a
kernel in index notation the second, once in floats and once in integers. Then the network is
quantised, compiled and run, and every layer is compared with the integer reference, bit by bit.

    python examples/own_operators.py                    # functional simulation, exact cycles
    python examples/own_operators.py --device rtl       # the hardware itself, under Verilator
    python examples/own_operators.py --device host       # machine code for this processor

Every command that takes a model takes this file too:

    tilewright run MODEL --operators examples/own_operators.py --calibrate SAMPLES --compare
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright import register_operator, te
from tilewright.flows.cli.main import main as tilewright

DOMAIN = "com.example"

register_operator(
    "SquarePlus", domain=DOMAIN, law="(x + sqrt(x * x + b)) / 2", parameters={"b": 4.0}
)


def windows(a, b, radius: int):
    """Sum `a * b` over the window around each pixel; outside the image there are zeros."""
    n, y, x, c = te.axes(**dict(zip("nyxc", a.shape, strict=True)))
    ky, kx = te.reduce_axes(ky=2 * radius + 1, kx=2 * radius + 1)
    place = (n, y + ky - radius, x + kx - radius, c)
    return (n, y, x, c), te.sum(a[place] * b[place], over=(ky, kx))


def correlation(a, b, radius: int):
    """Declare the local correlation of two float tensors [N, H, W, C]."""
    axes, total = windows(a, b, radius)
    return te.kernel("correlation", te.compute("out", "float32", axes, total))


def correlation_int8(a, b, radius: int, quantisation):
    """Declare it in integers. The quantiser gives the operands of a kernel the zero point 0."""
    axes, total = windows(a, b, radius)
    first, second = quantisation.inputs
    result = quantisation.output
    scale = te.tensor("scale", "float32", a.shape[3:])
    value = te.requantise(total, scale[axes[3]]) + result.zero_point
    value = te.clamp(value, quantisation.low, quantisation.high)
    factor = np.full(a.shape[3:], first.scale * second.scale / result.scale, np.float32)
    out = te.compute("out", "int8", axes, value)
    return te.kernel("correlation", out, constants={"scale": factor})


register_operator(
    "Correlation",
    domain=DOMAIN,
    kernel=correlation,
    quantised=correlation_int8,
    parameters={"radius": 1},
)


def network() -> onnx.ModelProto:
    """Make a small float network with both operators."""
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (generator.normal(size=shape) * 0.3).astype(np.float32)

    weights: Mapping[str, np.ndarray] = {
        **{"w1": normal(8, 3, 3, 3), "b1": normal(8), "w2": normal(8, 8, 3, 3), "b2": normal(8)},
        **{"w3": normal(4, 8, 3, 3), "b3": normal(4)},
    }
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["a"], name="first", pads=pads),
        helper.make_node("SquarePlus", ["a"], ["b"], name="activation", domain=DOMAIN, b=2.0),
        helper.make_node("Conv", ["b", "w2", "b2"], ["c"], name="second", pads=pads),
        helper.make_node("Correlation", ["b", "c"], ["d"], name="correlation", domain=DOMAIN),
        helper.make_node("Conv", ["d", "w3", "b3"], ["scores"], name="third", pads=pads),
    ]
    graph = helper.make_graph(
        nodes,
        "own_operators",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 4, 12, 12])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def write(folder: Path) -> tuple[Path, Path]:
    """Write the network and samples to calibrate it with, and return their paths."""
    model, samples = folder / "own_operators.onnx", folder / "samples.npz"
    onnx.save(network(), model)
    images = np.random.default_rng(1).normal(size=(16, 3, 12, 12)).astype(np.float32)
    np.savez(samples, image=images)
    return model, samples


def main(arguments: list[str] | None = None) -> int:
    """Quantise the network, run it on a device, and compare every layer."""
    parser = argparse.ArgumentParser(description="a network with operators of one's own")
    parser.add_argument("--device", choices=("sim", "rtl", "host"), default="sim")
    device = parser.parse_args(arguments).device
    with TemporaryDirectory() as folder:
        model, samples = write(Path(folder))
        command = ["run", str(model), "--calibrate", str(samples), "--config", "4x4"]
        return tilewright([*command, "--input", str(samples), "--device", device, "--compare"])


if __name__ == "__main__":
    sys.exit(main())
