"""Insertion of Quantize and Dequantize into a float graph, with weights as dequantised integers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import Builder, Graph, Node, Output, Quantisation, drop_unused, verify
from ..graph import operators as ops
from ..graph.operators import Reshape
from ..passes.recognise_states import low_of
from .float_layer import FloatLayer, maker, origin
from .four_bits import FourBitForm
from .points import Points
from .weights import EIGHT_BITS, ScaledIntegers, one_scale, quantise_weights, rows_of


@dataclass(frozen=True, slots=True)
class Inserted:
    """A graph in QDQ form.

    Attributes
    ----------
    graph : Graph
        Float operators between Dequantize and Quantize; other values keep their names.
    shown : mapping
        Value of the float graph -> its dequantised form here.
    """

    graph: Graph
    shown: Mapping[str, str]


def insert_quantisation(
    graph: Graph,
    points: Points,
    quantisations: Mapping[str, Quantisation],
    corrections: Mapping[str, np.ndarray] | None = None,
    scales: dict[object, np.ndarray] | None = None,
    four_bits: frozenset[str] = frozenset(),
) -> Inserted:
    """Return a graph in QDQ form, which the recognising passes and other tools read.

    Parameters
    ----------
    graph : Graph
        A prepared float graph.
    points : Points
        Its points of quantisation.
    quantisations : mapping
        Quantisation of every point.
    corrections : mapping
        Output of a weighted layer -> float64[channels] to add to its bias.
    scales : dict
        Weights and their form -> scales that an earlier call found for this graph; new ones are
        added.
    four_bits : frozenset of str
        Heads of layers whose weights have 4 bits.

    Raises
    ------
    CompileError
        If the result is not a valid graph.
    """
    builder = Builder.from_graph(graph)
    shown: dict[str, str] = {}

    def quantise(name: str) -> None:
        kind = quantisations[name]
        shown[name] = scaled(name, kind, name)
        if name in points.states:
            high = shown[name] if name in points.replaced else rounded(name, kind)
            rest = builder.emit(ops.Binary("Sub"), [name, high], f"{name}.quantise")
            low = scaled(rest, low_of(kind), f"{name}.low")
            shown[name] = builder.emit(ops.Binary("Add"), [shown[name], low], f"{name}.dequantise")

    def rounded(value: str, kind: Quantisation) -> str:
        """Round an input that is a state, so that the host can split it at the start."""
        step = builder.constant(np.array(kind.scale, np.float32))
        for function in (ops.Binary("Div"), ops.Unary("Round"), ops.Binary("Mul")):
            unary = isinstance(function, ops.Unary)
            value = builder.emit(function, [value] if unary else [value, step], "state")
        return value

    def scaled(value: str, kind: Quantisation, name: str) -> str:
        scales, points_ = (kind.scale,), (kind.zero_point,)
        integers = builder.emit(
            ops.Quantize(scales, points_, "int8"), [value], f"{name}.quantise", f"{name}.quantised"
        )
        return builder.emit(
            ops.Dequantize(scales, points_),
            [integers],
            f"{name}.dequantise",
            f"{name}.dequantised",
        )

    parameters = _parameters(
        graph, points, quantisations, corrections or {}, {} if scales is None else scales, four_bits
    )
    for value in graph.inputs:
        if value.name in quantisations:
            quantise(value.name)
    for node in graph.nodes:
        names = {value.name for value in node.outputs}
        inputs = [
            shown[name]
            if name in points.replaced or not names.isdisjoint(points.readers.get(name, ()))
            else name
            for name in node.inputs
        ]
        for place, held in parameters.get(next(iter(names)), {}).items():
            inputs[place] = _emit_parameter(builder, node, held)
        builder.append(Node(node.name, node.attributes, tuple(inputs), node.outputs))
        for value in node.outputs:
            if value.name in quantisations:
                quantise(value.name)
    outputs = [
        Output(each.name, shown[each.value] if each.value in points.replaced else each.value)
        for each in graph.outputs
    ]
    return Inserted(verify(drop_unused(builder.graph(outputs)), "insert_quantisation"), shown)


def weights_of(graph: Graph, layer: FloatLayer) -> tuple[np.ndarray, np.ndarray, int]:
    """Return a weighted layer's float weights and bias, and the axis of its output channels."""
    head, linear = maker(graph, layer.head), maker(graph, layer.linear)
    weights = graph.data(head.inputs[1])
    if layer.kind == "conv":
        return weights, graph.data(head.inputs[2]), 0
    return weights, graph.data(linear.inputs[_bias_place(graph, linear)]).ravel(), 1


