"""The module of a program's kernels in the language of a level."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from ..cpu.codegen.emitter import LlvmBuilder, LlvmValue
from ..tensor import Tensor
from .emitter import GpuEmitter
from .target import GpuTarget


class KernelEntry(NamedTuple):
    """A kernel that is about to be emitted.

    Parameters
    ----------
    builder
        At its entry.
    arguments
        Addresses of its arrays.
    shared_memory
        Address of the memory that threads share; None without.
    maps
        Addresses of its tensor maps.
    """

    builder: LlvmBuilder
    arguments: Sequence[LlvmValue]
    shared_memory: LlvmValue | None
    maps: Sequence[LlvmValue] = ()


class KernelModule(ABC):
    """Kernels, and their text in the end."""

    emitter_type: type[GpuEmitter]

    def __init__(self, name: str, target: GpuTarget) -> None:
        self.name, self.target = name, target

    @abstractmethod
    def kernel(
        self, name: str, tensors: Sequence[Tensor], threads: int, shared_bytes: int, maps: int
    ) -> AbstractContextManager[KernelEntry]:
        """Begin a kernel, whose last array is its output; it is complete when the context ends.

        Behind the arrays, it takes as many tensor maps as `maps` tells.
        """

    @abstractmethod
    def text(self) -> str:
        """The text of all kernels."""
