"""`mma.sync`, `ldmatrix`, `stmatrix` and `movmatrix`."""

import ml_dtypes
import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import builds, unsupported
from .fragments import a_index, b_index, sum_index
from .moves import by_space, space_of
from .syntax import PtxInstruction, RegisterVector

U32 = np.dtype(np.uint32)
ELEMENT_TYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def widen(words: np.ndarray, kind: str) -> np.ndarray:
    """Elements of registers, `uint32[..., n]`, as float32, which holds all of them exactly."""
    words = np.ascontiguousarray(words)
    if kind == "f16":
        return _HALVES[words.view(np.uint16)]
    if kind == "bf16":
        return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "tf32":
        return (words & np.uint32(0xFFFFE000)).view(np.float32)
    return words.view(ELEMENT_TYPES[kind]).astype(np.float32)


def multiply(a: np.ndarray, b: np.ndarray, sums: np.ndarray, saturate: bool) -> np.ndarray:
    """`a @ b + sums`: exact for integers, in float64 and rounded once for floats."""
    if sums.dtype == np.int32:
        # At most 64 products below 2^16: every partial sum is exact in float32.
        total = np.matmul(a, b).astype(np.int64) + sums
        if saturate:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return total.astype(np.int32)
    product = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return (product + sums.astype(np.float64)).astype(sums.dtype)


def registers(operand) -> tuple:
    """The registers of a vector, or the single one."""
    return operand.elements if isinstance(operand, RegisterVector) else (operand,)


@builds("mma")
def build_mma(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`mma.sync` of dense matrices with n = 8."""
    parts = instruction.parts
    shape = next((part for part in parts if part.startswith("m") and "n8k" in part), None)
    kinds = [part for part in parts if part in ELEMENT_TYPES or part in ("f32", "s32")]
    if shape is None or "sp" in parts or len(kinds) != 4 or "block_scale" in parts:
        raise unsupported(instruction)
    if not ("row" in parts and "col" in parts) or "xor" in parts:
        raise unsupported(instruction)
    rows, depth = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    sum_kind, a_kind, b_kind = kinds[:3]
    if a_kind not in ELEMENT_TYPES or kinds[3] != sum_kind:
        raise unsupported(instruction)
    elements = 4 // ELEMENT_TYPES[a_kind].itemsize
    sum_type = TYPES[sum_kind]
    sum_elements = 4 // sum_type.itemsize
    indices = a_index(rows, depth, elements), b_index(depth, elements)
    sums_at = sum_index(rows, sum_elements)
    result, a, b, c = instruction.operands
    rows_a, rows_b, rows_c = (
        [batch.source(register, U32) for register in registers(operand)] for operand in (a, b, c)
    )
    targets = [batch.row(register, U32) for register in registers(result)]
    held = [len(rows_a) * elements, len(rows_b) * elements, len(targets) * sum_elements]
    if [32 * number for number in held] != [rows * depth, depth * 8, rows * 8]:
        raise unsupported(instruction)
    places = np.empty(rows * 8, np.intp)
    places[sums_at.ravel()] = np.arange(rows * 8)
    saturate = "satfinite" in parts

    def gather(lanes, sources: list[np.ndarray]) -> np.ndarray:
        words = np.stack([source[lanes] for source in sources], axis=-1)
        return words.reshape(-1, 32 * len(sources))

    def run(lanes) -> None:
        left = widen(gather(lanes, rows_a), a_kind)[:, indices[0]]
        right = widen(gather(lanes, rows_b), b_kind)[:, indices[1]]
        sums = gather(lanes, rows_c).view(sum_type)[:, sums_at]
        total = multiply(left, right, sums, saturate).reshape(-1, rows * 8)
        words = np.ascontiguousarray(total[:, places]).view(np.uint32)
        words = words.reshape(-1, len(targets))
        for index, target in enumerate(targets):
            target[lanes] = words[:, index]

    return run


def _matrix_rows(batch: BlockBatch, instruction: PtxInstruction, count: int) -> np.ndarray:
    """Room for the rows of `count` matrices of each warp, four words a row; their shape is 8x8."""
    if "m8n8" not in instruction.parts or f"x{count}" not in instruction.parts:
        raise unsupported(instruction)
    return np.empty((batch.count // 32, 8 * count, 4), np.uint32)


@builds("ldmatrix")
def build_load_matrix(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`ldmatrix` of 8x8 matrices of 16 bits: lanes 8 i to 8 i + 7 address the rows of matrix i."""
    result, address = instruction.operands
    targets = [batch.row(register, U32) for register in registers(result)]
    count = len(targets)
    rows = _matrix_rows(batch, instruction, count)
    addresses = batch.addresses(address)
    transpose = "trans" in instruction.parts

    def load(memory, lanes, offsets) -> None:
        rows[lanes // 32, lanes % 32] = memory.load(batch, lanes, offsets, 4, 4)

    access = by_space(batch, space_of(instruction), load)

    def run(lanes) -> None:
        ids = batch.ids(lanes).reshape(-1, 32)[:, : 8 * count].ravel()
        access(ids, addresses(ids))
        words = rows[batch.ids(lanes)[::32] // 32].reshape(-1, count, 8, 4)
        if transpose:
            halves = words.view(np.uint16).transpose(0, 1, 3, 2)
            words = np.ascontiguousarray(halves).view(np.uint32)
        for index, target in enumerate(targets):
            target[lanes] = words[:, index].reshape(-1)

    return run


@builds("stmatrix")
def build_store_matrix(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`stmatrix`: the reverse of `ldmatrix`."""
    address, value = instruction.operands
    sources = [batch.source(register, U32) for register in registers(value)]
    count = len(sources)
    rows = _matrix_rows(batch, instruction, count)
    addresses = batch.addresses(address)
    transpose = "trans" in instruction.parts

    def store(memory, lanes, offsets) -> None:
        memory.store(batch, lanes, offsets, rows[lanes // 32, lanes % 32])

    access = by_space(batch, space_of(instruction), store)

    def run(lanes) -> None:
        words = np.stack([source[lanes].reshape(-1, 8, 4) for source in sources], axis=1)
        if transpose:
            halves = words.view(np.uint16).transpose(0, 1, 3, 2)
            words = np.ascontiguousarray(halves).view(np.uint32)
        rows[batch.ids(lanes)[::32] // 32] = words.reshape(-1, 8 * count, 4)
        ids = batch.ids(lanes).reshape(-1, 32)[:, : 8 * count].ravel()
        access(ids, addresses(ids))

    return run


@builds("movmatrix")
def build_transpose(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`movmatrix`: the transpose of an 8x8 matrix across the lanes."""
    if "trans" not in instruction.parts:
        raise unsupported(instruction)
    row = batch.row(instruction.operands[0], U32)
    source = batch.source(instruction.operands[1], U32)

    def run(lanes) -> None:
        halves = source[lanes].reshape(-1, 8, 4).view(np.uint16).transpose(0, 2, 1)
        row[lanes] = np.ascontiguousarray(halves).view(np.uint32).reshape(-1)

    return run
