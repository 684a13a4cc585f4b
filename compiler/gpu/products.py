"""Products as GPUs take them: declared by their definitions, without the layouts of a processor.

Taps lie side by side in both operands, in whole instructions of tensor cores: constant weights are
turned round and filled up with zeros once, before the first run. The windows of an image are a
stage of their own, `patches`, of which a block computes what it multiplies, in shared memory.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...aligned import round_up
from .. import te
from ..cpu import Convolution, Description, Extent, HeadProduct, MatrixProduct
from ..cpu.codegen.layout import Tiles
from ..cpu.kernels.description import Constants
from ..tensor import Kernel
from .instructions import HIGH, WIDE
from .target import GpuTarget

MIN_TILED = 16
"""Minimum number of rows, columns and taps of a product that is tiled."""

MIN_SHARED, MAX_LANES = 64, 128
"""Minimum number of taps from which the threads of a block share each sum of an untiled product,
and the maximum number of threads that do."""


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
    if isinstance(description, Convolution) and not description.is_depthwise:
        c = description
        if c.is_matrix and not c.computed:
            sizes = c.batch * c.height * c.width, c.channels_in, c.channels_out
            return _matrix_product(MatrixProduct(*sizes, c.dtype, c.epilogue), target)
        return _Windows(c, target).declared()
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
    tiled = _is_tiled(p.rows, p.columns, p.inner)
    shared = not tiled and p.inner >= MIN_SHARED
    depth = round_up(p.inner, _taps(target, given.dtype, weights.dtype) if tiled else 1)
    x = te.tensor("x", given.dtype, (p.rows, p.inner))
    m, o = te.axes(m=p.rows, o=p.columns)
    # Without tiles and without shared sums, neighbouring threads read neighbouring columns.
    columns_last = not (tiled or shared)
    w = te.tensor("w", weights.dtype, (depth, p.columns) if columns_last else (p.columns, depth))
    if shared:
        total = _shared_sum(x, w)[m, o, 0]
    else:
        (t,) = over = te.reduce_axes(t=depth)
        total = te.sum(x[m, t] * (w[t, o] if columns_last else w[o, t]), over=over)
    value = p.epilogue.value(total, (p.columns,), (o,), (p.rows, p.columns), (m, o))

    def prepare(constants: Constants) -> Constants:
        w = constants["w"].reshape(p.inner, p.columns)
        if not columns_last:
            w = _filled_up(np.moveaxis(w, -1, 0), depth)
        return {**constants, "w": w}

    kernel = te.kernel("product", te.compute("out", p.epilogue.dtype, (m, o), value))
    return Declaration(kernel, prepare)


def _shared_sum(x: te.DeclaredTensor, w: te.DeclaredTensor) -> te.DeclaredTensor:
    """Sums of products [rows, columns, 1]: lane by lane, and then of the halves of all lanes."""
    (rows, inner), columns = x.shape, w.shape[0]
    width = min(MAX_LANES, 1 << (inner // 4).bit_length())
    m, o, lane = te.axes(m=rows, o=columns, l=width)
    (block,) = over = te.reduce_axes(b=-(-inner // width))
    tap = block * width + lane
    total = te.sum(x[m, tap] * w[o, tap], over=over)
    dtype = "float32" if total.real else "int32"
    sums = te.compute(f"sums_{width}", dtype, (m, o, lane), total)
    while width > 1:
        width //= 2
        m, o, lane = te.axes(m=rows, o=columns, l=width)
        halves = sums[m, o, lane] + sums[m, o, lane + width]
        sums = te.compute(f"sums_{width}", dtype, (m, o, lane), halves)
    return sums


def _head_product(p: HeadProduct, target: GpuTarget) -> Declaration | None:
    if not _is_tiled(p.rows, p.columns, p.inner):
        return None
    depth = round_up(p.inner, _taps(target, p.dtype, p.dtype))
    n, h, m, c = te.axes(n=p.images, h=p.heads, m=p.rows, c=p.columns)
    (t,) = te.reduce_axes(t=depth)
    factor = p.right(n, h, t, c)
    if not p.transposed:
        axes = te.axes(n=p.images, h=p.heads, c=p.columns, t=depth)
        image, head, column, tap = axes
        turned = p.right(image, head, tap, column)
        factor = te.compute("turned", p.dtype, axes, turned)[n, h, c, t]
    total = te.sum(p.left(n, h, m, t) * factor, over=t)
    za, zb = p.zero_points
    if za or zb:
        total = total + p.inner * za * zb
    (k,) = te.reduce_axes(k=p.inner)
    if za:
        sums = te.compute("columns", "int32", (n, h, c), te.sum(p.right(n, h, k, c), over=k) * -za)
        total = total + sums[n, h, c]
    if zb:
        sums = te.compute("rows", "int32", (n, h, m), te.sum(p.left(n, h, m, k), over=k) * -zb)
        total = total + sums[n, h, m]
    axes = p.placed(2, n, h, m, c)
    out = te.compute("out", p.epilogue.dtype, axes, p.epilogue.value(total, (p.heads,), (h,)))
    return Declaration(te.kernel("product", out), dict)


# Convolutions ------------------------------------------------------------------------------------

Indices = Mapping[str, te.Index]


class _Windows:
    """A convolution as a product: pixels `y` and `x` are its rows, and `ky`, `kx`, `t` its taps.

    With several groups of channels there is an axis `g`, and channels are those of one group.
    """

    def __init__(self, conv: Convolution, target: GpuTarget) -> None:
        self.conv = conv
        given, weights = conv.factors
        (high, wide), rows = conv.kernel, conv.size_out
        self.channels = conv.channels_in // conv.groups
        self.columns = conv.channels_out // conv.groups
        self.tiled = _is_tiled(math.prod(rows), self.columns, high * wide * self.channels)
        taps = _taps(target, given.dtype, weights.dtype) if self.tiled else 1
        self.merged = _is_merged(conv, taps)
        self.run = self.channels * (wide if self.merged else 1)
        """Taps side by side."""
        window = {"ky": high, "kx": 1 if self.merged else wide}
        self.taps = {name: extent for name, extent in window.items() if extent > 1}
        self.taps["t"] = round_up(self.run, taps)
        self.groups = {"g": conv.groups} if conv.groups > 1 else {}
        self.pixels = _rounded_up(*rows) if self.tiled else rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the output, in whole tiles."""
        return (self.conv.batch, *self.pixels, *self.groups.values(), self.columns)

    def declared(self) -> Declaration:
        c = self.conv
        names = ("n", "y", "x", *self.groups, "o")
        axes = te.axes(**dict(zip(names, self.shape, strict=True)))
        over = te.reduce_axes(**self.taps)
        at = dict(zip((*names, *self.taps), (*axes, *over), strict=True))
        total = te.sum(self._element(at) * self._weight(at), over=over)
        value = c.epilogue.value(total, self.shape[3:], axes[3:], self.shape, axes)
        kernel = te.kernel("convolution", te.compute("out", c.epilogue.dtype, axes, value))
        return Declaration(kernel, self.prepare, self._tiles())

    def _element(self, at: Indices) -> te.TensorExpression:
        """The element of the image under a tap, of tiles in a copy of all windows."""
        c = self.conv
        dtype, image = c.factors[0].dtype, c.image
        if self.merged:
            image = (*image[:2], image[2] * image[3])
        elif self.groups:
            image = (*image[:3], c.groups, self.channels)
        x = te.tensor("x", dtype, image, pad=c.zero_point)

        def moved(at: Indices) -> te.TensorExpression:
            row = c.row(at["y"], at.get("ky", 0)) - c.pads[0]
            if self.merged:
                first = (at["x"] * c.strides[1] - c.pads[1]) * self.channels
                return x[at["n"], row, first + at["t"]]
            column = c.column(at["x"], at.get("kx", 0)) - c.pads[1]
            if c.planes:
                return x[at["n"], at["t"], row, column]
            return x[at["n"], row, column, *(at[name] for name in self.groups), at["t"]]

        if not self.tiled:
            return moved(at)
        extents = {"n": c.batch, **self.groups, "y": self.pixels[0], "x": self.pixels[1]}
        if self.pixels[0] % WIDE == 0 and self.pixels[1] % WIDE:
            extents["y"] = extents.pop("y")  # behind `x`
        return _copied("patches", dtype, extents | self.taps, moved, at)

    def _weight(self, at: Indices) -> te.TensorExpression:
        dtype = self.conv.factors[1].dtype
        if self.conv.computed:
            w = te.tensor("w", dtype, self.conv.weights)

            def placed(at: Indices) -> te.TensorExpression:
                return w[at.get("ky", 0), at.get("kx", 0), at["t"], at["o"]]

            extents = {"o": self.columns, **self.taps}
            return _copied("turned", dtype, extents, placed, at) if self.tiled else placed(at)
        columns = {**self.groups, "o": self.columns}
        extents = {**columns, **self.taps} if self.tiled else {**self.taps, **columns}
        return te.tensor("w", dtype, tuple(extents.values()))[*(at[name] for name in extents)]

    def prepare(self, constants: Constants) -> Constants:
        """Lay the weights out as they are declared."""
        if self.conv.computed:
            return constants
        *window, depth = self.taps.values()
        columns = (*self.groups.values(), self.columns)
        w = constants["w"].reshape(*window, self.run, *columns)
        if self.tiled:
            last = range(-len(columns), 0)
            w = _filled_up(np.moveaxis(w, tuple(last), tuple(range(len(columns)))), depth)
        return {**constants, "w": w}

    def _tiles(self) -> Mapping[str, Tiles]:
        """Places of the output, and of operands like it, where pixels are rounded up."""
        if self.pixels == self.conv.size_out:
            return {}
        images, *pixels = self.shape[:3]
        digits = (images,), *((size,) for size in pixels), self.shape[3:]
        alike = [e.name for e in self.conv.epilogue.operands if e.extent is Extent.SUMS]
        return dict.fromkeys(("out", *alike), Tiles(self.conv.extents, digits))


def _copied(
    name: str,
    dtype: str,
    extents: Mapping[str, int],
    element: Callable[[Indices], te.TensorExpression],
    at: Indices,
) -> te.TensorExpression:
    """An element of a stage that copies, with axes of these names."""
    axes = te.axes(**extents)
    stage = te.compute(name, dtype, axes, element(dict(zip(extents, axes, strict=True))))
    return stage[*(at[name] for name in extents)]


def _is_merged(c: Convolution, taps: int) -> bool:
    """Whether the pixels of a window's row are one run of taps, if that fills instructions better.

    A run that is rounded up reaches into further pixels, whose weights are zeros. So float32 is
    not rounded up: times an infinity, they are not.
    """
    if c.computed or c.planes or c.groups > 1 or c.dilations[1] > 1:
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
