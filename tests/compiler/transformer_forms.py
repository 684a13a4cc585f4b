"""Blocks of transformers in the forms in which exporters and ONNX Runtime write them."""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx

from .onnx_models import model, node

TOKENS, HEADS, SIZE = 10, 4, 16
WIDTH = HEADS * SIZE
SHARED = 2
LOWEST = float(np.finfo(np.float32).min)

Draw = Callable[[np.random.Generator], np.ndarray]


def floats(data: object) -> np.ndarray:
    return np.asarray(data, np.float32)


class Block:
    """The nodes, constants and inputs of a network around one form."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, Draw] = {"x": lambda c: floats(c.normal(0, 1, (1, TOKENS, WIDTH)))}

    def __call__(self, kind: str, *inputs: str | np.ndarray | None, **attributes) -> str:
        return self.several(1, kind, *inputs, **attributes)[0]

    def several(
        self, outputs: int, kind: str, *inputs: str | np.ndarray | None, **attributes
    ) -> list[str]:
        names = [each if isinstance(each, str) else self.hold(each) for each in inputs]
        made = [f"v{len(self.nodes)}.{index}" for index in range(outputs)]
        self.nodes.append(node(kind, names, made, **attributes))
        return made

    def fused(self, kind: str, *inputs: str | np.ndarray | None, **attributes) -> str:
        """Emit one of ONNX Runtime's operators."""
        return self(kind, *inputs, domain="com.microsoft", **attributes)

    def hold(self, data: np.ndarray | None) -> str:
        if data is None:
            return ""
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def weights(self, *shape: int) -> np.ndarray:
        return floats(self.chance.normal(0, 1 / np.sqrt(shape[0]), shape))

    def dense(self, x: str, columns: int = WIDTH, rows: int = WIDTH) -> str:
        return self("Add", self("MatMul", x, self.weights(rows, columns)), self.weights(columns))

    def qkv(self, heads: int = HEADS) -> list[str]:
        return [self.dense("x", each * SIZE) for each in (HEADS, heads, heads)]

    def heads(self, x: str, count: int = HEADS) -> str:
        parts = self("Reshape", x, np.array([1, TOKENS, count, -1]))
        return self("Transpose", parts, perm=[0, 2, 1, 3])

    def joined(self, x: str) -> str:
        rows = self("Transpose", x, perm=[0, 2, 1, 3])
        return self("Reshape", rows, np.array([1, TOKENS, WIDTH]))

    def attend(self, q: str, k: str, v: str, masked: "Masked | None" = None) -> str:
        product = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", product, floats(SIZE**-0.5))
        shares = self("Softmax", masked(self, scores) if masked else scores, axis=-1)
        return self.joined(self("MatMul", shares, v))

    def end(self, x: str) -> str:
        return self("Add", "x", self.dense(x))

    def lengths(self, name: str = "kept", dtype: type = np.int64) -> str:
        """Add a mask of padding as an input."""
        places = np.arange(TOKENS)
        self.inputs[name] = lambda c: (places < c.integers(2, TOKENS + 1))[None].astype(dtype)
        return name

    def positions(self) -> str:
        self.inputs["positions"] = lambda c: np.arange(TOKENS)[None]
        return "positions"

    def draw(self, seed: int) -> dict[str, np.ndarray]:
        chance = np.random.default_rng(seed)
        return {name: make(chance) for name, make in self.inputs.items()}

    def model(self, y: str) -> onnx.ModelProto:
        shown = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self.draw(0).items()
        ]
        return model(self.nodes, shown, [y], self.constants, opset=24)


Form = Callable[[Block], str]
Masked = Callable[[Block, str], str]


# Masks and biases --------------------------------------------------------------------------------

LATER = np.triu(np.ones((TOKENS, TOKENS), bool), 1)
AHEAD = np.arange(TOKENS) - np.arange(TOKENS)[:, None]
SLOPES = floats(AHEAD * 2.0 ** -np.arange(1, HEADS + 1)[:, None, None])[None]


def causal() -> np.ndarray:
    return floats(np.where(LATER, -np.inf, 0))


