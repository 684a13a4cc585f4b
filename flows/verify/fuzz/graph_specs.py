"""Graphs as plain numbers, which can be reduced one by one.

A `Sketch` has shapes of inputs, steps with parameters, and which values are shown. `realise` makes
the graph, constants included; every step draws its constants from a seed of its own, so that
dropping another step does not change them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ....compiler.graph import (
    Builder,
    Graph,
    Output,
    QAdd,
    QAvgPool,
    QConcat,
    QConv,
    QInterleave,
    QLut,
    QMatMul,
    QMaxPool,
    QMul,
    QResize,
    QSlice,
    Quantisation,
    TensorType,
    Value,
    verify,
)
from ....compiler.graph.operators import (
    Concat,
    Dequantize,
    Pad,
    QBlend,
    Quantize,
    Reshape,
    Slice,
    Transpose,
)
from ....errors import CompileError

Number = int | tuple[int, ...]
Shape = tuple[int, int, int, int]

MAX_WEIGHTS = 20000
"""Maximum number of weights of a layer."""

WIDE_SHARE = 6
"""Of so many layers, one has weights that exceed int8."""

NAMES = ("acc", "bias", "scale", "table", "w", "a b", "again x", "x", "out", "%x", "é/1:0")
"""Activation names that other values may have too."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One operator: its kind, the values that it reads, and its parameters by name.

    Values are numbered: inputs first, then the results of the steps.
    """

    kind: str
    sources: tuple[int, ...]
    numbers: dict[str, Number]

    def with_number(self, name: str, value: Number) -> "NodeSpec":
        """A copy with one parameter changed."""
        return replace(self, numbers={**self.numbers, name: value})

    def pair(self, name: str) -> tuple[int, int]:
        """Parameter of type (y, x)."""
        y, x = self.many(name)
        return y, x

    def quad(self, name: str) -> tuple[int, int, int, int]:
        """Parameter of type (top, left, bottom, right)."""
        top, left, bottom, right = self.many(name)
        return top, left, bottom, right

    def many(self, name: str) -> tuple[int, ...]:
        """Parameter of type tuple."""
        value = self.numbers[name]
        return value if isinstance(value, tuple) else (value,)

    def one(self, name: str) -> int:
        """Parameter of type int."""
        value = self.numbers[name]
        assert isinstance(value, int)
        return value


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph as numbers: input shapes [N, H, W, C], steps, and the values that are shown."""

    inputs: tuple[Shape, ...]
    steps: tuple[NodeSpec, ...]
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