def four_bit_form(graph: Graph, layer: FloatLayer) -> FourBitForm | None:
    """Return the form of a layer's weights; None if the machine does not multiply them in tiles."""
    weights, _, axis = weights_of(graph, layer)
    if layer.kind == "conv":
        (name,) = layer.inputs
        groups = graph.types[name].shape[1] // weights.shape[1]
        return FourBitForm(weights.shape[1], math.prod(weights.shape[2:])) if groups == 1 else None
    # The accelerator keeps the channels of a flattened image together.
    taps, node = 1, graph.producer(layer.inputs[0])
    if node is not None and isinstance(node.attributes, Reshape):
        taps = math.prod(graph.types[node.inputs[0]].shape[2:])
    inputs, rest = divmod(weights.shape[1 - axis], taps)
    return FourBitForm(weights.shape[1 - axis], 1) if rest else FourBitForm(inputs, taps)


def _bias_place(graph: Graph, add: Node) -> int:
    return next(place for place, name in enumerate(add.inputs) if graph.is_constant(name))


def _parameters(
    graph: Graph,
    points: Points,
    quantisations: Mapping[str, Quantisation],
    corrections: Mapping[str, np.ndarray],
    scales: dict[object, np.ndarray],
    four_bits: frozenset[str],
) -> dict[str, dict[int, ScaledIntegers]]:
    """Return the integers that replace constants, by the node's output and the operand."""
    found: dict[str, dict[int, ScaledIntegers]] = {}
    for layer in points.layers:
        if layer.kind == "matmul":
            heads = maker(graph, layer.head).inputs[1]
            if graph.is_constant(heads):
                found[layer.head] = {1: ScaledIntegers(*one_scale(graph.data(heads)), None)}
        if not layer.weighted:
            continue
        weights, bias, axis = weights_of(graph, layer)
        bias = bias.astype(np.float64) + corrections.get(layer.output, 0.0)
        form = four_bit_form(graph, layer) if layer.head in four_bits else None
        form = form or EIGHT_BITS
        key = maker(graph, layer.head).inputs[1], form
        if key not in scales:
            scales[key] = form.scales(rows_of(weights, axis))
        held_weights, held_bias = quantise_weights(
            weights, bias, axis, input_quantisation(graph, layer, quantisations),
            quantisations[layer.output], scales[key], form,
        )  # fmt: skip
        found.setdefault(layer.head, {})[1] = held_weights
        place = 2 if layer.kind == "conv" else _bias_place(graph, maker(graph, layer.linear))
        found.setdefault(layer.linear, {})[place] = held_bias
    return found


def input_quantisation(
    graph: Graph, layer: FloatLayer, quantisations: Mapping[str, Quantisation]
) -> Quantisation:
    """Return the quantisation of a weighted layer's input, before or after moves."""
    (name,) = layer.inputs
    return quantisations[name if name in quantisations else origin(graph, name)]


def _emit_parameter(builder: Builder, node: Node, held: ScaledIntegers) -> str:
    name = f"{node.name}.{'weights' if held.data.dtype == np.int8 else 'bias'}"
    integers = builder.constant(held.data, f"{name}.integers")
    scales = tuple(float(scale) for scale in held.scales)
    operator = ops.Dequantize(scales, (0,) * len(scales), held.axis)
    return builder.emit(operator, [integers], name, name)
