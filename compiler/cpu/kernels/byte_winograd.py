"""Winograd's convolution F(4x4, 3x3) of bytes, exact: 36 products per tile instead of 144.

Tiles of 6x6 inputs and windows are changed to a basis in which convolution is an elementwise
product; over all tiles that is one matrix product for each of the 36 elements. With the points 0,
1, -1, 2, -2 and infinity (source: Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks, CVPR 2016) the change of windows has fractions. Here its rows are scaled to whole numbers,
and the change of outputs balances that, so that the results are 24 * 24 times the sums. Nothing is
rounded on the way:

* Changed inputs are below 17,341 and changed windows below 18,433, which int16 holds.
* Products are summed in int32 and wrap. 576 is 9 * 64, and 9 has an inverse modulo 2**32. A result
  times that is 64 times the sum modulo 2**32, which determines sums below 2**25.
* A power of two changes no rounding, so that the scale can take out the factor of 64.

Words are multiplied at half the rate of bytes at most, which leaves about half of the time, plus
that of the changes. Changed windows take eight times the memory: too much if few tiles use them.
"""

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ....aligned import round_up
from ....errors import InputError
from ... import te
from ...te.target import REGISTER
from ...te.values import LIMITS
from ..codegen.buffers import STACK_BYTES
from ..target import CpuTarget
from .choices import Choices
from .description import Constants, KernelSchedule, even_blocks
from .epilogue import SCALED, occurs_only_in
from .tiles import panels, pick_steps
from .winograd import TilePlanner

if TYPE_CHECKING:
    from .convolution import Convolution

CHANGE_IN = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    np.int32,
)
"""The change of basis of six inputs along a dimension."""

_WINDOW = np.array(
    [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 6]], np.int32
)
_OUTPUT = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 4]], np.int32
)

POWER = 64
"""The factor that remains of 24 * 24 in the results."""

LIMIT = (1 << 31) // POWER
"""Bound of the magnitude of sums."""

TILE, POINTS, TAPS = 4, 6, 2
"""Outputs and inputs of a tile along each dimension; words per lane of a dot product."""

CACHED_BYTES = 1 << 21
"""Changed inputs up to this size are computed for the whole image, larger ones row by row."""

KEPT_BYTES = 1 << 19
"""Changed windows up to this size stay in L2 between groups of rows."""

INPUT_COST, OUTPUT_COST = 50, 260
"""Cost of changing a vector of a tile's inputs, or outputs, in dot products."""

FIRST_RATE, NEXT_RATE = 5, 20
"""Bytes of windows loaded during a dot product: from memory, and from the last-level cache.

All four were fitted to measurements of some 150 shapes on Zen 4, where the method that they choose
was never slower than direct convolution.
"""

_INVERSE_OF_9 = pow(9, -1, 1 << 32)


