"""Decoders with a cache: past keys and values are inputs, present ones outputs, of one program."""

from dataclasses import dataclass

import numpy as np
import onnx
import pytest

from tests.compiler.attention_networks import Attention, Writer, quantised
from tests.compiler.onnx_models import model, run_onnxruntime, value
from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.quantiser.prepare import prepare
from tilewright.isa.configuration import PRESETS
from tilewright.runtime.devices import open_device
from tilewright.runtime.session import Session

ROWS = PRESETS["8x8"].replace(name="rows-8x8", row_statistics="all")


@dataclass(frozen=True)
class Cached:
    heads: int = 2
    shared: int = 1
    tokens: int = 4
    past: int = 6
    size: int = 8
    by_rows: bool = False
    """The cache holds [1, tokens, heads, channels]."""
    rotary: str = "none"
    operator: bool = False
    """ONNX's Attention takes the cache."""


CASES = {
    "heads": Cached(),
    "one token": Cached(tokens=1, past=9),
    "shared heads": Cached(heads=4, shared=2),
    "rotary": Cached(rotary="halves", tokens=3),
    "rotary, one token": Cached(rotary="pairs", tokens=1, past=5),
    "shared heads, pairs": Cached(heads=4, shared=2, tokens=1, rotary="pairs"),
    "shared heads, one token": Cached(heads=4, shared=2, tokens=1, rotary="halves"),
    "rows": Cached(by_rows=True),
    "rows, one token": Cached(by_rows=True, tokens=1),
    "rows, shared heads": Cached(heads=4, shared=2, by_rows=True, size=4),
    "Attention": Cached(heads=4, shared=2, operator=True),
    "Attention, one token": Cached(heads=4, shared=2, tokens=1, operator=True),
}


