"""Copies between places in memory, for a value that cannot be stored in both at once."""

from dataclasses import dataclass, replace

from ....isa.configuration import Configuration
from ...graph import Graph, Node
from ...tensor import Compute, Kernel
from .common import activation, axes_of, pointwise_index, tensor_name


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """A copy of a value; `source` and `target` name its places in main memory."""

    value: str
    source: str
    target: str


def copy(wanted: TensorCopy, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`target = source`; the places of the two determine the transfers.

    Parameters
    ----------
    node
        The node that needs the copy, such as a concatenation.
    """
    value = activation(wanted.value, graph, configuration)
    x, out = (
        replace(value, name=tensor_name(name), value=name)
        for name in (wanted.source, wanted.target)
    )
    return Kernel(
        name=node.name,
        stages=(Compute(out, axes_of(out), (), x[pointwise_index()]),),
        tensors={tensor.name: tensor for tensor in (x, out)},
    )
