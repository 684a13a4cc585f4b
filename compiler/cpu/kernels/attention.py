"""Attention of float32 as one kernel, whose scores are never stored as a whole."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from ... import te
from ...te.declare import FLOAT32_MAX
from ...tensor import Kernel
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule
from .head_product import HeadProduct

BLOCK_QUERIES, BLOCK_KEYS = 8, 64
"""Rows that a processor computes side by side, and keys whose scores it keeps at a time."""


@dataclass(frozen=True, slots=True)
class Attention(Description):
    """`softmax(scores + mask)` over the keys, times values.

    Operands are `q`, `k`, `mask` where there is one, and `v`.

    Parameters
    ----------
    scores
        The product of queries and keys; its epilogue scales them.
    context
        The product of weights and values.
    mask
        For images, heads, groups and rows, whether the mask differs between them; empty without a
        mask. Groups divide the rows of a head, as where several heads share their keys.
    groups
        Number of groups.
    guarded
        Whether a row whose scores are all minus infinity, or not numbers, gives 0 and not NaN.
    """

    scores: HeadProduct
    context: HeadProduct
    mask: tuple[bool, ...] = ()
    groups: int = 1
    guarded: bool = False

    @property
    @override
    def arrays(self) -> Mapping[str, Array]:
        scores, context = self.scores.arrays, self.context.arrays
        found = {"q": scores["a"], "k": scores["b"]}
        if self.mask:
            found["mask"] = Array("float32", self._masked(*self._lead, self.scores.columns))
        return {**found, "v": context["b"], "out": context["out"]}

    @property
    @override
    def macs(self) -> int:
        return self.scores.macs + self.context.macs

    @property
    def _lead(self) -> tuple[int, int, int, int]:
        s = self.scores
        return s.images, s.heads, self.groups, s.rows // self.groups

    def _masked(self, *axes, alone=1):
        """Extents or indices of the mask, by those of images, heads, groups, rows and keys."""
        *lead, keys = axes
        pairs = zip(lead, self.mask, strict=True)
        return (*(one if differs else alone for one, differs in pairs), keys)

    def declared(self, *, taps_last: bool = False) -> Kernel:
        """Declare it as it is defined.

        Parameters
        ----------
        taps_last
            Whether both products take operands whose taps lie side by side, as copies.
        """
        s, c, arrays = self.scores, self.context, self.operands
        q, k, v = (te.tensor(name, arrays[name].dtype, arrays[name].shape) for name in "qkv")
        extents = dict(zip("nhgm", self._lead, strict=True))
        own = [name for name in "nhgm" if name != "g" or self.groups > 1]
        lead, rows = {name: extents[name] for name in own}, extents["m"]

        def axes(**more: int) -> tuple[te.Index, ...]:
            made = te.axes(**{name: n for name, n in lead.items() if name != "m"}, **more)
            return made

        def placed(at: tuple[te.Index, ...]) -> tuple:
            """Image, head, group and row."""
            n, h, *g, m = at
            return n, h, g[0] if g else 0, m

        def row(at: tuple[te.Index, ...]):
            _, _, g, m = placed(at)
            return m if self.groups == 1 else g * rows + m

        *at, t, m = axes(t=s.inner, m=rows)
        n, h = at[:2]
        element = q[s.placed(0, *s.own(0, n, h), row((*at, m)), t)]
        along = (*at, m, t) if taps_last else (*at, t, m)
        queries = te.compute("queries", "float32", along, element)
        *at, key, m = axes(k=s.columns, m=rows)
        n, h = at[:2]
        (t,) = te.reduce_axes(t=s.inner)
        second = k[s.placed(1, *s.own(1, n, h), *s.second(t, key))]
        along = (*at, m, t) if taps_last else (*at, t, m)
        if taps_last and not s.transposed:
            *to, row, tap = axes(k=s.columns, t=s.inner)
            taken = k[s.placed(1, *s.own(1, *to[:2]), *s.second(tap, row))]
            turned = te.compute("keys", "float32", (*to, row, tap), taken)
            second = turned[*at, key, t]
        score = s.epilogue.value(te.sum(queries[along] * second, over=t))
        if self.mask:
            mask = te.tensor("mask", "float32", arrays["mask"].shape)
            score = score + mask[self._masked(*placed((*at, m)), key, alone=0)]
        scores = te.compute("scores", "float32", (*at, key, m), score)
        (r,) = te.reduce_axes(r=s.columns)
        # Scores of minus infinity must not make the maximum infinite, nor their difference NaN.
        *before, m = of_row = axes(m=rows)
        most = te.maximum(scores[*before, r, m], -float(FLOAT32_MAX))
        largest = te.compute("largest", "float32", of_row, te.max(most, over=r))
        *before, key, m = at = axes(k=s.columns, m=rows)
        power = te.decay(scores[at] - largest[*before, m])
        weights = te.compute("weights", "float32", at, power)
        *before, m = of_row = axes(m=rows)
        mass = te.compute("mass", "float32", of_row, te.sum(weights[*before, r, m], over=r))
        *before, m, o = axes(m=rows, o=c.columns)
        n, h = before[:2]
        share, taken = weights[*before, r, m], v[c.placed(1, *c.own(1, n, h), *c.second(r, o))]
        if taps_last:
            *to, row, tap = axes(m=rows, k=s.columns)
            shares = te.compute("shares", "float32", (*to, row, tap), weights[*to, tap, row])
            *to, column, tap = axes(o=c.columns, k=s.columns)
            moved = v[c.placed(1, *c.own(1, *to[:2]), *c.second(tap, column))]
            values = te.compute("values", "float32", (*to, column, tap), moved)
            share, taken = shares[*before, m, r], values[*before, o, r]
        total = te.sum(share * taken, over=r)
        whole = mass[*before, m]
        value = c.epilogue.value(total) / whole
        if self.guarded:
            value = te.select(te.less(0.0, whole), value, te.constant(0.0))
        g = before[2:]
        axes_out = (n, *g, m, h, o) if c.joined[2] else (n, h, *g, m, o)
        return te.kernel("attention", te.compute("out", "float32", axes_out, value))

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        s = te.Schedule(self.declared(), target.processor)
        batch = [name for name in s.stages[-1].axes if name not in "mo"]
        sizes = {"m": BLOCK_QUERIES, "r": BLOCK_KEYS, "o": 4 * target.lanes}
        s.nest("out", f"({' '.join(batch)} m.o) r.o m.i o.o r.i o.i~", **sizes)
        for name, loops in (("mass", "r m~"), ("weights", "k m~"), ("largest", "r m~")):
            (s.compute_at if name == "weights" else s.carry)(name, "out", "r.o")
            s.nest(name, loops)
        s.compute_at("scores", "out", "r.o")
        s.nest("scores", "k t m~")
        block = "_".join((*batch, "m.o"))
        s.compute_at("queries", "out", block)
        return KernelSchedule(s)


def is_attention(scores: HeadProduct, context: HeadProduct) -> bool:
    """Whether the second product takes what the first one gives, row by row."""
    sizes = scores.images, scores.heads, scores.rows, scores.columns
    return (
        sizes == (context.images, context.heads, context.rows, context.inner)
        and not (scores.joined[2] or context.joined[0])
        and not any(context.once[0])
        and {scores.dtype, context.dtype, scores.epilogue.dtype, context.epilogue.dtype}
        == {"float32"}
        and not (scores.bound or context.bound)
        and math.prod(sizes) > 0
    )
