"""Shared patterns of passes: quantised values, clamps after a layer, constants, layouts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np

from ..graph import Quantisation, TensorType, evaluate_operator
from ..graph import operators as ops
from ..rewriting import (
    GraphPattern,
    GraphView,
    Site,
    constant,
    either,
    first_match,
    op,
    repeated,
    value,
)
from ..rewriting.patterns import NodePattern
from .moved_elements import TURNS, moved_elements

TO_LAST = (0, 2, 3, 1)
"""Transposes [N, C, H, W] to [N, H, W, C]."""

TO_FIRST = (0, 3, 1, 2)
"""Transposes [N, H, W, C] to [N, C, H, W]."""


# Types -------------------------------------------------------------------------------------------


def is_float32(kind: TensorType) -> bool:
    """Tell whether elements are float32."""
    return kind.dtype == "float32"


def is_int8(kind: TensorType) -> bool:
    """Tell whether elements are int8."""
    return kind.dtype == "int8"


def is_uint8(kind: TensorType) -> bool:
    """Tell whether elements are uint8."""
    return kind.dtype == "uint8"


def is_per_tensor(operator: ops.Quantize | ops.Dequantize) -> bool:
    """Tell whether one scale and zero point hold for all elements."""
    return operator.axis is None


# Clamps ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clamp:
    """The limits of Relu and Clip, as real numbers."""

    low: float = -np.inf
    high: float = np.inf

    def bounds(self, target: ops.Quantize) -> tuple[int, int]:
        """Return the limits as integers of `target`.

        This is exact: quantisation is monotone, so a clamp before it equals a clamp after it with
        the quantised limits.
        """
        limits = np.array([self.low, self.high], dtype=np.float32)
        with np.errstate(invalid="ignore"):
            low, high = target.compute(limits)
        return int(low), int(high)

    def after(self, inner: tuple[float, ...]) -> "Clamp":
        """Return the composition of two clamps: `inner` first, then this one."""
        low, high = np.clip(inner, self.low, self.high)
        return Clamp(float(low), float(high))


def is_clamp(operator: ops.Unary) -> bool:
    """Tell whether a function is Relu or Clip."""
    return operator.kind in ("Relu", "Clip")


def clamp_limits(operator: ops.Operator) -> tuple[float, ...]:
    """Return the smallest and largest result of Relu or Clip."""
    assert isinstance(operator, ops.Unary), "Relu and Clip are functions of one value"
    return operator.parameters if operator.kind == "Clip" else (0.0, np.inf)


def clamp_of(operators: tuple[ops.Operator, ...]) -> Clamp:
    """Return the composition of consecutive clamps, given last first."""
    clamp = Clamp()
    for operator in operators:
        clamp = clamp.after(clamp_limits(operator))
    return clamp


CLAMP = op(ops.Unary, value(), where=is_clamp)


def clamped(inner: GraphPattern) -> GraphPattern:
    """Describe a value after any number of clamps, which `clamps` captures."""
    return repeated(CLAMP, inner, "clamps")


# Quantised values --------------------------------------------------------------------------------


def quantised(inner: GraphPattern, by_channel: bool = False) -> NodePattern:
    """Describe a Quantize to int8, `target`, of a value after `clamps`.

    It is per tensor, or by channel if that is allowed.

    An empty tensor does not match, because the accelerator has no loops without iterations.
    """
    return op(
        ops.Quantize,
        clamped(inner),
        capture="target",
        where=lambda target: (by_channel or is_per_tensor(target)) and target.dtype == "int8",
        result=lambda kind: kind.elements > 0,
    )


def dequantised(x: str, *, constant: bool | None = None) -> NodePattern:
    """Describe a per-tensor Dequantize, captured as `<x>_scale`, of an int8 value `x`."""
    return op(
        ops.Dequantize,
        value(x, constant=constant, where=is_int8),
        capture=f"{x}_scale",
        where=is_per_tensor,
    )


def quantisation_of(target: ops.Quantize | ops.Dequantize) -> Quantisation:
    """Return a per-tensor operator's quantisation."""
    return Quantisation(target.scales[0], target.zero_points[0])


