"""Bounds inference: the box of each stage, the extents of its loops, and their bindings.

Consumers are planned before producers. A stage computed inside a consumer's loop covers the box
that its readers touch in one iteration: each variable bound there is fixed, and each other variable
ranges over its interval. Boxes are exact for affine indices of split loops. If the variable of a
fused loop is not fixed, the box takes the full extent of both axes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ...isa.expressions import Affine, Read
from ..reach import reach
from .affine import scaled, total, variable
from .box import Box
from .carry import carried_axis
from .nodes import Condition, Digit, Let
from .rolling import Interval, Rolling, ring_of
from .stages import Division, Place, Stage, State, qualified
from .target import TensorInstruction


class Definition(NamedTuple):
    """The values of a variable: `value` + 0..`extent`-1, limited by its guards.

    `base` is the start of its axis and `size` the number of the axis' values. For the variable of
    an axis, `limits` are the elements that exist.
    """

    value: Affine
    extent: int
    base: Affine
    size: int
    limits: tuple[int, int] | None


class VariableBinding(NamedTuple):
    """A variable that becomes known: its `Let`, unless a loop binds it, and its conditions."""

    loop: str
    let: Let | None
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class StagePlan:
    """The inferred bounds of a stage.

    Parameters
    ----------
    stage
        The stage.
    starts
        Start of each axis; reductions start at zero, apart from carried ones.
    sizes
        Number of values of each axis.
    extents
        Extent of every loop, including loops that were split or fused.
    bindings
        For 0, 1, 2, ... open loops, the variables that become known.
    outside
        Variables bound around the whole nest.
    definitions
        Its variables.
    rolling
        The ring of rows, if the stage rolls.
    built
        Its nodes, by the slots around it; see `build_program`.
    """

    stage: Stage
    starts: Mapping[str, Affine]
    sizes: Mapping[str, int]
    extents: Mapping[str, int]
    bindings: tuple[tuple[VariableBinding, ...], ...]
    outside: frozenset[str]
    definitions: Mapping[str, Definition]
    rolling: Rolling | None = None
    built: dict[int, tuple[Any, ...]] = field(default_factory=dict, compare=False)

    @cached_property
    def box(self) -> tuple[Interval, ...]:
        """The box that is computed, per dimension."""
        return tuple(Interval(self.starts[axis], self.sizes[axis]) for axis in self.stage.axes)

    def bound(self, opened: int) -> frozenset[str]:
        """Variables known inside the outermost `opened` loops."""
        variables = self.stage.variables
        known = (binding.loop for level in self.bindings[: opened + 1] for binding in level)
        return self.outside.union([variables[loop] for loop in known])


_ZERO, _NONE = Affine(), frozenset[str]()


@dataclass(slots=True)
class Bounds:
    """The plans of all stages, the definitions of all variables, and the instructions.

    Parameters
    ----------
    plans, instructions
        Plans and instructions by stage; a target keeps what does not depend on sizes.
    definitions
        Definitions by variable.
    """

    plans: dict[str, StagePlan] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    instructions: dict[str, TensorInstruction] = field(default_factory=dict)
    _found: dict[object, StagePlan] = field(default_factory=dict)
    _known: dict[Place, frozenset[str]] = field(default_factory=dict)
    _ranges: dict[tuple[str, frozenset[str]], Interval] = field(default_factory=dict)

    def known(self, place: Place | None) -> frozenset[str]:
        """Variables bound at a place."""
        if place is None:
            return frozenset()
        if place not in self._known:
            plan = self.plans[place.consumer]
            self._known[place] = plan.bound(plan.stage.loops.index(place.loop) + 1)
        return self._known[place]

    def interval(self, affine: Affine, fixed: frozenset[str]) -> Interval:
        """The interval of an index while some variables are fixed."""
        terms: dict[str, int] = {}
        constant, extent = affine.constant, 1
        for name, factor in affine.terms:
            if name in fixed:
                terms[name] = terms.get(name, 0) + factor
                continue
            part = self._range(name, fixed)
            reach = factor * (part.extent - 1)
            constant += factor * part.low.constant + min(0, reach)
            for other, step in part.low.terms:
                terms[other] = terms.get(other, 0) + factor * step
            extent += abs(reach)
        kept = sorted((name, factor) for name, factor in terms.items() if factor)
        return Interval(Affine(tuple(kept), constant), extent)

    def behind(self, indices: Iterable[Affine]) -> set[str]:
        """The variables that indices depend on, directly or through the starts of axes."""
        names = (name for affine in indices for name, _ in affine.terms)
        return set(reach(names, lambda n: [one for one, _ in self.definitions[n].value.terms]))

    def _range(self, name: str, fixed: frozenset[str]) -> Interval:
        known = self._ranges.get((name, fixed))
        if known is not None:
            return known
        definition = self.definitions[name]
        found = self.interval(definition.value, fixed)
        low, extent = found.low, found.extent + definition.extent - 1
        start = self.interval(definition.base, fixed)
        if low.terms == start.low.terms:  # guards keep the values in the axis
            end = start.low.constant + start.extent - 1 + definition.size
            first = max(low.constant, start.low.constant)
            extent = max(min(low.constant + extent, end) - first, 1)
            low = Affine(low.terms, first)
        return self._ranges.setdefault(
            (name, fixed), clipped(Interval(low, extent), definition.limits)
        )

    def touched(self, read: Read, domain: Box, fixed: frozenset[str]) -> list[Interval]:
        """The box of a tensor that a read, whose index consists of variables, touches."""
        if not read.index:
            return whole(domain)
        return [self.interval(affine, fixed) for affine in read.index]


def is_whole(stage: Stage, bounds: Bounds, loop: str) -> bool:
    """Whether all blocks of the loop are whole."""
    extents = bounds.plans[stage.name].extents
    while True:
        found = [r for r in stage.relations if isinstance(r, Division) and loop in r.parts]
        if not found:
            return not any(loop in r.names for r in stage.relations)
        loop = found[0].parent
        if found[0].lead or extents[loop] % found[0].factor:
            return False


def infer_bounds(state: State, known: Bounds | None = None) -> Bounds:
    """Plan every stage.

    Parameters
    ----------
    known
        The bounds of a state that differs only in numbers.
    """
    bounds = Bounds()
    if known is not None:
        bounds.instructions = known.instructions
        bounds._known, bounds._found = known._known, known._found
    around: dict[str, tuple[int, ...]] = {}
    """The plans of a stage and of the stages around it, which determine its box."""
    for stage in reversed(state.stages):
        readers = (around[reader.name] for reader in state.readers(stage.name))
        key = stage.name, stage.relations, stage.depths, stage.ahead, *readers
        plan = bounds._found.get(key)
        if plan is None:
            plan = bounds._found[key] = _planned(stage, state, bounds)
        outside = around[stage.place.consumer] if stage.place else ()
        around[stage.name] = (id(plan), *outside)
        bounds.plans[stage.name] = plan
        bounds.definitions |= plan.definitions
    return bounds


def _planned(stage: Stage, state: State, bounds: Bounds) -> StagePlan:
    """The plan of a stage; an equal one if there is one."""
    fixed = bounds.known(stage.place)
    required = stage.place is not None
    box = _required(stage, state, bounds, fixed) if required else whole(stage.domain)
    rolling = None
    if stage.ahead is not None:
        every = whole(stage.domain)
        needed, ever = (
            [hull or part for hull, part in zip(hulls, every, strict=True)]
            for hulls in (
                _hulls(stage, state, bounds, fixed),
                _hulls(stage, state, bounds, _NONE),
            )
        )
        around = _loops_around(stage, state)

        def is_slower(one: Affine, other: Affine) -> bool:
            slow, fast = (
                [place for place, name in enumerate(around) if name in bounds.behind([index])]
                for index in (one, other)
            )
            return bool(slow and fast) and max(slow) < min(fast)

        rolling = ring_of(stage, needed, ever, is_slower)
        for place in range(rolling.dimension, len(box)):
            if place not in rolling.narrow:
                box[place] = every[place]
    share = None
    if stage.carried and stage.place is not None:
        axis = qualified(stage.place.consumer, carried_axis(stage, state))
        share = bounds.interval(variable(axis), fixed)
    parts = box if share is None else [*box, share]
    ranges = (bounds.interval(part.low, _NONE) for part in parts if part.low.terms)
    key = stage.name, stage.relations, stage.depths, rolling, share, *box, *ranges
    if key not in bounds._found:
        bounds._found[key] = _plan(stage, box, fixed, bounds, rolling, share)
    return bounds._found[key]


def _loops_around(stage: Stage, state: State) -> list[str]:
    """The loops in which a stage is computed, outermost first."""
    found: list[str] = []
    while stage.place is not None:
        consumer = state.stage(stage.place.consumer)
        own = consumer.loops[: consumer.loops.index(stage.place.loop) + 1]
        found[:0] = [qualified(consumer.name, loop) for loop in own]
        stage = consumer
    return found


def whole(domain: Box) -> list[Interval]:
    """All elements that exist."""
    return [Interval(Affine((), low), high - low) for low, high in domain]


def _hulls(
    stage: Stage, state: State, bounds: Bounds, fixed: frozenset[str]
) -> list[Interval | None]:
    """The least interval that contains all elements read, per dimension."""
    parts = [
        bounds.touched(read, stage.domain, fixed)
        for reader in state.readers(stage.name)
        for read in reader.variable_reads
        if read.tensor == stage.name
    ]
    return [_hull(list(ranges)) for ranges in zip(*parts, strict=True)]


def _required(stage: Stage, state: State, bounds: Bounds, fixed: frozenset[str]) -> list[Interval]:
    """The hull of all elements that readers touch and that exist."""
    box = []
    for hull, (low, high) in zip(_hulls(stage, state, bounds, fixed), stage.domain, strict=True):
        if hull is None or hull.extent >= high - low:
            box.append(Interval(Affine((), low), high - low))
        else:
            box.append(clipped(hull, (low, high)))
    return box


def _hull(ranges: list[Interval]) -> Interval | None:
    """The least interval around all intervals; None if it depends on variables."""
    terms = ranges[0].low.terms
    if any(part.low.terms != terms for part in ranges):
        return None
    low = min(part.low.constant for part in ranges)
    high = max(part.low.constant + part.extent for part in ranges)
    return Interval(Affine(terms, low), high - low)


def clipped(interval: Interval, limits: tuple[int, int] | None) -> Interval:
    """Limit an interval to the elements that exist, if it does not move; never empty."""
    if limits is None or interval.low.terms:
        return interval
    low = min(max(interval.low.constant, limits[0]), limits[1] - 1)
    high = min(interval.low.constant + interval.extent, limits[1])
    return Interval(Affine((), low), max(high - low, 1))


def _plan(
    stage: Stage,
    box: list[Interval],
    outside: frozenset[str],
    bounds: Bounds,
    rolling: Rolling | None,
    share: Interval | None,
) -> StagePlan:
    starts = {axis: part.low for axis, part in zip(stage.axes, box, strict=True)}
    sizes = {axis: part.extent for axis, part in zip(stage.axes, box, strict=True)}
    for axis in stage.reductions:
        starts[axis.name], sizes[axis.name] = share or (_ZERO, axis.extent)
    limits = dict(zip(stage.axes, stage.domain, strict=True))
    if share is not None:
        limits |= {axis.name: (0, axis.extent) for axis in stage.reductions}
    extents = loop_extents(stage, sizes)
    needs, variables = stage.needs, stage.variables
    definitions: dict[str, Definition] = {}
    levels: list[list[VariableBinding]] = [[] for _ in range(len(stage.loops) + 1)]

    def bind(
        loop: str, value: Affine, digit: Digit | None, reach: int, leaf: bool, lead: int = 0
    ) -> None:
        """Define a loop's variable: `reach` values, `lead` of them before its axis starts."""
        start, size, name = starts.get(loop, _ZERO), extents[loop], variables[loop]
        value = start if leaf else total(value, start)
        extent = reach if leaf else digit.modulus if digit else 1
        definitions[name] = Definition(value, extent, start, size, limits.get(loop))
        let = None if leaf else Let(name, value, digit)
        conditions = _conditions(name, start, size, (lead, reach), limits.get(loop), bounds)
        levels[needs[loop]].append(VariableBinding(loop, let, conditions))

    for loop in stage.loops:
        bind(loop, _ZERO, None, extents[loop], leaf=True)
    for relation in reversed(stage.relations):
        if isinstance(relation, Division):
            outer, inner = (variables[part] for part in relation.parts)
            value = total(Affine(((outer, relation.factor), (inner, 1))), -relation.lead)
            reach = (extents[relation.outer] - 1) * relation.factor + extents[relation.inner]
            bind(relation.parent, value, None, reach, leaf=False, lead=relation.lead)
        else:
            fused, size = variables[relation.fused], extents[relation.inner]
            for loop, divisor in ((relation.outer, size), (relation.inner, 1)):
                digit = Digit(fused, divisor, extents[loop], loop == relation.outer)
                bind(loop, _ZERO, digit, extents[loop], leaf=False)
    bindings = tuple(tuple(level) for level in levels)
    return StagePlan(stage, starts, sizes, extents, bindings, outside, definitions, rolling)


