"""From a graph to a module, stage by stage: placed, grouped, scheduled, lowered, linked."""

from .compile import compile_module, compile_request
from .request import NO_SCHEDULES, Compilation, CompileRequest

__all__ = [
    "NO_SCHEDULES",
    "Compilation",
    "CompileRequest",
    "compile_module",
    "compile_request",
]
