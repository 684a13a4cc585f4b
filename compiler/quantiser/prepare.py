"""Bring a float graph into the form that the quantiser works on."""

import numpy as np

from ...errors import CompileError
from .. import passes
from ..graph import Builder, Graph, Node, rewrite_once, verify
from ..graph import operators as ops

RECIPE = (
    passes.eliminate_dead_code,  # initialisers that nothing reads
    passes.fold_dequantize,  # weights that are stored as integers
    passes.fold_batch_normalisation,  # one weight tensor and one bias a layer
    passes.clean_activations,  # clamps next to their layers
)


def prepare(graph: Graph) -> Graph:
    """Return a float graph with everything folded and a bias in every weighted layer.

    Parameters
    ----------
    graph : Graph
        As imported.

    Raises
    ------
    CompileError
        If the model is quantised already.
    """
    for step in RECIPE:
        graph = verify(step(graph), step.__name__)
    quantised = next((n for n in graph.nodes if isinstance(n.attributes, ops.Quantize)), None)
    if quantised is not None:
        raise CompileError(
            f"model `{graph.name}`: expected a float model to quantise, got one with "
            f"QuantizeLinear (node `{quantised.name}`); run it as it is, without calibration"
        )
    return verify(rewrite_once(graph, _give_bias), "give_bias")


def _give_bias(builder: Builder, node: Node, graph: Graph) -> str | None:
    """Conv or MatMul without bias -> with a bias of zeros, which corrections can change."""
    if isinstance(node.attributes, ops.Conv) and len(node.inputs) == 2:
        zeros = np.zeros(node.output.type.shape[1], np.float32)
        operands = [*node.inputs, builder.constant(zeros, f"{node.name}.no_bias")]
        return builder.emit(node.attributes, operands, node.name)
    weights = node.inputs[-1]
    if not isinstance(node.attributes, ops.MatMul) or not builder.is_constant(weights):
        return None
    if len(builder.types[weights].shape) != 2:
        return None
    users = graph.users(node.output.name)
    biased = len(users) == 1 and users[0].attributes == ops.Binary("Add")
    if biased and any(graph.is_constant(name) for name in users[0].inputs):
        return None
    product = builder.emit(node.attributes, node.inputs, node.name)
    zeros = np.zeros(node.output.type.shape[-1], np.float32)
    bias = builder.constant(zeros, f"{node.name}.no_bias")
    return builder.emit(ops.Binary("Add"), [product, bias], node.name)
