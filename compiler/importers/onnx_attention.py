"""Importers of attention: ONNX's operator, and ONNX Runtime's in the domain `com.microsoft`.

Each one writes ONNX's primitive operators in place of the node, as a function of the model would,
so that the passes find the forms that exporters write. Heads that share a key are a longer matrix
of queries, not copies of the key.
Source: ONNX Runtime, documentation of the contributed operators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx

from ..graph.types import NARROW_FLOATS
from .onnx_body import Body
from .onnx_node import OnnxNode
from .onnx_scope import Named

FILTERED = -10000.0
"""Default value that is added to a masked score."""

LOWEST = np.float32(np.finfo(np.float32).min)
"""Value that is added to a score above the diagonal of a causal mask."""


@dataclass(frozen=True)
class AttentionExtents:
    """Extents of an attention: query heads, key heads, head size, positions."""

    queries: int
    shared: int
    size: int
    positions: int
    keys: int


def _attend(
    body: Body, q: str, k: str, v: str, heads: AttentionExtents, bias: str | None,
    *, guarded: bool = False
) -> str:  # fmt: skip
    """Attention of [batch, heads, positions, size].

    Parameters
    ----------
    bias
        Added to the scores, [batch or 1, heads or 1, positions or 1, keys], or None.
    guarded
        Whether the bias may exclude all keys of a row, which then has the result 0.
    """
    scale = body.node.attribute("scale", 0.0) or heads.size**-0.5
    grouped = (0, heads.shared, heads.queries // heads.shared * heads.positions, -1)
    alone = (0, heads.queries, heads.positions, -1)
    q = body.reshape(body("Mul", q, np.array(scale, np.float32)), *grouped)
    scores = body("MatMul", q, body("Transpose", k, perm=[0, 1, 3, 2]))
    scores = body.reshape(scores, *alone)
    if cap := body.node.attribute("softcap", 0.0):
        limit = np.array(cap, np.float32)
        scores = body("Mul", body("Tanh", body("Div", scores, limit)), limit)
    if bias is not None:
        scores = body("Add", scores, bias)
    weights = body("Softmax", scores, axis=-1)
    if guarded:
        weights = body("Where", body("IsNaN", weights), np.zeros((), np.float32), weights)
    return body.reshape(body("MatMul", body.reshape(weights, *grouped), v), *alone)


def _bias(body: Body, mask: int, added: int, heads: AttentionExtents) -> str | None:
    """Sum of the causal, key-mask and input biases; None if there is none."""
    parts = []
    if body.node.attribute("unidirectional", 0):
        queries = np.arange(heads.positions)[:, None] + heads.keys - heads.positions
        hidden = np.arange(heads.keys) > queries
        parts.append(body.constant(np.where(hidden, LOWEST, np.float32(0))))
    if body.node.has(mask):
        parts.append(_key_mask(body, mask, heads.keys))
    if (given := body.given(added)) is not None:
        parts.append(given)
    return body.sum(parts)


def _key_mask(body: Body, index: int, keys: int) -> str:
    """Bias of a mask: places of valid keys, or 1 for valid keys and 0 for others."""
    node, shape, mask = body.node, body.shape(index), f"input.{index}"
    batch = node.type(0).shape[0]
    if shape in ((batch,), (2 * batch,)):  # ends of the valid keys, and their starts
        places = np.arange(keys, dtype=node.type(index).dtype)
        ends = body.reshape(mask, -1, batch, 1)
        end, *start = _split(body, ends, 0, (1,) * (shape[0] // batch))
        valid = body("Less", places, end)
        for first in start:
            valid = body("And", valid, body("GreaterOrEqual", places, first))
        valid = body.reshape(valid, batch, 1, 1, keys)
    elif len(shape) in (2, 3) and shape[-1] == keys:
        valid = body("Greater", mask, np.zeros((), node.type(index).dtype))
        valid = body.reshape(valid, batch, 1, -1, keys)
    else:
        node.refuse(
            "other masks",
            f"{list(shape)}",
            f"give [batch] ends, [2 * batch] ends and starts, or [..., {keys}]",
        )
    filtered = np.array(node.attribute("mask_filter_value", FILTERED), np.float32)
    return body("Where", valid, np.zeros((), np.float32), filtered)


def _split(body: Body, x: str, axis: int, widths: Sequence[int]) -> list[str]:
    """Parts of a value along an axis."""
    ends = np.cumsum((0, *widths))
    return [
        body("Slice", x, np.array([start]), np.array([stop]), np.array([axis]))
        for start, stop in pairwise(ends)
    ]


def import_attention(node: OnnxNode) -> list[Named] | None:
    """Import ONNX's Attention, with past and present.

    Decline binary64 and scores as an output: ONNX defines them with copies of shared heads.
    """
    kind, precision = node.type(0).dtype, node.attribute("softmax_precision", 1)
    usual = precision == 1 if kind == "float32" else kind in NARROW_FLOATS
    if not usual or node.wants(3):
        return None
    body, rows = Body(node, wide=True), len(node.type(0).shape) == 3
    q, k, v = "input.0", "input.1", "input.2"
    if rows:
        counts = [node.attribute(f"{part}_num_heads", 0) for part in ("q", "kv", "kv")]
        q, k, v = (body.heads(*pair) for pair in zip((q, k, v), counts, strict=True))
        queries, shared, _ = counts
        positions, keys, size = *(body.shape(i)[1] for i in (0, 1)), body.shape(0)[2] // queries
    else:
        (_, queries, positions, size), (_, shared, keys, _) = body.shape(0), body.shape(1)
    past = body.shape(4)[2] if node.has(4) else 0
    if past:
        k, v = body("Concat", "input.4", k, axis=2), body("Concat", "input.5", v, axis=2)
    heads = AttentionExtents(queries, shared, size, positions, keys + past)
    zero, excluded = np.zeros((), np.float32), np.array(-np.inf, np.float32)
    parts = []
    if node.has(3):
        mask, shape = "input.3", body.shape(3)
        if node.type(3).dtype == "bool":
            mask = body("Where", mask, zero, excluded)
        if missing := heads.keys - shape[-1]:
            pads = np.array([*(0,) * (2 * len(shape) - 1), missing])
            mask = body("Pad", mask, pads, excluded)
        parts.append(mask)
    places, lengths = np.arange(heads.keys), node.has(6)
    ahead = body.constant(places - np.arange(positions)[:, None] - past)
    kept: list[str] = []
    if lengths:  # queries are the last of the valid positions
        valid = body.reshape("input.6", -1, 1, 1, 1)
        kept.append(body("Less", places, valid))
        ahead = body("Sub", ahead, body("Sub", valid, np.array(positions)))
    left = node.attribute("left_window_size", -1)
    right = 0 if node.attribute("is_causal", 0) else node.attribute("right_window_size", -1)
    if right >= 0:
        kept.append(body("LessOrEqual", ahead, np.array(right)))
    if left >= 0:
        kept.append(body("GreaterOrEqual", ahead, np.array(-left)))
    parts += [body("Where", each, zero, excluded) for each in kept]
    bias = body.sum(parts)
    result = _attend(body, q, k, v, heads, bias, guarded=node.has(3) or lengths or left >= 0)
    return body.expand(body.joined(result) if rows else result, k, v)


def import_packed_attention(node: OnnxNode) -> list[Named]:
    """Import Attention: one product gives q, k and v."""
    body = Body(node, wide=True)
    product = body("MatMul", "input.0", "input.1")
    if node.has(2):
        product = body("Add", product, "input.2")
    return _packed(body, product, mask=3, past=4, added=5)


def import_quantised_attention(node: OnnxNode) -> list[Named]:
    """Import QAttention: Attention of dequantised operands."""
    body = Body(node, wide=True)
    operands = [filter(None, (f"input.{i}", f"input.{i + 3}", body.given(i + 6))) for i in (0, 1)]
    x, weights = (body("DequantizeLinear", *each) for each in operands)
    product = body("Add", body("MatMul", x, weights), "input.2")
    return _packed(body, product, mask=5, past=8, added=9)


def _packed(body: Body, product: str, mask: int, past: int, added: int) -> list[Named]:
    node, count = body.node, body.node.attribute("num_heads", 0)
    if node.attribute("do_rotary", 0):
        node.refuse("rotary embedding in Attention", "`do_rotary`", "use RotaryEmbedding")
    widths = node.attribute("qkv_hidden_sizes", ()) or (body.shape(1)[1] // 3,) * 3
    q, k, v = (body.heads(part, count) for part in _split(body, product, 2, widths))
    keys = positions = body.shape(0)[1]
    if node.has(past):
        keys += body.shape(past)[3]
        old = [body("Gather", f"input.{past}", np.array(which), axis=0) for which in (0, 1)]
        k, v = (body("Concat", *pair, axis=2) for pair in zip(old, (k, v), strict=True))
    heads = AttentionExtents(count, count, widths[0] // count, positions, keys)
    result = body.joined(_attend(body, q, k, v, heads, _bias(body, mask, added, heads)))
    if not node.wants(1):  # values may be of another size, which has no present
        return body.expand(result)
    rows = [body("Unsqueeze", part, np.array([0])) for part in (k, v)]
    return body.expand(result, body("Concat", *rows, axis=0))


def import_multi_head_attention(node: OnnxNode) -> list[Named]:
    """Import MultiHeadAttention of separate or packed q, k and v, with past and present."""
    body, count = Body(node, wide=True), node.attribute("num_heads", 0)
    positions = body.shape(0)[1]
    packed = 3 if not node.has(1) else 2 if not node.has(2) else 0
    rows = ["input.0", "input.1", "input.2"][: 3 - packed]
    for part in range(packed):  # [batch, positions, heads, 2 or 3, size]
        rows.append(body("Gather", f"input.{3 - packed}", np.array(part), axis=3))
    ready = node.has(2) and len(body.shape(2)) == 4
    if node.has(3):
        if packed or ready:
            node.refuse("bias of packed q, k and v", "one", "add it before")
        widths = [body.shape(index)[2] for index in range(3)]
        biases = _split(body, "input.3", 0, widths)
        rows = [body("Add", *pair) for pair in zip(rows, biases, strict=True)]
    flat = [row if ready and i else body.reshape(row, 0, 0, -1) for i, row in enumerate(rows)]
    q, k, v = (row if ready and i else body.heads(row, count) for i, row in enumerate(flat))
    keys = body.shape(1)[2 if ready else 1] if node.has(1) else positions
    if node.has(6):
        keys += body.shape(6)[2]
        k, v = body("Concat", "input.6", k, axis=2), body("Concat", "input.7", v, axis=2)
    size = body.shape(0)[4] if packed == 3 else body.shape(0)[2] // count
    heads = AttentionExtents(count, count, size, positions, keys)
    return body.expand(body.joined(_attend(body, q, k, v, heads, _bias(body, 4, 5, heads))), k, v)


def import_group_query_attention(node: OnnxNode) -> list[Named]:
    """Import GroupQueryAttention with its rotary embedding and its cache.

    With S new positions, a row has used `seqlens_k + 1 - S` positions of the cache; there, the new
    keys and values are written. At the first prompt, which has all positions, none are used.
    """
    body, count = Body(node, wide=True), node.attribute("num_heads", 0)
    shared, window = node.attribute("kv_num_heads", 0), node.attribute("local_window_size", -1)
    if node.has(11) or node.attribute("smooth_softmax", 0) > 0:
        node.refuse("sink of the softmax", "one", "export without it")
    batch, positions, width = body.shape(0)
    size = width // (count if node.has(1) else count + 2 * shared)
    rows = ["input.0", "input.1", "input.2"]
    if not node.has(1):
        rows = _split(body, "input.0", 2, [each * size for each in (count, shared, shared)])
    q, k, v = (body.heads(*pair) for pair in zip(rows, (count, shared, shared), strict=True))
    total = int(node.constant(6).item())
    past = body.shape(3)[2] if node.has(3) else 0
    heads = AttentionExtents(count, shared, size, positions, max(total, past))
    steps = np.tile(np.arange(positions), (batch, 1))
    first, full = total == positions, batch == 1 and past + positions == total
    used = body("Cast", body.reshape("input.5", batch), to=onnx.TensorProto.INT64)
    used = body("Sub", used, np.array([positions - 1]))
    if first or full:
        here = body.constant(steps + total - positions)
    else:
        here = body("Add", body.reshape(used, batch, 1), steps)
    if node.attribute("do_rotary", 0):
        turn = {
            "interleaved": node.attribute("rotary_interleaved", 0),
            "rotary_embedding_dim": 2 * body.shape(7)[1],
        }
        places = body.given(9) or here
        q, k = (body("RotaryEmbedding", x, "input.7", "input.8", places, **turn) for x in (q, k))
    if first:
        k, v = (body.longer(x, heads.keys - positions) for x in (k, v))
    elif full:
        k, v = body("Concat", "input.3", k, axis=2), body("Concat", "input.4", v, axis=2)
    else:
        old = [body.longer(x, heads.keys - past) for x in ("input.3", "input.4")]
        k, v = (body("TensorScatter", *pair, used) for pair in zip(old, (k, v), strict=True))
    ahead = body("Sub", np.arange(heads.keys), body.reshape(here, batch, 1, positions, 1))
    hidden = body("Greater", ahead, np.array(0))
    if window > 0:
        hidden = body("Or", hidden, body("LessOrEqual", ahead, np.array(-window)))
    bias = body("Where", hidden, np.array(LOWEST), np.zeros((), np.float32))
    if node.has(10):
        bias = body("Add", bias, "input.10")
    return body.expand(body.joined(_attend(body, q, k, v, heads, bias)), k, v)
