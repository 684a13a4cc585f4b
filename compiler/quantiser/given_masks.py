"""Float inputs that are added as attention masks: operators make them masks for any values.

A float input may hold any number, so nothing but the samples tells that it holds 0 and large
negative numbers only. Networks in QDQ form say it by operators.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..graph import Builder, Graph
from ..passes.masks import EXCLUDED, round_mask
from ..passes.patterns import is_float32


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
            marked[name] = round_mask(builder, name, data[far].max())
    if not marked:
        return graph, ()
    for node in graph.nodes:
        inputs = tuple(marked.get(name, name) for name in node.inputs)
        builder.append(replace(node, inputs=inputs))
    return replace(builder.graph(graph.outputs), imported=graph.imported), tuple(marked)
