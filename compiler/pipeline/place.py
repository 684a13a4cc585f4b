"""Give each node its side, and the graph the form in which this machine runs it."""

from collections.abc import Mapping

from ..passes.absorb_heads import share_heads
from ..passes.flatten_on_host import flatten_on_host
from ..passes.keep_rows import keep_rows, rows_in_place
from ..passes.keys_first import keys_first
from ..passes.recognise_rows import recognise_rows
from ..passes.repeat_channels import repeat_channels
from ..passes.split_pools import split_pools
from ..passes.transpose_on_host import transpose_on_host
from ..passes.wide_weights import narrow_weights
from ..placement import decide
from ..placement.decide import NO_REFUSALS
from ..placement.partition import partition
from .request import CompileRequest, PlacedGraph


def place(request: CompileRequest, refused: Mapping[str, str] = NO_REFUSALS) -> PlacedGraph:
    """Place the network of a request.

    Parameters
    ----------
    refused
        Nodes that are known not to fit, by first output, and the reasons. The host runs them.

    Raises
    ------
    CompileError
        When the placement is not possible.
    """
    graph, configuration = request.graph, request.configuration
    if not request.placement.leaves_all:
        graph = recognise_rows(share_heads(graph), configuration)
        if configuration.row_statistics == "none":  # others run blocks of attention whole
            graph = rows_in_place(keep_rows(graph))
            graph = transpose_on_host(graph, configuration)
        graph = flatten_on_host(graph, configuration, request.costs)
        graph = split_pools(graph, configuration)
        graph = repeat_channels(keys_first(graph))
    graph, _ = narrow_weights(graph, lambda node: node.outputs[0].name in refused)
    decision = decide(
        graph, configuration, request.options, request.placement, request.costs, refused
    )
    graph, names = narrow_weights(graph, lambda node: not decision.on_accelerator(node))
    decision = decision.renamed(names)
    parts = partition(graph, decision.on_accelerator)
    return PlacedGraph(graph, decision, tuple(map(tuple, parts)))
