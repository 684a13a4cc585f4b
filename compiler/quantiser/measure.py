"""Rounding noise per layer, and agreement of whole networks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Quantisation, evaluate, evaluate_node
from ..graph import operators as ops
from ..reach import reach
from .batches import Arrays, Batches
from .float_layer import FloatLayer, is_move
from .insert import Inserted
from .points import Points
from .ranges import range_of
from .states import JOINS

BEST_DB = 200.0
"""Ratio reported for a value without noise."""

MIN_COMPARED = 4
"""With fewer samples, one that has most of the noise is nothing unusual."""


class Noise:
    """Running sums of signal and noise power."""

    def __init__(self) -> None:
        self.signal = 0.0
        self.noise = 0.0
        self.count = 0

    def add(self, expected: np.ndarray, got: np.ndarray) -> None:
        """Add the power of float arrays of one shape, except where infinities are expected."""
        finite = np.isfinite(expected)
        if not finite.all():
            expected, got = expected[finite], got[finite]
        self.signal += float(np.square(expected, dtype=np.float64).sum())
        self.noise += float(np.square(np.subtract(got, expected, dtype=np.float64)).sum())
        self.count += expected.size

    @property
    def mean_squared_error(self) -> float:
        return self.noise / max(self.count, 1)

    @property
    def sqnr_db(self) -> float:
        """Signal-to-noise ratio in dB."""
        if not self.noise:
            return BEST_DB
        if not self.signal or not np.isfinite(self.noise):
            return -BEST_DB
        return float(np.clip(10 * np.log10(self.signal / self.noise), -BEST_DB, BEST_DB))


@dataclass(frozen=True, slots=True)
class LayerQuality:
    """Cost of quantisation for one layer.

    Attributes
    ----------
    layer : FloatLayer
        The layer.
    quantisation : Quantisation
        Quantisation of its output.
    low, high : float
        Real numbers that -128 and 127 stand for.
    alone_db : float
        Signal-to-noise ratio of its output if its inputs are the float graph's, rounded.
    through_db : float
        The same ratio in the quantised network, with the noise of all earlier layers.
    clipped_share : float
        Share of its float outputs that exceed `low` or `high` by more than half a step.
    """

    layer: FloatLayer
    quantisation: Quantisation
    low: float
    high: float
    alone_db: float
    through_db: float
    clipped_share: float


def measure_layers(
    graph: Graph,
    inserted: Inserted,
    points: Points,
    quantisations: Mapping[str, Quantisation],
    batches: Batches,
) -> tuple[LayerQuality, ...]:
    """Compare each layer's output with that of the float graph.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    inserted : Inserted
        Its quantised form.
    points : Points
        Its points of quantisation.
    quantisations : mapping
        Quantisation of each point.
    batches : Batches
        Samples to measure with.
    """
    outputs = [layer.output for layer in points.layers]
    alone, through = ({name: Noise() for name in outputs} for _ in range(2))
    clipped = dict.fromkeys(outputs, 0)
    batches = batches.fitting(graph, inserted.graph)
    floats = batches.run(graph, points.values)
    quantised = batches.graphs(inserted.graph)
    for expected, (wide, given) in zip(floats, quantised, strict=True):
        single = _fed(wide, inserted, expected, given)
        got = evaluate(wide, given, [inserted.shown[name] for name in outputs])
        for name in outputs:
            low, high = range_of(quantisations[name])
            half = quantisations[name].scale / 2
            alone[name].add(expected[name], single[name])
            through[name].add(expected[name], got[inserted.shown[name]])
            outside = (expected[name] < low - half) | (expected[name] > high + half)
            clipped[name] += int(np.count_nonzero(outside))
    return tuple(
        LayerQuality(
            layer,
            quantisations[layer.output],
            *range_of(quantisations[layer.output]),
            alone[layer.output].sqnr_db,
            through[layer.output].sqnr_db,
            clipped[layer.output] / max(alone[layer.output].count, 1),
        )
        for layer in points.layers
    )


def _fed(
    graph: Graph, inserted: Inserted, expected: Arrays, given: Arrays
) -> dict[str, np.ndarray]:
    """Return the dequantised value of every point, computed from the float graph's values."""
    points = {shown: name for name, shown in inserted.shown.items()}
    values = {constant.name: constant.data for constant in graph.constants} | dict(given)
    found: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        results = evaluate_node(node, [values[name] for name in node.inputs])
        for value, result in zip(node.outputs, results, strict=True):
            values[value.name] = result
            if value.name in points:
                name = points[value.name]
                found[name] = result
                if isinstance(node.attributes, ops.Binary):  # a state, whose 16 bits round little
                    values[value.name] = expected[name]
                    continue
                integers = graph.producer(node.inputs[0])
                assert integers is not None, "a Quantize stands before each Dequantize of a point"
                (true,) = evaluate_node(integers, [expected[name]])
                values[value.name] = evaluate_node(node, [true])[0]
    return found


LINEAR = tuple(ops.Binary(kind) for kind in ("Add", "Sub", "Mul"))
"""Operators that pass on noise as it is; others may hide or amplify it."""


