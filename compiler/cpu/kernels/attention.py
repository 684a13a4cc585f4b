"""Attention of float32 as one kernel, whose scores are never stored as a whole."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from ....aligned import round_up
from ... import te
from ...te.declare import FLOAT32_MAX
from ...tensor import Kernel
from ..target import CpuTarget
from .description import Array, Description, KernelSchedule
from .head_product import HeadProduct

WHOLE_KEYS = 16
"""Keys of a step, at least, where instructions multiply several at once."""

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

    def _masked(self, *axes: Any, alone: int = 1) -> tuple[Any, ...]:
        """Select the mask's extents or indices from images, heads, groups, rows and keys."""
        *lead, keys = axes
        pairs = zip(lead, self.mask, strict=True)
        return (*(one if differs else alone for one, differs in pairs), keys)

    def declared(self, *, taps_last: bool = False) -> Kernel:
        """Declare it as it is defined.

        Parameters
        ----------
        taps_last
            Whether both products take operands whose taps lie side by side, as copies, and keys are
            filled up to whole blocks of `WHOLE_KEYS` without any weight.
        """
        s, c, arrays = self.scores, self.context, self.operands
        q, k, v = (te.tensor(name, arrays[name].dtype, arrays[name].shape) for name in "qkv")
        images, heads, groups, rows = self._lead
        lead = {"n": images, "h": heads} | ({"g": groups} if groups > 1 else {})

        def axes(**more: int) -> tuple[te.Index, ...]:
            return te.axes(**lead, **more)

        def row_of(lead: tuple[te.Index, ...], m: te.Index) -> te.Index:
            return lead[2] * rows + m if groups > 1 else m

        def key_of(lead: tuple[te.Index, ...], key: te.Index, t: te.Index) -> te.TensorExpression:
            return k[s.placed(1, *s.own(1, lead[0], lead[1]), *s.second(t, key))]

        def value_of(lead: tuple[te.Index, ...], key: te.Index, o: te.Index) -> te.TensorExpression:
            return v[c.placed(1, *c.own(1, lead[0], lead[1]), *c.second(key, o))]

        keys_up = round_up(s.columns, WHOLE_KEYS) if taps_last else s.columns
        (t,), (r,) = te.reduce_axes(t=s.inner), te.reduce_axes(r=keys_up)
        *at, m, a = axes(m=rows, t=s.inner)
        n, h, *_ = at
        element = q[s.placed(0, *s.own(0, n, h), row_of((*at,), m), a)]
        along = (*at, m, a) if taps_last else (*at, a, m)
        queries = te.compute("queries", "float32", along, element)
        *at, key, m = of_score = axes(k=s.columns, m=rows)
        second = key_of((*at,), key, t)
        if taps_last and not s.transposed:
            *to, line, tap = axes(k=s.columns, t=s.inner)
            keys = te.compute("keys", "float32", (*to, line, tap), key_of((*to,), line, tap))
            second = keys[*at, key, t]
        query = queries[*at, m, t] if taps_last else queries[*at, t, m]
        score = s.epilogue.value(te.sum(query * second, over=t))
        if self.mask:
            mask = te.tensor("mask", "float32", arrays["mask"].shape)
            place = at[0], at[1], at[2] if groups > 1 else 0, m, key
            score = score + mask[self._masked(*place, alone=0)]
        scores = te.compute("scores", "float32", of_score, score, pad=-FLOAT32_MAX)
        # Scores of minus infinity must not make the maximum infinite, nor their difference NaN.
        *at, m = of_row = axes(m=rows)
        most = te.maximum(scores[*at, r, m], -float(FLOAT32_MAX))
        largest = te.compute("largest", "float32", of_row, te.max(most, over=r))
        *at, key, m = of_score
        power = te.decay(scores[of_score] - largest[*at, m])
        weights = te.compute("weights", "float32", of_score, power)
        *at, m = of_row
        mass = te.compute("mass", "float32", of_row, te.sum(weights[*at, r, m], over=r))
        *at, m, o = axes(m=rows, o=c.columns)
        share, taken = weights[*at, r, m], value_of((*at,), r, o)
        if taps_last:
            *to, line, tap = axes(m=rows, k=keys_up)
            moved = te.compute("shares", "float32", (*to, line, tap), weights[*to, tap, line])
            *to, column, tap = axes(o=c.columns, k=keys_up)
            turned = value_of((*to,), tap, column)
            values = te.compute("values", "float32", (*to, column, tap), turned)
            share, taken = moved[*at, m, r], values[*at, o, r]
        value = c.epilogue.value(te.sum(share * taken, over=r)) / mass[*at, m]
        if self.guarded:
            value = te.select(te.less(0.0, mass[*at, m]), value, te.constant(0.0))
        n, h, *g = at
        of_out = (n, *g, m, h, o) if c.joined[2] else (n, h, *g, m, o)
        return te.kernel("attention", te.compute("out", "float32", of_out, value))

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
