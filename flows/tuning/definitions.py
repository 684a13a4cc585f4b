"""Definitions of kernels in NumPy, and data on which wrong kernels differ from them.

Sums are exact for integers, and in binary64 for float32. Their epilogue is that of the description,
operation by operation.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...compiler.cpu import (
    Convolution,
    HeadProduct,
    LayerNormalisation,
    MatrixProduct,
    RowReduction,
    RowSoftmax,
)
from ...compiler.cpu.kernels.description import Array, TunableDescription
from ...compiler.cpu.kernels.epilogue import Extent
from ...compiler.cpu.kernels.product import Product
from ...compiler.formulas import OPERATIONS, Formula

Arrays = dict[str, np.ndarray]

SUM_ERROR = 8e-7
"""Error of a float32 sum for each root of its terms, relative to the sum of magnitudes."""
VALUE_ERROR, SMALL_ERROR = 1e-5, 1e-6
"""Error of an epilogue relative to its value, and near zero."""

NARROW_SUM = 1 << 24
"""Sums of descriptions that are `narrow` stay below this."""

_MORE = {
    "real": lambda x: np.asarray(x).astype(np.float32),
    "single": lambda x: np.asarray(x).astype(np.float32),
    "rounded": lambda x: np.rint(x).astype(np.int64),
}
"""Operations that occur in epilogues only."""


@dataclass(frozen=True, slots=True)
class ExpectedResult:
    """The result of a kernel.

    Parameters
    ----------
    values
        The values, in float64 or int64.
    error
        The largest difference that rounding explains, for each value.
    """

    values: np.ndarray
    error: np.ndarray

    def difference(self, got: np.ndarray) -> str:
        """Say how a result differs; nothing if it does not."""
        apart = np.abs(got.astype(np.float64) - self.values)
        wrong = ~(apart <= self.error)  # also where it is not a number
        count = int(np.count_nonzero(wrong))
        if not count:
            return ""
        place = tuple(int(one) for one in np.argwhere(wrong)[0])
        return (
            f"{count:,} of {wrong.size:,} values differ from the definition, first "
            f"{got[place]} instead of {self.values[place]:g} at {list(place)}"
        )


def has_definition(kernel: TunableDescription) -> bool:
    """Whether `expected_of` knows every operation of a kernel."""
    if isinstance(kernel, MatrixProduct) and kernel.limit:
        return False
    if isinstance(kernel, Product | HeadProduct):
        return _is_known(kernel.epilogue.formula)
    return isinstance(kernel, RowSoftmax | LayerNormalisation | RowReduction)


def _is_known(formula: Formula) -> bool:
    if not isinstance(formula, tuple):
        return True
    name, *arguments = formula
    return (name in OPERATIONS or name in _MORE) and all(map(_is_known, arguments))


def expected_of(kernel: TunableDescription, arrays: Mapping[str, np.ndarray]) -> ExpectedResult:
    """Compute a kernel by its definition."""
    if isinstance(kernel, Product | HeadProduct):
        return _product(kernel, arrays)
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    if isinstance(kernel, RowSoftmax):
        values, scale = _softmax(kernel, wide["x"]), 0.0
    elif isinstance(kernel, RowReduction):
        values, scale = _reduction(kernel, wide["x"])
    elif isinstance(kernel, LayerNormalisation):
        values, scale = _normalisation(kernel, **wide)
    else:
        raise TypeError(f"{type(kernel).__name__} has no definition")
    return ExpectedResult(values, VALUE_ERROR * (np.abs(values) + scale) + SMALL_ERROR)


def _softmax(kernel: RowSoftmax, x: np.ndarray) -> np.ndarray:
    apart = x - x.max(axis=1, keepdims=True)
    total = np.exp(apart).sum(axis=1, keepdims=True)
    return apart - np.log(total) if kernel.log else np.exp(apart) / total


def _reduction(kernel: RowReduction, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the reductions, and magnitudes that their errors are relative to."""
    x = x.reshape(kernel.rows, kernel.columns, kernel.inner)
    if kernel.kind in ("max", "min"):
        return getattr(x, kernel.kind)(axis=1), np.zeros(())
    terms = x * x if kernel.kind in ("squares", "length") else x
    change = {"mean": lambda total: total / kernel.columns, "length": np.sqrt}
    changed = change.get(kernel.kind, lambda total: total)
    return changed(terms.sum(axis=1)), changed(np.abs(terms).sum(axis=1))