def kept_truth(block: Block) -> str:
    wide = block("Unsqueeze", block.lengths(), np.array([1, 2]))
    wide = block("Expand", wide, np.array([1, 1, TOKENS, TOKENS]))
    return block("Cast", wide, to=onnx.TensorProto.BOOL)


def kept_numbers(block: Block) -> str:
    number = block("Cast", block("Unsqueeze", block.lengths(), np.array([1, 2])), to=1)
    mask = block("Mul", block("Sub", floats(1), number), floats(LOWEST))
    return block("Expand", mask, np.array([1, 1, TOKENS, TOKENS]))


def inverted(block: Block, scores: str) -> str:
    """The mask of Hugging Face's encoders."""
    wide = block("Unsqueeze", block.lengths(), np.array([1, 2]))
    dropped = block("Sub", floats(1), block("Cast", wide, to=1))
    truth = block("Cast", dropped, to=onnx.TensorProto.BOOL)
    return block("Add", scores, block("Where", truth, floats(LOWEST), dropped))


def by_places(block: Block, scores: str) -> str:
    places = block("Range", np.array(0), np.array(TOKENS), np.array(1))
    columns = block("Unsqueeze", places, np.array([0]))
    earlier = block("LessOrEqual", columns, block("Unsqueeze", places, np.array([1])))
    return block("Where", earlier, scores, floats(-np.inf))


def with_triangle(block: Block, scores: str) -> str:
    least = np.full((TOKENS, TOKENS), -np.inf, np.float32)
    return block("Add", scores, block("Trilu", least, np.array(1), upper=1))


def with_padding_and_triangle(block: Block, scores: str) -> str:
    both = block("And", ~LATER[None, None], kept_truth(block))
    return block("Add", scores, block("Where", both, floats(0), floats(LOWEST)))


def with_slopes_and_triangle(block: Block, scores: str) -> str:
    return block("Add", block("Add", scores, SLOPES), causal())


def with_places_of_windows(block: Block, scores: str) -> str:
    table = floats(block.chance.normal(0, 0.5, (1, HEADS, TOKENS, TOKENS)))
    return block("Add", scores, table)


def capped(block: Block, scores: str) -> str:
    return block("Mul", block("Tanh", block("Div", scores, floats(3))), floats(3))


MASKS: dict[str, Masked] = {
    "Hugging Face's mask": inverted,
    "mask by places": by_places,
    "mask by Trilu": with_triangle,
    "padding and triangle": with_padding_and_triangle,
    "ALiBi": lambda block, scores: block("Add", scores, SLOPES),
    "ALiBi, causal": with_slopes_and_triangle,
    "bias of places": with_places_of_windows,
    "softcap": capped,
}


def masked(make: Masked, block: Block) -> str:
    q, k, v = map(block.heads, block.qkv())
    return block.end(block.attend(q, k, v, make))


# Attention ---------------------------------------------------------------------------------------


def own_attention(
    block: Block, shared: int = HEADS, apart: bool = False,
    mask: Callable[[Block], str] | np.ndarray | None = None, **attributes
) -> str:  # fmt: skip
    """ONNX's Attention of rows, or of heads that are apart."""
    q, k, v = block.qkv(shared)
    if apart:
        q, k, v = block.heads(q), block.heads(k, shared), block.heads(v, shared)
    else:
        attributes |= {"q_num_heads": HEADS, "kv_num_heads": shared}
    given = mask(block) if callable(mask) else mask
    y = block("Attention", q, k, v, *(() if given is None else (given,)), **attributes)
    return block.end(block.joined(y) if apart else y)


def packed_attention(block: Block, mask: str = "", **attributes) -> str:
    operands = ["x", block.weights(WIDTH, 3 * WIDTH), block.weights(3 * WIDTH)]
    if mask == "kept":
        operands.append(block.lengths(dtype=np.int32))
    if mask == "ends":
        block.inputs["ends"] = lambda c: np.array([c.integers(6, TOKENS + 1), 3], np.int32)
        operands.append("ends")
    return block.end(block.fused("Attention", *operands, num_heads=HEADS, **attributes))


