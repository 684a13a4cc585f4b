"""Norms of rows, of vectors and of heads, in the forms of exporters and of known networks."""

from collections.abc import Callable
from functools import partial

import numpy as np

from .transformer_forms import (
    HEADS,
    SIZE,
    TOKENS,
    WIDTH,
    Block,
    Form,
    angles,
    by_halves,
    floats,
    normalised,
)

LAST = np.array([-1])
PIXELS, CHANNELS = 6, 16

Norm = Callable[[Block, str, np.ndarray], str]


def over(block: Block, x: str, square: str, gamma: np.ndarray, epsilon: float = 1e-6) -> str:
    root = block("Sqrt", block("Add", square, floats(epsilon)))
    return block("Mul", block("Div", x, root), gamma)


def of_sums(block: Block, x: str, gamma: np.ndarray) -> str:
    centred = block("Sub", x, block("Mul", block("ReduceSum", x, LAST), floats(1 / WIDTH)))
    squares = block("ReduceSum", block("Mul", centred, centred), LAST)
    return over(block, centred, block("Div", squares, floats(WIDTH)), gamma)


def of_sum_of_squares(block: Block, x: str, gamma: np.ndarray) -> str:
    return over(block, x, block("Div", block("ReduceSumSquare", x, LAST), floats(WIDTH)), gamma)


def of_torch_normalize(block: Block, x: str, gamma: np.ndarray) -> str:
    """torch.nn.functional.normalize with two factors, as RMSNorm was written at first."""
    norm = block("Clip", block("ReduceL2", x, LAST), floats(1e-12))
    unit = block("Div", x, block("Expand", norm, np.array([1, TOKENS, WIDTH])))
    return block("Mul", block("Mul", unit, floats(WIDTH**0.5)), gamma)


def of_tensorflow(block: Block, x: str, gamma: np.ndarray) -> str:
    """tf.math.l2_normalize."""
    squares = block("Max", block("ReduceSum", block("Mul", x, x), LAST), floats(1e-12))
    inverse = block("Reciprocal", block("Sqrt", squares))
    return block("Mul", block("Mul", x, inverse), 8 * gamma)


def of_channels(block: Block, x: str, gamma: np.ndarray) -> str:
    """A norm along the first of two axes, between transposes."""
    x = block("Transpose", x, perm=[0, 2, 1])
    centred = block("Sub", x, block("ReduceMean", x, np.array([1])))
    square = block("ReduceMean", block("Pow", centred, floats(2)), np.array([1]))
    return block("Transpose", over(block, centred, square, gamma[:, None]), perm=[0, 2, 1])


def of_pixels(norm: Callable[[Block, str], str], block: Block) -> str:
    """An image of [1, C, H, W] whose channels are normalised between two convolutions."""
    block.inputs = {"x": lambda c: floats(c.normal(0, 1, (1, CHANNELS, PIXELS, PIXELS)))}
    weights = floats(block.chance.normal(0, 0.1, (WIDTH, CHANNELS, 3, 3)))
    x = block("Conv", "x", weights, block.weights(WIDTH), pads=[1] * 4)
    weights = floats(block.chance.normal(0, 0.1, (WIDTH, WIDTH, 1, 1)))
    return block("Add", x, block("Conv", norm(block, x), weights, block.weights(WIDTH)))


def of_convnext(block: Block, x: str) -> str:
    axis = np.array([1])
    centred = block("Sub", x, block("ReduceMean", x, axis))
    square = block("ReduceMean", block("Pow", centred, floats(2)), axis)
    y = over(block, centred, square, 1 + block.weights(WIDTH)[:, None, None])
    return block("Add", y, block.weights(WIDTH)[:, None, None])


def of_heads(kind: str, block: Block, after: bool, rotary: bool = False) -> str:
    """Queries and keys are normalised, before or after the heads come apart, as in Qwen3."""
    cos, sin = (np.tile(table, (1, 2)) for table in angles())

    def norm(x: str) -> str:
        gamma = 1 + floats(block.chance.normal(0, 0.1, SIZE))
        parts = block("Reshape", x, np.array([1, TOKENS, HEADS, SIZE]))
        parts = parts if after else block(kind, parts, gamma)
        parts = block("Transpose", parts, perm=[0, 2, 1, 3])
        parts = block(kind, parts, gamma) if after else parts
        return by_halves(block, parts, cos, sin) if rotary else parts

    q, k, v = block.qkv()
    return block.end(block.attend(norm(q), norm(k), block.heads(v)))


def of_unit_heads(block: Block) -> str:
    """Cosine attention by LpNormalization."""
    q, k, v = map(block.heads, block.qkv())
    q, k = (block("LpNormalization", each, axis=-1) for each in (q, k))
    product = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    shares = block("Softmax", block("Mul", product, floats(8)), axis=-1)
    return block.end(block.joined(block("MatMul", shares, v)))


