"""Atomic operations on global and shared memory."""

import numpy as np

from .batch import TYPES, BlockBatch, Step
from .builders import builds, type_of, unsupported
from .memory import AddressSpace
from .moves import by_space, space_of
from .syntax import PtxInstruction


def _increment(old, limit):
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old, limit):
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


OPERATIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": _increment,
    "dec": _decrement,
    "exch": lambda old, value: value,
    "cas": lambda old, compare, value: np.where(old == compare, value, old),
}


@builds("atom", "red")
def build_atomic(batch: BlockBatch, instruction: PtxInstruction) -> Step:
    """`atom` and `red`; lanes at one address follow each other in ascending order."""
    operation = next((OPERATIONS[p] for p in instruction.parts[1:] if p in OPERATIONS), None)
    kind = type_of(instruction)
    if operation is None or {"v2", "v4", "v8", "b128"} & set(instruction.parts):
        raise unsupported(instruction)
    dtype = TYPES[kind]
    operands = list(instruction.operands)
    packed = kind.endswith("x2")
    row = None
    unit = np.dtype(np.uint32) if packed else dtype
    if instruction.name == "atom":
        row = batch.row(operands.pop(0), unit)
    addresses = batch.addresses(operands.pop(0))
    values = [batch.source(operand, unit) for operand in operands[:2]]
    if "cas" not in instruction.parts:
        values = values[:1]

    releasing = bool({"release", "acq_rel"} & set(instruction.parts))

    def combine(old: np.ndarray, *new: np.ndarray) -> np.ndarray:
        if not packed:
            return operation(old, *new)
        pairs = [np.ascontiguousarray(word).view(dtype) for word in (old, *new)]
        return operation(*pairs).view(unit)

    def access(memory: AddressSpace, lanes: np.ndarray, offsets: np.ndarray) -> None:
        index = memory.atomic(batch, lanes, offsets, unit.itemsize)
        words = memory.words[unit.itemsize]
        words = words.view(unit)
        old = np.empty(len(lanes), unit)
        left = np.arange(len(lanes))
        while len(left):
            _, first = np.unique(index[left], return_index=True)
            now = left[np.sort(first)]
            old[now] = words[index[now]]
            words[index[now]] = combine(old[now], *(value[lanes[now]] for value in values))
            left = np.setdiff1d(left, now, assume_unique=True)
        if row is not None:
            row[lanes] = old
        if memory is batch.launch.memory:
            # A barrier behind one thread's fence makes it that of the whole block.
            fenced = np.any(batch.fenced.reshape(len(batch.block_ids), -1), axis=1)
            blocks = batch.blocks[lanes]
            batch.launch.releases.atomics(
                batch.block_ids[blocks], offsets, releasing | fenced[blocks]
            )

    run = by_space(batch, space_of(instruction), access)
    return lambda lanes: run(batch.ids(lanes), addresses(lanes))
