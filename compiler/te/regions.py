"""The elements that one transfer or instruction covers, by axis."""

from collections.abc import Mapping

from ...isa.expressions import Affine
from .affine import scaled, total, value_of, variable
from .box import Range
from .nodes import (
    Assign,
    For,
    Guard,
    InstructionNest,
    Let,
    Nest,
    TransferNest,
    Update,
    nodes,
)
from .stages import qualified


def region(
    nest: Nest, node: TransferNest | InstructionNest, values: Mapping[str, int]
) -> dict[str, Range]:
    """The elements of every axis that the loops of a transfer or an instruction cover.

    Parameters
    ----------
    nest
        The stage's nest.
    node
        A node inside the nest.
    values
        Values of all variables bound around the node.

    Returns
    -------
    Half-open ranges by axis, data axes first; empty where a guard lets nothing through.
    """
    return TensorRegion(nest, node).at(values)


class TensorRegion:
    """The loops, bindings and guards inside a transfer or an instruction, outermost first.

    Attributes
    ----------
    guarded
        Whether guards cut the ranges. Otherwise, each range has a fixed extent and begins at an
        affine form of the variables bound around the node.
    """

    def __init__(self, nest: Nest, node: TransferNest | InstructionNest) -> None:
        self.reductions = tuple(axis.name for axis in nest.reductions)
        names = (*nest.axes, *self.reductions)
        self.names = tuple((name, qualified(nest.stage, name)) for name in names)
        self.steps: list[For | Let | Guard] = []
        for inner in nodes(node.body):
            if isinstance(inner, (Assign, Update)):
                break
            if isinstance(inner, (For, Let, Guard)):
                self.steps.append(inner)
        self.guarded = any(isinstance(step, Guard) for step in self.steps)
        affine = () if self.guarded else self._affine()
        self.fixed = {name: (low, low + extent) for name, low, _, extent in affine}
        self.moving = tuple(each for each in affine if each[2])

    def at(self, values: Mapping[str, int]) -> dict[str, Range]:
        """The ranges for values of all variables bound around the node."""
        if self.guarded:
            return self._cut_ranges(values)
        ranges = self.fixed.copy()
        for name, low, terms, extent in self.moving:
            for around, factor in terms:
                low += factor * values[around]
            ranges[name] = (low, low + extent)
        return ranges

    def _affine(self) -> tuple[tuple[str, int, tuple[tuple[str, int], ...], int], ...]:
        """Name, first element as constant and terms, and extent of each range without guards."""
        found: dict[str, tuple[Affine, int]] = {}
        for step in self.steps:
            if isinstance(step, For):
                found[step.variable] = step.start, step.extent
            elif isinstance(step, Let):
                first, more = Affine((), step.value.constant), 0
                for name, factor in step.value.terms:
                    low, extent = found.get(name, (variable(name), 1))
                    more += abs(factor) * (extent - 1)
                    first = total(first, scaled(low, factor), min(factor, 0) * (extent - 1))
                # A box contains a fused loop as a whole, so its digits take all their values.
                more += step.digit.modulus - 1 if step.digit is not None else 0
                found[step.variable] = first, 1 + more
        ranges = ((name, *found.get(inner, (variable(inner), 1))) for name, inner in self.names)
        return tuple((name, low.constant, low.terms, extent) for name, low, extent in ranges)

    def _cut_ranges(self, values: Mapping[str, int]) -> dict[str, Range]:
        found = _VariableRanges(values)
        for step in self.steps:
            if isinstance(step, For):
                start = value_of(step.start, values)
                found[step.variable] = (start, start + step.extent)
            elif isinstance(step, Let):
                found[step.variable] = _let_range(step, found)
            else:
                _cut(step, found)
        return {name: found[variable] for name, variable in self.names}


class _VariableRanges(dict[str, Range]):
    """Ranges of variables. A variable that is bound outside the node has a single value."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__()
        self.values_around = values

    def __missing__(self, name: str) -> Range:
        value = self.values_around[name]
        return value, value + 1


def _let_range(let: Let, found: _VariableRanges) -> Range:
    low = high = let.value.constant
    for name, factor in let.value.terms:
        first, end = found[name]
        ends = (factor * first, factor * (end - 1))
        low, high = low + min(ends), high + max(ends)
    if let.digit is not None:
        # A box contains a fused loop as a whole, so its digits take all their values.
        high += let.digit.modulus - 1
    return low, high + 1


def _cut(guard: Guard, found: _VariableRanges) -> None:
    """Remove the values of a variable that a guard forbids; all else in the guard is fixed."""
    for condition in guard.conditions:
        moving = [n for n, _ in condition.value.terms if found[n][1] - found[n][0] != 1]
        name = moving[0] if moving else condition.value.terms[0][0]
        others = {n: found[n][0] for n, _ in condition.value.terms}
        offset = value_of(condition.value, {**others, name: 0})
        low, high = found[name]
        if condition.low is not None:
            low = max(low, condition.low - offset)
        if condition.high is not None:
            high = min(high, condition.high - offset)
        found[name] = (low, max(low, high))
