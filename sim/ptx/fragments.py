"""Fragments of matrices in the registers of a warp, from the tables of the PTX manual.

`mma` with m = 16 and n = 8 has one rule for all types: with g = lane / 4, t = lane % 4 and e
elements in a register, register r of A holds row g + 8 * (r % 2), columns from
t * e + 4 * e * (r / 2) on; register r of B holds column g, rows from t * e + 4 * e * r on;
register r of the sums holds row g + 8 * (r / 2), column 2 * t + r % 2 if it is one of 32 bits.
"""

from functools import lru_cache

import numpy as np

GROUP, POSITION = np.arange(32) // 4, np.arange(32) % 4


@lru_cache
def a_index(rows: int, depth: int, elements: int) -> np.ndarray:
    """Where element [row, k] of A stands in `[lane, register, element]`, flattened."""
    registers = rows * depth // 32 // elements
    lane, register, element = np.ix_(np.arange(32), np.arange(registers), np.arange(elements))
    group, position = lane // 4, lane % 4
    halves = rows // 8
    row = group + 8 * (register % halves)
    column = position * elements + element + 4 * elements * (register // halves)
    return _inverse(row, column, (rows, depth))


@lru_cache
def b_index(depth: int, elements: int) -> np.ndarray:
    """Where element [k, column] of B stands in `[lane, register, element]`, flattened."""
    registers = depth * 8 // 32 // elements
    lane, register, element = np.ix_(np.arange(32), np.arange(registers), np.arange(elements))
    row = (lane % 4) * elements + element + 4 * elements * register
    return _inverse(row, lane // 4 + 0 * row, (depth, 8))


@lru_cache
def sum_index(rows: int, elements: int) -> np.ndarray:
    """Where element [row, column] of C and D stands; `elements` is 2 for packed halves, else 1."""
    registers = rows * 8 // 32 // elements
    lane, register, element = np.ix_(np.arange(32), np.arange(registers), np.arange(elements))
    number = register * elements + element
    return _inverse(lane // 4 + 8 * (number // 2), 2 * (lane % 4) + number % 2, (rows, 8))


def _inverse(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    row, column = np.broadcast_arrays(row, column)
    index = np.full(shape, -1)
    index[row, column] = np.arange(row.size).reshape(row.shape)
    assert (index >= 0).all()
    return index
