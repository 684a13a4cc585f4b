"""Blocks of attention with masks, rotary embedding, shared heads and gates, in exporters' forms."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.compiler.exporters import export_onnx
from tilewright.compiler.frontend.recipe import import_model
from tilewright.compiler.graph import Graph, evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.module import Module
from tilewright.compiler.pipeline import compile_module
from tilewright.compiler.quantiser import quantise
from tilewright.compiler.quantiser.batches import make_batches
from tilewright.compiler.quantiser.options import QuantiserOptions
from tilewright.isa.configuration import Configuration
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

from .onnx_models import model, node, value


@dataclass(frozen=True)
class Attention:
    """A block of attention and its forms."""

    heads: int
    repeats: int
    size: int
    tokens: int
    mask: str
    rotary: str
    before_heads: bool = True
    gated: bool = False
    joined: str = ""
    """The form in which one product gives queries, keys and values."""
    images: int = 1
    normed: bool = False
    """Layer norms stand before the attention and before the gate."""

    @property
    def channels(self) -> int:
        return self.heads * self.size


class Writer:
    """The nodes and constants of a block."""

    def __init__(self, form: Attention) -> None:
        self.form = form
        self.chance = np.random.default_rng(len(form.mask) + form.heads)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def emit(self, kind: str, *inputs: str | np.ndarray, **attributes) -> str:
        names = [each if isinstance(each, str) else self.hold(each) for each in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(kind, names, [name], **attributes))
        return name

    def hold(self, data: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def dense(self, x: str, rows: int, columns: int) -> str:
        weights = self.chance.normal(0, 1.2 / np.sqrt(rows), (rows, columns))
        return self.emit("MatMul", x, weights.astype(np.float32))

    def norm(self, x: str) -> str:
        if not self.form.normed:
            return x
        gamma, beta = (self.chance.normal(mean, 0.3, self.form.channels) for mean in (1, 0))
        vectors = (each.astype(np.float32) for each in (gamma, beta))
        return self.emit("LayerNormalization", x, *vectors, axis=-1)

    def parts(self, x: str) -> list[str]:
        """Queries, keys and values of one product, [1, heads, tokens, size]."""
        heads, tokens, size = self.form.heads, self.form.tokens, self.form.size
        width = heads * size
        turned = self.form.joined == "select"  # as PyTorch's MultiheadAttention: tokens first
        if turned:
            x = self.emit("Transpose", x, perm=[1, 0, 2])
        bias = self.chance.normal(0, 0.3, 3 * width).astype(np.float32)
        y = self.emit("Add", self.dense(x, width, 3 * width), bias)
        if turned:
            images = self.form.images
            y = self.emit("Reshape", y, np.array([tokens, images, 3, width]))
            y = self.emit("Unsqueeze", y, np.array([0]))
            y = self.emit("Squeeze", self.emit("Transpose", y, perm=[3, 1, 2, 0, 4]), np.array([3]))
            each = [self.emit("Gather", y, np.array(index), axis=0) for index in range(3)]
            shape = np.array([tokens, images * heads, size])
            each = [self.emit("Reshape", one, shape) for one in each]
            each = [self.emit("Transpose", one, perm=[1, 0, 2]) for one in each]
            shape = np.array([images, heads, tokens, size])
            return [self.emit("Reshape", one, shape) for one in each]
        if self.form.joined == "slices":
            y = self.emit("Reshape", y, np.array([1, tokens, 3, heads, size]))
            y = self.emit("Transpose", y, perm=[2, 0, 3, 1, 4])
            each = [
                self.emit("Slice", y, np.array([index]), np.array([index + 1]), np.array([0]))
                for index in range(3)
            ]
            return [self.emit("Squeeze", one, np.array([0])) for one in each]
        if self.form.joined == "by head":
            y = self.emit("Reshape", y, np.array([1, tokens, heads, 3 * size]))
            each = self.split(self.emit("Transpose", y, perm=[0, 2, 1, 3]), 3)
            return [
                *(self.turned(one, self.form.rotary, by_head=True) for one in each[:2]),
                each[2],
            ]
        return [
            self.heads(one, heads, rotary)
            for one, rotary in zip(
                self.split(y, 2), (self.form.rotary, self.form.rotary, "none"), strict=True
            )
        ]

    def split(self, x: str, axis: int) -> list[str]:
        names = [f"part{index}" for index in range(3)]
        self.nodes.append(node("Split", [x], names, axis=axis, num_outputs=3))
        return names

    def heads(self, x: str, count: int, rotary: str) -> str:
        shape = np.array([1, self.form.tokens, count, self.form.size])
        x = self.emit("Reshape", x, shape)
        if self.form.before_heads:
            x = self.turned(x, rotary, by_head=False)
            return self.emit("Transpose", x, perm=[0, 2, 1, 3])
        x = self.emit("Transpose", x, perm=[0, 2, 1, 3])
        return self.turned(x, rotary, by_head=True)

    def turned(self, x: str, rotary: str, by_head: bool) -> str:
        half, tokens = self.form.size // 2, self.form.tokens
        angles = np.arange(tokens)[:, None] * 0.7 ** np.arange(half)
        shape = (1, 1, tokens, half) if by_head else (1, tokens, 1, half)
        cos, sin = (f(angles).astype(np.float32).reshape(shape) for f in (np.cos, np.sin))
        if rotary == "none":
            return x
        if rotary == "rotate half":
            one, other = self.emit_split(x)
            swapped = self.emit("Concat", self.emit("Neg", other), one, axis=3)
            whole = [np.concatenate([each, each], -1) for each in (cos, sin)]
            kept = self.emit("Mul", x, whole[0])
            return self.emit("Add", kept, self.emit("Mul", swapped, whole[1]))
        if rotary == "halves":
            one, other = self.emit_split(x)
        else:
            shape_of_pairs = np.array([1, *self.outer(by_head), half, 2])
            pairs = self.emit("Reshape", x, shape_of_pairs)
            one, other = (self.emit("Gather", pairs, np.array(i), axis=4) for i in (0, 1))
        first = self.emit("Sub", self.emit("Mul", one, cos), self.emit("Mul", other, sin))
        second = self.emit("Add", self.emit("Mul", one, sin), self.emit("Mul", other, cos))
        if rotary == "halves":
            return self.emit("Concat", first, second, axis=3)
        apart = [self.emit("Unsqueeze", each, np.array([4])) for each in (first, second)]
        joined = self.emit("Concat", *apart, axis=4)
        return self.emit("Reshape", joined, np.array([1, *self.outer(by_head), 2 * half]))

    def outer(self, by_head: bool) -> tuple[int, int]:
        return (-1, self.form.tokens) if by_head else (self.form.tokens, -1)

    def emit_split(self, x: str) -> tuple[str, str]:
        half, end = self.form.size // 2, self.form.size
        one, other = (
            self.emit("Slice", x, np.array([low]), np.array([high]), np.array([3]))
            for low, high in ((0, half), (half, end))
        )
        return one, other

    def repeated(self, x: str) -> str:
        form, shared = self.form, self.form.heads // self.form.repeats
        if form.repeats == 1:
            return x
        apart = self.emit("Unsqueeze", x, np.array([2]))
        wide = self.emit(
            "Expand", apart, np.array([1, shared, form.repeats, form.tokens, form.size])
        )
        return self.emit("Reshape", wide, np.array([1, form.heads, form.tokens, form.size]))

    def masked(self, scores: str) -> str:
        form = self.form
        later = np.triu(np.ones((1, 1, form.tokens, form.tokens), bool), 1)
        causal = np.where(later, -1e9, 0).astype(np.float32)
        if form.mask == "none":
            return scores
        if form.mask == "added":
            return self.emit("Add", scores, causal)
        low = np.array(-np.inf, np.float32)
        if form.mask == "replaced":
            return self.emit("Where", later, low, scores)
        if form.mask == "kept":
            return self.emit("Where", ~later, scores, low)
        wide = self.emit("Unsqueeze", "kept", np.array([1, 2]))
        if form.mask == "boolean":
            kept = self.emit("Cast", wide, to=onnx.TensorProto.BOOL)
            return self.emit("Where", kept, scores, np.array(-1e30, np.float32))
        number = self.emit("Cast", wide, to=onnx.TensorProto.FLOAT)
        dropped = self.emit("Sub", np.array(1, np.float32), number)
        padding = self.emit("Mul", dropped, np.array(-10000, np.float32))
        if form.mask == "padding and causal":
            padding = self.emit("Add", padding, causal)
        return self.emit("Add", scores, padding)

    def block(self) -> str:
        form, width = self.form, self.form.channels
        shared = width // form.repeats
        x = self.norm("x")
        if form.joined:
            q, k, v = self.parts(x)
        else:
            q = self.heads(self.dense(x, width, width), form.heads, form.rotary)
            k = self.heads(self.dense(x, width, shared), form.heads // form.repeats, form.rotary)
            v = self.heads(self.dense(x, width, shared), form.heads // form.repeats, "none")
        turned = self.emit("Transpose", self.repeated(k), perm=[0, 1, 3, 2])
        if form.joined:  # as PyTorch's scaled_dot_product_attention
            root = np.array([form.size**-0.25], np.float32)
            scores = self.emit("MatMul", self.emit("Mul", q, root), self.emit("Mul", turned, root))
        else:
            product = self.emit("MatMul", q, turned)
            scores = self.emit("Div", product, np.array(np.sqrt(form.size), np.float32))
        shares = self.emit("Softmax", self.masked(scores), axis=-1)
        context = self.emit("MatMul", shares, self.repeated(v))
        if form.joined == "select":
            context = self.emit("Transpose", context, perm=[2, 0, 1, 3])
            rows = self.emit("Reshape", context, np.array([form.tokens * form.images, width]))
            apart = np.array([form.tokens, form.images, width])
            rows = self.emit("Reshape", self.dense(rows, width, width), apart)
            y = self.emit("Add", "x", self.emit("Transpose", rows, perm=[1, 0, 2]))
        else:
            context = self.emit("Transpose", context, perm=[0, 2, 1, 3])
            rows = self.emit("Reshape", context, np.array([1, form.tokens, width]))
            y = self.emit("Add", "x", self.dense(rows, width, width))
        if not form.gated:
            return y
        x = self.norm(y)
        gate, up = self.dense(x, width, 20), self.dense(x, width, 20)
        silu = self.emit("Mul", gate, self.emit("Sigmoid", gate))
        return self.emit("Add", y, self.dense(self.emit("Mul", silu, up), 20, width))


def network(form: Attention) -> onnx.ModelProto:
    writer = Writer(form)
    y = writer.block()
    inputs = [value("x", np.float32, (form.images, form.tokens, form.channels))]
    if "padding" in form.mask or form.mask == "boolean":
        inputs.append(value("kept", np.int64, (1, form.tokens)))
    return model(writer.nodes, inputs, [y], writer.constants, 18)


def samples(form: Attention, proto: onnx.ModelProto, seed: int) -> Iterator[dict[str, np.ndarray]]:
    chance = np.random.default_rng(seed)
    for _ in range(12):
        given: dict[str, np.ndarray] = {}
        shape = form.images, form.tokens, form.channels
        given["x"] = chance.normal(0, 1, shape).astype(np.float32)
        if len(proto.graph.input) > 1:
            count = chance.integers(2, form.tokens + 1)
            given["kept"] = (np.arange(form.tokens) < count).astype(np.int64)[None]
        yield given


def compiled(form: Attention, configuration: Configuration):
    """Return the float graph, the module of its quantised form, and an input."""
    proto = network(form)
    graph = import_onnx(proto.SerializeToString())
    drawn = list(samples(form, proto, 5))
    stacked = {name: np.stack([each[name] for each in drawn]) for name in drawn[0]}
    return graph, quantised(graph, stacked, configuration), next(samples(form, proto, 9))


def quantised(graph: Graph, stacked: dict[str, np.ndarray], configuration: Configuration) -> Module:
    """Quantise a graph, write and read it as QDQ, and compile it."""
    result = quantise(graph, make_batches(graph, stacked), QuantiserOptions(effort="quick"))
    integer = import_model(export_onnx(result.graph).SerializeToString())
    return compile_module(integer, configuration)


def assert_one_program(
    module: Module, given: dict[str, np.ndarray], in_float: np.ndarray, sqnr_db: float = 24
) -> None:
    """`sim` runs a network as one program, equals the reference, and is near the float result."""
    assert len(module.segments) == 1, [one.op for one in module.graph.nodes]
    (expected,) = evaluate(module.graph, given).values()
    with open_device("sim", module.configuration) as device:
        (found,) = Session(module, device).run(given).outputs.values()
    assert np.array_equal(found, expected)
    noise = np.square(found - in_float).mean()
    assert np.square(in_float).mean() > 10 ** (sqnr_db / 10) * noise
