"""Rows that are read at another pitch, as scores of relative positions are: slices of flat rows.

A product of T rows with the keys of all distances holds, in row t, the score of token s in column
s - t + T - 1. Exporters shift its rows by a column of zeros, reshapes and slices, or gather the
columns. Read one behind the other with a pitch of one element less than a row has, the rows need
neither: the accelerator reads them where they lie.
"""

from typing import NamedTuple

import numpy as np

from ..graph import is_accelerated
from ..graph import operators as ops
from ..rewriting import Site, op, rule, value
from .moved_elements import MOVES, moved_elements, moving_nodes
from .patterns import is_float32, is_int8, reshaped

CUTS = (ops.Reshape, ops.Slice, ops.Gather, ops.GatherElements, ops.Pad)
NOWHERE = -1
"""The place of a zero."""


class Pitch(NamedTuple):
    """Rows of a flat matrix: the first element of the first row, and the way to the next row."""

    first: int
    step: int


class Shifted(NamedTuple):
    """Columns of a product, in another order or 0, and the pitch at which its rows are read."""

    columns: np.ndarray
    pitch: Pitch


def _pitch(places: np.ndarray, size: int) -> Pitch | None:
    """Return the pitch of places [rows, columns] in a matrix of `size` elements, if there is one.

    Places of zeros are not known.
    """
    rows, columns = places.shape
    known = places != NOWHERE
    starts = places - np.arange(columns)
    found = [
        (row, int(starts[row, known[row]][0])) for row in range(rows) if known[row].any()
    ]  # fmt: skip
    if len(found) < 2:
        return None
    (one, first), (other, second) = found[0], found[-1]
    step, rest = divmod(second - first, other - one)
    pitch = Pitch(first - one * step, step)
    whole = pitch.first + step * np.arange(rows)[:, None] + np.arange(columns)
    fits = not rest and (whole == places)[known].all() and step >= columns
    return pitch if fits and 0 <= pitch.first <= size - rows * step else None


def _own_rows(row: np.ndarray, column: np.ndarray, known: np.ndarray) -> Shifted | None:
    """Return the columns by distance, if each row reads its own elements at the same distances."""
    rows, columns = known.shape
    distance = np.arange(columns) - np.arange(rows)[:, None] + rows - 1
    own = np.broadcast_to(np.arange(rows)[:, None], known.shape)
    if not np.array_equal(row[known], own[known]):
        return None
    chosen = np.full(rows + columns - 1, NOWHERE)
    chosen[distance] = np.where(known, column, NOWHERE)
    if not np.array_equal(chosen[distance], np.where(known, column, NOWHERE)):
        return None
    return Shifted(chosen, Pitch(rows - 1, rows + columns - 2))


def _past_rows(
    row: np.ndarray, column: np.ndarray, known: np.ndarray, rows: int, columns: int
) -> Shifted | None:
    """Put a column of zeros in front of the columns, if reads run on into the next row."""
    places = np.where(known, row * (columns + 1) + column + 1, NOWHERE)
    pitch = _pitch(places, rows * (columns + 1))
    if pitch is None:
        return None
    steps = np.arange(known.shape[0])[:, None] * pitch.step + np.arange(known.shape[1])
    if ((pitch.first + steps)[~known] % (columns + 1)).any():
        return None
    return Shifted(np.arange(-1, columns), pitch)


