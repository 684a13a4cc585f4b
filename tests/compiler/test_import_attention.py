"""Attention, rotary embedding and norms in every named form compute what onnxruntime computes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tilewright.compiler.graph import evaluate
from tilewright.compiler.importers import import_onnx
from tilewright.errors import ImportModelError

from .onnx_models import model, node, run_onnxruntime, value

GENERATOR = np.random.default_rng(23)
BATCH, POSITIONS, HEADS, SIZE, PAST = 2, 6, 4, 8, 5
WIDTH = HEADS * SIZE


def random(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def lengths(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


class Form(NamedTuple):
    """An operator with its named operands in order, and its outputs."""

    kind: str
    inputs: Mapping[str, np.ndarray | None]
    constants: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("y",)
    attributes: Mapping[str, Any] = {}
    domain: str = "com.microsoft"

    def model(self) -> onnx.ModelProto:
        names = [name if array is not None else "" for name, array in self.inputs.items()]
        operator = node(self.kind, names, list(self.outputs), domain=self.domain, **self.attributes)
        shown = [value(name, a.dtype, a.shape) for name, a in self.given.items()]
        held = {name: self.inputs[name] for name in self.constants}
        return model([operator], shown, [o for o in self.outputs if o], held, opset=23)

    def defined(self, output: str, array: np.ndarray) -> list[np.ndarray]:
        """What the operator defines: in a cache and after a prompt, the valid positions."""
        seqlens = self.inputs.get("seqlens")
        if seqlens is None:
            return [array]
        rows = [np.moveaxis(row, -2, 0) for row in array]
        if output == "y" and array.shape[1] == 1:
            return rows
        return [row[: count + 1] for row, count in zip(rows, seqlens, strict=True)]

    @property
    def given(self) -> dict[str, np.ndarray]:
        return {
            name: array
            for name, array in self.inputs.items()
            if array is not None and name not in self.constants
        }


def packed(mask=None, past=None, added=None, outputs=("y",), **attributes) -> Form:
    columns = sum(attributes.get("qkv_hidden_sizes", [3 * WIDTH]))
    inputs = {
        "x": random(BATCH, POSITIONS, 12),
        "w": random(12, columns),
        "b": random(columns),
        "mask": mask,
        "past": past,
        "added": added,
    }
    return Form("Attention", inputs, ("w", "b"), outputs, {"num_heads": HEADS, **attributes})


def quantised(mask=None, by_channel=False) -> Form:
    scale = 0.01 + 0.01 * np.abs(random(3 * WIDTH if by_channel else 1))
    inputs = {
        "x": GENERATOR.integers(0, 128, (BATCH, POSITIONS, 12)).astype(np.uint8),
        "w": GENERATOR.integers(-64, 64, (12, 3 * WIDTH)).astype(np.int8),
        "b": random(3 * WIDTH),
        "sx": np.float32(0.02),
        "sw": scale if by_channel else scale[0],
        "mask": mask,
        "zx": np.uint8(3),
        "zw": np.zeros(3 * WIDTH, np.int8) if by_channel else np.int8(0),
    }
    held = ("w", "b", "sx", "sw", "zx", "zw")
    return Form("QAttention", inputs, held, attributes={"num_heads": HEADS})


def separate(keys=7, outputs=("y",), **others) -> Form:
    names = ("bias", "mask", "added", "past_k", "past_v")
    inputs = {
        "q": random(BATCH, POSITIONS, WIDTH),
        "k": random(BATCH, keys, WIDTH),
        "v": random(BATCH, keys, WIDTH),
        **{name: others.pop(name, None) for name in names},
    }
    return Form("MultiHeadAttention", inputs, (), outputs, {"num_heads": HEADS, **others})


MASKS = {
    "ends and starts": lengths(4, 6, 0, 2),
    "lengths": lengths(4, 6),
    "of keys": (np.arange(POSITIONS) < [[3], [6]]).astype(np.int32),
    "of pairs": (GENERATOR.random((BATCH, POSITIONS, POSITIONS)) < 0.7).astype(np.int32),
}

ANGLES = np.arange(32)[:, None] * 100.0 ** (-np.arange(8) / 8)
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)


def grouped(
    batch=1, positions=1, past=PAST, room=0, seqlens=None, is_packed=False, size=16, **attributes
) -> Form:
    """Four heads with two keys; `room` positions of the cache are not yet used."""
    total = past - room + positions
    rows = {"q": random(batch, positions, 4 * size)}
    rows |= {name: random(batch, positions, 2 * size) for name in "kv"}
    if is_packed:
        rows = {"q": np.concatenate(list(rows.values()), -1), "k": None, "v": None}
    cache = (batch, 2, past, size)
    inputs = {
        **rows,
        "past_k": random(*cache),
        "past_v": random(*cache),
        "seqlens": lengths(*(seqlens or [total - 1] * batch)),
        "total": np.int32(total),
    }
    if attributes.get("do_rotary"):
        inputs |= {"cos": COS, "sin": SIN}
    held = tuple(name for name in ("total", "cos", "sin") if name in inputs)
    heads = {"num_heads": 4, "kv_num_heads": 2}
    outputs = ("y", "present_k", "present_v")
    return Form("GroupQueryAttention", inputs, held, outputs, heads | attributes)


def rotary(shape, places, **attributes) -> Form:
    inputs = {"x": random(*shape), "places": np.array(places), "cos": COS, "sin": SIN}
    return Form("RotaryEmbedding", inputs, ("cos", "sin"), attributes=attributes)


def embeddings(segments=True, mask=None, places=None) -> Form:
    inputs = {
        "ids": GENERATOR.integers(0, 20, (BATCH, POSITIONS)).astype(np.int32),
        "segments": GENERATOR.integers(0, 2, (BATCH, POSITIONS)).astype(np.int32)
        if segments
        else None,
        "words": random(20, WIDTH),
        "positions": random(10, WIDTH),
        "kinds": random(2, WIDTH) if segments else None,
        "gamma": random(WIDTH),
        "beta": random(WIDTH),
        "mask": mask,
        "places": places,
    }
    held = ("words", "positions", *(("kinds",) if segments else ()), "gamma", "beta")
    outputs = ("y", "counts", "sum") if mask is not None else ("y", "", "sum")
    return Form("EmbedLayerNormalization", inputs, held, outputs, {"epsilon": 1e-5})


def own(kind, inputs, constants=(), outputs=("y",), **attributes) -> Form:
    return Form(kind, inputs, constants, outputs, attributes, "")


QKV = {"q": random(1, 4, 6, 8), "k": random(1, 2, 6, 8), "v": random(1, 2, 6, 8)}
FORMS = {
    "Attention": packed(),
    "Attention, present": packed(outputs=("y", "present")),
    "Attention, past": packed(past=random(2, BATCH, HEADS, PAST, SIZE), outputs=("y", "present")),
    "Attention, past, causal": packed(
        past=random(2, BATCH, HEADS, PAST, SIZE), outputs=("y", "present"), unidirectional=1
    ),
    "Attention, causal": packed(unidirectional=1),
    "Attention, smaller values": packed(qkv_hidden_sizes=[WIDTH, WIDTH, 12]),
    "Attention, bias": packed(added=random(1, HEADS, POSITIONS, POSITIONS), scale=0.3),
    **{f"Attention, mask {name}": packed(mask) for name, mask in MASKS.items()},
    "Attention, mask, causal": packed(MASKS["of keys"], unidirectional=1),
    "Attention, filter": packed(MASKS["lengths"], mask_filter_value=-3.0),
    "QAttention": quantised(),
    "QAttention, channels": quantised(by_channel=True),
    "QAttention, mask": quantised(MASKS["of keys"]),
    "MultiHeadAttention": separate(),
    "MultiHeadAttention, bias": separate(bias=random(3 * WIDTH)),
    "MultiHeadAttention, lengths": separate(mask=lengths(3, 7)),
    "MultiHeadAttention, mask": separate(mask=(np.arange(7) < [[3], [6]]).astype(np.int32)),
    "MultiHeadAttention, added": separate(added=random(BATCH, HEADS, POSITIONS, 7)),
    "MultiHeadAttention, past": separate(
        keys=POSITIONS,
        past_k=random(BATCH, HEADS, PAST, SIZE),
        past_v=random(BATCH, HEADS, PAST, SIZE),
        outputs=("y", "present_k", "present_v"),
        unidirectional=1,
    ),
    "GroupQueryAttention, prompt": grouped(positions=6, past=0),
    "GroupQueryAttention, prompts": grouped(2, 6, 0, seqlens=(3, 5)),
    "GroupQueryAttention, prompt into a cache": grouped(positions=6, past=9, room=9),
    "GroupQueryAttention, packed": grouped(positions=6, past=0, is_packed=True),
    "GroupQueryAttention, step": grouped(),
    "GroupQueryAttention, room": grouped(room=2),
    "GroupQueryAttention, rows": grouped(2, seqlens=(3, 5)),
    "GroupQueryAttention, rows with room": grouped(2, room=2, seqlens=(1, 3)),
    "GroupQueryAttention, rotary prompt": grouped(positions=6, past=0, do_rotary=1),
    "GroupQueryAttention, rotary step": grouped(do_rotary=1),
    "GroupQueryAttention, rotary rows": grouped(2, room=1, seqlens=(2, 4), do_rotary=1),
    "GroupQueryAttention, interleaved": grouped(do_rotary=1, rotary_interleaved=1),
    "GroupQueryAttention, window": grouped(positions=6, past=0, local_window_size=3),
    "GroupQueryAttention, window of a step": grouped(local_window_size=3),
    "GroupQueryAttention, cap": grouped(positions=6, past=0, softcap=2.0, scale=0.4),
    "RotaryEmbedding": rotary((2, 6, 64), np.tile(np.arange(6), (2, 1))),
    "RotaryEmbedding, offset": rotary((2, 6, 64), [4]),
    "RotaryEmbedding, interleaved": rotary((2, 6, 64), [[5, 4, 3, 2, 1, 0]] * 2, interleaved=1),
    "RotaryEmbedding, heads": rotary((2, 3, 6, 16), np.tile(np.arange(6), (2, 1))),
    "RotaryEmbedding, part": rotary((2, 6, 96), [2], num_heads=4, rotary_embedding_dim=16),
    "EmbedLayerNormalization": embeddings(),
    "EmbedLayerNormalization, mask": embeddings(mask=MASKS["of keys"]),
    "EmbedLayerNormalization, words": embeddings(segments=False),
    "EmbedLayerNormalization, places": embeddings(
        places=np.array([[3, 1, 4, 1, 5, 9]] * BATCH, np.int32)
    ),
    "ONNX Attention": own("Attention", QKV, is_causal=1),
    "ONNX Attention, rows": own(
        "Attention",
        {"q": random(2, 6, 32), "k": random(2, 7, 16), "v": random(2, 7, 16)},
        q_num_heads=4,
        kv_num_heads=2,
        softcap=2.0,
    ),
    "ONNX Attention, past": own(
        "Attention",
        {
            "q": random(2, 6, 32),
            **{name: random(2, 6, 16) for name in "kv"},
            "mask": GENERATOR.random((6, 6 + PAST)) < 0.5,
            "past_k": random(2, 2, PAST, 8),
            "past_v": random(2, 2, PAST, 8),
        },
        outputs=("y", "present_k", "present_v"),
        is_causal=1,
        q_num_heads=4,
        kv_num_heads=2,
    ),
    "ONNX Attention, rows without a key": own(
        "Attention", QKV | {"mask": np.arange(6) < [[6], [3], [0], [6], [0], [1]]}
    ),
    "ONNX Attention, numbers": own("Attention", QKV | {"mask": random(1, 4, 6, 6)}, scale=0.3),
    "ONNX RotaryEmbedding": own(
        "RotaryEmbedding",
        {"x": random(2, 3, 6, 16), "cos": COS, "sin": SIN, "p": np.tile(np.arange(6), (2, 1))},
        ("cos", "sin"),
        interleaved=1,
    ),
    "ONNX RMSNormalization": own("RMSNormalization", {"x": random(3, 8), "g": random(8)}, ("g",)),
    "ONNX LayerNormalization": own(
        "LayerNormalization", {"x": random(3, 8), "g": random(8), "b": random(8)}, ("g", "b")
    ),
    "ONNX Gelu": own("Gelu", {"x": random(3, 8)}, approximate="tanh"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_computes_what_onnxruntime_computes(name: str) -> None:
    form = FORMS[name]
    expected = run_onnxruntime(form.model(), form.given)
    got = evaluate(import_onnx(form.model().SerializeToString()), form.given)
    for output in filter(None, form.outputs):
        assert got[output].dtype == expected[output].dtype
        pairs = (form.defined(output, array[output]) for array in (got, expected))
        for one, other in zip(*pairs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_lengths_of_a_cache_exclude_the_keys_behind_them() -> None:
    """A mask that is shorter than the keys; ONNX Runtime has no kernel for it."""
    names = ["q", "k", "v", "mask", "", "", "lengths"]
    given = QKV | {"mask": random(6, 4), "lengths": np.array([3])}
    shown = [value(name, a.dtype, a.shape) for name, a in given.items()]
    proto = model([node("Attention", names, ["y"])], shown, ["y"], opset=24)
    (expected,) = ReferenceEvaluator(proto).run(None, given)
    got = evaluate(import_onnx(proto.SerializeToString()), given)["y"]
    np.testing.assert_allclose(got, np.asarray(expected), rtol=2e-4, atol=2e-5)


ROWS = {name: random(2, 6, 16) for name in "kv"}
WINDOWS = {
    "window before": ({}, {"left_window_size": 2, "is_causal": 1}),
    "window on both sides": ({}, {"left_window_size": 1, "right_window_size": 2}),
    "causal, lengths": ({"lengths": np.array([6, 4])}, {"is_causal": 1}),
    "window, lengths": ({"lengths": np.array([3, 5])}, {"left_window_size": 2}),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_and_lengths_are_those_of_the_reference(name: str) -> None:
    """ONNX Runtime has no kernel for attention windows. Queries are the last valid positions."""
    more, attributes = WINDOWS[name]
    given = {"q": random(2, 4, 32)} | ROWS | more
    names = ["q", "k", "v", "", "", "", "lengths"][: 7 if more else 3]
    shown = [value(name, a.dtype, a.shape) for name, a in given.items()]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    operator = node("Attention", names, ["y"], **heads, **attributes)
    windows = any("window" in attribute for attribute in attributes)
    proto = model([operator], shown, ["y"], opset=25 if windows else 24)
    (expected,) = ReferenceEvaluator(proto).run(None, given)
    graph = import_onnx(proto.SerializeToString())
    assert sum(one.op == "matmul" for one in graph.nodes) == 2, "as no function of ONNX"
    found = evaluate(graph, given)["y"]
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-4, atol=2e-5)


HALVES = (
    "Attention, mask lengths", "MultiHeadAttention, past", "GroupQueryAttention, rotary step",
    "QAttention", "RotaryEmbedding", "EmbedLayerNormalization", "ONNX Attention, numbers",
    "ONNX Attention, past",
)  # fmt: skip


@pytest.mark.parametrize("name", HALVES)
def test_a_form_of_float16_computes_what_it_computes_in_float32(name: str) -> None:
    form = FORMS[name]

    def narrow(array, kind: type):
        if array is None or array.dtype != np.float32:
            return array
        return array.astype(np.float16).astype(kind)

    expected, found = (
        evaluate(import_onnx(one.model().SerializeToString()), one.given)
        for kind in (np.float32, np.float16)
        for one in [form._replace(inputs={n: narrow(a, kind) for n, a in form.inputs.items()})]
    )
    for output in filter(None, form.outputs):
        assert found[output].dtype == narrow(expected[output], np.float16).dtype
        np.testing.assert_allclose(found[output], expected[output], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("parts", [2, 3])
def test_packed_heads_are_those_that_come_apart(parts: int) -> None:
    """ONNX Runtime takes packed heads on GPUs only."""
    form = separate(keys=POSITIONS)
    each = [form.given[name].reshape(BATCH, POSITIONS, HEADS, SIZE) for name in "qkv"]
    whole = np.stack(each[3 - parts :], axis=3)
    rows = {"q": form.given["q"], "k": whole} if parts == 2 else {"q": whole}
    expected = evaluate(import_onnx(form.model().SerializeToString()), form.given)["y"]
    packed_form = form._replace(inputs=rows)
    found = evaluate(import_onnx(packed_form.model().SerializeToString()), rows)["y"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_swish_is_a_product_with_its_sigmoid() -> None:
    """onnxruntime does not have ONNX's Swish yet."""
    swish = model(
        [node("Swish", ["x"], ["y"], alpha=1.5)], [value("x", np.float32, (3, 8))], ["y"], opset=24
    )
    x = random(3, 8)
    got = evaluate(import_onnx(swish.SerializeToString()), {"x": x})["y"]
    np.testing.assert_allclose(got, x / (1 + np.exp(-1.5 * x)), rtol=1e-5)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (packed(lengths(*range(8))), r"no other masks, got \[8\]; give \[batch\] ends, \[2"),
        (grouped(smooth_softmax=1), "no sink of the softmax, got one; export without it"),
        (packed(do_rotary=1), "no rotary embedding in Attention, got `do_rotary`"),
        (rotary((2, 6, 64), [4], scale=2.0), "no scale or packed batch in RotaryEmbedding"),
        (separate(outputs=("y", "", "", "scores")), "no such output, got output 3"),
    ],
)
def test_a_form_that_is_not_supported_is_refused(form: Form, message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        import_onnx(form.model().SerializeToString())