def result_of(site: Site) -> tuple[Quantisation, tuple[int, int]]:
    """Return the quantisation of a match of `quantised`, and its limits as integers."""
    target = site["target"]
    return quantisation_of(target), clamp_of(site["clamps"]).bounds(target)


def channels_of(site: Site, axis: int) -> tuple[Quantisation, np.ndarray, tuple[int, int]] | None:
    """Return the quantisation, scales and limits of a match of `quantised` that may be by channel.

    Channels with their own scales count in units of them. None if they are not along the axis, or
    if they have different zero points or limits.
    """
    target: ops.Quantize = site["target"]
    scales, clamp = np.array(target.scales, np.float32), clamp_of(site["clamps"])
    if is_per_tensor(target):
        return quantisation_of(target), scales, clamp.bounds(target)
    limits = {
        (point, *clamp.bounds(replace(target, scales=(scale,), zero_points=(point,), axis=None)))
        for scale, point in zip(target.scales, target.zero_points, strict=True)
    }
    if target.axis != axis or len(limits) != 1:
        return None
    ((point, low, high),) = limits
    return Quantisation(1.0, point), scales, (low, high)


def scale_of(site: Site, x: str) -> Quantisation:
    """Return the quantisation of a match of `dequantised(x)`."""
    return quantisation_of(site[f"{x}_scale"])


def known(capture: str) -> GraphPattern:
    """Describe a constant float32 value, possibly dequantised; see `known_data`."""
    held = op(ops.Dequantize, constant(), value=capture)
    return either(constant(capture, where=is_float32), held)


_KNOWN = known("name")

_HELD = constant("held")
HELD = either(_HELD, op(ops.Dequantize, _HELD, capture="scaling"))
"""A constant, or the Dequantize `scaling` of one."""


def known_data(view: GraphView, name: str) -> np.ndarray | None:
    """Return a constant float32 array, quantised or not; None for other values."""
    match = first_match(_KNOWN, view, name)
    if match is None or not match.nodes:
        return None if match is None else view.data(name)
    (dequantize,) = match.nodes
    return evaluate_operator(dequantize.attributes, [view.data(dequantize.inputs[0])])


def known_number(view: GraphView, name: str) -> np.float32 | None:
    """Return the only element of a float32 constant, quantised or not; None for other values."""
    data = known_data(view, name) if view.types[name].elements == 1 else None
    return None if data is None else data.reshape(-1)[0]


# Layouts -----------------------------------------------------------------------------------------


def to_image(site: Site, x: str, label: str = "") -> str:
    """Emit a reshape of any tensor to rank 4 that keeps the last axis; none for rank 4."""
    shape = site.shape_of(x)
    return x if len(shape) == 4 else site.emit(ops.Reshape(image_shape(shape)), x, label=label)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return [N, 1, middle, C] for a shape: first axis, product of the middle axes, last axis."""
    channels = shape[-1] if shape else 1
    first = shape[0] if len(shape) > 1 else 1
    middle = int(np.prod(shape[1:-1], dtype=np.int64)) if len(shape) > 2 else 1
    return (first, 1, middle, channels)


def some_operand_fills(site: Site, found: Sequence[str | None]) -> bool:
    """Tell whether an operand of the root that was found has the root's shape."""
    pairs = zip(site.root.inputs, found, strict=True)
    return any(one is not None and site.shape_of(name) == site.shape for name, one in pairs)


def reshaped(site: Site, x: str, shape: tuple[int, ...], label: str = "") -> str:
    """Emit a reshape, unless the value already has the shape."""
    return x if site.shape_of(x) == shape else site.emit(ops.Reshape(shape), x, label=label)


def of_images(
    site: Site,
    operator: ops.Operator,
    *operands: str,
    held: Sequence[str] = (),
    label: str = "",
    quantisation: Quantisation | None = None,
) -> str:
    """Emit an operator of images and constants for operands of any rank, in the root's shape."""
    images = [to_image(site, x, label) for x in operands]
    result = site.emit(operator, *images, *held, label=label, quantisation=quantisation)
    return reshaped(site, result, site.shape, label)


