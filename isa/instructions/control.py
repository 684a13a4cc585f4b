"""SYNC waits and signals on a unit without working; HALT ends the program."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from ..configuration import Configuration
from ..fields import Field
from .common import Instruction, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(Instruction):
    """Wait for and signal tokens on behalf of the unit `target`, in its queue order."""

    unit: ClassVar[Unit | None] = None
    opcode: ClassVar[int] = 5
    mnemonic: ClassVar[str] = "sync"
    law: ClassVar[str] = "nothing but tokens"
    time: ClassVar[str] = "one cycle; it retires in order with its unit's other instructions"

    target: Unit

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", Unit(self.target))
        super(Sync, self).__post_init__()

    @property
    @override
    def home(self) -> Unit | None:
        return self.target

    @classmethod
    def immediates(cls, configuration: Configuration) -> tuple[Field, ...]:
        """The unit."""
        return (Field("target", 2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt(Instruction):
    """End of the program: FETCH stops, and the machine is done when every unit is idle."""

    unit: ClassVar[Unit | None] = None
    opcode: ClassVar[int] = 6
    mnemonic: ClassVar[str] = "halt"
    law: ClassVar[str] = "stop"
    time: ClassVar[str] = "until every unit is idle"
