"""Table of the builders that turn an instruction into a step; one decorator fills it."""

from collections.abc import Callable

import numpy as np

from .batch import FULL, TYPES, BlockBatch, Step
from .faults import FaultKind, PtxFault
from .syntax import PtxInstruction

Builder = Callable[[BlockBatch, PtxInstruction], Step]

BUILDERS: dict[str, Builder] = {}


def builds(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder for the instructions that begin with `names`."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(names, builder))
        return builder

    return register


def unsupported(instruction: PtxInstruction) -> PtxFault:
    """The error for an instruction, or a variant of one, that the interpreter does not know."""
    return PtxFault(FaultKind.UNSUPPORTED, f"`{instruction.opcode}`", instruction.line)


def type_of(instruction: PtxInstruction) -> str:
    """The last type among the qualifiers, which is the one of the operation."""
    for part in reversed(instruction.parts):
        if part in TYPES:
            return part
    raise unsupported(instruction)


def apply(function, result: np.ndarray, *sources: np.ndarray) -> Step:
    """A step that computes `function` of `sources` in each lane."""
    if isinstance(function, np.ufunc) and result.flags.c_contiguous:

        def run_ufunc(lanes) -> None:
            if lanes is FULL:
                function(*sources, out=result, casting="unsafe")
            else:
                result[lanes] = function(*(source[lanes] for source in sources))

        return run_ufunc

    def run(lanes) -> None:
        result[lanes] = function(*(source[lanes] for source in sources))

    return run
