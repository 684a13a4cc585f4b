"""Winograd's convolution F(2x2, 3x3): 16 products per tile of 2x2 outputs instead of 36.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016. A tile of 4x4
inputs and the window are changed to a basis in which convolution is an elementwise product; over
all tiles that is one matrix product for each of the 16 elements. The changes of inputs and outputs
have the constant factors 0, 1 and -1, so that the code has additions alone. Sums over channels are
shorter than direct ones and cancel more; for normal numbers and 64 or more channels the largest
error is no larger (`tests/compiler/cpu/test_convolution.py`).
"""

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ....aligned import round_up
from ... import te
from ...te.target import REGISTER
from ..codegen.buffers import STACK_BYTES
from ..codegen.layout import Layout, Tiles
from ..target import CpuTarget
from .choices import Choices
from .description import Constants, KernelSchedule, Planner, even_blocks
from .epilogue import Extent
from .tiles import Multiplication, panels, pick_panel, pick_rows, pick_steps

if TYPE_CHECKING:
    from .convolution import Convolution

_INPUT = np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]], np.float32)
_WINDOW = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_OUTPUT = np.array([[1, 0], [1, 1], [1, -1], [0, -1]], np.float32)

CHANGES = {"change_in": _INPUT, "change_out": _OUTPUT}
"""Tensors of the declaration that are known."""

TILE = 2
"""Outputs of a tile along each dimension."""

FEW_TILES = 2
"""Number of tiles per lane below which reading transformed weights from memory costs more than it
saves. It grows with the lanes, since more lanes make multiplying faster but not reading."""

CACHED_BYTES = 1 << 21
"""Bytes of weights that L2 may hold."""

KEPT_BYTES = 3 << 19
"""Bytes of weights up to which they stay in L2 from one block of tiles to the next. It was fitted
to 14 shapes on Sapphire Rapids, with AVX2 and AVX-512."""


