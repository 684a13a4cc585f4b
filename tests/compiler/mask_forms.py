"""Attention with masks and biases, as exporters of known networks write them."""

from functools import partial

import numpy as np

from .transformer_forms import (
    HEADS,
    LATER,
    LOWEST,
    SIZE,
    TOKENS,
    Block,
    Form,
    Masked,
    floats,
    masked,
)


def kept_float(block: Block) -> str:
    """The mask of padding as numbers 0 and 1, [1, 1, 1, keys]."""
    return block("Cast", block("Unsqueeze", block.lengths(), np.array([1, 2])), to=1)


def dropped_float(block: Block) -> str:
    return block("Sub", floats(1), kept_float(block))


def by_ones(block: Block, scores: str) -> str:
    """As in TensorFlow's BERT: the masks of queries and keys are multiplied."""
    rows = block("Mul", floats(np.ones((1, 1, TOKENS, 1))), kept_float(block))
    return block("Add", scores, block("Mul", block("Sub", floats(1), rows), floats(-10000)))


def minus_one(block: Block, scores: str) -> str:
    return block(
        "Add", scores, block("Mul", block("Sub", kept_float(block), floats(1)), floats(1e9))
    )


def of_integers(block: Block, scores: str) -> str:
    wide = block("Unsqueeze", block.lengths(), np.array([1, 2]))
    number = block("Mul", block("Sub", np.array(1), wide), np.array(-10000))
    return block("Add", scores, block("Cast", number, to=1))


def by_difference(block: Block, scores: str) -> str:
    """As in XLNet: a large multiple of the mask is subtracted."""
    return block("Sub", scores, block("Mul", dropped_float(block), floats(1e30)))


def by_product_and_difference(block: Block, scores: str) -> str:
    """As in GPT-2 of the ONNX model zoo."""
    kept = block("Mul", scores, floats(~LATER)[None, None])
    return block("Sub", kept, floats(10000 * LATER)[None, None])


def by_places_and_padding(block: Block, scores: str) -> str:
    """As in GPT-Neo."""
    causal = block("Where", ~LATER[None, None], scores, floats(LOWEST))
    return block("Add", causal, block("Mul", dropped_float(block), floats(LOWEST)))


def with_places_and_padding(block: Block, scores: str) -> str:
    """As in T5: all layers share one sum of biases."""
    table = floats(block.chance.normal(0, 0.5, (1, HEADS, TOKENS, TOKENS)))
    padding = block("Mul", dropped_float(block), floats(LOWEST))
    return block("Add", scores, block("Add", table, padding))


def with_slopes_of_valid_keys(block: Block, scores: str) -> str:
    """As in BLOOM: slopes times the positions of valid keys, computed at run time."""
    kept = block.lengths()
    places = block("Mul", block("Sub", block("CumSum", kept, np.array(1)), np.array(1)), kept)
    slopes = floats(2.0 ** -np.arange(1, HEADS + 1))[:, None]
    added = block("Mul", slopes, block("Cast", block("Unsqueeze", places, np.array([1])), to=1))
    scores = block("Add", block("Reshape", added, np.array([1, HEADS, 1, TOKENS])), scores)
    return block("Add", scores, block("Mul", dropped_float(block), floats(LOWEST)))


def given_numbers(block: Block, scores: str) -> str:
    """An input of floats 0 and 1."""
    kept = block("Unsqueeze", block.lengths(dtype=np.float32), np.array([1, 2]))
    return block("Add", scores, block("Mul", block("Sub", floats(1), kept), floats(-1e9)))


def given_mask(block: Block, scores: str) -> str:
    """An input of floats that are added, as `attn_mask` of PyTorch."""
    keys = np.arange(TOKENS)
    block.inputs["mask"] = lambda c: floats(np.where(keys < c.integers(2, TOKENS), 0, -np.inf))
    return block("Add", block("Unsqueeze", "mask", np.array([0, 1])), scores)


def given_places(block: Block, dtype: type = np.float32) -> str:
    """An input with a mask for each query, [1, 1, queries, keys], as Megatron has."""

    def draw(chance: np.random.Generator) -> np.ndarray:
        kept = chance.integers(0, 2, (1, 1, TOKENS, TOKENS)).astype(bool)
        return (kept | np.eye(TOKENS, dtype=bool)).astype(dtype)

    block.inputs["mask"] = draw
    return "mask"


def chosen_at_run_time(block: Block, scores: str) -> str:
    """As in Megatron and the first GPT-2: a product, and a difference."""
    mask = given_places(block)
    dropped = block("Mul", block("Sub", floats(1), mask), floats(10000))
    return block("Sub", block("Mul", scores, mask), dropped)


def chosen_then_padded(block: Block, scores: str) -> str:
    mask = block("Cast", given_places(block, np.int64), to=1)
    dropped = block("Mul", floats(-10000), block("Sub", floats(1), mask))
    scores = block("Add", dropped, block("Mul", mask, scores))
    return block("Add", scores, block("Mul", dropped_float(block), floats(-10000)))


def filled(block: Block, scores: str) -> str:
    """`masked_fill` of Megatron, where True excludes."""
    return block("Where", block("Not", given_places(block, bool)), floats(-10000), scores)


def filled_below(block: Block, scores: str) -> str:
    return block("Where", block("Less", given_places(block), floats(0.5)), floats(-65504), scores)


def logarithms(block: Block, scores: str) -> str:
    return block("Add", scores, block("Log", given_places(block)))


def zeroed(block: Block, kept: bool) -> str:
    """ESPnet and DeBERTa: masked shares are 0."""
    q, k, v = map(block.heads, block.qkv())
    truth = block("Cast", block("Unsqueeze", block.lengths(), np.array([1, 2])), to=9)
    truth = truth if kept else block("Not", truth)

    def chosen(x: str, other: float) -> str:
        return block("Where", truth, *((x, floats(other)) if kept else (floats(other), x)))

    scores = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    scores = chosen(block("Mul", scores, floats(SIZE**-0.5)), LOWEST)
    shares = chosen(block("Softmax", scores, axis=-1), 0)
    return block.end(block.joined(block("MatMul", shares, v)))


SPELLINGS: dict[str, Masked] = {
    "TensorFlow's mask": by_ones,
    "mask minus one": minus_one,
    "mask of integers": of_integers,
    "XLNet's mask": by_difference,
    "GPT-2's mask": by_product_and_difference,
    "GPT-Neo's masks": by_places_and_padding,
    "T5's biases": with_places_and_padding,
    "BLOOM's biases": with_slopes_of_valid_keys,
    "input of 0 and 1": given_numbers,
    "input that is added": given_mask,
    "Megatron's products": chosen_at_run_time,
    "products and padding": chosen_then_padded,
    "Megatron's masked_fill": filled,
    "filled below a half": filled_below,
    "logarithms": logarithms,
}
MASKED: dict[str, Form] = {
    **{name: partial(masked, make) for name, make in SPELLINGS.items()},
    "shares of 0 if dropped": partial(zeroed, kept=False),
    "shares of 0 unless kept": partial(zeroed, kept=True),
}
