"""Random integer graphs of everything that the compiler takes, from sketches that can be shrunk.

A `Sketch` is plain numbers: shapes of inputs, steps with parameters, and which values are shown.
`realise` makes the graph, constants included; every step draws its constants from a seed of its
own, so that dropping another step does not change them.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QAvgPool,
    QConv,
    QLut,
    QMaxPool,
    Quantisation,
    TensorType,
    Value,
    verify,
)
from ..compiler.graph.operators import Concat, Dequantize, Pad, Quantize, Reshape, Slice, Transpose
from ..errors import CompileError

Number = int | tuple[int, ...]
Shape = tuple[int, int, int, int]

LARGEST_TENSOR = 6000
"""Elements of an activation, at most."""

LARGEST_WEIGHTS = 20000
"""Weights of a layer, at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: its kind, the values that it reads, and its parameters by name.

    Values are numbered: inputs first, then the results of the steps.
    """

    kind: str
    sources: tuple[int, ...]
    numbers: dict[str, Number]

    def with_number(self, name: str, value: Number) -> "Step":
        """A copy with one parameter changed."""
        return replace(self, numbers={**self.numbers, name: value})

    def pair(self, name: str) -> tuple[int, int]:
        """A parameter that is a (y, x) pair."""
        y, x = self.many(name)
        return y, x

    def quad(self, name: str) -> tuple[int, int, int, int]:
        """A parameter that is (top, left, bottom, right)."""
        top, left, bottom, right = self.many(name)
        return top, left, bottom, right

    def many(self, name: str) -> tuple[int, ...]:
        """A parameter that is a tuple."""
        value = self.numbers[name]
        return value if isinstance(value, tuple) else (value,)

    def one(self, name: str) -> int:
        """A parameter that is a single number."""
        value = self.numbers[name]
        assert isinstance(value, int)
        return value


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph as numbers: input shapes [N, H, W, C], steps, and the values that are shown."""

    inputs: tuple[Shape, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]


def realise(sketch: Sketch) -> Graph:
    """The graph of a sketch.

    Raises
    ------
    CompileError
        When shapes do not fit each other.
    """
    quantisation = Quantisation(0.05, 0)
    builder = Builder("fuzzed")
    names = [
        builder.input(Value(name, TensorType("int8", shape, quantisation)))
        for name, shape in zip(NAMES, sketch.inputs, strict=False)
    ]
    for place, step in enumerate(sketch.steps):
        sources = [names[source] for source in step.sources]
        made = REALISE[step.kind](builder, step, sources, f"{step.kind}{place}")
        if not builder.types[made].elements > 0:
            raise CompileError(f"`{made}`: expected elements, got none")
        names.append(made)
    outputs = [Output(f"shown{i}", names[value]) for i, value in enumerate(sketch.outputs)]
    return verify(builder.graph(outputs), "random_graphs")


def _emit(builder: Builder, operator, sources: list[str], node: str, zero_point: int = 0) -> str:
    name = NAMES[(len(builder.nodes) + len(builder.inputs)) % len(NAMES)]
    return builder.emit(operator, sources, node, name, Quantisation(0.05, zero_point))