class ByteWinogradPlanner(TilePlanner):
    """The declaration and schedule of one convolution of bytes for one target."""

    def __init__(self, conv: "Convolution", target: CpuTarget, choices: Choices) -> None:
        super().__init__(conv, target, TILE, choices)
        self.channels = round_up(conv.channels_in, TAPS)
        most, vectors = target.tile.vectors, -(-conv.channels_out // target.lanes)
        self.block = even_blocks(self.across, most)
        row = 2 * POINTS**2 * self.across * self.channels  # bytes of changed inputs
        self.whole = conv.batch * self.down * row <= CACHED_BYTES
        self.group = 1
        for rows in range(2, most // self.block + 1):
            if self.down % rows == 0 and (self.whole or rows * row <= STACK_BYTES):
                self.group = rows
        pixels = self.group * self.block
        fitting = [v for v in (4, 2, 1) if vectors % v == 0 and (v == 1 or v * pixels <= most)]
        self.panel = choices.pick("vectors", fitting[0], fitting) * target.lanes
        self.steps = pick_steps(choices, self.channels // TAPS)
        self.padded_out = round_up(conv.channels_out, self.panel)
        self.buffers = {
            "lines": 2 * POINTS * (TILE * self.across + 2) * self.channels,
            "tiles": self.group * row,
            "lines_out": 4 * POINTS * TILE * self.group * self.across * self.panel,
        }
        if self.whole:
            del self.buffers["tiles"]  # not on the stack
        else:
            self.buffers["lines"] *= self.group

    @staticmethod
    def computes(conv: "Convolution") -> bool:
        """Whether sums are small, and the epilogue scales them, so that it takes a factor out."""
        formula = conv.epilogue.formula
        return conv.narrow and all(
            occurs_only_in(name, SCALED, formula) for name in ("sum", "bias", "scale")
        )

    @property
    def fits(self) -> bool:
        """Whether there is a vector of channels, and buffers fit the stack."""
        small = max(self.buffers.values()) <= STACK_BYTES
        return small and self.conv.channels_out >= self.target.lanes

    def is_faster_than(self, rate: float) -> bool:
        """Whether its buffers fit the stack and the estimated time is shorter.

        Parameters
        ----------
        rate
            Products per lane of direct convolution in the time of one instruction.
        """
        c, lanes = self.conv, self.target.lanes
        if not self.fits:
            return False
        tiles, vectors = c.batch * self.down * self.across, self.padded_out / lanes
        products = tiles * POINTS**2 * self.channels / TAPS * vectors
        changes = tiles * (OUTPUT_COST * vectors + INPUT_COST * self.channels / lanes)
        window = 2 * POINTS**2 * self.channels
        again = window * (self.panel if self.whole else self.padded_out) > KEPT_BYTES
        sweeps = c.batch * self.down / self.group - 1 if again else 0
        fetched = window * self.padded_out * (1 / FIRST_RATE + sweeps / NEXT_RATE)
        return max(products, fetched) + changes < c.macs / (rate * lanes)

    # Declaration ---------------------------------------------------------------------------------

    def declared(self) -> te.DeclaredTensor:
        """Bordered image, changed tiles, products, and the sums changed back."""
        c = self.conv
        rows, columns = (TILE * tiles + POINTS - TILE for tiles in (self.down, self.across))
        image = self.bordered(rows, columns, self.channels)
        n, px, ci = te.axes(n=c.batch, px=columns, ci=self.channels)
        change = te.tensor("change_in", "int32", CHANGE_IN.shape)
        ty, tx, i, j = te.axes(ty=self.down, tx=self.across, i=POINTS, j=POINTS)
        (a,) = te.reduce_axes(a=POINTS)
        lines = te.sum(change[i, a] * image[n, ty * TILE + a, px, ci], over=a)
        lines = te.compute("lines", "int16", (n, ty, i, px, ci), lines)
        tiles = te.sum(change[j, a] * lines[n, ty, i, tx * TILE + a, ci], over=a)
        tiles = te.compute("tiles", "int16", (n, ty, i, j, tx, ci), tiles)
        w = te.tensor("w", "int16", (POINTS, POINTS, self.channels, c.channels_out))
        (k,) = te.reduce_axes(k=self.channels)
        (o,) = te.axes(o=c.channels_out)
        sums = te.sum(tiles[n, ty, i, j, tx, k] * w[i, j, k, o], over=k)
        sums = te.compute("products", "int32", (n, ty, i, j, tx, o), sums)
        back = te.tensor("change_out", "int32", _OUTPUT.shape)
        dy, dx = te.axes(dy=TILE, dx=TILE)
        lines = te.sum(back[dy, a] * sums[n, ty, a, j, tx, o], over=a)
        lines = te.compute("lines_out", "int32", (n, ty, j, tx, dy, o), lines)
        total = te.sum(back[dx, a] * lines[n, ty, a, tx, dy, o], over=a)
        return self.output(total * _INVERSE_OF_9, (n, ty, dy, tx, dx, o))

    @override
    def prepare(self, constants: Constants) -> Constants:
        """Changed windows, and constants for 64 times the sums.

        Raises
        ------
        InputError
            When sums can be too large for this method.
        """
        w, bias = constants["w"].astype(np.int64), constants["bias"].astype(np.int64)
        low, high = LIMITS[self.conv.dtype]
        up, down = np.maximum(w, 0).sum(axis=(0, 1, 2)), np.minimum(w, 0).sum(axis=(0, 1, 2))
        largest = np.maximum(bias + high * up + low * down, -(bias + low * up + high * down)).max()
        if largest >= LIMIT:
            raise InputError(
                f"convolution: sums can reach {largest}, but Winograd's method needs them below "
                f"{LIMIT}; compile it with `winograd=False`"
            )
        return {
            **constants,
            "w": np.einsum("ia,jb,abco->ijco", _WINDOW, _WINDOW, w).astype(np.int16),
            "bias": (bias * POWER).astype(np.int32),
            "scale": constants["scale"] / np.float32(POWER),
        }

    # Schedule ------------------------------------------------------------------------------------

    @override
    def plan(self) -> KernelSchedule:
        constants = {"change_in": CHANGE_IN, "change_out": _OUTPUT}
        kernel = te.kernel("convolution", self.declared(), constants)
        s = te.Schedule(kernel, self.target.processor)
        for stage in ("lines", "tiles", "products", "lines_out"):
            s.cache_write(stage, REGISTER)
        self.schedule_inputs(s)
        self.schedule_products(s)
        self.schedule_outputs(s)
        w = panels(kernel.tensors["w"].shape, self.panel, TAPS, order=(3, 1, 0, 2))
        return self.placed(s, w, self.padded_out)

    def schedule_inputs(self, s: te.Schedule) -> None:
        """Schedule the input transforms by tile rows: byte vectors, then word vectors."""
        words = 2 * self.target.lanes
        s.nest("padded", "(pn py) pc.i~", pc=2 * words)
        s.nest("lines", "n ty px ci.o i* ci.i~", ci=words)
        s.compute_at("lines.REGISTER", "lines", "ci.o")
        s.nest("lines.REGISTER", "n ty px i* a* ci~")
        s.nest("tiles", "n ty tx ci.o i j* ci.i~", ci=words)
        s.compute_at("tiles.REGISTER", "tiles", "i")
        s.nest("tiles.REGISTER", "n ty i tx j* a* ci~")

    def schedule_products(self, s: te.Schedule) -> None:
        """Schedule products: a block of tiles by a panel of channels stays in registers."""
        panel, lanes = (self.panel, self.target.lanes), self.target.lanes
        loops = "n i j o.o ty.o tx.o ty.i* tx.i* o.i.o* o.i.i~"
        s.nest("products", loops, ty=self.group, tx=self.block, o=panel)
        s.compute_at("products.REGISTER", "products", "tx.o")
        loops = f"n i j k.o/{self.steps}* ty* tx* o.o* o.i!~ k.i"
        s.nest("products.REGISTER", loops, k=TAPS, o=lanes)

    def schedule_outputs(self, s: te.Schedule) -> None:
        """Schedule the changes of outputs: columns of a block's products first, then its lines."""
        register = "lines_out.REGISTER"
        lanes = self.target.lanes
        s.nest("lines_out", "n j ty tx o.o dy* o.i~", o=lanes)
        s.compute_at(register, "lines_out", "o.o")
        s.nest(register, "n ty j tx a* dy* o~")
        outer = "(o.o n ty.o)" if self.whole else "(n ty.o) o.o"
        loops = f"{outer} ty.i tx o.i.o a* dy* dx* o.i.i~"
        shared = s.nest("out", loops, ty=self.group, o=(self.panel, lanes))
        s.compute_at("lines_out", "out", shared if self.whole else "o.o")
        s.compute_at("products", "lines_out", "j")
        if self.whole:
            s.compute_at("lines", "tiles", s.nest("tiles", "(n ty)"))
        else:
            s.compute_at("tiles", "out", shared)
            s.compute_at("lines", "out", shared)
