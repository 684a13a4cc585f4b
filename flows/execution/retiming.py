"""Retiming: the time of one compiled network with many memories and machines.

The hardware changes, but the program is not compiled again. So only parameters that leave every
instruction word and every token unchanged can be varied.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...compiler.module import Module
from ...errors import ConfigurationError, ToolError, UsageError, did_you_mean
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import MACHINE, memory_with, text_of
from ...sim.timing import time_program
from ...sim.timing.native import TimedProgram

VARIABLE = ("queue_depth", "outstanding_bursts", "bus_bits", "burst_beats")
"""Parameters of a configuration that a program does not depend on, neither words nor tokens."""


@dataclass(frozen=True, slots=True)
class RetimedMachine:
    """A machine and a memory, with the parameters that were varied.

    Parameters
    ----------
    chosen : mapping
        The varied parameters by name, as text for a table.
    """

    chosen: Mapping[str, str]
    machine: Configuration
    memory: MemoryModel


def settings(
    configuration: Configuration,
    memory: MemoryModel,
    memories: Mapping[str, Sequence[Any]],
    machines: Mapping[str, Sequence[int]],
    rejected: dict[str, str] | None = None,
) -> list[RetimedMachine]:
    """All combinations; the last parameter varies fastest.

    Parameters
    ----------
    configuration, memory
        The machine and memory of the parameters that are not varied.
    memories : mapping
        Values of `latency` and `outstanding`, and pairs (beats, cycles) of `bandwidth`.
    machines : mapping
        Values of parameters in `VARIABLE`.
    rejected : dict or None
        Receives the reason for each combination that breaks a rule of the machine.

    Raises
    ------
    UsageError
        For a parameter that the program depends on.
    ConfigurationError
        If every combination breaks a rule, or one does and `rejected` is None.
    DeviceError
        For an impossible memory.
    """
    for name in machines:
        check_variable(name)
    names = [*memories, *machines]
    found: list[RetimedMachine] = []
    last: ConfigurationError | None = None
    for values in product(*memories.values(), *machines.values()):
        given = dict(zip(names, values, strict=True))
        chosen = {name: text_of(name, value) for name, value in given.items()}
        try:
            machine = configuration.replace(**{name: given[name] for name in machines})
        except ConfigurationError as problem:
            if rejected is None:
                raise
            last = problem
            rejected[",".join(f"{name}={chosen[name]}" for name in machines)] = str(problem)
            continue
        now = memory_with(memory, {name: given[name] for name in memories})
        found.append(RetimedMachine(chosen, machine, now))
    if last and not found:
        raise last
    return found


def check_variable(name: str) -> None:
    """Reject a parameter that the program depends on.

    Raises
    ------
    UsageError
        With the alternative.
    """
    if name in VARIABLE:
        return
    known = ", ".join(f"`{each}`" for each in VARIABLE)
    if name in MACHINE:
        raise UsageError(
            f"`--vary {name}=...`: expected one of {known}, which leave the program as it is; "
            f"`{name}` changes its words or its tokens: compile the model for each value with "
            f"`--set {name}=...`"
        )
    raise UsageError(
        f"`--vary {name}=...`: expected one of {known}"
        + did_you_mean(name, VARIABLE, "; choose one")
    )


def retime(module: Module, chosen: Iterable[RetimedMachine]) -> list[int]:
    """Cycles of the whole network with each setting."""
    pairs = [(setting.machine, setting.memory) for setting in chosen]
    total = np.zeros(len(pairs), dtype=np.int64)
    for segment in module.segments:
        try:
            total += TimedProgram(segment.program, module.configuration).sweep(pairs)
        except ToolError:
            total += [time_program(segment.program, *pair).cycles for pair in pairs]
    return total.tolist()
