"""Attention with scores of relative positions, as exporters of known networks write it."""

from functools import partial

import numpy as np

from .transformer_forms import HEADS, SIZE, TOKENS, WIDTH, Block, Form, floats

FAR = 2 * TOKENS - 1
"""The number of distances between tokens."""
DISTANCES = np.arange(TOKENS)[:, None] - np.arange(TOKENS) + TOKENS - 1
END = np.iinfo(np.int64).max
SIDE, WINDOW = 8, 4
"""Rows and columns of an image, and of a window."""


def cut(block: Block, x: str, start: int, stop: int, axis: int) -> str:
    return block("Slice", x, *(np.array([n]) for n in (start, stop, axis)))


def finish(block: Block, scores: str, v: str) -> str:
    scaled = block("Mul", scores, floats(SIZE**-0.5))
    shares = block("Softmax", scaled, axis=-1)
    return block.end(block.joined(block("MatMul", shares, v)))


# Shifts of Transformer-XL ------------------------------------------------------------------------


def padded(block: Block, x: str, operator: bool) -> str:
    if operator:
        return block("Pad", x, np.array([0, 0, 0, 1, 0, 0, 0, 0]))
    return block("Concat", floats(np.zeros((1, HEADS, TOKENS, 1))), x, axis=-1)


def shifted(block: Block, x: str, count: int, operator: bool = False) -> str:
    """ESPnet's and NeMo's: a column of zeros, rows of one element more or less, and a slice."""
    x = padded(block, x, operator)
    x = block("Reshape", x, np.array([1, HEADS, count + 1, TOKENS]))
    x = block("Reshape", cut(block, x, 1, END, 2), np.array([1, HEADS, TOKENS, count]))
    return cut(block, x, 0, TOKENS, 3) if count > TOKENS else x


def with_places(
    block: Block, count: int = FAR, operator: bool = False, causal: bool = False
) -> str:
    """Conformers: (q + u) k + shift((q + v) p)."""
    rows = [block.dense("x") for _ in range(2)]
    by_heads = block("Reshape", block.dense("x"), np.array([1, TOKENS, HEADS, SIZE]))
    k, v = map(block.heads, rows)
    encoded = floats(block.chance.normal(0, 0.7, (1, count, WIDTH)))
    p = block("MatMul", encoded, block.weights(WIDTH, WIDTH))
    p = block("Reshape", p, np.array([1, count, HEADS, SIZE]))
    p = block("Transpose", p, perm=[0, 2, 3, 1])
    q, other = (
        block("Transpose", block("Add", by_heads, block.weights(HEADS, SIZE)), perm=[0, 2, 1, 3])
        for _ in range(2)
    )
    content = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    places = shifted(block, block("MatMul", other, p), count, operator)
    scores = block("Add", content, places)
    if causal:
        later = floats(np.where(np.triu(np.ones((TOKENS, TOKENS)), 1), -10000, 0))
        scores = block("Add", scores, later)
    return finish(block, scores, v)


def of_the_music_transformer(block: Block) -> str:
    """A table of the heads' distances, and a mask on the elements that the shift brings in."""
    q, k, v = map(block.heads, block.qkv())
    table = block.weights(HEADS, SIZE, TOKENS)
    places = shifted(block, block("MatMul", q, table), TOKENS, True)
    content = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    later = floats(np.where(np.triu(np.ones((TOKENS, TOKENS)), 1), -np.inf, 0))
    return finish(block, block("Add", block("Add", content, places), later), v)


def of_xlnet(block: Block) -> str:
    """Rows are taken apart without padding: [I, J] as [J, I], without the first row."""
    q, k, v = map(block.heads, block.qkv())
    table = block.weights(HEADS, SIZE, 2 * TOKENS)
    x = block("MatMul", block("Add", q, block.weights(HEADS, 1, SIZE)), table)
    x = block("Reshape", x, np.array([1, HEADS, 2 * TOKENS, TOKENS]))
    x = cut(block, x, 1, END, 2)
    x = block("Reshape", x, np.array([1, HEADS, TOKENS, FAR]))
    places = block("Gather", x, np.arange(TOKENS), axis=3)
    content = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    return finish(block, block("Add", content, places), v)


# Tables of distances -----------------------------------------------------------------------------