def _conv(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    chance = np.random.default_rng(step.one("seed"))
    channels_in = builder.types[sources[0]].shape[3]
    groups = step.one("groups")
    groups = channels_in if groups == 0 else groups
    if channels_in % groups:
        raise CompileError(f"`{name}`: {channels_in} channels in {groups} groups")
    shape = (*step.pair("kernel"), channels_in // groups, step.one("channels") * groups)
    if np.prod(shape) > LARGEST_WEIGHTS:
        raise CompileError(f"`{name}`: {np.prod(shape)} weights are too many to draw")
    weights = chance.integers(-128, 128, shape).astype(np.int8)
    if step.one("sparse"):
        weights[chance.random(shape) < 0.7] = 0
    taps = int(np.prod(shape[:3]))
    spread = 2.0 ** step.one("gain") * 40 / np.sqrt(taps) / 73**2
    scale = (spread * chance.uniform(0.5, 2, shape[3])).astype(np.float32)
    bias = chance.integers(-20, 21, shape[3]) / scale
    constants = (weights, np.clip(bias, -(2**30), 2**30).astype(np.int32), scale)
    held = [builder.constant(data, f"{name}.constant") for data in constants]
    operator = QConv(
        kind="depthwise" if groups == channels_in > 1 else "conv",
        strides=step.pair("strides"),
        pads=step.quad("pads"),
        dilations=step.pair("dilations"),
        groups=groups,
        zero_point_x=step.one("zero_point_x"),
        zero_point_y=step.one("zero_point_y"),
        low=step.one("low"),
        high=step.one("high"),
    )
    return _emit(builder, operator, [*sources, *held], name, step.one("zero_point_y"))


def _add(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    first, second = step.pair("multipliers")
    operator = QAdd(
        multipliers=(first, second),
        constant=step.one("constant"),
        scale=float(np.float32(2.0 ** step.one("gain") / max(1, abs(first) + abs(second)))),
        zero_point_y=step.one("zero_point_y"),
        low=step.one("low"),
        high=step.one("high"),
    )
    return _emit(builder, operator, sources, name, step.one("zero_point_y"))


def _average(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    kernel = step.pair("kernel")
    if kernel == (0, 0):
        shape = builder.types[sources[0]].shape
        kernel = shape[1], shape[2]
    operator = QAvgPool(
        kernel=kernel,
        strides=step.pair("strides"),
        pads=step.quad("pads"),
        zero_point_x=step.one("zero_point_x"),
        constant=step.one("constant"),
        scale=float(np.float32(2.0 ** step.one("gain") / (kernel[0] * kernel[1]))),
        zero_point_y=step.one("zero_point_y"),
        low=step.one("low"),
        high=step.one("high"),
    )
    return _emit(builder, operator, sources, name, step.one("zero_point_y"))


def _maximum(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    operator = QMaxPool(
        kernel=step.pair("kernel"),
        strides=step.pair("strides"),
        pads=step.quad("pads"),
        dilations=step.pair("dilations"),
        low=step.one("low"),
        high=step.one("high"),
    )
    return _emit(builder, operator, sources, name)


def _look_up(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    chance = np.random.default_rng(step.one("seed"))
    table = builder.constant(chance.integers(-128, 128, 256).astype(np.int8), f"{name}.table")
    return _emit(builder, QLut(), [*sources, table], name)


def _dense(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    """A window of the whole input, as an absorbed flatten gives it."""
    shape = builder.types[sources[0]].shape
    plain = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    whole = replace(step, numbers={**step.numbers, **plain, "kernel": shape[1:3]})
    return _conv(builder, whole, sources, name)


def _host(builder: Builder, step: Step, sources: list[str], name: str) -> str:
    """What stays on the host between accelerator segments; rank and type stay."""
    shape = builder.types[sources[0]].shape
    way = step.one("way")
    if way == 0:
        operator = Reshape((shape[0], 1, 1, shape[1] * shape[2] * shape[3]))
    elif way == 1:
        operator = Transpose((0, 2, 1, 3))
    elif way == 2:
        operator = Pad((0, 1, 0, 0), (0, 0, 2, 0), 3.0)
    elif way == 3:
        operator = Slice((0, 0, 0, shape[3] // 2), shape, (1, 2, 1, 1))
    elif way == 4:
        operator = Concat(3)
        sources = [sources[0], sources[0]]
    else:
        floats = builder.emit(Dequantize((0.05,), (0,)), sources, f"{name}.float")
        return _emit(builder, Quantize((0.1,), (5,), "int8"), [floats], name, 5)
    return _emit(builder, operator, sources, name)


REALISE: dict[str, Callable[[Builder, Step, list[str], str], str]] = {
    "conv": _conv,
    "dense": _dense,
    "add": _add,
    "average": _average,
    "maximum": _maximum,
    "table": _look_up,
    "host": _host,
}
"""Kind of a step -> what emits its operator."""

HOST_WAYS = 6
WEIGHTS = {
    "conv": 10, "dense": 2, "add": 5, "average": 2, "maximum": 3, "table": 2, "host": 1,
}  # fmt: skip
"""How often each kind is drawn."""

CHAINS = (
    ("expand", "depthwise", "project", "sum"),
    ("expand", "depthwise", "depthwise", "project"),
    ("conv", "sum", "table", "maximum"),
    ("conv", "table", "average"),
    ("depthwise", "average"),
    ("conv", "maximum", "depthwise"),
)
"""Steps in a row that the compiler may fuse; `sum` adds what the chain began with, if it fits."""

POINTWISE: dict[str, Number] = {
    "kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1,
}  # fmt: skip
CHANNELWISE = ((3, 3), (3, 3), (3, 3), (5, 5), (1, 7), (7, 1), (2, 2), (3, 4))
"""Kernels of depthwise steps in chains."""

NAMES = ("acc", "bias", "scale", "table", "w", "a b", "again x", "x", "out", "%x", "é/1:0")
"""Names of activations that something else may have too."""


def random_sketch(seed: int) -> Sketch:
    """Draw a sketch that `realise` accepts; the same seed gives the same one."""
    return _Drawing(random.Random(seed)).sketch()


class _Drawing:
    """A sketch being drawn, and the shapes of its values so far."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.shapes: list[Shape] = []
        self.steps: list[Step] = []
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
            self._append(Step("table", (0,), {"seed": 0}))
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

    def _append(self, step: Step) -> bool:
        """Keep a step whose shapes fit and stay small."""
        last = len(self.shapes)
        try:
            graph = realise(Sketch(self.inputs, (*self.steps, step), (last,)))
        except CompileError:
            return False
        kind = graph.types[graph.outputs[0].value]
        if kind.elements > LARGEST_TENSOR:
            return False
        n, h, w, c = kind.shape
        self.shapes.append((n, h, w, c))
        self.steps.append(step)
        return True

    def _chain(self) -> None:
        """Some steps in a row, each reading the one before; those that do not fit are left out."""
        first = newest = self._source()
        for part in self.chance.choice(CHAINS):
            if self._append(self._link(part, first, newest)):
                newest = len(self.shapes) - 1

    def _link(self, part: str, first: int, newest: int) -> Step:
        chance = self.chance
        if part == "sum":
            step = self._draw("add", newest)
            fits = self.shapes[first] == self.shapes[newest]
            return replace(step, sources=(newest, first)) if fits else step
        if part not in ("expand", "project", "depthwise"):
            return self._draw(part, newest)
        step = self._draw("conv", newest)
        if part == "depthwise":
            kernel = chance.choice(CHANNELWISE)
            window = {**step.numbers, "kernel": kernel, "groups": 0, "channels": 1}
            if chance.random() < 0.7:
                window["pads"] = (kernel[0] // 2, kernel[1] // 2) * 2
            return replace(step, numbers=window)
        channels = self.shapes[first][3] if part == "project" else self._channels()
        return replace(step, numbers={**step.numbers, **POINTWISE, "channels": channels})

    def _source(self) -> int:
        """A value, the newest ones mostly."""
        newest = len(self.shapes) - 1
        return self.chance.choice((newest, newest, self.chance.randint(0, newest)))

    def _draw(self, kind: str, source: int) -> Step:
        """A step of a kind that reads a value."""
        if kind == "add":
            return Step(kind, *self._draw_add(source))
        return Step(kind, (source,), self._numbers(kind, source))

    def _numbers(self, kind: str, source: int) -> dict[str, Number]:
        chance = self.chance
        if kind == "host":
            return {"way": chance.randrange(HOST_WAYS)}
        if kind == "table":
            return {"seed": chance.randrange(1 << 20)}
        numbers: dict[str, Number] = {**self._window(source), **self._clamp()}
        if kind == "maximum":
            return numbers
        numbers |= {"zero_point_x": self._byte(), "zero_point_y": self._byte()}
        numbers["gain"] = chance.choice((0, 0, 0, 0, -1, 1, 3))
        if kind == "average":
            numbers["constant"] = chance.choice((0, 0, chance.randint(-5000, 5000)))
            if chance.random() < 0.3:
                numbers |= {"kernel": (0, 0), "pads": (0, 0, 0, 0), "strides": (1, 1)}
            return numbers
        numbers |= {"seed": chance.randrange(1 << 20), "sparse": chance.choice((0, 0, 1))}
        numbers["groups"] = chance.choice((1, 1, 1, 0, 0, 2, 3))
        few = chance.choice((1, 1, 2, 3))
        numbers["channels"] = self._channels() if numbers["groups"] == 1 else few
        return numbers

    def _draw_add(self, source: int) -> tuple[tuple[int, ...], dict[str, Number]]:
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
        pair = [source, chance.choice(alike)]
        chance.shuffle(pair)
        return tuple(pair), numbers

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
