"""Comparisons and selections."""

import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import apply, builds, type_of, unsupported
from .floats import flush
from .syntax import Pair, PtxInstruction, VirtualRegister

COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
COMBINATIONS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(name: str, dtype: np.dtype, ftz: bool):
    if name in UNORDERED:
        ordered = COMPARISONS[UNORDERED[name]]

        def function(a, b):
            return ordered(a, b) | (a != a) | (b != b)

    elif name == "ne" and dtype.kind not in "iub":

        def function(a, b):  # NumPy's `!=` holds for NaN, PTX's `ne` does not
            return (a != b) & (a == a) & (b == b)

    else:
        function = COMPARISONS[name]
    return (lambda a, b: function(flush(a), flush(b))) if ftz else function


@builds("setp", "set")
def build_compare(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`setp` and `set`, also combined with a predicate, and packed."""
    kind = type_of(instruction)
    dtype = TYPES[kind]
    name = next(part for part in instruction.parts[1:] if part in COMPARISONS or part in UNORDERED)
    compare = _comparison(name, dtype, "ftz" in instruction.parts)
    combine = next((COMBINATIONS[part] for part in instruction.parts if part in COMBINATIONS), None)
    result, a, b, *others = instruction.operands
    other = batch.predicate(others[0]) if others else None
    packed = kind.endswith("x2")
    source = batch.packed if packed else batch.source
    x, y = source(a, dtype), source(b, dtype)
    write = _writer(batch, instruction, packed)
    simple = combine is None and not packed and instruction.name == "setp"
    if simple and isinstance(result, VirtualRegister):
        return apply(compare, batch.row(result, TYPES["pred"]), x, y)

    def run(lanes) -> None:
        value, inverse = compare(x[lanes], y[lanes]), None
        inverse = ~value
        if combine is not None and other is not None:
            condition = other(lanes)
            value, inverse = combine(value, condition), combine(inverse, condition)
        write(lanes, value, inverse)

    return run


def _writer(batch: BlockBatch, instruction: PtxInstruction, packed: bool):
    result = instruction.operands[0]
    boolean = TYPES["pred"]
    if instruction.name == "set":
        kind = instruction.parts[-2]
        if packed:
            raise unsupported(instruction)
        row = batch.row(result, TYPES[kind])
        true = TYPES[kind].type(1) if "f" in kind else TYPES[kind].type(0) - TYPES[kind].type(1)

        def write_mask(lanes, value, _inverse) -> None:
            row[lanes] = np.where(value, true, TYPES[kind].type(0))

        return write_mask
    first = batch.row(result.first if isinstance(result, Pair) else result, boolean)
    second = batch.row(result.second, boolean) if isinstance(result, Pair) else None

    def write(lanes, value, inverse) -> None:
        if packed:
            first[lanes] = value[..., 0]
            if second is not None:
                second[lanes] = value[..., 1]
            return
        first[lanes] = value
        if second is not None:
            second[lanes] = inverse

    return write


@builds("selp")
def build_select(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`selp`: one of two values by a predicate."""
    dtype = np.dtype(f"u{TYPES[type_of(instruction)].itemsize}")
    result, a, b, condition = instruction.operands
    row, holds = batch.row(result, dtype), batch.predicate(condition)
    x, y = batch.source(a, dtype), batch.source(b, dtype)

    def run(lanes) -> None:
        row[lanes] = np.where(holds(lanes), x[lanes], y[lanes])

    return run


@builds("slct")
def build_select_by_sign(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`slct`: one of two values by the sign of a third."""
    sign_type = TYPES[type_of(instruction)]
    dtype = np.dtype(f"u{TYPES[instruction.parts[-2]].itemsize}")
    result, a, b, c = instruction.operands
    return apply(
        lambda x, y, z: np.where(z >= 0, x, y),
        batch.row(result, dtype),
        batch.source(a, dtype),
        batch.source(b, dtype),
        batch.source(c, sign_type),
    )