def multi_head(block: Block, mask: bool = False, bias: bool = False, **attributes) -> str:
    q, k, v = block.qkv()
    added = block.weights(3 * WIDTH) if bias else None
    kept = (block.lengths(dtype=np.int32),) if mask else ()
    operands = (q, k, v, added, *kept) if mask or bias else (q, k, v)
    y = block.fused("MultiHeadAttention", *operands, num_heads=HEADS, **attributes)
    return block.end(y)


def angles(half: int = SIZE // 2) -> tuple[np.ndarray, np.ndarray]:
    turns = np.arange(TOKENS)[:, None] * 100.0 ** (-np.arange(half) / half)
    return floats(np.cos(turns)), floats(np.sin(turns))


def grouped(block: Block, packed: bool = False, rotary: bool = False, **attributes) -> str:
    rows: list[str | np.ndarray | None] = [*block.qkv(SHARED)]
    if packed:
        rows = [block.dense("x", (HEADS + 2 * SHARED) * SIZE), None, None]
    rows += [None, None, np.array([TOKENS - 1], np.int32), np.array(TOKENS, np.int32)]
    if rotary:
        rows += angles()
    attributes |= {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int(rotary)}
    y, *_ = block.several(3, "GroupQueryAttention", *rows, domain="com.microsoft", **attributes)
    return block.end(y)


def by_exponentials(block: Block) -> str:
    q, k, v = map(block.heads, block.qkv())
    scores = block("MatMul", q, block("Transpose", k, perm=[0, 1, 3, 2]))
    scores = block("Mul", scores, floats(SIZE**-0.5))
    e = block("Exp", block("Sub", scores, block("ReduceMax", scores, np.array([-1]))))
    shares = block("Div", e, block("ReduceSum", e, np.array([-1])))
    return block.end(block.joined(block("MatMul", shares, v)))


def by_torch(block: Block) -> str:
    """Both operands scaled, and no row without a key."""
    q, k, v = map(block.heads, block.qkv())
    root = block("Sqrt", floats(SIZE**-0.5))
    turned = block("Mul", block("Transpose", k, perm=[0, 1, 3, 2]), root)
    scores = block("MatMul", block("Mul", q, root), turned)
    shares = block("Softmax", block("Add", scores, causal()), axis=-1)
    shares = block("Where", block("IsNaN", shares), floats(0), shares)
    return block.end(block.joined(block("MatMul", shares, v)))


def by_module(block: Block) -> str:
    """torch.nn.MultiheadAttention: tokens first, and heads of rank 3."""
    whole = block.dense(block("Transpose", "x", perm=[1, 0, 2]), 3 * WIDTH)
    parts = block.several(3, "Split", whole, axis=2, num_outputs=3)
    rows = (block("Reshape", part, np.array([TOKENS, HEADS, SIZE])) for part in parts)
    q, k, v = (block("Transpose", part, perm=[1, 0, 2]) for part in rows)
    scaled = block("Mul", q, floats(SIZE**-0.5))
    scores = block("MatMul", scaled, block("Transpose", k, perm=[0, 2, 1]))
    context = block("MatMul", block("Softmax", scores, axis=-1), v)
    flat = block("Reshape", block("Transpose", context, perm=[1, 0, 2]), np.array([TOKENS, WIDTH]))
    result = block("Gemm", flat, block.weights(WIDTH, WIDTH), block.weights(WIDTH))
    result = block("Reshape", result, np.array([TOKENS, 1, WIDTH]))
    return block("Add", "x", block("Transpose", result, perm=[1, 0, 2]))


def by_keras(block: Block) -> str:
    def part() -> str:
        product = block("Einsum", "x", block.weights(WIDTH, HEADS, SIZE), equation="abc,cde->abde")
        return block("Add", product, block.weights(HEADS, SIZE))

    q, k, v = part(), part(), part()
    scaled = block("Mul", q, floats(SIZE**-0.5))
    scores = block("Einsum", k, scaled, equation="aecd,abcd->acbe")
    shares = block("Softmax", scores, axis=-1)
    context = block("Einsum", shares, v, equation="acbe,aecd->abcd")
    weights = block.weights(HEADS, SIZE, WIDTH) / 4
    result = block("Einsum", context, weights, equation="abcd,cde->abe")
    return block("Add", "x", block("Add", result, block.weights(WIDTH)))


def by_tensorflow(block: Block) -> str:
    """Products of flat rows, whose biases follow the reshape, and a norm with both statistics."""

    def dense(x: str) -> str:
        rows = block("Reshape", x, np.array([TOKENS, WIDTH]))
        product = block("MatMul", rows, block.weights(WIDTH, WIDTH))
        whole = block("Reshape", product, np.array([1, TOKENS, WIDTH]))
        return block("Add", whole, block.weights(WIDTH))

    q, k, v = (block.heads(dense("x")) for _ in range(3))
    x = block("Add", "x", dense(block.attend(q, k, v)))
    mean = block("ReduceMean", x, np.array([2]))
    apart = block("Sub", x, mean)
    variance = block("ReduceMean", block("Mul", apart, apart), np.array([2]))
    inverse = block("Reciprocal", block("Sqrt", block("Add", variance, floats(1e-5))))
    factor = block("Mul", inverse, 1 + block.weights(WIDTH))
    shift = block("Sub", block.weights(WIDTH), block("Mul", mean, factor))
    return block("Add", block("Mul", x, factor), shift)


def by_packed_rows(block: Block, order: tuple[int, ...], split: bool = False) -> str:
    """q, k and v of one layer: one after the other, or for each head."""
    shape = [1, TOKENS, 0, 0, SIZE]
    which, heads = (2, 3) if order[0] == 2 else (3, 2)
    shape[which], shape[heads] = 3, HEADS
    parts = block("Reshape", block.dense("x", 3 * WIDTH), np.array(shape))
    parts = block("Transpose", parts, perm=order)
    if split:
        thirds = block.several(3, "Split", parts, axis=0, num_outputs=3)
        q, k, v = (block("Squeeze", each, np.array([0])) for each in thirds)
    else:
        q, k, v = (block("Gather", parts, np.array(index), axis=0) for index in range(3))
    return block.end(block.attend(q, k, v))


ATTENTION: dict[str, Form] = {
    "Attention": own_attention,
    "Attention, heads": partial(own_attention, apart=True),
    "Attention, shared": partial(own_attention, shared=SHARED, is_causal=1),
    "Attention, one key": partial(own_attention, shared=1, apart=True, scale=0.2),
    "Attention, softcap": partial(own_attention, softcap=3.0, is_causal=1),
    "Attention, mask": partial(own_attention, mask=causal()),
    "Attention, truths": partial(own_attention, mask=~LATER),
    "Attention, padding": partial(own_attention, mask=kept_truth),
    "Attention, numbers": partial(own_attention, mask=kept_numbers),
    "Attention, biases": partial(own_attention, mask=SLOPES + causal()),
    "packed Attention": packed_attention,
    "packed Attention, causal": partial(packed_attention, unidirectional=1),
    "packed Attention, padding": partial(packed_attention, mask="kept"),
    "packed Attention, ends and starts": partial(packed_attention, mask="ends"),
    "MultiHeadAttention": multi_head,
    "MultiHeadAttention, padding": partial(multi_head, mask=True),
    "MultiHeadAttention, bias": partial(multi_head, bias=True, unidirectional=1),
    "GroupQueryAttention": grouped,
    "GroupQueryAttention, packed": partial(grouped, packed=True, rotary=True),
    "GroupQueryAttention, pairs": partial(grouped, rotary=True, rotary_interleaved=1),
    "GroupQueryAttention, window": partial(grouped, local_window_size=4, softcap=3.0),
    "exponentials": by_exponentials,
    "PyTorch's attention": by_torch,
    "PyTorch's module": by_module,
    "Keras's einsums": by_keras,
    "TensorFlow's rows": by_tensorflow,
    "timm's rows": partial(by_packed_rows, order=(2, 0, 3, 1, 4)),
    "split rows": partial(by_packed_rows, order=(2, 0, 3, 1, 4), split=True),
    "rows of heads": partial(by_packed_rows, order=(3, 0, 2, 1, 4)),
    **{name: partial(masked, make) for name, make in MASKS.items()},
}


# Norms and gates ---------------------------------------------------------------------------------


def normalised(make: Callable[[Block, str, np.ndarray], str], block: Block) -> str:
    x = block("Add", "x", block.dense("x"))
    return block.end(make(block, x, 1 + block.weights(WIDTH)))


def skipped(kind: str, bias: bool, block: Block) -> str:
    """The sum that a norm leaves behind is read again."""
    x, other = block("Add", "x", block.dense("x")), block.dense("x")
    vectors = [block.weights(WIDTH) for _ in range(2 - ("Simplified" in kind) + bias)]
    operands = (x, other, 1 + vectors[0], *vectors[1:])
    y, _, _, total = block.several(4, kind, *operands, domain="com.microsoft", epsilon=1e-5)
    block.nodes[-1].output[1] = block.nodes[-1].output[2] = ""
    return block("Add", total, block.dense(y))


def by_power(block: Block, x: str, gamma: np.ndarray) -> str:
    mean = block("ReduceMean", block("Pow", x, floats(2)), np.array([-1]))
    inverse = block("Pow", block("Add", mean, floats(1e-5)), floats(-0.5))
    return block("Mul", block("Mul", x, inverse), gamma)


def gated(kind: str, block: Block) -> str:
    x = block("Add", "x", block.dense("x"))
    gate, up = block.several(2, "Split", block.dense(x, 2 * WIDTH), axis=-1, num_outputs=2)
    act = block("Mul", gate, block("Sigmoid", gate)) if kind == "Silu" else block(kind, gate)
    return block.end(block("Mul", act, up))


def activated(kind: str, block: Block, bias: bool = False, fused: bool = True, **attributes) -> str:
    x = block("MatMul", block("Add", "x", block.dense("x")), block.weights(WIDTH, WIDTH))
    emit = block.fused if fused else block
    return block.end(emit(kind, x, *((block.weights(WIDTH),) if bias else ()), **attributes))


def with_token(block: Block) -> str:
    """A class token before the rows, and positions, as in vision transformers."""
    rows = block("Concat", block.weights(1, 1, WIDTH), block.dense("x"), axis=1)
    x = block("Add", rows, floats(block.chance.normal(0, 1, (1, TOKENS + 1, WIDTH))))
    return block("Add", x, block.dense(block("LayerNormalization", x, 1 + block.weights(WIDTH))))


ROWS: dict[str, Form] = {
    "class token": with_token,
    "LayerNormalization": partial(
        normalised, lambda block, x, gamma: block("LayerNormalization", x, gamma, axis=-1)
    ),
    "RMSNormalization": partial(
        normalised, lambda block, x, gamma: block("RMSNormalization", x, gamma, axis=-1)
    ),
    "SimplifiedLayerNormalization": partial(
        normalised,
        lambda block, x, gamma: block("SimplifiedLayerNormalization", x, gamma, epsilon=1e-5),
    ),
    "norm by a power": partial(normalised, by_power),
    "SkipLayerNormalization": partial(skipped, "SkipLayerNormalization", True),
    "SkipSimplifiedLayerNormalization": partial(skipped, "SkipSimplifiedLayerNormalization", False),
    "BiasGelu": partial(activated, "BiasGelu", bias=True),
    "FastGelu": partial(activated, "FastGelu", bias=True),
    "QuickGelu": partial(activated, "QuickGelu"),
    "Gelu": partial(activated, "Gelu"),
    "Gelu, tanh": partial(activated, "Gelu", fused=False, approximate="tanh"),
    "SwiGLU": partial(gated, "Silu"),
    "SwiGLU by Swish": partial(gated, "Swish"),
    "GLU": partial(gated, "Sigmoid"),
}


# Rotary embedding --------------------------------------------------------------------------------

HALF = SIZE // 2
Turn = Callable[[Block, str], str]


def turned(turn: Turn, block: Block) -> str:
    q, k, v = map(block.heads, block.qkv())
    return block.end(block.attend(turn(block, q), turn(block, k), v))


def by_halves(block: Block, x: str, cos: str | np.ndarray, sin: str | np.ndarray) -> str:
    bounds = ((0, HALF), (HALF, SIZE))
    one, other = (block("Slice", x, *(np.array([n]) for n in (*each, 3))) for each in bounds)
    swapped = block("Concat", block("Neg", other), one, axis=-1)
    return block("Add", block("Mul", x, cos), block("Mul", swapped, sin))


def by_operator(block: Block, x: str, places: bool = False, part: int = 0, **attributes) -> str:
    tables = angles(part // 2 if part else HALF)
    given = [block.positions()] if places else []
    tables = tables if places else [table[None] for table in tables]
    return block("RotaryEmbedding", x, *tables, *given, rotary_embedding_dim=part, **attributes)


def by_fused_operator(block: Block, x: str, places: bool = False, **attributes) -> str:
    given = block.positions() if places else np.array([0])
    return block.fused("RotaryEmbedding", x, given, *angles(), **attributes)


def gathered(block: Block, x: str) -> str:
    places = block.positions()
    tables = (block("Gather", np.tile(table, (1, 2)), places) for table in angles())
    return by_halves(block, x, *(block("Unsqueeze", each, np.array([1])) for each in tables))


def computed(block: Block, x: str) -> str:
    """Hugging Face's tables, from the frequencies."""
    frequencies = floats(100.0 ** (-np.arange(HALF) / HALF))[None, :, None]
    places = block("Cast", block("Unsqueeze", block.positions(), np.array([1])), to=1)
    turns = block("Transpose", block("MatMul", frequencies, places), perm=[0, 2, 1])
    both = block("Concat", turns, turns, axis=-1)
    tables = (block("Unsqueeze", block(kind, both), np.array([1])) for kind in ("Cos", "Sin"))
    return by_halves(block, x, *tables)


def by_product(block: Block, x: str) -> str:
    """Partners come from a product with a matrix of 1 and -1, as for phones."""
    cos, sin = (np.tile(table, (1, 2)) for table in angles())
    partners = block("MatMul", x, floats(np.eye(SIZE, k=HALF) - np.eye(SIZE, k=-HALF)))
    return block("Add", block("Mul", x, cos), block("Mul", partners, sin))


def of_a_part(block: Block, x: str) -> str:
    """GPT-NeoX: the other channels stay as they are."""
    moved, kept = block.several(2, "Split", x, np.array([4, SIZE - 4]), axis=-1)
    one, other = block.several(2, "Split", moved, axis=-1, num_outputs=2)
    swapped = block("Concat", block("Neg", other), one, axis=-1)
    cos, sin = (np.tile(table, (1, 2)) for table in angles(2))
    rotated = block("Add", block("Mul", moved, cos), block("Mul", swapped, sin))
    return block("Concat", rotated, kept, axis=-1)


TURNS: dict[str, Turn] = {
    "RotaryEmbedding": by_operator,
    "RotaryEmbedding, pairs": partial(by_operator, interleaved=1),
    "RotaryEmbedding, part": partial(by_operator, part=4),
    "RotaryEmbedding, part, pairs": partial(by_operator, part=4, interleaved=1),
    "RotaryEmbedding, places": partial(by_operator, places=True),
    "ONNX Runtime's RotaryEmbedding": by_fused_operator,
    "ONNX Runtime's RotaryEmbedding, places": partial(
        by_fused_operator, places=True, interleaved=1
    ),
    "gathered tables": gathered,
    "computed tables": computed,
    "part of a head": of_a_part,
    "product with signs": by_product,
}
ROTARY: dict[str, Form] = {name: partial(turned, turn) for name, turn in TURNS.items()}

FORMS = ATTENTION | ROWS | ROTARY