def _normalisation(
    kernel: LayerNormalisation, x: np.ndarray, scale: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the normalised rows, and magnitudes that their errors are relative to."""
    if kernel.by_row:
        scale, bias = scale[:, np.newaxis], bias[:, np.newaxis]
    centred = x - x.mean(axis=1, keepdims=True) if kernel.centred else x
    factor = scale / np.sqrt((centred**2).mean(axis=1, keepdims=True) + kernel.epsilon)
    magnitude = np.abs(x).max(axis=1, keepdims=True) * np.abs(factor) + np.abs(bias)
    return centred * factor + bias, magnitude


def _product(product: Product | HeadProduct, arrays: Mapping[str, np.ndarray]) -> ExpectedResult:
    left, right = (arrays[name] for name in list(product.operands)[:2])
    total = sums_of(product, left, right)
    is_real = product.dtype == "float32"
    if not is_real:
        total = np.rint(total).astype(np.int64)
    values = _epilogue(product, arrays, total)
    if product.output.dtype != "float32":
        # A residual is added in float32, perhaps fused, which may change how a half is rounded.
        adds = any(one.extent is Extent.SUMS for one in product.epilogue.operands)
        return ExpectedResult(values, np.full(values.shape, float(adds)))
    error = VALUE_ERROR * np.abs(values) + SMALL_ERROR
    if is_real:
        sizes = sums_of(product, np.abs(left), np.abs(right))
        bias = np.abs(arrays["bias"]) if "bias" in arrays else 0.0
        slack = (
            SUM_ERROR * math.sqrt(product.macs / math.prod(product.output.shape)) * (sizes + bias)
        )
        near = [_epilogue(product, arrays, total + sign * slack) for sign in (-1, 1)]
        error = error + np.maximum(*(np.abs(one - values) for one in near))
    return ExpectedResult(values, error)


def sums_of(product: Product | HeadProduct, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sums of a product in float64, which is exact for bytes."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    if isinstance(product, HeadProduct):
        return _head_sums(product, x, w)
    if isinstance(product, MatrixProduct):
        return x @ w
    assert isinstance(product, Convolution)
    if product.planes:
        x = x.transpose(0, 2, 3, 1)
    top, left, bottom, right = product.pads
    borders = ((0, 0), (top, bottom), (left, right), (0, 0))
    image = np.pad(x, borders, constant_values=product.zero_point)
    rows, columns = product.size_out
    (down, across), (low, wide) = product.strides, product.dilations
    groups, per_group = product.groups, product.channels_in // product.groups
    total = np.zeros((*product.output.shape[:3], groups, product.channels_out // groups))
    weights = w.reshape(*product.kernel, per_group, groups, -1)
    for ky in range(product.kernel[0]):
        for kx in range(product.kernel[1]):
            part = image[:, ky * low :: down, kx * wide :: across][:, :rows, :columns]
            part = part.reshape(*part.shape[:3], groups, per_group)
            if per_group == 1:
                total += part * weights[ky, kx, 0]
            else:
                total += np.einsum("nyxgi,igo->nyxgo", part, weights[ky, kx], optimize=True)
    return total.reshape(product.output.shape)


def _head_sums(product: HeadProduct, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    joined = (0, 2, 1, 3)  # heads lie inside of rows
    (za, zb), (a_joined, b_joined, out_joined) = product.zero_points, product.joined
    left = (a.transpose(joined) if a_joined else a) - za
    right = (b.transpose(joined) if b_joined else b) - zb
    total = left @ (right.swapaxes(2, 3) if product.transposed else right)
    return total.transpose(joined) if out_joined else total


def _epilogue(
    product: Product | HeadProduct, arrays: Mapping[str, np.ndarray], total: np.ndarray
) -> np.ndarray:
    known = {"sum": total, **{one.name: arrays[one.name] for one in product.epilogue.operands}}
    return np.asarray(_value(product.epilogue.formula, known))


def _value(formula: Formula, known: Mapping[str, np.ndarray]) -> np.ndarray:
    if isinstance(formula, str):
        return known[formula]
    if not isinstance(formula, tuple):
        return np.asarray(formula)
    name, *arguments = formula
    operation = _MORE.get(name) or OPERATIONS[name]
    return operation(*(_value(one, known) for one in arguments))


def data_of(product: TunableDescription, seed: int) -> Iterator[Arrays]:
    """Yield arrays for all operands: random ones, extremes, and a single number among zeros."""
    generator = np.random.default_rng(seed)
    yield _arrays(product, generator, lambda array: _random(array, generator))
    yield _arrays(product, generator, lambda array: _extreme(array, generator))
    yield _arrays(product, generator, lambda array: _impulse(array, generator))


def _arrays(
    product: TunableDescription,
    generator: np.random.Generator,
    activations: Callable[[Array], np.ndarray],
) -> Arrays:
    made: Arrays = {}
    weights = product.operands.get("w")
    taps = math.prod(weights.shape[:-1]) if weights else 1
    for name, array in product.operands.items():
        if name not in product.constants and name not in ("w", "scale", "bias"):
            made[name] = activations(array)
        elif name == "w" and array.dtype != "float32" and isinstance(product, Product):
            most = 63 if product.small_pairs else np.iinfo(array.dtype).max
            if getattr(product, "narrow", False):
                most = max(1, min(most, NARROW_SUM // (512 * taps)))
            made[name] = generator.integers(-most, most + 1, array.shape).astype(array.dtype)
        elif name == "scale" and weights:
            spread = generator.uniform(0.5, 1.5, array.shape)
            made[name] = (spread / (4000 * math.sqrt(taps))).astype(np.float32)
        elif name == "bias" and array.dtype == "int32":
            made[name] = generator.integers(-1000, 1000, array.shape).astype(np.int32)
        else:
            made[name] = _random(array, generator)
    return made


def _random(array, generator: np.random.Generator) -> np.ndarray:
    if array.dtype == "float32":
        return generator.standard_normal(array.shape).astype(np.float32)
    limits = np.iinfo(array.dtype)
    return generator.integers(limits.min, int(limits.max) + 1, array.shape).astype(array.dtype)


def _extreme(array, generator: np.random.Generator) -> np.ndarray:
    """The largest and the smallest numbers; large ones that cancel."""
    low, high = (-1e3, 1e3) if array.dtype == "float32" else _limits(array.dtype)
    return np.where(generator.random(array.shape) < 0.5, low, high).astype(array.dtype)


def _impulse(array, generator: np.random.Generator) -> np.ndarray:
    """One number among zeros, at the last place: wrong places and borders show."""
    found = np.zeros(array.shape, array.dtype)
    found.reshape(-1)[-1] = 1 if array.dtype == "float32" else _limits(array.dtype)[1]
    return found


def _limits(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
