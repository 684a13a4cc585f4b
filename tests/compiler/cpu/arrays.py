"""Random arrays for kernels, and what products are in binary64."""

from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from tilewright.compiler.cpu import Convolution, MatrixProduct, Requantisation, Residual

Layer = TypeVar("Layer", bound=Convolution | MatrixProduct)


class Bytes(NamedTuple):
    """Numbers of a layer of bytes: type and zero point of its input, and its rounding."""

    dtype: str
    zero_point: int
    rounding: Requantisation


def with_bytes(layer: Layer, numbers: Bytes, added: Residual | None = None) -> Layer:
    layer = replace(layer, dtype=numbers.dtype, epilogue=numbers.rounding.epilogue(added))
    if isinstance(layer, Convolution):
        return replace(layer, zero_point=numbers.zero_point)
    return layer


def new_generator() -> np.random.Generator:
    """What all arrays are drawn from."""
    return np.random.default_rng(7)


GENERATOR = new_generator()


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def whole(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return GENERATOR.integers(limits.min, limits.max + 1, shape).astype(dtype)


def operands_of(layer: Convolution | MatrixProduct) -> dict[str, np.ndarray]:
    """Arrays for every operand; scales that spread the output over its range."""
    made = {}
    for name, array in layer.operands.items():
        if array.dtype == "float32":
            made[name] = normal(*array.shape)
        elif name == "bias":
            made[name] = GENERATOR.integers(-1000, 1000, array.shape).astype(np.int32)
        else:
            made[name] = whole(array.dtype, *array.shape)
    if "scale" in made:
        taps = np.prod(layer.operands["w"].shape) / layer.operands["bias"].shape[0]
        spread = GENERATOR.uniform(0.5, 1.5, made["scale"].shape) / (60 * 60 * np.sqrt(taps))
        made["scale"] = (40 * spread).astype(np.float32)
    return made


def convolved(layer: Convolution | MatrixProduct, arrays: dict) -> np.ndarray:
    """Sums in binary64 with bias, before what follows; the padding is the zero point."""
    image = arrays["x"].astype(np.float64)
    if isinstance(layer, MatrixProduct):
        return image @ arrays["w"].astype(np.float64) + arrays["bias"]
    top, left, bottom, right = layer.pads
    borders = ((0, 0), (top, bottom), (left, right), (0, 0))
    image = np.pad(image, borders, constant_values=layer.zero_point)
    rows, columns = layer.size_out
    (down, across), (low, wide) = layer.strides, layer.dilations
    total = np.zeros(layer.output.shape) + arrays["bias"]
    for ky in range(layer.kernel[0]):
        for kx in range(layer.kernel[1]):
            part = image[:, ky * low :: down, kx * wide :: across][:, :rows, :columns]
            w = arrays["w"][ky, kx].astype(np.float64)
            total += part * w[0] if layer.is_depthwise else part @ w
    return total


def requantised(
    layer: Convolution | MatrixProduct, arrays: dict, rounding: Requantisation
) -> np.ndarray:
    """The bytes that a quantised layer gives."""
    limits = np.iinfo(rounding.dtype)
    scaled = np.rint(convolved(layer, arrays).astype(np.float32) * arrays["scale"])
    low, high = max(limits.min, rounding.low), min(limits.max, rounding.high)
    return np.clip(scaled + rounding.zero_point, low, high).astype(rounding.dtype)
