"""Descriptions of kernels: operands and output, declaration and schedule."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from typing_extensions import override

from ... import te
from ..codegen.layout import Layout, Tiles
from ..target import CpuTarget
from .choices import Choice, Choices

Constants = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a kernel as its caller has it."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelSchedule:
    """A kernel's declaration with its schedule.

    Parameters
    ----------
    schedule
        The schedule for the target's processor. Its tensors may have other shapes than the caller's
        arrays, with the same elements in the same order.
    layouts
        Layouts of the tensors that are packed before the first call.
    tiles
        Places of tensors of tiles in the caller's arrays.
    """

    schedule: te.Schedule
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    tiles: Mapping[str, Tiles] = field(default_factory=dict)


class Description(ABC):
    """A kernel without code. Subclasses are frozen dataclasses whose `repr` tells everything."""

    __slots__ = ()
    bound: tuple[str, ...] = ()
    """Operands that are the same in all calls."""

    @property
    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """The operands in the order of a call, then the array that the kernel computes."""

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that the kernel takes, in the order of a call."""
        return dict([*self.arrays.items()][:-1])

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls: `Kernel.bind` packs them once."""
        return self.bound

    @property
    def output(self) -> Array:
        """The array that the kernel computes."""
        return [*self.arrays.values()][-1]

    @property
    def macs(self) -> int:
        """Multiplications, or the operations in their place; 0 where only the elements count."""
        return 0

    @abstractmethod
    def plan(self, target: CpuTarget) -> KernelSchedule:
        """Declaration and schedule for a target."""

    def prepare(self, constants: Constants, target: CpuTarget) -> Constants:
        """The tensors of the declaration that follow from the constants."""
        return constants


class Planner(ABC):
    """A method: the declaration and schedule of one kernel for one target."""

    @abstractmethod
    def plan(self) -> KernelSchedule:
        """Declaration, schedule and layouts."""

    def prepare(self, constants: Constants) -> Constants:
        """Return the declared tensors that are computed from the constants."""
        return constants


class TunableDescription(Description):
    """A kernel whose planner has free decisions; subclasses are dataclasses."""

    __slots__ = ()
    choice: Choice
    """Decisions for one target, as a tuner found them; the planner makes all others."""

    @abstractmethod
    def method(self, target: CpuTarget, choices: Choices) -> Planner:
        """The planner for a target, which asks for its free decisions."""

    def planner(self, target: CpuTarget) -> Planner:
        """The method that is used on a target.

        Raises
        ------
        CompileError
            When `choice` has an answer that is not legal on this target.
        """
        choices = Choices(self.choice)
        found = self.method(target, choices)
        choices.check_known()
        return found

    def with_choice(self, choice: Choice) -> Self:
        """The same kernel with these decisions."""
        mine: Any = self  # subclasses are dataclasses
        return replace(mine, choice=choice)

    def questions(self, target: CpuTarget) -> Mapping[str, tuple[int | str, ...]]:
        """The free decisions on a target, each with its legal answers, the default first."""
        choices = Choices(self.choice)
        self.method(target, choices)
        return choices.asked

    @override
    def plan(self, target: CpuTarget) -> KernelSchedule:
        return self.planner(target).plan()

    @override
    def prepare(self, constants: Constants, target: CpuTarget) -> Constants:
        return self.planner(target).prepare(constants)


def even_blocks(extent: int, most: int) -> int:
    """The size of as few blocks as cover an extent, `most` elements each, all about as large."""
    blocks = -(-extent // most)
    return -(-extent // blocks)
