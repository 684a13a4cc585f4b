"""Copies between places in memory, for a value that cannot be stored in both at once."""

from dataclasses import dataclass

from ....isa.configuration import Configuration
from ... import te
from ...graph import Graph, Node
from ...tensor import Kernel
from .common import pixel_axes, stored, stored_shape, tensor_name


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
    shape = stored_shape(wanted.value, graph, configuration)
    x = te.tensor(tensor_name(wanted.source), "int8", shape, of=wanted.source)
    pixel = pixel_axes(wanted.value, graph, configuration)
    return te.kernel(node.name, stored(wanted.target, pixel, x[pixel]))
