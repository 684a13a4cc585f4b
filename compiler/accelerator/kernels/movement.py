"""Copies between places in memory, for a value that cannot be stored in both at once."""

from dataclasses import dataclass

from ... import te
from ...tensor import Kernel
from .common import StoredNode, stored, tensor_name


@dataclass(frozen=True, slots=True)
class TensorCopy:
    """A copy of a value; `source` and `target` name its places in main memory."""

    value: str
    source: str
    target: str


def copy(wanted: TensorCopy, site: StoredNode) -> Kernel:
    """`target = source`; the places of the two determine the transfers.

    Parameters
    ----------
    site
        The node that needs the copy, such as a concatenation.
    """
    shape = site.shape(wanted.value)
    x = te.tensor(tensor_name(wanted.source), "int8", shape, of=wanted.source)
    pixel = te.axes(**dict(zip("nyxc", shape, strict=True)))
    return te.kernel(site.node.name, stored(wanted.target, pixel, x[pixel]))
