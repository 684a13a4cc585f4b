"""Products of two float32 activations for each head.

Each panel of the second operand is copied once, by the thread that reads it. Tiles of rows by one
panel then stay in registers over the whole sum.
"""

from typing import TYPE_CHECKING

from typing_extensions import override

from ....aligned import round_up
from ... import te
from ..codegen.buffers import STACK_BYTES
from ..target import CpuTarget
from .choices import Choices
from .description import KernelSchedule, Planner
from .matrix_product import GAP, SAFE_ROWS, WAY_BYTES
from .tiles import Multiplication, pick_panel, pick_rows, pick_steps, schedule_tiles

if TYPE_CHECKING:
    from .head_product import HeadProduct

FEW_ROWS = 4
"""With so few rows, copying the second operand costs more than reading it in place."""


class FloatHeadPlanner(Planner):
    """A product of two float32 activations, in tiles of rows by one panel of columns."""

    def __init__(self, product: "HeadProduct", target: CpuTarget, choices: Choices) -> None:
        self.product, self.target = product, target
        way = Multiplication.of(product.dtype, target)
        self.panel = pick_panel(choices, product.columns, target, product.rows, way)
        self.rows = pick_rows(choices, product.rows, self.panel, target)
        self.packed = product.transposed
        """True if panels of the second operand are copied; a transposed one always is."""
        if not self.packed:
            self.packed = choices.pick("packed", int(product.rows > FEW_ROWS), (0, 1)) > 0
        self.moved = choices.pick("apart", int(self._crowded()), (0, 1)) > 0
        """True if rows of the first operand are copied to addresses that do not compete."""
        self.steps = pick_steps(choices, product.inner)

    @override
    def plan(self) -> KernelSchedule:
        p, target = self.product, self.target
        lanes, panel = target.lanes, self.panel
        out = self._declared()
        s = te.Schedule(te.kernel("batched_product", out), target.processor)
        sizes = ("x", self.rows), ("o", panel)
        schedule_tiles(s, "out", sizes, "n h o.o x.o t", lanes, steps=self.steps)
        place = parallel = "o.o"
        if p.images * p.heads > 1:
            parallel = s.fuse("out", "n", "h")
            if p.columns % panel == 0:  # else the last panel has a loop of its own
                place = parallel = s.fuse("out", parallel, "o.o")
        if self.packed:
            if p.inner * panel * 4 <= STACK_BYTES:
                s.compute_at("packed", "out", place)
            else:
                s.parallelise("packed", s.fuse("packed", "n", "h"))
            if p.transposed and p.inner % lanes == p.columns % lanes == 0:
                s.nest("packed", "t.o o.o t.i* o.i~", t=lanes, o=lanes)
            elif p.transposed:
                s.nest("packed", "o t.o t.i*", t=lanes)
            else:
                s.nest("packed", "o.i~", o=panel)
        if self.moved:
            s.nest("moved", "(n h x) t.i~", t=lanes)
        s.parallelise("out", parallel)
        return KernelSchedule(s)

    def _declared(self) -> te.DeclaredTensor:
        """The product, with copies of the operands that need them."""
        p = self.product
        images, heads = p.images, p.heads
        n, h, x, o = te.axes(n=images, h=heads, x=p.rows, o=p.columns)
        (t,) = te.reduce_axes(t=p.inner)
        left, right = p.left(n, h, x, t), p.right(n, h, t, o)
        if self.packed:
            axes = te.axes(n=images, h=heads, t=p.inner, o=round_up(p.columns, self.panel))
            right = te.compute("packed", "float32", axes, p.right(*axes))[n, h, t, o]
        if self.moved:
            axes = te.axes(n=images, h=heads, x=p.rows, t=p.inner + GAP)
            left = te.compute("moved", "float32", axes, p.left(*axes))[n, h, x, t]
        value = p.epilogue.value(te.sum(left * right, over=t), (p.heads,), (h,))
        return te.compute("out", p.epilogue.dtype, p.placed(2, n, h, x, o), value)

    def _crowded(self) -> bool:
        """Whether the rows of an `a` tile compete for one cache set."""
        p = self.product
        apart = p.inner * (p.heads if p.joined[0] else 1) * 4
        return apart % WAY_BYTES == 0 and self.rows > SAFE_ROWS
