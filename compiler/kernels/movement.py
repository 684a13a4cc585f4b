"""Copies from place to place, where a value cannot lie in both from the beginning."""

from dataclasses import dataclass, replace

from ...isa.configuration import Configuration
from ..graph import Graph, Node
from ..tensor import Compute, Kernel
from .common import activation, axes_of, pointwise_index, tensor_name


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """A value, and the names in main memory of where it lies and of where it shall lie too."""

    value: str
    source: str
    target: str


def copy(wanted: TensorCopy, node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`target = source`; what that brings about depends on where the two lie.

    Parameters
    ----------
    node
        The concatenation or the like that the copy belongs to.
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
