"""Float inputs that hold attention masks in all samples: operators make them masks for any values.

A float input may hold any number, so nothing but the samples tells that it holds 0 and 1, or 0 and
large negative numbers. Networks in QDQ form say it by operators, as they do for inputs of integers.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..graph import Builder, Graph
from ..graph import operators as ops
from ..passes.masks import EXCLUDED, mask_step
from ..passes.patterns import is_float32

TRUTHS = frozenset((0.0, 1.0))


def mark_masks(graph: Graph, samples: Mapping[str, np.ndarray]) -> tuple[Graph, tuple[str, ...]]:
    """Return a graph that rounds its mask inputs to the values in the samples, and their names.

    Parameters
    ----------
    samples : mapping
        Name of each input -> [samples, *shape of the input].
    """
    builder = Builder(graph.name, graph.inputs)
    builder.reserved = {value.name for node in graph.nodes for value in node.outputs}
    for constant in graph.constants:
        builder.adopt(constant)
    marked: dict[str, str] = {}
    for name in (value.name for value in graph.inputs if is_float32(value.type)):
        data = samples[name]
        far = data <= EXCLUDED
        if far.any() and not data[~far].any():
            numbers = EXCLUDED / 2, data[far].max(), 0
            held = [builder.constant(np.array(number, np.float32)) for number in numbers]
            truth = builder.emit(ops.Binary("Less"), [name, held[0]], f"{name}.truth")
            marked[name] = builder.emit(ops.Where(), [truth, *held[1:]], f"{name}.mask")
        elif np.isin(data, (0, 1)).all() and _makes_mask(graph, name):
            truth = builder.emit(ops.Cast("bool"), [name], f"{name}.truth")
            marked[name] = builder.emit(ops.Cast("float32"), [truth], f"{name}.mask")
    if not marked:
        return graph, ()
    for node in graph.nodes:
        inputs = tuple(marked.get(name, name) for name in node.inputs)
        builder.append(replace(node, inputs=inputs))
    return replace(builder.graph(graph.outputs), imported=graph.imported), tuple(marked)


def _makes_mask(graph: Graph, name: str) -> bool:
    """Tell whether an input makes a mask if it is 0 or 1."""
    known, made = {name: TRUTHS}, (node.outputs[0].name for node in graph.nodes)
    values = [each for each in made if is_float32(graph.types[each])]
    steps = (mask_step(graph, each, known) for each in values if not mask_step(graph, each))
    return any(-EXCLUDED <= step < np.inf for step in steps)
