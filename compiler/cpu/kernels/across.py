"""Softmax and reductions along an axis that is not the last: vectors of neighbours, side by side.

Every lane has a row of its own, so that nothing is folded in the end.
"""

import math
from collections.abc import Sequence

from ... import te
from ...te.stages import REGISTER
from ..target import Target
from .description import Plan


def softmax_across(rows: int, columns: int, inner: int, log: bool, target: Target) -> Plan:
    """`exp(x - largest) / sum of that` along the middle axis of [rows, columns, inner]."""
    r, c, i = te.axes(r=rows, c=columns, i=inner)
    (k,) = te.reduce_axes(k=columns)
    x = te.tensor("x", "float32", (rows, columns, inner))
    largest = te.compute("largest", "float32", (r, i), te.max(x[r, k, i], over=k))
    grown = te.compute("grown", "float32", (r, c, i), te.exp(x[r, c, i] - largest[r, i]))
    total = te.compute("total", "float32", (r, i), te.sum(grown[r, k, i], over=k))
    if log:
        share = te.compute("share", "float32", (r, i), te.log(total[r, i]))
        value = x[r, c, i] - largest[r, i] - share[r, i]
    else:
        share = te.compute("share", "float32", (r, i), 1.0 / total[r, i])
        value = grown[r, c, i] * share[r, i]
    out = te.compute("out", "float32", (r, c, i), value)
    return _scheduled("softmax", out, ("largest", "grown", "total", "share"), target)


def reduction_across(rows: int, columns: int, inner: int, kind: str, target: Target) -> Plan:
    """A sum, mean, extreme or length along the middle axis of [rows, columns, inner]."""
    r, i = te.axes(r=rows, i=inner)
    (k,) = te.reduce_axes(k=columns)
    x = te.tensor("x", "float32", (rows, columns, inner))
    element = x[r, k, i]
    if kind in ("max", "min"):
        sign = 1.0 if kind == "max" else -1.0
        marked = te.select(te.equal(element, element), te.constant(0.0), te.constant(math.nan))
        most = te.compute("most", "float32", (r, i), te.max(element * sign, over=k))
        marks = te.compute("marks", "float32", (r, i), te.sum(marked, over=k))
        value, stages = most[r, i] * sign + marks[r, i], ("most", "marks")
    else:
        term = element * element if kind in ("squares", "length") else element
        total = te.compute("total", "float32", (r, i), te.sum(term, over=k))
        value, stages = total[r, i], ("total",)
        if kind == "mean":
            value = value * (1.0 / columns)
        if kind == "length":
            value = te.sqrt(value)
    out = te.compute("out", "float32", (r, i), value)
    return _scheduled("reduction", out, stages, target)


def _scheduled(name: str, out: te.Operand, stages: Sequence[str], target: Target) -> Plan:
    """All stages inside a loop over blocks of neighbours; whole rows in memory."""
    s = te.Schedule(te.kernel(name, out), processor=target.processor)
    inner = out.tensor.shape[-1]
    block = min(inner, 2 * target.lanes)
    s.split("out", "i", block)
    loops = {stage.name: stage.loops for stage in s.stages}
    if "c" in loops["out"]:
        s.reorder("out", "r", "i.o", "c", "i.i")
    for stage in reversed(stages):
        s.compute_at(stage, "out", "i.o")
        if "k" in loops[stage]:
            s.reorder(stage, "r", "k", "i")
        if "c" not in loops[stage]:
            s.set_scope(stage, REGISTER)
        s.vectorise(stage, "i")
    s.vectorise("out", "i.i")
    s.parallelise("out", "r" if out.tensor.shape[0] > 1 else "i.o")
    return Plan(s)