def unit_rows(block: Block, x: str) -> str:
    """torch.nn.functional.normalize along the last axis."""
    norm = block("Clip", block("ReduceL2", x, LAST), floats(1e-12))
    return block("Div", x, block("Expand", norm, block("Shape", x)))


def temperatures(block: Block) -> np.ndarray:
    return floats(block.chance.uniform(2, 12, (HEADS, 1, 1)))


def of_swin(block: Block, windows: int = 1) -> str:
    """SwinV2: cosines times a temperature for each head, wide biases, and masks of windows."""
    size = TOKENS // windows
    rows = block("Reshape", "x", np.array([windows, size, WIDTH]))
    parts = block(
        "Reshape", block.dense(rows, 3 * WIDTH), np.array([windows, size, 3, HEADS, SIZE])
    )
    parts = block("Transpose", parts, perm=[2, 0, 3, 1, 4])
    q, k, v = (block("Gather", parts, np.array(index), axis=0) for index in range(3))
    turned = block("Transpose", unit_rows(block, k), perm=[0, 1, 3, 2])
    logarithm = np.log(temperatures(block))
    limited = block("Exp", block("Clip", logarithm, None, floats(np.log(100))))
    scores = block("Mul", block("MatMul", unit_rows(block, q), turned), limited)
    places = block.chance.normal(0, 1, (1, HEADS, size, size))
    scores = block("Add", scores, floats(16 / (1 + np.exp(-places))))
    if windows > 1:
        apart = np.zeros((windows, size, size))
        apart[-1, : size // 2, size // 2 :] = apart[-1, size // 2 :, : size // 2] = -100
        scores = block("Reshape", scores, np.array([1, windows, HEADS, size, size]))
        scores = block("Add", scores, floats(apart)[None, :, None])
        scores = block("Reshape", scores, np.array([-1, HEADS, size, size]))
    context = block("MatMul", block("Softmax", scores, axis=-1), v)
    return block.end(block.joined(context))


def of_xcit(block: Block, once: bool) -> str:
    """Attention of channels: rows of queries and keys have an element for each token."""
    parts = block("Reshape", block.dense("x", 3 * WIDTH), np.array([1, TOKENS, 3, HEADS, SIZE]))
    parts = block("Transpose", parts, perm=[2, 0, 3, 4, 1] if once else [2, 0, 3, 1, 4])
    each = [block("Gather", parts, np.array(index), axis=0) for index in range(3)]
    if not once:
        each = [block("Transpose", one, perm=[0, 1, 3, 2]) for one in each]
    q, k, v = each
    turned = block("Transpose", unit_rows(block, k), perm=[0, 1, 3, 2])
    scores = block("Mul", block("MatMul", unit_rows(block, q), turned), temperatures(block))
    context = block("MatMul", block("Softmax", scores, axis=-1), v)
    rows = block("Transpose", context, perm=[0, 3, 1, 2])
    return block.end(block("Reshape", rows, np.array([1, TOKENS, WIDTH])))


def with_bias_of_the_layer(block: Block) -> str:
    """BERT's last layer, fused by ONNX Runtime: the bias is an operand of the norm."""
    product = block("MatMul", "x", block.weights(WIDTH, WIDTH))
    vectors = 1 + block.weights(WIDTH), block.weights(WIDTH), block.weights(WIDTH)
    return block.fused("SkipLayerNormalization", product, "x", *vectors)


NORMS: dict[str, Form] = {
    "norm of sums": partial(normalised, of_sums),
    "norm of a sum of squares": partial(normalised, of_sum_of_squares),
    "torch's normalize": partial(normalised, of_torch_normalize),
    "TensorFlow's l2_normalize": partial(normalised, of_tensorflow),
    "MeanVarianceNormalization": partial(
        normalised, lambda block, x, gamma: block("MeanVarianceNormalization", x, axes=[2])
    ),
    "norm of channels": partial(normalised, of_channels),
    "norm of pixels": partial(of_pixels, of_convnext),
    "unit vectors of pixels": partial(
        of_pixels, lambda block, x: block("LpNormalization", x, axis=1)
    ),
    "norm before heads": partial(of_heads, "RMSNormalization", after=False),
    "norm of heads": partial(of_heads, "RMSNormalization", after=True),
    "norm before heads, rotary": partial(of_heads, "RMSNormalization", after=False, rotary=True),
    "norm of heads, rotary": partial(of_heads, "LayerNormalization", after=True, rotary=True),
    "unit heads": of_unit_heads,
    "SwinV2": of_swin,
    "SwinV2, windows": partial(of_swin, windows=2),
    "XCiT": partial(of_xcit, once=False),
    "XCiT of timm": partial(of_xcit, once=True),
    "bias in the last norm": with_bias_of_the_layer,
}