def last_values(graph: Graph, points: Points) -> tuple[str, ...]:
    """Return the values whose noise the network's results show.

    These are the results of layers that reach an output, each taken behind the linear operators
    that follow it, such as the product with a mask. A layer that later layers read counts too if it
    also reaches an output without them.
    """
    inside = frozenset().union(*(layer.inside for layer in points.layers))

    def sources(name: str) -> Iterable[str]:
        node = graph.producer(name)
        return () if node is None or name in inside else node.inputs

    behind = set(reach((output.value for output in graph.outputs), sources))
    linear = {layer.output for layer in points.layers}
    for node in graph.nodes:
        kept = (
            node.attributes in LINEAR or isinstance(node.attributes, JOINS) or is_move(graph, node)
        )
        if kept and inside.isdisjoint(made.name for made in node.outputs):
            linear |= {made.name for made in node.outputs if not linear.isdisjoint(node.inputs)}
    found = (
        made.name
        for node in graph.nodes
        for made in node.outputs
        if made.name in behind & linear
        and (
            graph.is_output(made.name)
            or any(
                name in behind - linear
                for user in graph.users(made.name)
                for name in (value.name for value in user.outputs)
            )
        )
    )
    return tuple(found) or tuple(layer.output for layer in points.layers[-1:])


@dataclass(frozen=True, slots=True)
class OutputQuality:
    """Cost of quantisation for one output of the network.

    Attributes
    ----------
    name : str
        The output.
    sqnr_db : float
        Signal-to-noise ratio of all values.
    mean_squared_error : float
        Mean squared error of all values.
    """

    name: str
    sqnr_db: float
    mean_squared_error: float


@dataclass(frozen=True, slots=True)
class NoisiestSample:
    """The sample with the most noise in the first output.

    Attributes
    ----------
    index : int
        Its place among the samples.
    noise_share : float
        Its share of the noise of all samples.
    others_db : float
        Signal-to-noise ratio of all others.
    """

    index: int
    noise_share: float
    others_db: float

    @property
    def prevails(self) -> bool:
        """Tell whether the ratio of all samples says more about this one than about the others."""
        return self.noise_share > 0.5


@dataclass(frozen=True, slots=True)
class NetworkQuality:
    """Agreement of the quantised network with the float one; classes are of the first output.

    Attributes
    ----------
    samples : int
        Number of samples compared.
    same_class : float or None
        Share of samples with the largest value at the same index; None if the output is not one
        number per class.
    float_accuracy, accuracy : float or None
        Share of samples whose largest value is at the label's index; None without labels, or as
        for `same_class`.
    outputs : tuple of OutputQuality
        Noise of each output.
    noisiest : NoisiestSample or None
        None with fewer than four samples, or without noise.
    """

    samples: int
    same_class: float | None
    float_accuracy: float | None
    accuracy: float | None
    outputs: tuple[OutputQuality, ...]
    noisiest: NoisiestSample | None

    @property
    def sqnr_db(self) -> float:
        """Signal-to-noise ratio of the first output."""
        return self.outputs[0].sqnr_db

    @property
    def mean_squared_error(self) -> float:
        """Mean squared error of the first output."""
        return self.outputs[0].mean_squared_error


def compare_networks(
    expected: Graph, got: Graph, batches: Batches, labels: np.ndarray | None
) -> NetworkQuality:
    """Compare the outputs of two networks.

    Parameters
    ----------
    expected, got : Graph
        The float network and the quantised one.
    batches : Batches
        Samples to compare with.
    labels : int[samples] or None
        True classes.
    """
    batches = batches.fitting(expected, got)
    noises = {output.name: Noise() for output in expected.outputs}
    first = expected.outputs[0].name
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for true, found in zip(batches.run(expected), batches.run(got), strict=True):
        for name, noise in noises.items():
            noise.add(true[name], found[name])
        pairs.append((true[first], found[first]))
    whole = np.concatenate if pairs[0][0].ndim else np.stack
    ours, theirs = (whole(parts) for parts in zip(*pairs, strict=True))
    one, two = (array.reshape(len(array), -1).argmax(axis=1) for array in (ours, theirs))
    classes = has_classes(expected)
    known = labels is not None and classes
    return NetworkQuality(
        batches.count,
        float(np.mean(one == two)) if classes else None,
        float(np.mean(one == labels)) if known else None,
        float(np.mean(two == labels)) if known else None,
        tuple(
            OutputQuality(name, noise.sqnr_db, noise.mean_squared_error)
            for name, noise in noises.items()
        ),
        _noisiest(ours.reshape(batches.count, -1), theirs.reshape(batches.count, -1)),
    )


def _noisiest(expected: np.ndarray, got: np.ndarray) -> NoisiestSample | None:
    """Find the noisiest sample in float[samples, values] of two networks."""
    noises = [Noise() for _ in expected]
    for noise, *both in zip(noises, expected, got, strict=True):
        noise.add(*both)
    total = sum(noise.noise for noise in noises)
    if len(noises) < MIN_COMPARED or not 0 < total < np.inf:
        return None
    worst = max(range(len(noises)), key=lambda index: noises[index].noise)
    share, others = noises.pop(worst).noise / total, Noise()
    others.signal = sum(noise.signal for noise in noises)
    others.noise = sum(noise.noise for noise in noises)
    return NoisiestSample(worst, share, others.sqnr_db)


def has_classes(graph: Graph) -> bool:
    """Tell whether the first output is one number per class.

    It is if it has one row per sample and a different shape from every input; an autoencoder's
    output has the shape of its input.
    """
    kind = graph.types[graph.outputs[0].value]
    inputs = {value.type.shape for value in graph.inputs}
    long = [size for size in kind.shape[1:] if size != 1]
    one_row = kind.shape[:1] == (1,) and len(long) == 1
    return kind.dtype == "float32" and one_row and kind.shape not in inputs