def channels_first(
    site: Site,
    operator: ops.Operator,
    *images: str,
    label: str = "",
    quantisation: Quantisation | None = None,
) -> str:
    """Emit an operator of [N, H, W, C] between Transposes from [N, C, H, W] and back."""
    turned = [site.emit(ops.Transpose(TO_LAST), image, label=label) for image in images]
    result = site.emit(operator, *turned, label=label, quantisation=quantisation)
    return site.emit(ops.Transpose(TO_FIRST), result, label=label)


def of_pair(
    site: Site,
    operator: ops.QAdd | ops.QMul,
    first: str,
    second: str,
    *,
    label: str = "",
    quantisation: Quantisation | None = None,
) -> str:
    """Emit a sum or product of images for operands of any rank, broadcast to the root's shape.

    Channels become the last axis if the second operand has one value for each of them, or if the
    elements lie in that order anyway. The first operand is repeated if it is smaller than the root,
    and the second one if no images of rank 4 can say how it is broadcast.
    """
    shape, rank = site.shape, len(site.shape)
    first = first if site.shape_of(first) == shape else site.emit(ops.Expand(shape), first)
    small = site.shape_of(second)
    small = (1,) * (rank - len(small)) + small
    operands = [first, reshaped(site, second, small, label)]
    source, turns, to_last = (), False, (0, *range(2, rank), 1)
    if rank > 4 or (rank == 4 and small != shape):
        source, turns = _source_of(site, first, to_last)
        turns |= small[1] == shape[1] and max(small[2:]) == 1
    if turns:
        operands = [site.emit(ops.Transpose(to_last), x, label=label) for x in operands]
    sizes = _image_sizes(*map(site.shape_of, operands), source)
    if sizes is None:
        operands[1] = site.emit(ops.Expand(site.shape_of(operands[0])), operands[1])
        sizes = [image_shape(site.shape_of(operands[0]))] * 2
    images = [reshaped(site, x, size, label) for x, size in zip(operands, sizes, strict=True)]
    result = site.emit(operator, *images, label=label, quantisation=quantisation)
    result = reshaped(site, result, site.shape_of(operands[0]), label)
    to_first = (0, rank - 1, *range(1, rank - 1))
    return site.emit(ops.Transpose(to_first), result, label=label) if turns else result


def _source_of(site: Site, x: str, to_last: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Return the shape that a value had before movements, and whether its channels lay last then.

    Elementwise functions behind the movements are passed over.
    """
    made = site.view.producer(x)
    while made is not None and isinstance(
        made.attributes, ops.Quantize | ops.Dequantize | ops.Unary | ops.QLut
    ):
        x = made.inputs[0]
        made = site.view.producer(x)
    source, places = moved_elements(site.view, x, TURNS)
    in_order = (np.diff(places.transpose(to_last).ravel()) == 1).all()
    return site.shape_of(source), source != x and bool(in_order)


def _image_sizes(
    whole: tuple[int, ...], small: tuple[int, ...], wanted: tuple[int, ...]
) -> list[tuple[int, ...]] | None:
    """Return shapes of rank 4 for a value and for one that is broadcast to it; None without any.

    They keep the last axis, and join neighbours along which the second value has as many elements
    as the first, or one. The first value has the wanted shape if that is possible.
    """
    if len(whole) < 4:
        return [image_shape(whole), image_shape(small)]
    found = []
    for cut in combinations(range(1, len(whole) - 1), 2):
        ends = pairwise((0, *cut, len(whole) - 1))
        outer = [(math.prod(whole[a:b]), math.prod(small[a:b])) for a, b in ends]
        if all(part in (1, size) for size, part in outer):
            found.append([*zip(*outer, (whole[-1], small[-1]), strict=True)])
    return max(found, key=lambda sizes: sizes[0] == wanted, default=None)
