"""Tensor expressions: the definition of a kernel in index notation, without a schedule.

A `Compute` defines every element of one tensor over its data axes, with a sum or a maximum over the
reduction axes. A read outside a tensor gives its pad value. A `Kernel` is a chain of computes; each
reads the result of the previous one. `evaluate` is the executable definition.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from ..errors import CompileError
from ..isa.expressions import (
    ROW_OPS,
    Affine,
    Call,
    Expression,
    Literal,
    Op,
    Read,
    Real,
    Reduction,
    reads_of,
    with_reads,
)
from ..isa.numbers import requantise, saturate8
from ..isa.row_statistics import row_values

STORED_REALS = ("bfloat16", "float16", "float32")
"""Types of real numbers in tensors; all are computed in float32."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # importing its package also gives it its name in NumPy


@dataclass(frozen=True, slots=True)
class Patches:
    """A tensor of overlapping windows that are gathered from an image.

    Its element `[n, r, x, k]` with `k < rows * run` is byte `x * column_step * C + k % run` of row
    `r * row_step + k // run * dilation` of an image int8[N, H, W, C]. All further lanes are
    undefined.

    Parameters
    ----------
    rows, run, pixels
        Rows of a window, and the bytes and the pixels in each row.
    row_step, column_step
        Image rows and columns from window to window.
    dilation
        Image rows from row to row of a window.
    """

    rows: int
    run: int
    pixels: int
    row_step: int
    column_step: int
    dilation: int

    @property
    def whole_pixels(self) -> bool:
        """Whether a window is one pixel, so that its channels can be split."""
        return self.rows == self.pixels == 1

    def gather(self, image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The windows int8[n, r, x, k] of an image int8[N, H, W, C], other lanes zero."""
        result = np.zeros(shape, dtype=np.int8)
        lines = image.reshape(*image.shape[:2], -1)
        for r, x, row in np.ndindex(shape[1], shape[2], self.rows):
            start = x * self.column_step * image.shape[3]
            line = lines[:, r * self.row_step + row * self.dilation, start : start + self.run]
            result[:, r, x, row * self.run : (row + 1) * self.run] = line
        return result


@dataclass(frozen=True, slots=True)
class View:
    """A view of a value with other dimensions, such as the heads in its channels.

    Parameters
    ----------
    moves
        For each dimension of the tensor, the axis of the value that it follows, and its step in
        indices of that axis; 0 for a dimension of one element.
    channels
        Number of own elements in the last dimension; 0 for all elements of the value.
    """

    moves: tuple[tuple[int, int], ...]
    channels: int = 0

    @property
    def rows_are_runs(self) -> bool:
        """Whether the last dimension is contiguous in the value."""
        return self.moves[-1] == (3, 1)

    def take(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The view with this shape of an array of the value, without a copy."""
        strides = [values.strides[axis] * step for axis, step in self.moves]
        return np.lib.stride_tricks.as_strided(values, shape, strides, writeable=False)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Name, element type, shape, and pad value, which is the result of reads outside it.

    `value` is its graph value, if that has another name. If the tensor is not the value itself,
    `patches` describes how it is gathered from the value, or `view` which axes it follows.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pad: int = 0
    value: str = ""
    patches: Patches | None = None
    view: View | None = None

    def __getitem__(self, index: tuple[Affine, ...]) -> Read:
        """An element: `x[y * 2, c]` with indices from `index`."""
        if len(index) != len(self.shape):
            raise CompileError(
                f"tensor `{self.name}` has {len(self.shape)} dimensions, indexed with {len(index)}"
            )
        return Read(self.name, index)


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a compute: name and extent."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Compute:
    """`output[axes] = body`, reduced over `reductions`."""

    output: Tensor
    axes: tuple[Axis, ...]
    reductions: tuple[Axis, ...]
    body: Expression

    def __post_init__(self) -> None:
        if tuple(axis.extent for axis in self.axes) != self.output.shape:
            raise CompileError(f"compute `{self.output.name}`: axes do not span the output's shape")

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every axis, reductions last."""
        return {axis.name: axis.extent for axis in (*self.axes, *self.reductions)}

    def __str__(self) -> str:
        axes = ", ".join(f"{a.name}<{a.extent}" for a in self.axes)
        over = ", ".join(f"{a.name}<{a.extent}" for a in self.reductions)
        tail = f"  over {over}" if over else ""
        return f"{self.output.name}[{axes}] = {self.body}{tail}"


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Kernel:
    """One operator: its computes in order, their tensors, and the constants.

    A kernel equals only itself, so that what follows from it can be kept beside it.

    Parameters
    ----------
    name
        Name of the graph node.
    stages
        Each stage except the first reads the output of the previous one.
    tensors
        Every tensor read or written, by name.
    constants
        Values of the constant tensors, in their shapes.
    macs
        Number of multiplications by the model's definition, without padding lanes.
    kept
        Results of stages before the last that are stored, too.
    """

    name: str
    stages: tuple[Compute, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    macs: int = 0
    kept: tuple[str, ...] = ()

    @property
    def output(self) -> Tensor:
        """The result of the last stage."""
        return self.stages[-1].output

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that are neither constants nor defined by a stage, in the order of reading."""
        defined = {stage.output.name for stage in self.stages}
        names = [read.tensor for stage in self.stages for read in reads_of(stage.body)]
        return tuple(
            dict.fromkeys(n for n in names if n not in defined and n not in self.constants)
        )

    def renamed(self, names: Mapping[str, str]) -> "Kernel":
        """Rename some tensors."""
        tensors = {
            names.get(name, name): replace(tensor, name=names.get(name, name))
            for name, tensor in self.tensors.items()
        }
        stages = tuple(
            replace(
                stage,
                output=replace(stage.output, name=names.get(stage.output.name, stage.output.name)),
                body=with_reads(stage.body, lambda r: Read(names.get(r.tensor, r.tensor), r.index)),
            )
            for stage in self.stages
        )
        constants = {names.get(name, name): data for name, data in self.constants.items()}
        kept = tuple(names.get(name, name) for name in self.kept)
        return replace(self, stages=stages, tensors=tensors, constants=constants, kept=kept)

    def __str__(self) -> str:
        return "\n".join(map(str, self.stages))


def element_type(tree: Expression, tensors: Mapping[str, Tensor]) -> str:
    """The type in which an expression is computed: `float32`, `int64` or `int32`."""
    if isinstance(tree, Real):
        return "float32"
    if isinstance(tree, Read):
        dtype = tensors[tree.tensor].dtype
        if dtype in STORED_REALS:
            return "float32"
        return "int64" if dtype == "int64" else "int32"
    if isinstance(tree, Reduction):
        return element_type(tree.body, tensors)
    if isinstance(tree, Call) and tree.op is Op.ELEMENT:
        return element_type(tree.arguments[0], tensors)
    if not isinstance(tree, Call) or tree.op in _GIVES_INT32:
        return "int32"
    if tree.op not in _LIKE_OPERANDS:
        return "float32"
    found = {element_type(part, tensors) for part in tree.arguments}
    return next((wide for wide in ("float32", "int64") if wide in found), "int32")


_GIVES_INT32 = (
    *(Op.ROUND, Op.LESS, Op.EQUAL, Op.REQUANTISE, Op.CLAMP, Op.LOOKUP),
    *ROW_OPS,
)
_LIKE_OPERANDS = (
    *(Op.ADD, Op.MULTIPLY, Op.MAXIMUM, Op.MINIMUM),
    *(Op.SELECT, Op.SHIFT_RIGHT, Op.AND, Op.OR, Op.XOR),
)


MAX_ELEMENTS = 1 << 22
"""Limit on the elements that `evaluate` computes at once, reductions included."""


def evaluate(kernel: Kernel, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Evaluate a kernel, element by element.

    Parameters
    ----------
    inputs
        Arrays of the shapes of the kernel's input tensors.

    Returns
    -------
    The last stage's output. Numbers of float32 are computed in binary64 and rounded once per stage.
    """
    values = {**inputs, **kernel.constants}
    for stage in kernel.stages:
        result = np.empty(stage.output.shape, stage.output.dtype)
        place = max(range(len(stage.axes)), key=lambda at: stage.axes[at].extent)
        extent = stage.axes[place].extent
        step = max(1, MAX_ELEMENTS * extent // max(1, math.prod(stage.extents.values())))
        for first in range(0, extent, step):
            part = slice(first, min(first + step, extent))
            chosen = (*(slice(None),) * place, part)
            with np.errstate(over="ignore", invalid="ignore"):
                result[chosen] = _stage(stage, values, kernel.tensors, place, part)
        values[stage.output.name] = result
    return values[kernel.output.name]


def _stage(stage: Compute, values, tensors, place: int, part: slice) -> np.ndarray:
    """Evaluate a stage for a part of one of its axes."""
    axes = (*stage.axes, *stage.reductions)
    ranges = [np.arange(axis.extent) for axis in axes]
    ranges[place] = ranges[place][part]
    grids = np.meshgrid(*ranges, indexing="ij", sparse=True)
    where = dict(zip((a.name for a in axes), grids, strict=True))
    over = tuple(range(len(stage.axes), len(axes)))
    shape = tuple(len(one) for one in ranges[: len(stage.axes)])
    result = _value(stage.body, values, tensors, where, over)
    result = np.broadcast_to(result, shape + (1,) * len(over)).reshape(shape)
    return result.astype(stage.output.dtype)


def _value(tree, values, tensors, where, over) -> np.ndarray:
    if isinstance(tree, Literal):
        return np.array(tree.value, dtype=np.int32)
    if isinstance(tree, Real):
        return np.array(np.float32(tree.value), dtype=np.float64)
    if isinstance(tree, Read):
        return _element(tree, values[tree.tensor], tensors[tree.tensor].pad, where)
    if isinstance(tree, Reduction):
        body = _value(tree.body, values, tensors, where, over)
        shape = np.broadcast_shapes(body.shape, *(grid.shape for grid in where.values()))
        body = np.broadcast_to(body, shape)
        if tree.op is Op.ADD:
            return body.sum(axis=over, dtype=body.dtype, keepdims=True)
        return body.max(axis=over, keepdims=True)
    if not isinstance(tree, Call):
        raise CompileError(f"`{tree}` is a pattern, not an expression")
    if tree.op is Op.ELEMENT and isinstance(read := tree.arguments[0], Read):
        numbers = np.arange(values[read.tensor].size).reshape(values[read.tensor].shape)
        first = _element(read, numbers, 0, where)
        data = values[read.tensor].reshape(-1)
        found = data[first + _value(tree.arguments[1], values, tensors, where, over)]
        return found.astype(_wide(data.dtype))
    if tree.op in ROW_OPS and isinstance(read := tree.arguments[0], Read):
        *others, last = tree.arguments[1:]
        mask = values[last.tensor] if isinstance(last, Read) else None
        numbers = others if isinstance(last, Read) else (*others, last)
        parts = [_value(part, values, tensors, where, over) for part in numbers]
        return _element(read, rows_of(tree.op, values[read.tensor], mask, *parts), 0, where)
    parts = [_value(argument, values, tensors, where, over) for argument in tree.arguments]
    with np.errstate(all="ignore"):
        return MEANINGS[tree.op](*parts)


ROW_CONSTANTS = 3
"""Constants of an operation on rows: its table, E and F."""


def rows_of(
    op: Op,
    data: np.ndarray,
    mask: np.ndarray | None,
    table: np.ndarray,
    epsilon: np.ndarray,
    factor: np.ndarray,
    *numbers,
) -> np.ndarray:
    """Apply an operation of `ROW_OPS` to all rows of a tensor, int8[..., elements]."""
    constants = int(epsilon.flat[0]), float(factor.flat[0])
    length = data.shape[-1]
    masks = None if mask is None else np.broadcast_to(mask, data.shape).reshape(-1, length)
    rows = [
        row_values(
            *(op, row, table, *constants, *map(int, numbers)),
            mask=None if masks is None else masks[place],
        )
        for place, row in enumerate(data.reshape(-1, length))
    ]
    return np.reshape(rows, data.shape)


_erf = np.vectorize(math.erf, otypes=[np.float64])
MEANINGS: Mapping[Op, Callable[..., np.ndarray]] = {
    Op.ADD: np.add,
    Op.MULTIPLY: np.multiply,
    Op.MAXIMUM: np.maximum,
    Op.MINIMUM: np.minimum,
    Op.REQUANTISE: requantise,
    Op.CLAMP: lambda a, low, high: np.clip(saturate8(a).astype(np.int32), low, high),
    Op.LOOKUP: lambda table, index: table.reshape(-1)[index + 128].astype(np.int32),
    Op.REAL: lambda a: a.astype(np.float32).astype(np.float64),
    Op.ROUND: lambda a: np.rint(a.astype(np.float32)).astype(np.int32),
    Op.LESS: lambda a, b: (a < b).astype(np.int32),
    Op.EQUAL: lambda a, b: (a == b).astype(np.int32),
    Op.SELECT: lambda a, b, c: np.where(a != 0, b, c),
    Op.SHIFT_RIGHT: np.right_shift,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.DIVIDE: np.divide,
    Op.SQRT: np.sqrt,
    Op.EXP: np.exp,
    Op.DECAY: np.exp,
    Op.LOG: np.log,
    Op.TANH: np.tanh,
    Op.ERF: _erf,
    Op.SIGMOID: lambda a: 0.5 + 0.5 * np.tanh(0.5 * a),
    Op.SIN: np.sin,
    Op.COS: np.cos,
}
"""Definitions of the operations on elements."""


def _element(read: Read, data: np.ndarray, pad: int, where) -> np.ndarray:
    if not read.index:
        return data
    indices, inside = [], np.array(True)
    for affine, extent in zip(read.index, data.shape, strict=True):
        index = np.array(affine.constant)
        for axis, coefficient in affine.terms:
            index = index + coefficient * where[axis]
        inside = inside & (index >= 0) & (index < extent)
        indices.append(np.clip(index, 0, extent - 1))
    element = data[tuple(indices)]
    return np.where(inside, element, pad).astype(_wide(data.dtype))


def holds_reals(dtype: np.dtype) -> bool:
    """Whether elements are of one of `STORED_REALS`; NumPy has no kind of its own for bfloat16."""
    return dtype.kind == "f" or dtype == _BFLOAT16


def _wide(dtype: np.dtype) -> type[np.number]:
    """The type in which elements are computed."""
    if holds_reals(dtype):
        return np.float64
    return np.int64 if dtype.itemsize == 8 else np.int32
