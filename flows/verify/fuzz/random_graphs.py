"""Random integer graphs of everything that the compiler takes, as sketches.

Steps are drawn one by one or in chains typical of networks, which the compiler may fuse. Steps that
do not fit the existing values are omitted.
"""

import random
from dataclasses import replace

from ....errors import CompileError
from .graph_specs import NodeSpec, Number, Shape, Sketch, realise

MAX_TENSOR = 6000
"""Maximum number of elements of an activation."""

HOST_WAYS = 6
WEIGHTS = {
    "conv": 10, "dense": 2, "add": 5, "multiply": 4, "average": 2, "maximum": 3, "table": 2,
    "product": 3, "join": 4, "resize": 2, "interleave": 2, "cut": 2, "host": 1, "constant": 2,
    "blend": 2,
}  # fmt: skip
"""Relative frequency of each kind."""

CHAINS = (
    ("expand", "depthwise", "project", "sum"),
    ("expand", "depthwise", "depthwise", "project"),
    ("conv", "sum", "table", "maximum"),
    ("conv", "table", "average"),
    ("depthwise", "average"),
    ("expand", "grouped", "project", "sum"),
    ("grouped", "maximum"),
    ("conv", "maximum", "depthwise"),
    ("conv", "maximum", "conv", "resize", "skip", "conv"),
    ("expand", "depthwise", "skip", "project", "skip"),
    ("resize", "skip", "maximum"),
    ("conv", "interleave", "conv", "cut"),
    ("conv", "cut", "conv", "skip"),
    ("conv", "squeeze", "table", "gate", "project", "sum"),
    ("depthwise", "gate", "table"),
    ("project", "scores", "table", "values", "sum"),
    ("halve", "shared", "table"),
    ("conv", "spatial", "gate", "table"),
)
"""Steps in a row that the compiler may fuse or store into each other.

`sum` adds the first value of the chain. `squeeze` averages each channel, and `gate` multiplies the
chain's second value by the newest, as squeeze-and-excite blocks do, or by the one channel of
`spatial`, as spatial attention does. `skip` joins the first later value with as many pixels as the
newest. `scores` and `values` multiply by the first value, as attention does, and `shared` by keys
that two heads share. If it does not fit, another value is used.
"""

POINTWISE: dict[str, Number] = {
    "kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1,
}  # fmt: skip
GLOBAL: dict[str, Number] = {"kernel": (0, 0), "pads": (0, 0, 0, 0), "strides": (1, 1)}
CHANNELWISE = ((3, 3), (3, 3), (3, 3), (5, 5), (1, 7), (7, 1), (2, 2), (3, 4))
"""Kernels of depthwise steps in chains."""


def random_sketch(seed: int) -> Sketch:
    """Draw a sketch that `realise` accepts; the same seed gives the same one."""
    return _Drawing(random.Random(seed)).sketch()


def depth_of(shape: Shape, heads: int, transposed: bool) -> int:
    """Number of elements that a product with a second operand of this shape sums."""
    return shape[3] // max(1, heads) if transposed else shape[2]


def _broadcasts(small: Shape, shape: Shape) -> bool:
    return all(size in (1, own) for size, own in zip(small, shape, strict=True))


