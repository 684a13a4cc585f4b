"""The instruction families, one file each."""

from .common import Access, Instruction, Operand, Role, Unit, peers
from .control import Halt, Sync
from .gemm import Gemm
from .load import Load
from .loops import Loop
from .store import Store
from .transfers import (
    fill_memory,
    move_transfer,
    transfer,
    transfer_problem,
    unpack_weights,
)
from .vector import Combine, ReduceMode, ResultKind, Statistic, Vector

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
    "ReduceMode",
    "ResultKind",
    "Role",
    "Statistic",
    "Store",
    "Sync",
    "Unit",
    "Vector",
    "fill_memory",
    "move_transfer",
    "peers",
    "transfer",
    "transfer_problem",
    "unpack_weights",
]