def of_shaw(block: Block, values: bool = False) -> str:
    """Tensor2Tensor: tokens as images, so that each has its own table."""
    q, k, v = map(block.heads, block.qkv())
    table = block.weights(FAR, SIZE)[DISTANCES]
    content = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))

    def by_tokens(x: str, table: np.ndarray, size: int) -> str:
        rows = block("Transpose", x, perm=[2, 0, 1, 3])
        rows = block("Reshape", rows, np.array([TOKENS, HEADS, -1]))
        y = block("Reshape", block("MatMul", rows, table), np.array([TOKENS, 1, HEADS, size]))
        return block("Transpose", y, perm=[1, 2, 0, 3])

    places = by_tokens(q, table.swapaxes(1, 2), TOKENS)
    scores = block("Mul", block("Add", content, places), floats(SIZE**-0.5))
    shares = block("Softmax", scores, axis=-1)
    context = block("MatMul", shares, v)
    if values:
        table = block.weights(FAR, SIZE)[DISTANCES]
        context = block("Add", context, by_tokens(shares, table, SIZE))
    return block.end(block.joined(context))


def of_bert(block: Block, both: bool = False) -> str:
    """Hugging Face's `relative_key`: an Einsum with a table for each pair of tokens."""
    q, k, v = map(block.heads, block.qkv())
    table = block.weights(FAR, SIZE)[DISTANCES] / 2
    content = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    scores = block("Add", content, block("Einsum", q, table, equation="bhld,lrd->bhlr"))
    if both:
        scores = block("Add", scores, block("Einsum", k, table, equation="bhrd,lrd->bhlr"))
    return finish(block, scores, v)


def of_deberta(block: Block) -> str:
    """Content to places, and places to content, gathered by distance."""
    q, k, v = map(block.heads, block.qkv())
    keys, queries = (block.weights(1, HEADS, SIZE, FAR) for _ in range(2))
    content = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    whole = np.broadcast_to(DISTANCES, (1, HEADS, TOKENS, TOKENS))
    one = block("GatherElements", block("MatMul", q, keys), whole, axis=3)
    back = np.ascontiguousarray(np.broadcast_to(DISTANCES, whole.shape))
    other = block("GatherElements", block("MatMul", k, queries), back, axis=3)
    other = block("Transpose", other, perm=[0, 1, 3, 2])
    return finish(block, block("Add", block("Add", content, one), other), v)


# Windows of images -------------------------------------------------------------------------------


def image(block: Block) -> str:
    block.inputs["x"] = lambda c: floats(c.normal(0, 1, (1, SIDE, SIDE, WIDTH)))
    return "x"


def rolled(block: Block, x: str, shift: int) -> str:
    for axis in (1, 2):
        x = block(
            "Concat", cut(block, x, shift, END, axis), cut(block, x, 0, shift, axis), axis=axis
        )
    return x


def apart(block: Block, x: str, grid: bool) -> str:
    """[1, SIDE, SIDE, C] -> [windows, WINDOW * WINDOW, C]; a grid's pixels are far apart."""
    count = SIDE // WINDOW
    sizes = (WINDOW, count) if grid else (count, WINDOW)
    x = block("Reshape", x, np.array([1, sizes[0], sizes[1], sizes[0], sizes[1], WIDTH]))
    x = block("Transpose", x, perm=[0, 2, 4, 1, 3, 5] if grid else [0, 1, 3, 2, 4, 5])
    return block("Reshape", x, np.array([-1, WINDOW * WINDOW, WIDTH]))


def together(block: Block, x: str, grid: bool) -> str:
    count = SIDE // WINDOW
    x = block("Reshape", x, np.array([1, count, count, WINDOW, WINDOW, WIDTH]))
    x = block("Transpose", x, perm=[0, 3, 1, 4, 2, 5] if grid else [0, 1, 3, 2, 4, 5])
    return block("Reshape", x, np.array([1, SIDE, SIDE, WIDTH]))


def window_mask(shift: int) -> np.ndarray:
    """Swin's: 0 for pixels of one region, -100 for those that the roll brought together."""
    regions = np.zeros((SIDE, SIDE))
    cuts = slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None)
    for index, (rows, columns) in enumerate((a, b) for a in cuts for b in cuts):
        regions[rows, columns] = index
    count = SIDE // WINDOW
    parts = regions.reshape(count, WINDOW, count, WINDOW).swapaxes(1, 2).reshape(-1, WINDOW**2)
    return floats(np.where(parts[:, None] != parts[:, :, None], -100, 0))[:, None]


