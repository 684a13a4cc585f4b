"""The contract: configuration, instructions, semantics, checker; all else is derived from it."""

from .assembly import format_program, parse_program
from .checker import Report, check
from .configuration import DEFAULT, PRESETS, Configuration, Memory
from .encoding import decode_program, encode_program, word_bytes
from .instructions import (
    Combine,
    Gemm,
    Halt,
    Instruction,
    Load,
    Loop,
    ReduceMode,
    ResultKind,
    Statistic,
    Store,
    Sync,
    Unit,
    Vector,
)
from .memory_model import MemoryModel
from .semantics import Machine
from .settings import load_configuration
from .vector_operations import OPERATIONS, Operation

__all__ = [
    "DEFAULT",
    "OPERATIONS",
    "PRESETS",
    "Combine",
    "Configuration",
    "Gemm",
    "Halt",
    "Instruction",
    "Load",
    "Loop",
    "Machine",
    "Memory",
    "MemoryModel",
    "Operation",
    "ReduceMode",
    "Report",
    "ResultKind",
    "Statistic",
    "Store",
    "Sync",
    "Unit",
    "Vector",
    "check",
    "decode_program",
    "encode_program",
    "format_program",
    "load_configuration",
    "parse_program",
    "word_bytes",
]