class TilePlanner(Planner):
    """A 3x3 convolution with stride 1, by square output tiles.

    Parameters
    ----------
    conv
        The convolution.
    target
        The processor that it is compiled for.
    size
        Outputs of a tile along each dimension.
    """

    def __init__(self, conv: "Convolution", target: CpuTarget, size: int, choices: Choices) -> None:
        self.conv, self.target, self.choices = conv, target, choices
        self.down, self.across = (-(-extent // size) for extent in conv.size_out)
        self.tiles = Tiles.of_image(conv.output.shape, size)
        """Layout of the output's tiles."""

    def bordered(self, rows: int, columns: int, channels: int) -> te.DeclaredTensor:
        """The image with its padding, as a stage of the given extents."""
        c = self.conv
        x = te.tensor("x", c.dtype, c.image, pad=c.zero_point)
        axes = n, y, px, ci = te.axes(pn=c.batch, py=rows, px=columns, pc=channels)
        element = x[n, y - c.pads[0], px - c.pads[1], ci]
        return te.compute("padded", x.tensor.dtype, axes, element)

    def output(self, total: te.TensorExpression, axes: tuple[te.Index, ...]) -> te.DeclaredTensor:
        """The output for a sum, as tiles."""
        epilogue, columns = self.conv.epilogue, (self.conv.channels_out,)
        value = epilogue.value(total, columns, axes[-1:], self.tiles.shape, axes)
        return te.compute("out", epilogue.dtype, axes, value)

    def placed(self, s: te.Schedule, w: Layout, columns: int) -> KernelSchedule:
        """The schedule, with constants of so many columns and tiles of arrays like the output."""
        operands = self.conv.epilogue.operands
        plain = dict.fromkeys(self.conv.epilogue.constants, Layout.plain((columns,)))
        names = ("out", *(one.name for one in operands if one.extent is Extent.SUMS))
        return KernelSchedule(s, {"w": w, **plain}, dict.fromkeys(names, self.tiles))


class WinogradPlanner(TilePlanner):
    """The declaration and schedule of one float32 convolution for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget, choices: Choices) -> None:
        super().__init__(conv, target, TILE, choices)
        way = Multiplication.of("float32", target)
        self.panel = pick_panel(choices, conv.channels_out, target, self.across, way)
        most = STACK_BYTES // (16 * 4 * max(conv.channels_in, conv.channels_out))
        fitting = even_blocks(self.across, max(1, most))
        self.pixels = pick_rows(choices, fitting, self.panel, target, "tiles")
        """Tiles whose products are in registers at the same time."""
        self.steps = pick_steps(choices, conv.channels_in)
        fits = most >= self.pixels
        keeps = fits and self._weight_bytes <= KEPT_BYTES
        self.by_blocks = choices.pick("by_blocks", int(keeps), (0, 1) if fits else ()) > 0
        """True if tiles, products and sums are made for one block of tiles after the other."""
        self.block = even_blocks(self.across, most // self.pixels * self.pixels) if fits else 0
        """Tiles of such a block, which lie side by side: as many as fit the stack."""

    @property
    def _weight_bytes(self) -> int:
        return 16 * self.conv.channels_in * self.conv.channels_out * 4

    @property
    def is_faster(self) -> bool:
        """Whether it takes less time than direct convolution: enough channels and tiles.

        It reads 16 numbers for each window of nine weights. If only a few tiles use each of them,
        and they come from beyond L2, reading them takes longer than multiplying.
        """
        c = self.conv
        few = c.batch * self.down * self.across < FEW_TILES * self.target.lanes
        if few and self._weight_bytes > CACHED_BYTES:
            return False
        return c.size_out[1] >= 7 and min(c.channels_in, c.channels_out) >= 32

    def declared(self) -> te.DeclaredTensor:
        """Bordered image, changed tiles, products, and the sums changed back."""
        c = self.conv
        rows, columns = TILE * self.down + 2, TILE * self.across + 2
        source = self.bordered(rows, columns, c.channels_in)
        n, ty, tx, ci = te.axes(n=c.batch, ty=self.down, tx=self.across, c=c.channels_in)
        i, j, dy, dx = te.axes(i=4, j=4, dy=TILE, dx=TILE)
        a, b = te.reduce_axes(a=4, b=4)
        change, back = (te.tensor(name, "float32", v.shape) for name, v in CHANGES.items())
        element = source[n, ty * TILE + a, tx * TILE + b, ci]
        tiles = te.sum(change[a, i] * change[b, j] * element, over=(a, b))
        tiles = te.compute("tiles", "float32", (n, ty, i, j, tx, ci), tiles)
        w = te.tensor("w", "float32", (4, 4, c.channels_in, c.channels_out))
        (k,), (o,) = te.reduce_axes(k=c.channels_in), te.axes(o=c.channels_out)
        sums = te.sum(tiles[n, ty, i, j, tx, k] * w[i, j, k, o], over=k)
        sums = te.compute("products", "float32", (n, ty, i, j, tx, o), sums)
        p, q = te.reduce_axes(p=4, q=4)
        total = te.sum(back[p, dy] * back[q, dx] * sums[n, ty, p, q, tx, o], over=(p, q))
        return self.output(total, (n, ty, dy, tx, dx, o))

    @override
    def plan(self) -> KernelSchedule:
        """Tiles, products and sums are made for one block of tiles after the other where L2 keeps
        the weights, which every block reads; else each for the whole image, where weights are read
        once.
        """
        lanes = self.target.lanes
        kernel = te.kernel("convolution", self.declared(), CHANGES)
        s = te.Schedule(kernel, self.target.processor)
        s.nest("padded", "(pn py) pc.i~", pc=lanes)
        for stage in ("tiles", "products"):
            s.cache_write(stage, REGISTER)
        tiles, panels_of = ("ty", "i j o.o") if self.by_blocks else ("(ty)", "(i j o.o)")
        s.nest("tiles", f"n {tiles} tx c.o i* j* c.i~", c=lanes)
        s.compute_at("tiles.REGISTER", "tiles", "c.o")
        s.nest("tiles.REGISTER", "n ty tx a* b* i* j* c~")
        loops = f"n {panels_of} ty tx.o tx.i* o.i.o* o.i.i~"
        s.nest("products", loops, tx=self.pixels, o=(self.panel, lanes))
        s.compute_at("products.REGISTER", "products", "tx.o")
        s.nest("products.REGISTER", f"n ty i j k/{self.steps}* tx* o.o* o.i~", o=lanes)
        if self.by_blocks:
            s.nest("out", "n (ty) tx.o tx.i o.o p* q* dy* dx* o.i~", tx=self.block, o=lanes)
            s.compute_at("products", "out", "tx.o")
            s.compute_at("tiles", "out", "tx.o")
        else:
            s.nest("out", "n (ty) tx o.o p* q* dy* dx* o.i~", o=lanes)
        w = panels(kernel.tensors["w"].shape, self.panel, order=(0, 1, 3, 2))
        return self.placed(s, w, round_up(self.conv.channels_out, lanes))

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Weights float32[3, 3, I, O] in the basis of the products, float32[4, 4, I, O]."""
        wide = constants["w"].astype(np.float64)
        changed = np.einsum("ia,jb,abco->ijco", _WINDOW, _WINDOW, wide)
        return {**constants, "w": changed.astype(np.float32)}
