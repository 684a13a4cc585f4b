"""Importers of the recurrent layers RNN, GRU and LSTM as Recurrent; missing operands are zeros."""

from collections.abc import Sequence

import numpy as np

from ..graph.operators import Recurrent
from ..graph.operators.recurrent import ACTIVATIONS, DIRECTIONS, FUNCTIONS, GATES
from ..graph.types import DTYPES
from .onnx_node import OnnxNode

DEFAULTS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
"""Default activations of one direction."""

MAX_STEPS = 1 << 16
"""Maximum length of a sequence: the host holds calls for each step."""


def import_recurrent(node: OnnxNode, scales: Sequence[str] = ()) -> list[str]:
    """Import RNN, GRU and LSTM as Recurrent; `scales` are those of weights of integers."""
    kind = node.proto.op_type
    direction = node.attribute("direction", "forward")
    if direction not in DIRECTIONS or min(node.rank(0), node.rank(1), node.rank(2)) < 3:
        node.fail("a direction and operands of rank 3", f"`{direction}`", "correct the model")
    directions, last = DIRECTIONS[direction], bool(node.attribute("layout", 0))
    x = _swap(node, node.input(0), (1, 0, 2), last)
    steps, batch, _ = node.builder.types[x].shape
    if steps > MAX_STEPS:
        node.refuse(
            f"long recurrent layers (at most {MAX_STEPS:,} steps)",
            f"{steps:,} steps",
            "give the sequence in parts, with the states as inputs and outputs",
        )
    hidden, dtype = node.type(2).shape[-1], node.type(0).dtype
    state = (directions, batch, hidden)
    if (clip := node.attribute("clip", 0.0)) < 0:
        node.fail("a `clip` of 0 or more", f"{clip:g}", "correct the model")
    bias = _operand(node, 3, (directions, 2 * GATES[kind] * hidden), dtype)
    if node.has(4):
        lengths = node.cast(node.input(4), "int32", f"{node.label}.lengths")
    else:
        lengths = node.array(np.full(batch, steps, np.int32), f"{node.label}.lengths")
    states = [
        _state(node, index, state, dtype, last) for index in ((5, 6) if kind == "LSTM" else (5,))
    ]
    if kind == "LSTM":
        states.append(_operand(node, 7, (directions, 3 * hidden), dtype))
    operator = Recurrent(
        kind,
        direction,
        _activations(node, kind, directions),
        clip,
        bool(node.attribute("linear_before_reset", 0)),
        bool(node.attribute("input_forget", 0)),
    )
    operands = [x, node.input(1), node.input(2), bias, lengths, *states, *scales]
    results = node.emit_outputs(operator, operands)
    orders = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
    return [
        _swap(node, result, order, last) for result, order in zip(results, orders, strict=False)
    ]


def import_dynamic_lstm(node: OnnxNode) -> list[str]:
    """Import DynamicQuantizeLSTM (`com.microsoft`) as LSTM with weights of bytes.

    onnxruntime also quantises the layer's inputs and states to bytes in each step. Here they stay
    in float32, so that results are closer to those of the network before quantisation.
    """
    weights, scales = [], []
    for operand, scale in ((1, 8), (2, 10)):
        w, factor = node.constant(operand), node.constant(scale)
        has_zero = node.has(scale + 1)
        zero = node.constant(scale + 1) if has_zero else np.zeros(factor.shape, w.dtype)
        shapes = ((len(w),), (len(w), w.shape[-1])) if w.ndim == 3 else ()
        fits = factor.shape in shapes and zero.shape in shapes
        if not fits or w.dtype not in (np.int8, np.uint8) or zero.dtype != w.dtype:
            got = f"{w.dtype}{list(w.shape)} with {list(factor.shape)} and {list(zero.shape)}"
            wanted = "weights of bytes of rank 3, scales and zero points"
            node.fail(wanted, got, "quantise the model again")
        factor, zero = (one.reshape(len(w), -1) for one in (factor, zero))
        w = w.transpose(0, 2, 1).astype(np.int16) - zero.astype(np.int16)[..., None]
        dtype = "int8" if not w.size or -128 <= w.min() <= w.max() <= 127 else "int16"
        name = f"{node.label}.weights{operand}"
        weights.append(node.array(w.astype(dtype, order="C"), name))
        spread = np.broadcast_to(factor, w.shape[:2]).astype(np.float32, order="C")
        scales.append(node.array(spread, f"{name}.scale"))
    others = [node.input(index) if node.has(index) else None for index in range(3, 8)]
    return import_recurrent(node.as_operator("LSTM", node.input(0), *weights, *others), scales)


def _swap(node: OnnxNode, x: str, order: tuple[int, ...], last: bool) -> str:
    """Emit a Transpose if the node has ONNX's batch-first layout (`last`)."""
    return node.transpose(x, order, f"{x}.swapped") if last else x


def _operand(node: OnnxNode, index: int, shape: tuple[int, ...], dtype: str) -> str:
    if node.has(index):
        return node.input(index)
    return node.array(np.zeros(shape, DTYPES[dtype]), f"{node.label}.zeros")


def _state(node: OnnxNode, index: int, shape: tuple[int, ...], dtype: str, last: bool) -> str:
    if node.has(index):
        return _swap(node, node.input(index), (1, 0, 2), last)
    return _operand(node, index, shape, dtype)


def _activations(
    node: OnnxNode, kind: str, directions: int
) -> tuple[tuple[str, float, float], ...]:
    given = tuple(_text(name) for name in node.attribute("activations", ()))
    names = given or DEFAULTS[kind] * directions
    if len(names) != FUNCTIONS[kind] * directions:
        node.fail(f"{FUNCTIONS[kind] * directions} activations", f"{len(names)}", "correct them")
    alphas = iter(node.attribute("activation_alpha", ()))
    betas = iter(node.attribute("activation_beta", ()))
    found = []
    for name in names:
        # ONNX's names ignore case. Activations take only the parameters that they have.
        known = next((n for n in ACTIVATIONS if n.lower() == name.lower()), name)
        if known not in ACTIVATIONS:
            node.fail(f"activations among {', '.join(ACTIVATIONS)}", f"`{name}`", "correct them")
        defaults = ACTIVATIONS[known].parameters.values()
        taken = zip((alphas, betas), defaults, strict=False)
        alpha, beta, *_ = (*(float(next(given, usual)) for given, usual in taken), 0.0, 0.0)
        found.append((known, alpha, beta))
    return tuple(found)


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
