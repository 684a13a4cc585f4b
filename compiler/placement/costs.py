"""Estimated times of nodes on the host, and of transfers to the accelerator.

The models are simple: they only choose a side and explain the choice. A node on the host takes the
time of its arithmetic or of its memory traffic, whichever is longer. NumPy computes a node without
a kernel, in several passes over its elements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import CompileError
from ..graph import Graph, Node
from ..graph import operators as ops
from ..graph.macs import keeps_channels_apart, macs_of
from ..host import HostStep, host_target
from ..host.recurrence import find_recurrences
from ..host.select import select_kernels

NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """Speed of a host with one core.

    The defaults are round figures of a desktop core with AVX-512.

    Parameters
    ----------
    int8_gops, float_gops : float
        Operations per second of a kernel of the CPU target, in 10^9; a multiplication counts as
        two. Depthwise int8 is no faster than float32, because it has no dot products.
    gbps : float
        Bytes read and written per second, in 10^9.
    numpy_gops : float
        Operations per second of products in NumPy, in 10^9.
    numpy_ns : float
        Time for one element in one pass of NumPy over an array, in nanoseconds.
    numpy_call_us, kernel_call_us : float
        Fixed time of a call, in microseconds.
    """

    int8_gops: float = 200.0
    float_gops: float = 60.0
    gbps: float = 10.0
    numpy_gops: float = 8.0
    numpy_ns: float = 1.0
    numpy_call_us: float = 20.0
    kernel_call_us: float = 5.0


@dataclass(frozen=True, slots=True)
class LinkSpeed:
    """Speed of the link between host and accelerator; the defaults are assumptions.

    Parameters
    ----------
    gbps : float
        Bytes per second that the host writes to or reads from the data window, in 10^9.
    start_us : float
        Time to start a segment and to detect its end, in microseconds.
    """

    gbps: float = 1.0
    start_us: float = 20.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Parameters of the estimates, other than the network and the machine.

    Parameters
    ----------
    clock_mhz : float
        Clock of the accelerator. The default is what trial builds of a 16x16 array on an ECP5
        reached.

    Raises
    ------
    CompileError
        For a figure that is not positive.
    """

    clock_mhz: float = 100.0
    host: HostSpeed = HostSpeed()
    link: LinkSpeed = LinkSpeed()

    def __post_init__(self) -> None:
        figures = {
            "clock": self.clock_mhz,
            "host gops": min(self.host.int8_gops, self.host.float_gops, self.host.numpy_gops),
            "host gbps": self.host.gbps,
            "link gbps": self.link.gbps,
        }
        for name, figure in figures.items():
            if not 0 < figure < math.inf:
                raise CompileError(f"costs: expected a positive `{name}`, got {figure}; correct it")

    def cycles_us(self, cycles: float) -> float:
        """Convert cycles of the accelerator to microseconds."""
        return cycles / self.clock_mhz

    def transfer_us(self, graph: Graph, name: str) -> float:
        """Estimate the time to transfer a value to or from the accelerator, in microseconds."""
        return graph.types[name].size_bytes / self.link.gbps / NS_PER_US

    def host_times(self, graph: Graph) -> dict[str, float]:
        """Estimate the microseconds of every node, by first output, if the host ran all of them."""
        found = {
            node.outputs[0].name: kernel
            for kernel in kernels_among(graph, graph.nodes)
            for node in kernel.nodes
        }
        return {
            name: self.host_us(graph, node, found.get(name))
            for name, node in ((node.outputs[0].name, node) for node in graph.nodes)
        }

    def host_us(self, graph: Graph, node: Node, kernel: HostStep | None) -> float:
        """Estimate the time of a node on the host, in microseconds.

        Parameters
        ----------
        kernel : HostStep or None
            The step in machine code that computes it, possibly with others; None for NumPy.
        """
        if isinstance(node.attributes, ops.Reshape):
            return 0.0
        host, operations = self.host, 2 * macs_of(graph, node)
        names = {*node.inputs, *(value.name for value in node.outputs)}
        if kernel is not None:
            inner = {value.name for one in kernel.nodes[:-1] for value in one.outputs}
            dots = _is_bytes(node) and not keeps_channels_apart(node)
            gops = host.int8_gops if dots else host.float_gops
            memory = sum(graph.types[name].size_bytes for name in names - inner) / host.gbps
            called = host.kernel_call_us * NS_PER_US / len(kernel.nodes)
            return (max(operations / gops, memory) + called) / NS_PER_US
        memory = sum(graph.types[name].size_bytes for name in names) / host.gbps
        passes = passes_of(graph, node) * host.numpy_ns
        return (operations / host.numpy_gops + max(passes, memory)) / NS_PER_US + host.numpy_call_us


DEFAULT_COSTS = Costs()

WINDOW_PASSES = 4
"""Passes for an element of a window, which is rarely close to the previous one."""


def passes_of(graph: Graph, node: Node) -> int:
    """Estimate the number of elements that NumPy reads or writes for a node."""
    given = node.outputs[0].type.elements
    if window := getattr(node.attributes, "kernel", ()):
        return WINDOW_PASSES * given * math.prod(window)
    read = (graph.types[name].elements for name in node.inputs if not graph.is_constant(name))
    return node.attributes.numpy_passes * max(given, *read, 0)


def kernels_among(graph: Graph, nodes: Sequence[Node]) -> tuple[HostStep, ...]:
    """Select kernels as if the host ran exactly these nodes; NumPy computes the rest."""
    target = host_target()
    if target is None:
        return ()
    return (*select_kernels(graph, nodes, target), *find_recurrences(graph, nodes))


def _is_bytes(node: Node) -> bool:
    return node.outputs[0].type.dtype in ("int8", "uint8")