def _conditions(
    name: str,
    start: Affine,
    size: int,
    values: tuple[int, int],
    limits: tuple[int, int] | None,
    bounds: Bounds,
) -> tuple[Condition, ...]:
    """The conditions for a variable that takes some `values`: those before `start`, and all."""
    lead, reach = values[0], values[1] - values[0]
    span = bounds.interval(start, frozenset()) if start.terms else Interval(start, 1)
    lowest, highest = span.low.constant, span.low.constant + span.extent - 1 + min(reach, size)
    low = limits[0] if limits and lowest < limits[0] else None
    high = limits[1] if limits and highest > limits[1] else None
    inside = []
    if lead or reach > size:
        least, end = 0 if lead else None, size if reach > size else None
        if start.terms:
            inside.append(Condition(total(variable(name), scaled(start, -1)), least, end))
        else:
            low = start.constant if low is None and lead else low
            high = high if end is None else start.constant + size
    if low is not None or high is not None:
        inside.append(Condition(variable(name), low, high))
    return tuple(inside)


def loop_extents(stage: Stage, sizes: Mapping[str, int]) -> dict[str, int]:
    """Extents of all loops, derived from the extents of the axes."""
    extents = dict(sizes)
    for relation in stage.relations:
        if isinstance(relation, Division):
            whole = extents[relation.parent] + relation.lead
            extents[relation.outer] = -(-whole // relation.factor)
            extents[relation.inner] = min(relation.factor, whole)
        else:
            extents[relation.fused] = extents[relation.outer] * extents[relation.inner]
    return extents


def spans(plan: StagePlan, opened: int) -> dict[str, int] | None:
    """Size per axis of the box that the loops inside the outermost `opened` ones cover.

    Returns None if they do not cover a box: for the outer part of a split loop without the inner
    part, or for a part of a fused loop.
    """
    stage = plan.stage
    free = {loop: plan.extents[loop] for loop in stage.loops[opened:]}
    known = {**dict.fromkeys(stage.loops, 1), **free}
    for relation in reversed(stage.relations):
        if isinstance(relation, Division):
            outer, inner = known[relation.outer], known[relation.inner]
            if outer > 1 and inner < plan.extents[relation.inner]:
                return None
            covered = (outer - 1) * relation.factor + inner
            known[relation.parent] = min(covered, plan.extents[relation.parent])
        else:
            covered = known[relation.fused]
            if covered not in (1, plan.extents[relation.fused]):
                return None
            for loop in (relation.outer, relation.inner):
                known[loop] = 1 if covered == 1 else plan.extents[loop]
    return {axis: known[axis] for axis in (*stage.axes, *(a.name for a in stage.reductions))}
