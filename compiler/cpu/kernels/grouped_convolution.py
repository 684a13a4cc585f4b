"""Convolution in groups of channels, each a direct convolution of its own.

Groups that give fewer channels than a vector has lanes are joined, with weights of zero between
them, until they fill one. Each tile of pixels by a panel of a group's channels stays in registers
over the reduction, as in `direct_convolution`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ....errors import CompileError
from ... import te
from ..codegen.layout import Layout
from ..target import Target
from .description import Array, Plan, activated, round_up
from .quantised import Quantised
from .windows import check_windows, count_windows


@dataclass(frozen=True, slots=True)
class GroupedConvolution:
    """`out[n, y, x, o]` of the window at `x[n, y * s - top, ...]` and the channels of o's group.

    Operands are `x` as [N, H, W, I], `w` as [KH, KW, I / groups, O], `bias` [O] (float32, or int32
    for bytes) and, for bytes, `scale` float32[O]. The output is [N, OH, OW, O].

    Parameters
    ----------
    batch, height, width, channels_in, channels_out, groups
        Extents; the groups divide both numbers of channels.
    kernel, strides, pads, dilations, activation, quantised
        As in `Convolution`.
    """

    batch: int
    height: int
    width: int
    channels_in: int
    channels_out: int
    groups: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilations: tuple[int, int] = (1, 1)
    activation: str = ""
    quantised: Quantised | None = None

    def __post_init__(self) -> None:
        check_windows(self, "grouped convolution")
        if self.channels_in % self.groups or self.channels_out % self.groups:
            raise CompileError(
                f"grouped convolution: {self.groups} groups do not divide {self.channels_in} and "
                f"{self.channels_out} channels; choose a divisor of both"
            )

    @property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        return count_windows(self)

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        q = self.quantised
        number, weight, total = ("float32",) * 3 if q is None else (q.dtype_in, "int8", "int32")
        depth, channels = self.channels_in // self.groups, self.channels_out
        found = {
            "x": Array(number, (self.batch, self.height, self.width, self.channels_in)),
            "w": Array(weight, (*self.kernel, depth, channels)),
            "bias": Array(total, (channels,)),
        }
        return found if q is None else {**found, "scale": Array("float32", (channels,))}

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are packed once."""
        return ("w", "bias") if self.quantised is None else ("w", "bias", "scale")

    @property
    def output(self) -> Array:
        """What it gives."""
        number = "float32" if self.quantised is None else self.quantised.dtype_out
        return Array(number, (self.batch, *self.size_out, self.channels_out))

    @property
    def macs(self) -> int:
        """Multiplications."""
        taps = self.kernel[0] * self.kernel[1] * self.channels_in // self.groups
        return taps * int(np.prod(self.output.shape))

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule."""
        return GroupedPlanner(self, target).plan()

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """Weights of joined groups, and the zero point taken out through the bias."""
        planner = GroupedPlanner(self, target)
        w, prepared = constants["w"], dict(constants)
        if self.quantised is not None:
            moved = self.quantised.moved + planner.shift
            sums = w.astype(np.int64).sum(axis=(0, 1, 2))
            prepared["bias"] = (constants["bias"] - moved * sums).astype(np.int32)
        groups, joined, part = planner.groups, planner.joined, self.channels_out // self.groups
        apart = w.reshape(*self.kernel, -1, groups, joined, part)
        depth = apart.shape[2]
        whole = np.zeros((*self.kernel, joined, depth, groups, joined, part), w.dtype)
        for one in range(joined):
            whole[:, :, one, :, :, one] = apart[:, :, :, :, one]
        prepared["w"] = whole.reshape(*self.kernel, joined * depth, groups, joined * part)
        for name in ("bias", "scale"):
            if name in prepared:
                prepared[name] = prepared[name].reshape(groups, -1)
        return prepared


class GroupedPlanner:
    """Declares and schedules one grouped convolution for one target.

    Parameters
    ----------
    conv
        The convolution.
    target
        What it is compiled for.
    """

    def __init__(self, conv: GroupedConvolution, target: Target) -> None:
        self.conv, self.target = conv, target
        self.instruction = None if conv.quantised is None else target.processor.instructions[0]
        self.taps = self.instruction.taps if self.instruction else 1
        part = conv.channels_out // conv.groups
        fitting = [n for n in range(1, conv.groups + 1) if conv.groups % n == 0]
        self.joined = next((n for n in fitting if n * part >= target.lanes), conv.groups)
        self.groups = conv.groups // self.joined
        self.depth = round_up(conv.channels_in // self.groups, self.taps)
        self.part = conv.channels_out // self.groups
        vectors = 1 if self.part <= target.lanes else 2
        self.panel = vectors * target.lanes
        most = {"avx512vnni": 14, "avx2": 6 if vectors > 1 else 10, "sse2": 4}[target.level]
        columns = conv.size_out[1]
        self.pixels = -(-columns // -(-columns // most))

    @property
    def shift(self) -> int:
        """What is added to signed bytes."""
        q = self.conv.quantised
        if q is None or self.instruction is None or q.dtype_in == "uint8":
            return 0
        return 0 if (q.dtype_in, "int8") in self.instruction.pairs else 128

    def plan(self) -> Plan:
        """Declaration, schedule and layouts."""
        c, name = self.conv, self.name
        s = te.Schedule(te.kernel("grouped", self._declared()), processor=self.target.processor)
        s.split("padded", "d", min(self.target.lanes, self.depth))
        s.vectorise("padded", "d.i")
        s.parallelise("padded", s.fuse("padded", "n", "y"))
        s.split(name, "x", self.pixels)
        s.split(name, "o", self.panel)
        s.split(name, "o.i", self.target.lanes)
        inner = ["x.i", "o.i.o", "o.i.i"]
        if self.instruction is not None:
            s.split(name, "t", self.taps)
            inner = ["t.o", *inner, "t.i"]
        else:
            inner = ["t", *inner]
        s.reorder(name, "n", "g", "o.o", "y", "x.o", "ky", "kx", *inner)
        s.unroll(name, "x.i")
        s.unroll(name, "o.i.o")
        if self.instruction is not None:
            s.tensorise(name, "o.i.i")
        s.vectorise(name, "o.i.i")
        s.parallelise(name, s.fuse(name, s.fuse(name, "g", "o.o"), "y"))
        room = round_up(self.part, self.panel)
        order = [(3, 0), (4, 0), (0, 0), (1, 0), (2, 0), (4, 1)]
        inside = (self.taps,) if self.taps > 1 else ()
        blocks = ((), (), inside, (), (self.panel,))
        order += [(2, 1)] if inside else []
        layouts = {"w": Layout((*c.kernel, self.depth, self.groups, room), blocks, tuple(order))}
        for operand in ("bias", "scale"):
            if operand in c.operands:
                layouts[operand] = Layout.plain((self.groups, room))
        return Plan(s, layouts)

    @property
    def name(self) -> str:
        """The stage that sums."""
        return "out" if self.part >= self.target.lanes else "wide"

    def _declared(self) -> te.Operand:
        c, q, groups = self.conv, self.conv.quantised, self.groups
        wide = max(self.part, self.target.lanes)
        pad = 0 if q is None else q.zero_point_in
        image = (c.batch, c.height, c.width, groups, c.channels_in // groups)
        x = te.tensor("x", c.operands["x"].dtype, image, pad=pad)
        w = te.tensor("w", c.operands["w"].dtype, (*c.kernel, self.depth, groups, wide))
        bias = te.tensor("bias", c.operands["bias"].dtype, (groups, wide))
        sizes = zip(c.size_out, c.strides, c.kernel, c.dilations, strict=True)
        high, wide_row = ((size - 1) * s + (k - 1) * d + 1 for size, s, k, d in sizes)
        n, y, xo, g, d = te.axes(n=c.batch, y=high, x=wide_row, g=groups, d=self.depth)
        moved = x[n, y - c.pads[0], xo - c.pads[1], g, d]
        kind = "uint8" if self.shift else x.tensor.dtype
        moved = moved + self.shift if self.shift else moved
        padded = te.compute("padded", kind, (n, y, xo, g, d), moved)
        rows, columns = c.size_out
        n, y, xo, g, o = te.axes(n=c.batch, y=rows, x=columns, g=groups, o=wide)
        ky, kx, t = over = te.reduce_axes(ky=c.kernel[0], kx=c.kernel[1], t=self.depth)
        row, column = (
            y * c.strides[0] + ky * c.dilations[0],
            xo * c.strides[1] + kx * c.dilations[1],
        )
        total = te.sum(padded[n, row, column, g, t] * w[ky, kx, t, g, o], over=over) + bias[g, o]
        if q is None:
            value = activated(total, c.activation, "grouped convolution")
        else:
            scale = te.tensor("scale", "float32", (groups, wide))
            value = q.requantised(total, scale[g, o])
        computed = te.compute(self.name, c.output.dtype, (n, y, xo, g, o), value)
        if self.name == "out":
            return computed
        n, y, xo, g, o = te.axes(n=c.batch, y=rows, x=columns, g=groups, o=self.part)
        return te.compute("out", c.output.dtype, (n, y, xo, g, o), computed[n, y, xo, g, o])