def _of_matrices(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the places [rows, columns] in each matrix, if they are the same in all."""
    size = shape[-2] * shape[-1]
    whole = places.reshape(-1, *places.shape[-2:])
    first = whole[0]
    starts = size * np.arange(len(whole))[:, None, None]
    expected = np.where(first == NOWHERE, NOWHERE, first + starts)
    return first if np.array_equal(whole, expected) and first.max() < size else None


def _shifted(site: Site, x: str, places: np.ndarray) -> Shifted | None:
    shape = site.shape_of(x)
    one = _of_matrices(places, shape)
    if one is None:
        return None
    known = one != NOWHERE
    row, column = one // shape[-1], one % shape[-1]
    return _own_rows(row, column, known) or _past_rows(row, column, known, shape[-2], shape[-1])


def _read(site: Site, x: str, pitch: Pitch, shape: tuple[int, ...]) -> str:
    """Emit rows of float matrices at a pitch."""
    *outer, rows, columns = site.shape_of(x)
    flat = site.emit(ops.Reshape((*outer, rows * columns)), x)
    none, one = (0,) * len(outer), (1,) * len(outer)
    stop = pitch.first + shape[-2] * pitch.step
    cut = site.emit(ops.Slice((*none, pitch.first), (*outer, stop), (*one, 1)), flat)
    apart = site.emit(ops.Reshape((*outer, shape[-2], pitch.step)), cut)
    if pitch.step == shape[-1]:
        return apart
    whole = (*none, 0, 0), (*outer, *shape[-2:]), (*one, 1, 1)
    return site.emit(ops.Slice(*whole), apart)


@rule(op(CUTS, ..., result=is_float32))
def shift_by_pitch(site: Site) -> str | None:
    """Shifted or gathered columns of x K -> rows of x K' at a pitch, with a constant K."""
    name, shape = site.root.output.name, site.shape
    user = site.view.only_user(name)
    if len(shape) < 2 or (user is not None and isinstance(user.attributes, CUTS)):
        return None
    chain = moving_nodes(site.view, name, CUTS)
    made = site.view.producer(chain[0].inputs[0]) if chain else None
    if made is None or not isinstance(made.attributes, ops.MatMul):
        return None
    pads = (one.attributes for one in chain if isinstance(one.attributes, ops.Pad))
    x, keys = made.inputs[0], made.inputs[1]
    if not site.is_constant(keys) or site.is_constant(x) or any(pad.value for pad in pads):
        return None
    product, places = moved_elements(site.view, name, CUTS)
    given = site.shape_of(product)
    if given[:-2] != shape[:-2]:
        return None
    found = _shifted(site, product, places)
    if found is None:
        return None
    same = np.array_equal(found.columns, np.arange(given[-1]))
    if same and all(isinstance(one.attributes, ops.Reshape | ops.Slice) for one in chain):
        return None
    if not same:
        data = site.data(keys)
        chosen = np.where(found.columns == NOWHERE, np.float32(0), data[..., found.columns])
        keys = site.constant(np.ascontiguousarray(chosen), f"{made.name}.distances")
    again = site.emit(ops.MatMul(), x, keys, label=made.name)
    return _read(site, again, found.pitch, shape)


@rule(op((ops.Slice, ops.Reshape), value(), result=is_int8))
def recognise_shifts(site: Site) -> str | None:
    """Rows of x at a pitch that is not a row's -> slices of reshapes of x.

    Read int8 rows at another pitch in place.
    """
    name, shape = site.root.output.name, site.shape
    user = site.view.only_user(name)
    if len(shape) < 2 or (user is not None and isinstance(user.attributes, CUTS)):
        return None
    x, places = moved_elements(site.view, name, MOVES)
    made, given = site.view.producer(x), site.shape_of(x)
    if made is None or not is_accelerated(made) or len(given) != 4 or places.size < 2:
        return None
    one = _of_matrices(places, given)
    size = given[-2] * given[-1]
    pitch = None if one is None else _pitch(one, size)
    count = places.size // (shape[-2] * shape[-1])
    if pitch is None or count != given[0] * given[1]:
        return None
    if 0 in (pitch.step % given[-1], given[-1] % pitch.step):
        return None  # rows, or parts of rows
    kind, stop = site.quantisation_of(x), pitch.first + shape[-2] * pitch.step
    for operator in (
        ops.QReshape((count, 1, 1, size)),
        ops.QSlice((0, 0, 0, pitch.first), (count, 1, 1, stop), (1, 1, 1, 1)),
        ops.QReshape((count, 1, shape[-2], pitch.step)),
        ops.QSlice((0, 0, 0, 0), (count, 1, shape[-2], shape[-1]), (1, 1, 1, 1)),
        ops.QReshape((given[0], given[1], shape[-2], shape[-1])),
    ):
        x = site.emit(operator, x, quantisation=kind)
    return reshaped(site, x, shape)
