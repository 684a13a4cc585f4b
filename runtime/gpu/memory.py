"""Memory of a network on a GPU: an arena as planned, constants, and arrays of other values."""

from collections.abc import Mapping

import numpy as np

from ...compiler.graph import Graph
from ...compiler.graph.types import DTYPES
from .driver import GpuBuffer, GpuDriver


class GpuMemory:
    """All memory that a network has on a GPU.

    Parameters
    ----------
    driver
        The GPU.
    graph
        The network.
    views
        Values that show another one in another shape, and that one.
    """

    def __init__(self, driver: GpuDriver, graph: Graph, views: Mapping[str, str]) -> None:
        self._driver, self._graph, self._views = driver, graph, views
        self._values: dict[str, GpuBuffer] = {}

    def staged(self, name: str) -> np.ndarray:
        """An array of the host for a value, in memory for fast copies."""
        memory = self._driver.host_array(self.size_bytes(name))
        kind = self._graph.types[name]
        return memory.view(DTYPES[kind.dtype]).reshape(kind.shape)

    def upload(self, array: np.ndarray) -> GpuBuffer:
        """New memory with a constant's elements."""
        buffer, source = self._driver.allocate(array.nbytes), np.ascontiguousarray(array)
        self._driver.copy_in(buffer, source)
        self._driver.synchronise()
        return buffer

    def plan(self, offsets: Mapping[str, int], arena_bytes: int) -> None:
        """Place values in one allocation."""
        arena = self._driver.allocate(arena_bytes)
        self._values |= {
            name: arena.part(offset, self.size_bytes(name)) for name, offset in offsets.items()
        }

    def of(self, name: str) -> GpuBuffer:
        """The memory of a value; that of a constant is filled, once."""
        name = self.origin(name)
        if name not in self._values:
            is_constant = self._graph.is_constant(name)
            self._values[name] = (
                self.upload(self._graph.data(name))
                if is_constant
                else self._driver.allocate(self.size_bytes(name))
            )
        return self._values[name]

    def origin(self, name: str) -> str:
        """The value that a value shows in another shape, or the value itself."""
        while name in self._views:
            name = self._views[name]
        return name

    def size_bytes(self, name: str) -> int:
        """Size of a value."""
        kind = self._graph.types[name]
        return kind.elements * np.dtype(DTYPES[kind.dtype]).itemsize
