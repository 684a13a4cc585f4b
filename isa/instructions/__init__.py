"""The instruction families, one file each."""

from .common import Access, Instruction, Loop, Operand, Unit, peers
from .control import Halt, Sync
from .gemm import Gemm
from .load import Load
from .store import Store
from .vector import Combine, Reduce, Vector

FAMILIES: tuple[type[Instruction], ...] = (Load, Gemm, Vector, Store, Sync, Halt)

__all__ = [
    "FAMILIES",
    "Access",
    "Combine",
    "Gemm",
    "Halt",
    "Instruction",
    "Load",
    "Loop",
    "Operand",
    "Reduce",
    "Store",
    "Sync",
    "Unit",
    "Vector",
    "peers",
]
