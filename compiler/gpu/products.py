"""Products as GPUs take them: declared by their definitions, without the layouts of a processor.

Taps lie side by side in both operands, in whole instructions of tensor cores: constant weights are
turned round and filled up with zeros once, before the first run. The windows of an image are a
stage of their own, `patches`, of which a block computes what it multiplies, in shared memory.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...isa.numbers import int8_terms
from .. import te
from ..cpu import Convolution, Description, Epilogue, Extent, HeadProduct, MatrixProduct
from ..cpu.codegen.layout import Tiles
from ..cpu.kernels.description import round_up
from ..tensor import Kernel
from .instructions import HIGH, WIDE
from .target import GpuTarget

MIN_TILED = 16
"""Least rows, columns and taps of a product that is tiled."""

Constants = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A kernel of the host, declared for a GPU.

    Parameters
    ----------
    kernel
        The declaration.
    prepare
        Returns its constants for those of the description.
    tiles
        Places in the caller's arrays of tensors that are rounded up.
    """

    kernel: Kernel
    prepare: Callable[[Constants], Constants]
    tiles: Mapping[str, Tiles] = field(default_factory=dict)


def declare_product(description: Description, target: GpuTarget) -> Declaration | None:
    """The declaration of a product; None for other kernels."""
    if isinstance(description, MatrixProduct) and not description.limit:
        return _matrix_product(description, target)
    if isinstance(description, HeadProduct):
        return _head_product(description, target)
    if isinstance(description, Convolution) and description.groups == 1:
        c = description
        if c.is_matrix and not c.computed:
            sizes = c.batch * c.height * c.width, c.channels_in, c.channels_out
            return _matrix_product(MatrixProduct(*sizes, c.dtype, c.epilogue), target)
        return _convolution(c, target)
    return None


def _is_tiled(rows: int, columns: int, taps: int) -> bool:
    return min(rows, columns, taps) >= MIN_TILED


def _taps(target: GpuTarget, *types: str) -> int:
    """Taps of an instruction for operands of these types; 1 without one."""
    return next((law.taps for law in target.instructions if types in law.pairs), 1)


def _filled_up(w: np.ndarray, depth: int) -> np.ndarray:
    """Weights with zeros behind the last of their taps, which are their last axis."""
    return np.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, depth - w.shape[-1])])


def _matrix_product(p: MatrixProduct, target: GpuTarget) -> Declaration:
    given, weights = p.factors
    kind = "int8" if p.parts > 1 else weights.dtype
    tiled = _is_tiled(p.rows, p.columns, p.inner)
    depth = round_up(p.inner, _taps(target, given.dtype, kind) if tiled else 1)
    over = te.reduce_axes(**({"limb": p.parts} if p.parts > 1 else {}), t=depth)
    x = te.tensor("x", given.dtype, (p.rows, p.inner))
    m, o = te.axes(m=p.rows, o=p.columns)
    taps = (*([p.parts] if p.parts > 1 else []), depth)
    if tiled:
        factor = te.tensor("w", kind, (p.columns, *taps))[o, *over]
    else:  # neighbouring threads read neighbouring columns
        factor = te.tensor("w", kind, (*taps, p.columns))[*over, o]
    total = te.sum(x[m, over[-1]] * factor, over=over)
    value = p.epilogue.value(total, (p.columns,), (o,), (p.rows, p.columns), (m, o))

    def prepare(constants: Constants) -> Constants:
        w = constants["w"].reshape(p.inner, p.columns)
        if p.parts > 1:
            terms = int8_terms(w)
            w = np.stack(terms + [np.zeros_like(terms[0])] * (p.parts - len(terms)))
        if tiled:
            w = _filled_up(np.moveaxis(w, -1, 0), depth)
        return {**constants, "w": w}

    kernel = te.kernel("product", te.compute("out", p.epilogue.dtype, (m, o), value))
    return Declaration(kernel, prepare)


def _head_product(p: HeadProduct, target: GpuTarget) -> Declaration | None:
    if not _is_tiled(p.rows, p.columns, p.inner):
        return None
    a, b = (te.tensor(name, one.dtype, one.shape) for name, one in p.operands.items())
    depth = round_up(p.inner, _taps(target, p.dtype, p.dtype))
    n, h, m, c = te.axes(n=p.images, h=p.heads, m=p.rows, c=p.columns)
    (t,) = te.reduce_axes(t=depth)

    def left(n, h, m, t) -> te.TensorExpression:
        return a[p.placed(0, *p.own(0, n, h), m, t)]

    def right(n, h, c, t) -> te.TensorExpression:
        return b[p.placed(1, *p.own(1, n, h), *p.second(t, c))]

    factor = right(n, h, c, t)
    if not p.transposed:
        axes = te.axes(n=p.images, h=p.heads, c=p.columns, t=depth)
        factor = te.compute("turned", p.dtype, axes, right(*axes))[n, h, c, t]
    total = te.sum(left(n, h, m, t) * factor, over=t)
    za, zb = p.zero_points
    if za or zb:
        total = total + p.inner * za * zb
    (k,) = te.reduce_axes(k=p.inner)
    if za:
        sums = te.compute("columns", "int32", (n, h, c), te.sum(right(n, h, c, k), over=k) * -za)
        total = total + sums[n, h, c]
    if zb:
        sums = te.compute("rows", "int32", (n, h, m), te.sum(left(n, h, m, k), over=k) * -zb)
        total = total + sums[n, h, m]
    axes = p.placed(2, n, h, m, c)
    out = te.compute("out", p.epilogue.dtype, axes, p.epilogue.value(total))
    return Declaration(te.kernel("product", out), dict)


