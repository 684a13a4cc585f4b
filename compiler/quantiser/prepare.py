"""Preparation of a float graph for the quantiser."""

import numpy as np

from ...errors import CompileError
from .. import passes
from ..graph import Graph, verify
from ..graph import operators as ops
from ..passes.fold_batch_normalisation import is_matrix
from ..passes.patterns import is_float32
from ..rewriting import Site, constant, fits, op, rewrite_once, rule, value
from .states import round_states

RECIPE = (
    passes.eliminate_dead_code,  # unused initialisers
    passes.widen_floats,  # float16
    passes.fold_dequantize,  # weights that are stored as integers
    passes.plain_attention_to_quantise,  # one form of attention
    passes.read_states,  # states that come with the inputs
    passes.expand_recurrent_layers,  # dense layers
    passes.expand_volumes,  # images, which layers are made of
    passes.expand_transposed_convolutions,  # convolutions, which are layers
    passes.moves_as_convolutions,  # windows and shuffles
    passes.lift_sequences,  # images of one row
    passes.split_gates,  # a scale for each gate of a cell
    passes.split_products,  # a scale for each of queries, keys and values
    passes.fold_batch_normalisation,  # one weight tensor and one bias per layer
    passes.clean_activations,  # clamps next to their layers
    passes.reductions_as_layers,  # means, maxima and factors between layers
    round_states,  # int8 for the functions and products that read them
)


BIAS = op(ops.Binary("Add"), value(), constant(), commutative=True)


@rule(op(ops.Conv, value(), value(), result=is_float32))
def give_bias(site: Site) -> str | None:
    """Give a Conv without bias a bias of zeros, which corrections can change."""
    zeros = site.constant(np.zeros(site.shape[1], np.float32), f"{site.root.name}.no_bias")
    return site.emit(site.root.attributes, *site.root.inputs, zeros)


@rule(op(ops.MatMul, value(), constant(where=is_matrix), result=is_float32))
def give_sum(site: Site) -> str | None:
    """Give a MatMul with weights and no Add after it an Add of zeros."""
    user = site.view.only_user(site.root.output.name)
    if user is not None and fits(BIAS, site.view, user):
        return None
    product = site.emit(site.root.attributes, *site.root.inputs)
    zeros = site.constant(np.zeros(site.shape[-1], np.float32), f"{site.root.name}.no_bias")
    return site.emit(ops.Binary("Add"), product, zeros)


def prepare(graph: Graph) -> Graph:
    """Return a float graph with everything folded and a bias in every weighted layer.

    Parameters
    ----------
    graph : Graph
        The graph as imported.

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
            f"QuantizeLinear (node `{quantised.name}`); give the float model that it was made "
            "from, or run it as it is, without calibration"
        )
    return verify(rewrite_once(graph, give_bias, give_sum), "give_bias")
