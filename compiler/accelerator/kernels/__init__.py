"""Operators as tensor expressions; no other code of the target knows operators by name.

`build_kernel` turns a graph node into a `Kernel`. A new operator needs one more function that
`kernel_of` registers, in any file of this folder. An operator that only moves values needs none:
its result gets a place in memory (`main_memory.tensor_placement`). Channels in memory are padded to
the machine's block, `channel_block`.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from ....isa.configuration import Configuration
from ...graph import Graph, Node
from ...graph.operators import Convolving
from ...tensor import Kernel
from .common import StoredNode, kernel_of
from .convolution import convolution
from .first_layer import Image

for found in iter_modules(__path__, f"{__name__}."):
    import_module(found.name)


def build_kernel(
    node: Node,
    graph: Graph,
    configuration: Configuration,
    images: Mapping[str, Image] | None = None,
    *,
    gather: bool = True,
) -> Kernel:
    """The tensor expressions of one accelerated node.

    Parameters
    ----------
    images
        Values stored in memory as images; one convolution reads each.
    gather
        Whether a strided 1x1 convolution loads only the pixels that it uses.

    Raises
    ------
    CompileError
        When no builder knows the operator.
    """
    operator, site = node.attributes, StoredNode(node, graph, configuration)
    if isinstance(operator, Convolving):
        image = (images or {}).get(node.inputs[0])
        return convolution(operator, site, image, gather=gather)
    return kernel_of(operator, site)
