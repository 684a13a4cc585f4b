"""Random arrays for kernels, and what convolutions are in binary64."""

import numpy as np

from tilewright.compiler.cpu import Convolution


def new_generator() -> np.random.Generator:
    """What all arrays are drawn from."""
    return np.random.default_rng(7)


GENERATOR = new_generator()


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def whole(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return GENERATOR.integers(limits.min, limits.max + 1, shape).astype(dtype)


def operands_of(layer: Convolution) -> dict[str, np.ndarray]:
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


def convolved(layer: Convolution, arrays: dict) -> np.ndarray:
    """Sums in binary64 with bias, before what follows; zero points taken out of the input."""
    top, left, bottom, right = layer.pads
    zero = 0 if layer.quantised is None else layer.quantised.zero_point_in
    image = arrays["x"].astype(np.float64) - zero
    image = np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows, columns = layer.size_out
    (down, across), (low, wide) = layer.strides, layer.dilations
    total = np.zeros(layer.output.shape) + arrays["bias"]
    for ky in range(layer.kernel[0]):
        for kx in range(layer.kernel[1]):
            part = image[:, ky * low :: down, kx * wide :: across][:, :rows, :columns]
            w = arrays["w"][ky, kx].astype(np.float64)
            total += part * w[0] if layer.is_depthwise else part @ w
    return total


def requantised(layer: Convolution, arrays: dict) -> np.ndarray:
    """The bytes that a quantised layer gives."""
    q = layer.quantised
    assert q is not None
    limits = np.iinfo(q.dtype_out)
    scaled = np.rint(convolved(layer, arrays).astype(np.float32) * arrays["scale"])
    low, high = max(limits.min, q.low), min(limits.max, q.high)
    return np.clip(scaled + q.zero_point_out, low, high).astype(q.dtype_out)