def _conv(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    chance = np.random.default_rng(step.one("seed"))
    channels_in = builder.types[sources[0]].shape[3]
    groups = step.one("groups")
    groups = channels_in if groups == 0 else groups
    if channels_in % groups:
        raise CompileError(f"`{name}`: {channels_in} channels in {groups} groups")
    shape = (*step.pair("kernel"), channels_in // groups, step.one("channels") * groups)
    if np.prod(shape) > MAX_WEIGHTS:
        raise CompileError(f"`{name}`: {np.prod(shape)} weights are too many to draw")
    weights = chance.integers(-128, 128, shape).astype(np.int8)
    if step.one("sparse"):
        weights[chance.random(shape) < 0.7] = 0
    if step.one("seed") % WIDE_SHARE == 0:
        weights = _some_wide(weights, np.random.default_rng(step.one("seed")))
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


def _some_wide(weights: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Let some weights exceed int8, one of them or up to all."""
    some = chance.choice(weights.size, int(weights.size ** chance.random()))
    wide = weights.astype(np.int16)
    wide.reshape(-1)[some] = chance.choice([-255, -129, 128, 254, 255], len(some))
    return wide


def _constant(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    """A constant of the shape of a value, for the next steps to read."""
    chance, shape = np.random.default_rng(step.one("seed")), builder.types[sources[0]].shape
    return builder.constant(chance.integers(-128, 128, shape).astype(np.int8), f"{name}.constant")


def _add(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
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


def _multiply(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    operator = QMul(
        scale=float(np.float32(2.0 ** step.one("gain") * 40 / 73**2)),
        zero_point_a=step.one("zero_point_a"),
        zero_point_b=step.one("zero_point_b"),
        zero_point_y=step.one("zero_point_y"),
        low=step.one("low"),
        high=step.one("high"),
    )
    return _emit(builder, operator, sources, name, step.one("zero_point_y"))


def _blend(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    numbers = step.one("multiplier"), step.one("zero_point")
    return _emit(builder, QBlend(bool(step.one("low")), *numbers), sources, name)


def _average(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    kernel = step.pair("kernel")
    if 0 in kernel:
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


def _maximum(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    operator = QMaxPool(
        kernel=step.pair("kernel"),
        strides=step.pair("strides"),
        pads=step.quad("pads"),
        dilations=step.pair("dilations"),
        low=step.one("low"),
        high=step.one("high"),
    )
    return _emit(builder, operator, sources, name)


def _look_up(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    chance = np.random.default_rng(step.one("seed"))
    table = builder.constant(chance.integers(-128, 128, 256).astype(np.int8), f"{name}.table")
    return _emit(builder, QLut(), [*sources, table], name)


def _dense(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    """A window of the whole input, as an absorbed flatten gives it."""
    shape = builder.types[sources[0]].shape
    plain = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    whole = replace(step, numbers={**step.numbers, **plain, "kernel": shape[1:3]})
    return _conv(builder, whole, sources, name)


def _product(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    """Heads are separate in a value of several rows of pixels, adjacent in others."""
    _, heads, _, channels = builder.types[sources[0]].shape
    joined = step.one("heads") > 0
    first, second, last = (bool(flag) for flag in step.many("joined"))
    operator = QMatMul(
        heads=step.one("heads") if joined else heads,
        scale=float(np.float32(2.0 ** step.one("gain") * 40 / np.sqrt(channels) / 73**2)),
        zero_point_a=step.one("zero_point_a"),
        zero_point_b=step.one("zero_point_b"),
        zero_point_y=step.one("zero_point_y"),
        transposed=bool(step.one("transposed")),
        joined=(joined and first, joined and second, last),
        low=step.one("low"),
        high=step.one("high"),
        repeats=step.one("repeats"),
    )
    return _emit(builder, operator, sources, name, step.one("zero_point_y"))


def _join(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    return _emit(builder, QConcat(step.one("axis")), sources, name)


def _resize(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    return _emit(builder, QResize(step.pair("factors")), sources, name)


def _interleave(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    return _emit(builder, QInterleave(step.pair("factors")), sources, name)


def _cut(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    """A slice of each axis between a start and an end, counted from either side."""
    shape = builder.types[sources[0]].shape
    before, after, steps = (step.quad(key) for key in ("before", "after", "steps"))
    ends = (n - left for n, left in zip(shape, after, strict=True))
    ranges = [
        (end - 1, first - 1) if pace < 0 else (first, end)
        for first, end, pace in zip(before, ends, steps, strict=True)
    ]
    (n, m), (h, i), (w, j), (c, k) = ranges
    return _emit(builder, QSlice((n, h, w, c), (m, i, j, k), steps), sources, name)


def _host(builder: Builder, step: NodeSpec, sources: list[str], name: str) -> str:
    """Operator that runs on the host between accelerator segments; keeps rank and type."""
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


REALISE: dict[str, Callable[[Builder, NodeSpec, list[str], str], str]] = {
    "conv": _conv,
    "dense": _dense,
    "constant": _constant,
    "add": _add,
    "multiply": _multiply,
    "blend": _blend,
    "average": _average,
    "maximum": _maximum,
    "table": _look_up,
    "product": _product,
    "join": _join,
    "resize": _resize,
    "interleave": _interleave,
    "cut": _cut,
    "host": _host,
}
"""Functions that emit the operator of a step, by its kind."""
