"""What a kernel of the CPU target is asked for: arrays, a declaration, and its schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ....errors import CompileError
from ... import te
from ...te import Value
from ..codegen.layout import Layout, Tiles
from ..target import Target


@dataclass(frozen=True, slots=True)
class Array:
    """An array of a kernel as its caller has it."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A kernel's declaration with its schedule.

    Parameters
    ----------
    schedule
        For the processor of a target. Its tensors may have other shapes than the caller's arrays,
        of the same elements in the same order.
    layouts
        Of tensors that are packed before the first call.
    tiles
        How tensors of tiles lie in the caller's arrays.
    """

    schedule: te.Schedule
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    tiles: Mapping[str, Tiles] = field(default_factory=dict)


class Description(Protocol):
    """A kernel without code; frozen, with a `repr` that tells all."""

    @property
    def operands(self) -> Mapping[str, Array]:
        """Arrays that it is given, in the order of a call."""
        ...

    @property
    def constants(self) -> tuple[str, ...]:
        """Operands that are the same in all calls: `Kernel.bind` packs them once."""
        ...

    @property
    def output(self) -> Array:
        """What it gives."""
        ...

    def plan(self, target: Target) -> Plan:
        """Declaration and schedule for a target."""
        ...

    def prepare(
        self, constants: Mapping[str, np.ndarray], target: Target
    ) -> Mapping[str, np.ndarray]:
        """The tensors of the declaration that follow from the constants."""
        ...


ACTIVATIONS = ("", "relu", "relu6", "sigmoid", "tanh", "gelu", "silu", "hardswish")
"""What can follow a float32 kernel, none first."""


def activated(value: Value, activation: str, where: str) -> Value:
    """A float32 value with what follows it.

    Raises
    ------
    CompileError
        When there is no such activation.
    """
    if activation == "relu":
        return te.maximum(value, 0.0)
    if activation == "relu6":
        return te.minimum(te.maximum(value, 0.0), 6.0)
    if activation == "sigmoid":
        return te.sigmoid(value)
    if activation == "tanh":
        return te.tanh(value)
    if activation == "gelu":
        return te.gelu(value)
    if activation == "silu":
        return value * te.sigmoid(value)
    if activation == "hardswish":
        return value * te.minimum(te.maximum(value * (1 / 6) + 0.5, 0.0), 1.0)
    if activation:
        raise CompileError(
            f"{where}: there is no activation `{activation}`; choose "
            f"{', '.join(name for name in ACTIVATIONS if name)}"
        )
    return value


def round_up(number: int, step: int) -> int:
    """The next multiple."""
    return -(-number // step) * step
