"""Gates that are slices of one sum of products -> a sum of products for each gate.

Cells compute all gates at once, `slice(x @ w + h @ r + b)`. Apart, each gate has a scale of its own
and ends where its activation is flat.
"""

import numpy as np

from ..graph import operators as ops
from ..rewriting import GraphView, Site, op, rule
from .fold_batch_normalisation import is_matrix

ADD = ops.Binary("Add")


@rule(op(ops.Slice, op(ADD, value="total"), capture="cut"))
def split_gates(site: Site, cut: ops.Slice, total: str) -> str | None:
    """Slice(x @ w + y @ r + b) -> x @ part of w + part of b + y @ part of r.

    Split sums of products that are read in slices of channels.
    """
    *outer, columns = shape = site.shape_of(total)
    whole = (*cut.starts[:-1], *cut.steps) == (*(0 for _ in outer), *(1 for _ in shape))
    if not whole or [*cut.stops[:-1]] != outer or site.shape[-1] == columns:
        return None
    leaves = _leaves(site.view, total)
    products = [name for name in leaves if _is_product(site.view, name)]
    known = [name for name in leaves if site.is_constant(name) and _is_row(site, name, columns)]
    if not products or len(leaves) - len(known) < 2:
        return None
    channels = slice(cut.starts[-1], cut.stops[-1])
    rows = (np.broadcast_to(site.data(name).ravel(), columns) for name in known)
    bias = sum((row.astype(np.float64) for row in rows), np.zeros(columns))
    parts = []
    for name in leaves:
        if name in products:
            node = site.view.producer(name)
            assert node is not None, "a product has a node"
            x, weights = node.inputs
            held = np.ascontiguousarray(site.data(weights)[:, channels])
            part = site.emit(ops.MatMul(), x, site.constant(held, f"{site.root.name}.weights"))
            own = bias[channels].astype(np.float32)
            bias = np.zeros(columns)
            parts.append(site.emit(ADD, part, site.constant(own, f"{site.root.name}.bias")))
        elif name not in known:
            parts.append(site.emit(cut, name))
    made = parts[0]
    for part in parts[1:]:
        made = site.emit(ADD, made, part)
    return made


def _leaves(view: GraphView, name: str) -> list[str]:
    """Return the terms of a sum."""
    node = view.producer(name)
    if node is None or node.attributes != ADD:
        return [name]
    wide = [one for one in node.inputs if view.types[one].shape != node.output.type.shape]
    if any(not view.is_constant(one) or len(view.types[one].shape) > 1 for one in wide):
        return [name]
    return [leaf for one in node.inputs for leaf in _leaves(view, one)]


def _is_product(view: GraphView, name: str) -> bool:
    node = view.producer(name)
    if node is None or not isinstance(node.attributes, ops.MatMul):
        return False
    weights = node.inputs[1]
    return view.is_constant(weights) and is_matrix(view.types[weights])


def _is_row(site: Site, name: str, columns: int) -> bool:
    """Tell whether a constant is the same for all rows."""
    data = site.data(name)
    return data.size == 1 or data.shape[-1] == data.size == columns
