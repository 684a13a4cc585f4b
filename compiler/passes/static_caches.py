"""Attention over a cache that the network updates at a position given as an input.

`Where` merges the new key with the past ones. Attention does not ask for an order of keys, so the
new one can stand behind the past ones, of which the overwritten one is masked: then no merge stands
between layers, only at the network's outputs.
"""

import math

import numpy as np

from ..graph import operators as ops
from ..rewriting import Site, computed, constant, either, number, op, repeated, rule, value
from .patterns import is_float32, reshaped

LOWEST = np.float32(np.finfo(np.float32).min)

Moves = tuple[ops.Operator, ...]

_PLACE = op(
    ops.Binary("Equal"), constant("places"), computed("place"), value="here", commutative=True
)


def _cache(which: str):
    """Describe a cache after its merge and movements, the last first."""
    merge = op(ops.Where, _PLACE, value(f"new_{which}"), value(f"past_{which}", where=is_float32))
    moved = op((ops.Reshape, ops.Expand, ops.Transpose), value())
    return repeated(moved, merge, f"moves_{which}")


_PRODUCT = op(ops.MatMul, computed("q"), _cache("k"), private=True)
_SCORES = either(
    op((ops.Binary("Mul"), ops.Binary("Div")), _PRODUCT, number("factor"), capture="scaling",
       private=True),
    _PRODUCT,
)  # fmt: skip
_MASKED = op(ops.Binary("Add"), _SCORES, value("mask", where=is_float32), private=True)


@rule(op(ops.MatMul, op(ops.Softmax, _MASKED, capture="softmax", private=True), _cache("v")))
def keep_caches_apart(
    site: Site, q: str, mask: str, here: str, places: str, place: str, new_k: str, past_k: str,
    new_v: str, past_v: str, moves_k: Moves, moves_v: Moves, factor: float | None,
    scaling: ops.Binary | None, softmax: ops.Softmax
) -> str | None:  # fmt: skip
    """Attention of Where(here, new, past) -> of Concat(past, new), without the key at `here`."""
    shape, extents, held = site.shape_of(past_k), site.shape_of(here), site.data(places)
    axes = [axis for axis, extent in enumerate(extents) if extent > 1]
    alone = np.unique(held).size == held.size and site.elements_of(place) == 1
    if not alone or len(axes) != 1 or len(extents) != len(shape) or shape != site.shape_of(past_v):
        return None
    (axis,) = axes
    one = *shape[:axis], 1, *shape[axis + 1 :]
    if shape[axis] != extents[axis] or {site.shape_of(new_k), site.shape_of(new_v)} != {one}:
        return None
    k, v = (
        _grown(site, site.emit(ops.Concat(axis), *pair), moves, shape, axis)
        for pair, moves in (((past_k, new_k), moves_k), ((past_v, new_v), moves_v))
    )
    rank, keys = len(site.shape), shape[axis]
    if k is None or v is None or site.shape_of(mask)[-1] != keys or softmax.stop != rank:
        return None
    if (site.shape_of(k)[-1], site.shape_of(v)[-2]) != (keys + 1, keys + 1):
        return None
    scores = site.emit(ops.MatMul(), q, k)
    if scaling is not None:
        scores = site.emit(scaling, scores, site.constant(np.array(factor, np.float32), "factor"))
    chosen = reshaped(site, here, (*(1,) * (len(site.shape_of(mask)) - 1), keys))
    least = site.constant(np.array(LOWEST), f"{site.root.name}.lowest")
    old = site.emit(ops.Where(), chosen, least, mask)
    own = site.emit(ops.Where(), chosen, mask, least)
    own = site.emit(ops.Reduce("ReduceMax", (len(site.shape_of(mask)) - 1,), keep=True), own)
    masks = site.emit(ops.Concat(len(site.shape_of(mask)) - 1), old, own)
    shares = site.emit(softmax, site.emit(ops.Binary("Add"), scores, masks))
    return site.emit(ops.MatMul(), shares, v)


def _grown(site: Site, x: str, moves: Moves, shape: tuple[int, ...], axis: int) -> str | None:
    """Emit movements of a value that has one element more along an axis than before."""
    for move in reversed(moves):
        if isinstance(move, ops.Transpose):
            axis = move.permutation.index(axis)
            shape = tuple(shape[i] for i in move.permutation)
            x = site.emit(move, x)
            continue
        assert isinstance(move, ops.Reshape | ops.Expand)
        inner, target = math.prod(shape[axis + 1 :]), move.shape
        if isinstance(move, ops.Expand):
            fits = [axis + len(target) - len(shape)]
        else:
            fits = [
                i
                for i, extent in enumerate(target)
                if extent == shape[axis] and math.prod(target[i + 1 :]) == inner
            ]
        if not fits:
            return None
        axis, shape = fits[0], target
        x = site.emit(type(move)((*target[:axis], target[axis] + 1, *target[axis + 1 :])), x)
    return x
