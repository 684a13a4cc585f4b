"""From a graph to a module, stage by stage: placed, grouped, scheduled, lowered, linked."""

from ..scheduling.given_schedules import NO_SCHEDULES
from .compile import compile_module, compile_request
from .request import Compilation, CompileRequest

__all__ = [
    "NO_SCHEDULES",
    "Compilation",
    "CompileRequest",
    "compile_module",
    "compile_request",
]
