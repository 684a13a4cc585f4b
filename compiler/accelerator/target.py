"""The accelerator as a target of schedules: its scratchpads and its instructions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from typing_extensions import override

from ...argument_types import checked_class
from ...errors import ConfigurationError
from ...isa.configuration import SCRATCHPADS, Configuration, Memory
from ..te.bounds import Bounds
from ..te.stages import Stage, State
from ..te.target import Scope, Target
from .instruction_selection import check_sizes, matched_instruction
from .matching import MatchedInstruction, elements_of


@cache
def _scopes(configuration: Configuration) -> Mapping[str, Scope]:
    return {Memory.DRAM.name: Scope()} | {
        memory.name: Scope(
            configuration.size_bytes(memory),
            elements_of(memory),
            takes_turns=True,
            has_rings=memory is Memory.ACT,
        )
        for memory in SCRATCHPADS
    }


@checked_class("Accelerator", ConfigurationError)
@dataclass(frozen=True, slots=True)
class Accelerator(Target):
    """The machine of a configuration.

    Loops around instructions run at compile time, so they may be of any kind.
    """

    configuration: Configuration

    @property
    def name(self) -> str:
        """The configuration's name."""
        return f"`{self.configuration.name}`"

    @property
    def scopes(self) -> Mapping[str, Scope]:
        """Main memory and the scratchpads."""
        return _scopes(self.configuration)

    def instruction(self, stage: Stage, state: State, bounds: Bounds) -> MatchedInstruction:
        """The instruction of a stage, whatever the sizes of its loops."""
        found = bounds.instructions.get(stage.name)
        if not isinstance(found, MatchedInstruction):
            found = matched_instruction(stage, state, self.configuration)
            bounds.instructions[stage.name] = found
        return found

    @override
    def check(self, stage: Stage, state: State, bounds: Bounds) -> None:
        matched = self.instruction(stage, state, bounds)
        check_sizes(matched, stage, state, bounds, self.configuration)
