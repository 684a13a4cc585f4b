"""Shrink a failing graph: fewer steps and smaller numbers.

The search is greedy and deterministic. It tries changes in a fixed order, takes the first that
keeps the failure, and repeats until no change does.

Why not Hypothesis: it shrinks the draws of its own engine, not a value that exists already. A graph
that fails here comes from a seed in a campaign of many processes, without such draws.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ....compiler.graph import drop_unused
from ....errors import CompileError
from .graph_specs import NodeSpec, Number, Shape, Sketch, realise

PLAINEST: dict[str, int] = {
    "kernel": 1,
    "strides": 1,
    "pads": 0,
    "dilations": 1,
    "groups": 1,
    "channels": 1,
    "low": -128,
    "high": 127,
    "multipliers": 1,
    "factors": 1,
    "steps": 1,
    "axis": 3,
    "transposed": 1,
}
"""Value at which a parameter has no effect; 0 if not listed."""

MAX_TRIES = 3000


def shrink_sketch(sketch: Sketch, fails: Callable[[Sketch], bool]) -> Sketch:
    """The smallest sketch found that still fails.

    Parameters
    ----------
    sketch
        A sketch that fails.
    fails
        Tells whether a sketch shows the failure; called only with sketches that `realise` accepts.
    """
    tries = 0
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(sketch):
            tries += 1
            if tries > MAX_TRIES:
                return sketch
            if _is_graph(smaller) and fails(smaller):
                sketch, changed = smaller, True
                break
    return sketch


def _is_graph(sketch: Sketch) -> bool:
    """Whether shapes fit and every step contributes to an output."""
    try:
        graph = realise(sketch)
    except CompileError:
        return False
    return bool(graph.nodes) and len(drop_unused(graph).nodes) == len(graph.nodes)


def _smaller(sketch: Sketch) -> Iterator[Sketch]:
    """Simpler sketches, those that cut most first."""
    yield from _fewer_outputs(sketch)
    yield from _fewer_steps(sketch)
    yield from _smaller_inputs(sketch)
    for place, step in enumerate(sketch.steps):
        for plainer in _plainer(step):
            steps = (*sketch.steps[:place], plainer, *sketch.steps[place + 1 :])
            yield replace(sketch, steps=steps)


def _fewer_outputs(sketch: Sketch) -> Iterator[Sketch]:
    """One value alone, with the steps that it needs; then outputs dropped one by one."""
    first = len(sketch.inputs)
    for value in range(first, first + len(sketch.steps)):
        if sketch.outputs != (value,):
            yield _pruned(replace(sketch, outputs=(value,)))
    for value in sketch.outputs if len(sketch.outputs) > 1 else ():
        yield _pruned(replace(sketch, outputs=tuple(v for v in sketch.outputs if v != value)))


def _pruned(sketch: Sketch) -> Sketch:
    """Copy without the steps that no output depends on."""
    first = len(sketch.inputs)
    needed = set(sketch.outputs)
    for place in reversed(range(len(sketch.steps))):
        if first + place in needed:
            needed.update(sketch.steps[place].sources)
    dropped = [p for p in range(len(sketch.steps)) if first + p not in needed]
    for place in reversed(dropped):
        sketch = _without(sketch, place, 0)
    return sketch


def _without(sketch: Sketch, place: int, stand_in: int) -> Sketch:
    """Copy without a step; readers of its result read `stand_in`."""
    gone = len(sketch.inputs) + place

    def moved(value: int) -> int:
        value = stand_in if value == gone else value
        return value - (value > gone)

    steps = tuple(
        replace(step, sources=tuple(moved(v) for v in step.sources))
        for at, step in enumerate(sketch.steps)
        if at != place
    )
    return Sketch(sketch.inputs, steps, tuple(dict.fromkeys(moved(v) for v in sketch.outputs)))


def _fewer_steps(sketch: Sketch) -> Iterator[Sketch]:
    """Candidates in which a step's readers read its operand or an input of its shape."""
    if len(sketch.steps) < 2:
        return
    try:
        graph = realise(sketch)
    except CompileError:
        return
    for place, step in enumerate(sketch.steps):
        for source in dict.fromkeys(step.sources):
            yield _pruned(_without(sketch, place, source))
        result = len(sketch.inputs) + place
        if result in sketch.outputs:
            continue
        kind = [node.output.type for node in graph.nodes if node.name == f"{step.kind}{place}"]
        shape = kind[-1].shape if kind else ()
        if len(shape) == 4:
            yield _pruned(_cut(sketch, place, shape))


def _cut(sketch: Sketch, place: int, shape: Shape) -> Sketch:
    """Copy with an input in place of a step's result."""
    first = len(sketch.inputs)
    gone = first + place

    def moved(value: int) -> int:
        if value == gone:
            return first
        return value if value < first else value + (value < gone)

    steps = tuple(
        replace(step, sources=tuple(moved(v) for v in step.sources))
        for at, step in enumerate(sketch.steps)
        if at != place
    )
    return Sketch((*sketch.inputs, shape), steps, tuple(moved(v) for v in sketch.outputs))


def _smaller_inputs(sketch: Sketch) -> Iterator[Sketch]:
    for place, shape in enumerate(sketch.inputs):
        read = {source for step in sketch.steps for source in step.sources}
        if place not in read and len(sketch.inputs) > 1:
            yield _without_input(sketch, place)
        for axis, extent in enumerate(shape):
            for size in dict.fromkeys((1, extent // 2, extent - 1)):
                if 0 < size < extent:
                    n, h, w, c = (*shape[:axis], size, *shape[axis + 1 :])
                    smaller = n, h, w, c
                    yield _resized(sketch, shape, smaller)
                    inputs = (*sketch.inputs[:place], smaller, *sketch.inputs[place + 1 :])
                    yield replace(sketch, inputs=inputs)


def _resized(sketch: Sketch, old: Shape, new: Shape) -> Sketch:
    """All inputs of one shape resized together, which keeps additions valid."""
    return replace(sketch, inputs=tuple(new if shape == old else shape for shape in sketch.inputs))


def _without_input(sketch: Sketch, place: int) -> Sketch:
    def moved(value: int) -> int:
        return value - (value > place)

    steps = tuple(replace(s, sources=tuple(moved(v) for v in s.sources)) for s in sketch.steps)
    inputs = (*sketch.inputs[:place], *sketch.inputs[place + 1 :])
    return Sketch(inputs, steps, tuple(moved(v) for v in sketch.outputs))


def _plainer(step: NodeSpec) -> Iterator[NodeSpec]:
    for name, value in step.numbers.items():
        if name in ("way", "seed"):
            continue
        plainest = PLAINEST.get(name, 0)
        for simpler in _simpler(value, plainest):
            yield step.with_number(name, simpler)


def _simpler(value: Number, plainest: int) -> Iterator[Number]:
    if isinstance(value, int):
        middle = plainest + (value - plainest) // 2 if value > plainest else value + 1
        nearer = dict.fromkeys((plainest, middle, value - 1 if value > plainest else value + 1))
        yield from (n for n in nearer if abs(n - plainest) < abs(value - plainest))
        return
    if any(part != plainest for part in value):
        yield (plainest,) * len(value)
    for place, part in enumerate(value):
        for simpler in _simpler(part, plainest):
            assert isinstance(simpler, int)
            yield (*value[:place], simpler, *value[place + 1 :])