class CachedWriter(Writer):
    """The nodes and constants of a decoder's attention."""

    def __init__(self, case: Cached) -> None:
        form = Attention(case.heads, case.shared, case.size, case.tokens, "added", case.rotary,
                         normed=True)  # fmt: skip
        super().__init__(form)
        self.case = case

    def rows(self, x: str, count: int, rotary: str = "none") -> str:
        """Heads in the layout of the cache."""
        form = self.form
        columns = form.channels if count == form.heads else form.channels // form.repeats
        y = self.dense(x, form.channels, columns)
        if not self.case.by_rows:
            return self.heads(y, count, rotary)
        return self.emit("Reshape", y, np.array([1, form.tokens, count, form.size]))

    def network(self) -> onnx.ModelProto:
        case, form = self.case, self.form
        total, shared = case.past + case.tokens, case.heads // case.shared
        x = self.norm("x")
        q = self.rows(x, case.heads, case.rotary)
        k, v = (self.rows(x, shared, rotary) for rotary in (case.rotary, "none"))
        if case.operator:
            outputs = ["context", "present_k", "present_v"]
            inputs = [q, k, v, "", "past_k", "past_v"]
            attention = onnx.helper.make_node("Attention", inputs, outputs, is_causal=1)
            self.nodes.append(attention)
            context, k, v = outputs
        else:
            axis = 1 if case.by_rows else 2
            k = self.emit("Concat", "past_k", k, axis=axis)
            v = self.emit("Concat", "past_v", v, axis=axis)
            context = self.attended(q, k, v, total)
        context = self.emit("Transpose", context, perm=[0, 2, 1, 3])
        rows = self.emit("Reshape", context, np.array([1, case.tokens, form.channels]))
        y = self.emit("Add", "x", self.dense(rows, form.channels, form.channels))
        cache = [1, shared, case.past, case.size]
        if case.by_rows:
            cache[1:3] = cache[2:0:-1]
        inputs = [value("x", np.float32, (1, case.tokens, form.channels))]
        inputs += [value(name, np.float32, cache) for name in ("past_k", "past_v")]
        opset = 23 if case.operator else 18
        return model(self.nodes, inputs, [y, k, v], self.constants, opset)

    def attended(self, q: str, k: str, v: str, total: int) -> str:
        case = self.case
        if case.by_rows:
            q, k, v = (self.emit("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, k, v))
        k, v = (self.widened(each, total) for each in (k, v))
        product = self.emit("MatMul", q, self.emit("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.emit("Div", product, np.array(np.sqrt(case.size), np.float32))
        later = np.arange(total) > case.past + np.arange(case.tokens)[:, None]
        mask = np.where(later, -1e9, 0).astype(np.float32)[None, None]
        shares = self.emit("Softmax", self.emit("Add", scores, mask), axis=-1)
        return self.emit("MatMul", shares, v)

    def widened(self, x: str, total: int) -> str:
        """The heads of keys or values, once for each head of queries."""
        case = self.case
        if case.shared == 1:
            return x
        shape = [1, case.heads // case.shared, case.shared, total, case.size]
        apart = self.emit("Unsqueeze", x, np.array([2]))
        wide = self.emit("Expand", apart, np.array(shape))
        return self.emit("Reshape", wide, np.array([1, case.heads, total, case.size]))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_decoder_with_a_cache_is_one_program(case):
    proto = CachedWriter(case).network()
    graph = import_onnx(proto.SerializeToString())
    chance = np.random.default_rng(3)
    drawn = {
        each.name: chance.uniform(-2, 2, (25, *each.type.shape)).astype(np.float32)
        for each in graph.inputs
    }
    given = {name: data[0] for name, data in drawn.items()}
    in_float = evaluate(graph, given)
    for name, reference in run_onnxruntime(proto, given).items():
        np.testing.assert_allclose(in_float[name], reference, atol=1e-5)
    module = quantised(graph, {name: data[1:] for name, data in drawn.items()}, ROWS)
    inside = [step for step in module.steps if isinstance(step, int)]
    assert inside == [0], [node.op for node in module.graph.nodes]
    around = {
        node.op for step in module.steps if isinstance(step, str)
        for node in [module.graph.producer(step)] if node
    }  # fmt: skip
    assert around == {"quantize", "reshape", "dequantize"}
    found = Session(module, open_device("sim", ROWS)).run(given).outputs
    for name, expected in evaluate(module.graph, given).items():
        assert np.array_equal(found[name], expected)
        noise = np.square(found[name] - in_float[name]).mean()
        assert 10 * np.log10(np.square(in_float[name]).mean() / noise) > 22


# Static caches ------------------------------------------------------------------------------------


class StaticWriter(CachedWriter):
    """A decoder of one token that writes into its cache, by `Where`, at a given position."""

    def network(self) -> onnx.ModelProto:
        case, form = self.case, self.form
        total, shared = case.past, case.heads // case.shared
        rows = np.arange(total).reshape(1, 1, total, 1)
        place = self.emit("Reshape", "position", np.array([1, 1, 1, 1]))
        here = self.emit("Equal", rows, place)
        earlier = self.emit("LessOrEqual", rows.reshape(1, 1, 1, total), place)
        ends = (np.array(number, np.float32) for number in (0, -1e9))
        mask = self.emit("Where", earlier, *ends)
        x = self.norm("x")
        q = self.rows(x, case.heads, case.rotary)
        k, v = (
            self.emit("Where", here, self.rows(x, shared, rotary), past)
            for rotary, past in ((case.rotary, "past_k"), ("none", "past_v"))
        )
        wide_k, wide_v = (self.widened(each, total) for each in (k, v))
        product = self.emit("MatMul", q, self.emit("Transpose", wide_k, perm=[0, 1, 3, 2]))
        scores = self.emit("Div", product, np.array(np.sqrt(case.size), np.float32))
        shares = self.emit("Softmax", self.emit("Add", scores, mask), axis=-1)
        context = self.emit("Transpose", self.emit("MatMul", shares, wide_v), perm=[0, 2, 1, 3])
        flat = self.emit("Reshape", context, np.array([1, 1, form.channels]))
        y = self.emit("Add", "x", self.dense(flat, form.channels, form.channels))
        inputs = [
            value("x", np.float32, (1, 1, form.channels)),
            value("position", np.int64, (1, 1)),
        ]
        inputs += [
            value(name, np.float32, (1, shared, total, case.size)) for name in ("past_k", "past_v")
        ]
        return model(self.nodes, inputs, [y, k, v], self.constants, 18)


STATIC = {
    "heads": Cached(tokens=1, past=9),
    "shared heads, pairs": Cached(heads=4, shared=2, tokens=1, past=9, rotary="pairs"),
}


@pytest.mark.parametrize("case", STATIC.values(), ids=STATIC)
def test_a_static_cache_is_merged_behind_the_program(case):
    graph = import_onnx(StaticWriter(case).network().SerializeToString())
    chance = np.random.default_rng(3)
    drawn = {
        each.name: chance.integers(0, case.past, (25, 1, 1))
        if each.name == "position"
        else chance.uniform(-2, 2, (25, *each.type.shape)).astype(np.float32)
        for each in graph.inputs
    }
    apart = prepare(graph)
    for place in range(case.past + 2):  # behind the end, nothing is written
        given = {name: data[place] for name, data in drawn.items()}
        given["position"] = np.array([[place]])
        expected, found = evaluate(graph, given), evaluate(apart, given)
        for one, other in zip(expected.values(), found.values(), strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)
    module = quantised(graph, drawn, ROWS)
    assert len(module.segments) == 1, [one.op for one in module.graph.nodes]
    given = {name: data[0] for name, data in drawn.items()}
    with open_device("sim", ROWS) as device:
        outputs = Session(module, device).run(given).outputs
    for name, expected in evaluate(module.graph, given).items():
        np.testing.assert_array_equal(outputs[name], expected)
    for name, in_float in evaluate(graph, given).items():
        noise = np.square(outputs[name] - in_float).mean()
        assert 10 * np.log10(np.square(in_float).mean() / noise) > 24


def test_a_cache_in_which_a_key_may_stand_twice_stays():
    """`Where` writes at all places with the number."""
    writer = StaticWriter(STATIC["heads"])
    proto = writer.network()
    (rows,) = (one for one in proto.graph.initializer if one.dims == [1, 1, 9, 1])
    rows.CopyFrom(onnx.numpy_helper.from_array(np.arange(9).reshape(1, 1, 9, 1) // 2, rows.name))
    apart = prepare(import_onnx(proto.SerializeToString()))
    assert sum(node.op == "where" for node in apart.nodes) == 3, "the mask and two caches"