def windows(block: Block, shift: int = 0, grid: bool = False, five: bool = False) -> str:
    x = image(block)
    pixels, count = WINDOW * WINDOW, (SIDE // WINDOW) ** 2
    y = block("LayerNormalization", block("Add", x, block.dense(x)), 1 + block.weights(WIDTH))
    y = apart(block, rolled(block, y, shift) if shift else y, grid)
    parts = block("Reshape", block.dense(y, 3 * WIDTH), np.array([-1, pixels, 3, HEADS, SIZE]))
    parts = block("Transpose", parts, perm=[2, 0, 3, 1, 4])
    q, k, v = (block("Gather", parts, np.array(index), axis=0) for index in range(3))
    q = block("Mul", q, floats(SIZE**-0.5))
    scores = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    bias = floats(block.chance.normal(0, 0.5, (1, HEADS, pixels, pixels)))
    scores = block("Add", scores, bias)
    if shift and five:
        shape = np.array([1, count, HEADS, pixels, pixels])
        mask = window_mask(shift)[None]
        scores = block("Add", block("Reshape", scores, shape), mask)
        scores = block("Reshape", scores, np.array([-1, HEADS, pixels, pixels]))
    elif shift:
        scores = block("Add", scores, window_mask(shift))
    context = block("MatMul", block("Softmax", scores, axis=-1), v)
    context = block("Transpose", context, perm=[0, 2, 1, 3])
    y = block.dense(block("Reshape", context, np.array([-1, pixels, WIDTH])))
    y = together(block, y, grid)
    return block("Add", x, rolled(block, y, -shift) if shift else y)


def of_segment_anything(block: Block) -> str:
    """MViTv2's and ViTDet's: distances of rows and of columns, added to scores of five axes."""
    side = WINDOW
    x, pixels = "x", side * side
    block.inputs["x"] = lambda c: floats(c.normal(0, 1, (1, side, side, WIDTH)))
    parts = block("Reshape", block.dense(x, 3 * WIDTH), np.array([1, pixels, 3, HEADS, SIZE]))
    parts = block("Transpose", parts, perm=[2, 0, 3, 1, 4])
    parts = block("Reshape", parts, np.array([3, HEADS, pixels, SIZE]))
    q, k, v = (block("Gather", parts, np.array(index), axis=0) for index in range(3))
    scores = block("MatMul", block("Mul", q, floats(SIZE**-0.5)),
                   block("Transpose", k, perm=[0, 2, 1]))  # fmt: skip
    near = np.arange(side)[:, None] - np.arange(side) + side - 1
    rows, columns = (block.weights(2 * side - 1, SIZE)[near] for _ in range(2))
    by_pixel = block("Reshape", q, np.array([HEADS, side, side, SIZE]))
    down = block("Einsum", by_pixel, rows, equation="bhwc,hkc->bhwk")
    along = block("Einsum", by_pixel, columns, equation="bhwc,wkc->bhwk")
    scores = block("Reshape", scores, np.array([HEADS, side, side, side, side]))
    scores = block("Add", scores, block("Unsqueeze", down, np.array([4])))
    scores = block("Add", scores, block("Unsqueeze", along, np.array([3])))
    shares = block("Softmax", block("Reshape", scores, np.array([HEADS, pixels, pixels])), axis=-1)
    context = block("Reshape", block("MatMul", shares, v), np.array([1, HEADS, side, side, SIZE]))
    context = block("Transpose", context, perm=[0, 2, 3, 1, 4])
    context = block("Reshape", context, np.array([1, side, side, WIDTH]))
    return block("Add", x, block.dense(context))


RELATIVE: dict[str, Form] = {
    "ESPnet's positions": with_places,
    "NeMo's positions": partial(with_places, operator=True),
    "ESPnet's positions of old": partial(with_places, count=TOKENS),
    "Transformer-XL": partial(with_places, count=TOKENS, operator=True, causal=True),
    "Music Transformer": of_the_music_transformer,
    "XLNet": of_xlnet,
    "Shaw's keys": of_shaw,
    "Shaw's keys and values": partial(of_shaw, values=True),
    "relative_key": of_bert,
    "relative_key_query": partial(of_bert, both=True),
    "DeBERTa": of_deberta,
    "Swin": windows,
    "Swin, shifted": partial(windows, shift=2),
    "Swin, five axes": partial(windows, shift=2, five=True),
    "MaxViT's grid": partial(windows, grid=True),
    "MViTv2": of_segment_anything,
}
