"""Bias correction: subtract the mean rounding error of each channel from its bias.

The quantised graph is evaluated once, node by node, over all batches. Each layer is therefore
corrected with inputs that are already quantised and corrected.

Source: M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
ICCV 2019, section 4.2; the means come from calibration samples here.
"""

from collections.abc import Mapping

import numpy as np

from ..graph import evaluate_node
from .batches import Batches
from .calibrate import ChannelMean, channels_last
from .insert import Inserted
from .points import Points

MIN_ROWS = 16
"""Minimum number of values of a channel: the mean error of fewer is that of these samples alone,
as in the steps of a recurrent cell."""


def correct_biases(
    inserted: Inserted, points: Points, means: Mapping[str, np.ndarray], batches: Batches
) -> dict[str, np.ndarray]:
    """Return the correction of each layer's bias.

    Parameters
    ----------
    inserted : Inserted
        The quantised graph, without corrections.
    points : Points
        Its points of quantisation.
    means : mapping
        Value before a weighted layer's activation -> float64[channels], its float mean.
    batches : Batches
        The calibration samples; a value stays in memory, for all samples, until its last read.

    Returns
    -------
    dict
        Output of a weighted layer -> float64[channels], its correction.
    """
    layers = {layer.linear: layer for layer in points.layers if layer.weighted}
    runs = list(batches.graphs(inserted.graph))
    held = [{c.name: c.data for c in graph.constants} | given for graph, given in runs]
    remaining = {name: len(inserted.graph.users(name)) for name in inserted.graph.types}
    corrections: dict[str, np.ndarray] = {}
    for place, node in enumerate(inserted.graph.nodes):
        results = [
            evaluate_node(graph.nodes[place], [values[name] for name in node.inputs])
            for (graph, _), values in zip(runs, held, strict=True)
        ]
        layer = layers.get(node.outputs[0].name)
        mean = ChannelMean()
        if layer is not None:
            for result in results:
                mean.add(channels_last(layer, result[0]))
        if layer is not None and mean.count >= MIN_ROWS:
            difference = means[layer.linear] - mean.value()
            corrections[layer.output] = difference
            shape = (-1, 1, 1) if layer.kind == "conv" else (-1,)
            addend = difference.astype(np.float32).reshape(shape)
            results = [[result[0] + addend] for result in results]
        for values, result in zip(held, results, strict=True):
            values.update(zip((value.name for value in node.outputs), result, strict=True))
        for name in dict.fromkeys(node.inputs):
            remaining[name] -= 1
            if not remaining[name]:
                for values in held:
                    del values[name]
    return corrections