class _Drawing:
    """A sketch being drawn, and the shapes of its values so far."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.shapes: list[Shape] = []
        self.steps: list[NodeSpec] = []
        self.inputs: tuple[Shape, ...] = ()

    def sketch(self) -> Sketch:
        chance = self.chance
        count = chance.choices((1, 2), (4, 1))[0]
        batch = chance.choices((1, 2, 3), (8, 2, 1))[0]
        self.inputs = tuple(self._input(batch) for _ in range(count))
        self.shapes = list(self.inputs)
        wanted = chance.choices((1, 2, 3, 5, 8), (3, 3, 3, 3, 1))[0]
        for _ in range(20 * wanted):
            if len(self.steps) >= wanted:
                break
            if chance.random() < 0.25:
                self._chain()
                continue
            kind = chance.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
            self._append(self._draw(kind, self._source()))
        if not self.steps:
            self._append(NodeSpec("table", (0,), {"seed": 0}))
        used = {source for step in self.steps for source in step.sources}
        results = range(count, len(self.shapes))
        ends = [value for value in results if value not in used]
        extra = [value for value in results if value in used and chance.random() < 0.2]
        outputs = ends + extra
        chance.shuffle(outputs)
        return Sketch(self.inputs, tuple(self.steps), tuple(outputs))

    def _input(self, batch: int) -> Shape:
        chance = self.chance
        height, width = chance.choice((1, 2, 7, 12)), chance.choice((1, 3, 5, 11))
        if chance.random() < 0.7:
            height, width = chance.randint(1, 14), chance.randint(1, 14)
        elif chance.random() < 0.3:
            height, width = chance.choice(((40, 1), (33, 2), (25, 4), (1, 40), (2, 30)))
        return batch, height, width, self._channels()

    def _channels(self) -> int:
        return self.chance.choice((1, 2, 3, 4, 7, 8, 9, 16, 17, 31, self.chance.randint(1, 40)))

    def _append(self, step: NodeSpec) -> bool:
        """Keep a step whose shapes fit and stay small."""
        last = len(self.shapes)
        try:
            graph = realise(Sketch(self.inputs, (*self.steps, step), (last,)))
        except CompileError:
            return False
        kind = graph.types[graph.outputs[0].value]
        if kind.elements > MAX_TENSOR:
            return False
        n, h, w, c = kind.shape
        self.shapes.append((n, h, w, c))
        self.steps.append(step)
        return True

    def _chain(self) -> None:
        """Some steps in a row, each reading the previous one; those that do not fit are omitted."""
        first = newest = self._source()
        begun = len(self.shapes)
        for part in self.chance.choice(CHAINS):
            if self._append(self._link(part, first, newest, begun)):
                newest = len(self.shapes) - 1

    def _link(self, part: str, first: int, newest: int, begun: int) -> NodeSpec:
        chance = self.chance
        if part == "skip":
            pixels = self.shapes[newest][:3]
            alike = [i for i in (first, *range(begun, newest)) if self.shapes[i][:3] == pixels]
            return NodeSpec("join", (newest, *alike[:1]), {"axis": 3})
        if part == "sum":
            step = self._draw("add", newest)
            fits = self.shapes[first] == self.shapes[newest]
            return replace(step, sources=(newest, first)) if fits else step
        if part == "squeeze":
            step = self._draw("average", newest)
            return replace(step, numbers={**step.numbers, **GLOBAL})
        if part == "gate":
            step = self._draw("multiply", newest)
            gated = min(begun, newest)  # the chain may have no second value yet
            fits = _broadcasts(self.shapes[newest], self.shapes[gated])
            return replace(step, sources=(gated, newest)) if fits else step
        if part in ("scores", "values"):
            step = self._draw("product", newest)
            own = {"transposed": int(part == "scores"), "heads": 1}
            return replace(step, sources=(newest, first), numbers={**step.numbers, **own})
        if part == "shared":
            step = self._draw("product", newest)
            own = {"transposed": 1, "heads": 2, "repeats": 2}
            return replace(step, sources=(first, newest), numbers={**step.numbers, **own})
        if part not in ("expand", "project", "halve", "spatial", "depthwise", "grouped"):
            return self._draw(part, newest)
        step = self._draw("conv", newest)
        if part == "grouped":
            inputs = self.shapes[newest][3]
            groups = [n for n in range(1, inputs) if inputs % n == 0] or [1]
            own = {"groups": chance.choice(groups[-3:]), "channels": chance.randint(1, 9)}
            return replace(step, numbers={**step.numbers, **own})
        if part == "depthwise":
            kernel = chance.choice(CHANNELWISE)
            window = {**step.numbers, "kernel": kernel, "groups": 0, "channels": 1}
            if chance.random() < 0.7:
                window["pads"] = (kernel[0] // 2, kernel[1] // 2) * 2
            return replace(step, numbers=window)
        whole = self.shapes[first][3]
        known = {"project": whole, "halve": whole // 2 or 1, "spatial": 1}
        channels = known.get(part) or self._channels()
        return replace(step, numbers={**step.numbers, **POINTWISE, "channels": channels})

    def _source(self) -> int:
        """A value, mostly one of the newest."""
        newest = len(self.shapes) - 1
        return self.chance.choice((newest, newest, self.chance.randint(0, newest)))

    def _draw(self, kind: str, source: int) -> NodeSpec:
        """A step of a kind that reads a value."""
        if kind == "add":
            return NodeSpec(kind, *self._draw_add(source))
        if kind == "multiply":
            return NodeSpec(kind, *self._draw_multiply(source))
        if kind == "product":
            return NodeSpec(kind, *self._draw_product(source))
        if kind == "blend":
            return NodeSpec(kind, *self._draw_blend(source))
        if kind == "join":
            return NodeSpec(kind, *self._draw_join(source))
        if kind == "interleave":
            rows, columns = self.chance.choice(((2, 2), (1, 2), (3, 1)))
            alike = [i for i, shape in enumerate(self.shapes) if shape == self.shapes[source]]
            parts = self.chance.choices(alike, k=rows * columns)
            return NodeSpec(kind, tuple(parts), {"factors": (rows, columns)})
        return NodeSpec(kind, (source,), self._numbers(kind, source))

    def _numbers(self, kind: str, source: int) -> dict[str, Number]:
        chance = self.chance
        if kind == "host":
            return {"way": chance.randrange(HOST_WAYS)}
        if kind in ("table", "constant"):
            return {"seed": chance.randrange(1 << 20)}
        if kind == "cut":
            return self._draw_cut(source)
        if kind == "resize":
            return {"factors": chance.choice(((2, 2), (2, 2), (1, 2), (3, 1), (2, 3)))}
        numbers: dict[str, Number] = {**self._window(source), **self._clamp()}
        if kind == "maximum":
            return numbers
        numbers |= {"zero_point_x": self._byte(), "zero_point_y": self._byte()}
        numbers["gain"] = chance.choice((0, 0, 0, 0, -1, 1, 3))
        if kind == "average":
            numbers["constant"] = chance.choice((0, 0, chance.randint(-5000, 5000)))
            if chance.random() < 0.3:
                numbers |= GLOBAL
            return numbers
        numbers |= {"seed": chance.randrange(1 << 20), "sparse": chance.choice((0, 0, 1))}
        numbers["groups"] = chance.choice((1, 1, 1, 0, 0, 2, 3))
        few = chance.choice((1, 1, 2, 3))
        numbers["channels"] = self._channels() if numbers["groups"] == 1 else few
        return numbers

    def _draw_add(self, source: int) -> tuple[tuple[int, ...], dict[str, Number]]:
        """Add values of one shape, or, more rarely, one that is broadcast to another."""
        chance = self.chance
        alike = [i for i, shape in enumerate(self.shapes) if shape == self.shapes[source]]
        widest = chance.choice((3, 200, 32767))
        numbers: dict[str, Number] = {
            "multipliers": (chance.randint(-widest, widest), chance.randint(1, widest)),
            "constant": chance.choice((0, chance.randint(-(1 << 22), 1 << 22))),
            "gain": chance.choice((0, 0, 1, -1)),
            "zero_point_y": self._byte(),
            **self._clamp(),
        }
        if chance.random() < 0.3:
            return self._broadcast_pair(source), numbers
        pair = [source, chance.choice(alike)]
        chance.shuffle(pair)
        return tuple(pair), numbers

    def _draw_multiply(self, source: int) -> tuple[tuple[int, ...], dict[str, Number]]:
        """Multiply a value by one of its shape or one that is broadcast to it."""
        return self._broadcast_pair(source), self._product_numbers()

    def _broadcast_pair(self, source: int) -> tuple[int, int]:
        """Draw two values: the second has the first one's shape, or is broadcast to it."""
        both = [pair for i in range(len(self.shapes)) for pair in ((source, i), (i, source))]
        pairs = [(a, b) for a, b in both if _broadcasts(self.shapes[b], self.shapes[a])]
        return self.chance.choice(pairs)

    def _draw_blend(self, source: int) -> tuple[tuple[int, ...], dict[str, Number]]:
        """A step of a state; one of two equal operands is left to the host."""
        chance = self.chance
        alike = [i for i, shape in enumerate(self.shapes) if shape == self.shapes[source]]
        parts = chance.sample(alike, 4) if len(alike) >= 4 else chance.choices(alike, k=4)
        widest = chance.choice((3, 200, 32767))
        numbers: dict[str, Number] = {
            "low": chance.randrange(2),
            "multiplier": chance.randint(1, widest),
            "zero_point": self._byte(),
        }
        return tuple(parts), numbers

    def _product_numbers(self) -> dict[str, Number]:
        chance = self.chance
        return {
            "zero_point_a": chance.choice((0, 0, self._byte())),
            "zero_point_b": chance.choice((0, 0, self._byte())),
            "zero_point_y": self._byte(),
            "gain": chance.choice((0, 0, 1, -1)),
            **self._clamp(),
        }

    def _draw_product(self, source: int) -> tuple[tuple[int, ...], dict[str, Number]]:
        """A product with a value of the same channels (transposed) or of as many rows."""
        chance, (n, height, _, channels) = self.chance, self.shapes[source]
        heads = chance.choice((0, 1, 2, 3, 4)) if height == 1 else 0
        transposed = chance.random() < 0.6
        depth = channels // max(1, heads)
        fits = [
            i
            for i, shape in enumerate(self.shapes)
            if shape[:2] == (n, height) and depth_of(shape, heads, transposed) == depth
        ]
        if not fits:
            fits, transposed = [source], True
        numbers: dict[str, Number] = {
            "heads": heads if channels % max(1, heads) == 0 else 1,
            "transposed": int(transposed),
            "repeats": 1,
            "joined": (1, 1, chance.choice((0, 1))),
            **self._product_numbers(),
        }
        return (source, chance.choice(fits)), numbers

    def _draw_cut(self, source: int) -> dict[str, Number]:
        """Amounts to cut off at both ends of one or two axes, and steps, which may be negative."""
        chance = self.chance
        before, after, steps = [0] * 4, [0] * 4, [1] * 4
        for axis in chance.sample(range(4), chance.choice((1, 1, 2))):
            extent = self.shapes[source][axis]
            before[axis] = chance.randrange(extent)
            after[axis] = chance.randrange(extent - before[axis])
            steps[axis] = chance.choice((1, 1, 2, -1)) if axis < 3 else 1
        return {"before": tuple(before), "after": tuple(after), "steps": tuple(steps)}

    def _draw_join(self, source: int) -> tuple[tuple[int, ...], dict[str, Number]]:
        """Values that differ on one axis only, sometimes with repetitions."""
        chance, axis = self.chance, self.chance.choices((3, 2, 1, 0), (12, 2, 2, 1))[0]
        own = self.shapes[source]
        alike = [
            i
            for i, shape in enumerate(self.shapes)
            if shape[:axis] + shape[axis + 1 :] == own[:axis] + own[axis + 1 :]
        ]
        others = [chance.choice(alike) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        sources = [source, *others]
        chance.shuffle(sources)
        return tuple(sources), {"axis": axis}

    def _window(self, source: int) -> dict[str, Number]:
        chance, (_, height, width, _) = self.chance, self.shapes[source]
        extent = chance.choice((1, 2, 3, 3, 4, 5))
        kernel = (extent, extent)
        if chance.random() < 0.4:
            kernel = chance.randint(1, max(1, min(6, height))), chance.randint(1, min(6, width))
        stride = chance.choice((1, 1, 1, 2, 3))
        strides = (stride, stride)
        if chance.random() < 0.25:
            strides = chance.randint(1, 4), chance.randint(1, 4)
        pads = chance.choice(((0, 0, 0, 0), (1, 1, 1, 1), tuple(k // 2 for k in kernel * 2)))
        if chance.random() < 0.3:
            pads = tuple(chance.randint(0, max(0, k - 1)) for k in kernel * 2)
        dilations = (chance.randint(1, 3), chance.randint(1, 3))
        if chance.random() < 0.75:
            dilations = (1, 1)
        return {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}

    def _clamp(self) -> dict[str, Number]:
        if self.chance.random() < 0.6:
            return {"low": -128, "high": 127}
        low, high = sorted((self._byte(), self._byte()))
        return {"low": low, "high": high}

    def _byte(self) -> int:
        return self.chance.choice((0, -128, 127, self.chance.randint(-128, 127)))