# Convolutions ------------------------------------------------------------------------------------


def _convolution(c: Convolution, target: GpuTarget) -> Declaration:
    given, weights = c.factors
    (high, wide), channels, columns = c.kernel, c.channels_in, c.channels_out
    tiled = _is_tiled(math.prod(c.size_out), columns, high * wide * channels)
    taps = _taps(target, given.dtype, weights.dtype) if tiled else 1
    merged = _is_merged(c, taps)
    depth = round_up(channels * wide if merged else channels, taps)
    window = {"ky": high, "kx": 1 if merged else wide}
    window = {name: extent for name, extent in window.items() if extent > 1}
    sizes = _rounded_up(*c.size_out) if tiled else c.size_out
    image = c.image if not merged else (c.batch, c.height, c.width * channels)
    x = te.tensor("x", given.dtype, image, pad=c.zero_point)

    def moved(n, y, column, taps) -> te.TensorExpression:
        """The element of the image for the taps by name."""
        row, t = c.row(y, taps.get("ky", 0)) - c.pads[0], taps["t"]
        if merged:
            return x[n, row, (column * c.strides[1] - c.pads[1]) * channels + t]
        place = c.column(column, taps.get("kx", 0)) - c.pads[1]
        return x[n, t, row, place] if c.planes else x[n, row, place, t]

    n, y, column, o = axes = te.axes(n=c.batch, y=sizes[0], x=sizes[1], o=columns)
    over = te.reduce_axes(**window, t=depth)
    named = dict(zip((*window, "t"), over, strict=True))
    extents = (*window.values(), depth)
    if tiled:
        last, first = ("y", "x") if sizes[0] % WIDE == 0 and sizes[1] % WIDE else ("x", "y")
        extent = {"y": sizes[0], "x": sizes[1]}
        inside = te.axes(n=c.batch, **{k: extent[k] for k in (first, last)}, **window, t=depth)
        at = dict(zip(("n", first, last, *window, "t"), inside, strict=True))
        windows = te.compute("patches", given.dtype, inside, moved(at["n"], at["y"], at["x"], at))
        element = windows[n, *((y, column) if first == "y" else (column, y)), *over]
    else:
        element = moved(n, y, column, named)
    if c.computed:
        w = te.tensor("w", weights.dtype, c.weights)

        def placed(o, taps) -> te.TensorExpression:
            return w[taps.get("ky", 0), taps.get("kx", 0), taps["t"], o]

        factor = placed(o, named)
        if tiled:
            inside = te.axes(o=columns, **window, t=depth)
            at = dict(zip(("o", *window, "t"), inside, strict=True))
            factor = te.compute("turned", weights.dtype, inside, placed(at["o"], at))[o, *over]
    elif tiled:
        factor = te.tensor("w", weights.dtype, (columns, *extents))[o, *over]
    else:
        factor = te.tensor("w", weights.dtype, (*extents, columns))[*over, o]
    total = te.sum(element * factor, over=over)
    whole = c.batch, *sizes, columns
    value = c.epilogue.value(total, (columns,), (o,), whole, axes)

    def prepare(constants: Constants) -> Constants:
        if c.computed:
            return constants
        w = constants["w"].reshape(*extents[:-1], -1, columns)
        return {**constants, "w": _filled_up(np.moveaxis(w, -1, 0), depth) if tiled else w}

    kernel = te.kernel("convolution", te.compute("out", c.epilogue.dtype, axes, value))
    return Declaration(kernel, prepare, _tiles(c.epilogue, c.extents, whole))


def _is_merged(c: Convolution, taps: int) -> bool:
    """Whether the pixels of a window's row are one run of taps, if that fills instructions better.

    A run that is rounded up reaches into further pixels, whose weights are zeros. So float32 is
    not rounded up: times an infinity, they are not.
    """
    if c.computed or c.planes or c.dilations[1] > 1:
        return False
    run = c.kernel[1] * c.channels_in
    if c.dtype == "float32" and run % taps:
        return False
    return round_up(run, taps) <= c.kernel[1] * round_up(c.channels_in, taps)


def _rounded_up(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of pixels in whole tiles of `HIGH` by `WIDE`, either way round."""
    if min(rows, columns) == 1:
        return rows, columns
    upright = round_up(rows, HIGH), round_up(columns, WIDE)
    turned = round_up(rows, WIDE), round_up(columns, HIGH)
    return min(upright, turned, key=math.prod)


def _tiles(
    epilogue: Epilogue, extents: tuple[int, ...], whole: tuple[int, ...]
) -> Mapping[str, Tiles]:
    """Places of the output, and of operands like it, whose tensors are `whole`."""
    if extents == whole:
        return {}
    alike = [one.name for one in epilogue.operands if one.extent is Extent.SUMS]
    return dict.fromkeys(("out", *alike), Tiles(extents, tuple((size,) for size in whole)))
