"""Declarations: tensors, stages and kernels, checked and turned into compiler data."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...argument_types import checked
from ...errors import CompileError
from ...isa.expressions import Call, Expression, Op, Reduction, reads_of
from ..tensor import STORED_REALS, Axis, Compute, Kernel, Patches, Tensor, View
from .index import AxisUse, Index, merge_uses
from .values import LIMITS, DeclaredTensor, TensorExpression, bare_axis, value_from

FLOAT32_MAX = (1 << 128) - (1 << 104)
"""The largest finite binary32 number; its negative is the pad of a maximum."""


@checked("te.tensor")
def tensor(
    name: str,
    dtype: str,
    shape: Sequence[int],
    pad: int = 0,
    *,
    of: str = "",
    by: View | Patches | None = None,
) -> DeclaredTensor:
    """A tensor given to the kernel: an input, or a constant if `kernel` gets its values.

    Parameters
    ----------
    name
        Unique within a kernel.
    dtype
        `float32`, `int8`, `uint8`, `int16`, `int32`, `int64` or `bool`; the accelerator has `int8`
        and `int32`, and `float32` for the scales of `requantise`.
    shape
        Elements per dimension.
    pad
        The value of elements outside the tensor.
    of, by
        In a network, the value that it is, if that has another name, and how it is taken from the
        value: a view of it, or windows gathered from it.
    """
    if dtype not in (*LIMITS, *STORED_REALS):
        raise CompileError(
            f"tensor `{name}`: dtype must be {', '.join((*LIMITS, *STORED_REALS[:-1]))} or "
            f"{STORED_REALS[-1]}, not {dtype!r}"
        )
    sizes = tuple(shape)
    if not sizes or any(not isinstance(size, int) or size < 0 for size in sizes):
        raise CompileError(
            f"tensor `{name}`: shape must be whole numbers, 0 or more, and not empty, not {sizes}"
        )
    low, high = LIMITS.get(dtype, (-FLOAT32_MAX, FLOAT32_MAX))
    if not low <= pad <= high:
        raise CompileError(f"tensor `{name}`: pad {pad} does not fit {dtype} ({low}..{high})")
    view = by if isinstance(by, View) else None
    patches = by if isinstance(by, Patches) else None
    return DeclaredTensor(Tensor(name, dtype, sizes, pad, of, patches, view))


@checked("te.compute")
def compute(
    name: str,
    dtype: str,
    axes: Sequence[Index],
    value: TensorExpression | int,
    pad: int = 0,
    *,
    of: str = "",
    by: View | None = None,
) -> DeclaredTensor:
    """A stage: every element of a new tensor, `name[axes] = value`.

    Parameters
    ----------
    name, dtype, pad, of, by
        As for `tensor`. The value wraps to the dtype.
    axes
        Data axes, one per dimension; their extents are the shape.
    value
        An expression with at most one reduction: of float32 numbers if the dtype is float32, of
        integers otherwise.

    Raises
    ------
    CompileError
        When axes or types do not fit together; the message names the stage.
    """
    value = value_from(value, f"compute `{name}`")
    data = tuple(_data_axis(name, axis) for axis in axes)
    names = [axis.name for axis in data]
    if len(set(names)) < len(names):
        raise CompileError(f"compute `{name}`: its axes {', '.join(names)} must differ")
    if (dtype in STORED_REALS) != value.real:
        sort, remedy = ("float32", "rounded") if value.real else ("an integer", "real")
        raise CompileError(
            f"compute `{name}`: the stage is {dtype} and `{value}` is {sort}; convert it with "
            f"`{remedy}`"
        )
    over = value.over or ()
    given = {axis.name: AxisUse(axis.extent, reduced=False) for axis in data}
    reduced = {axis.name: AxisUse(axis.extent, reduced=True) for axis in over}
    known = merge_uses(given, reduced)
    merge_uses(known, value.uses)
    for axis, use in value.uses.items():
        if axis not in known:
            hint = (
                "reduce over it with `sum` or `max`"
                if use.reduced
                else f"the axes of `{name}` are {', '.join(names)}"
            )
            raise CompileError(f"compute `{name}`: axis `{axis}` in `{value}` is unknown; {hint}")
        if use.reduced:
            raise CompileError(
                f"compute `{name}`: reduction axis `{axis}` also occurs outside the reduction in "
                f"`{value}`"
            )
    result = tensor(name, dtype, [axis.extent for axis in data], pad, of=of, by=by).tensor
    stage = Compute(result, data, over, value.tree)
    _refuse_padding(stage, value.tree, value.operands)
    sources = tuple(dict.fromkeys(value.operands))
    return DeclaredTensor(result, stage, sources)


@checked("te.kernel")
def kernel(
    name: str,
    output: DeclaredTensor,
    constants: Mapping[str, np.ndarray] | None = None,
    macs: int | None = None,
) -> Kernel:
    """All stages that an output needs, in order.

    Parameters
    ----------
    name
        The kernel's name in messages.
    output
        The last stage.
    constants
        Values of the tensors that are known at compile time, by name.
    macs
        Multiplications without those of padding; all that the stages do by default.

    Raises
    ------
    CompileError
        When two tensors share a name, a constant does not fit its tensor, or `output` is no tensor.
    """
    if output.stage is None:
        raise CompileError(f"kernel `{name}`: `{output.tensor.name}` is given, not computed")
    operands: dict[str, DeclaredTensor] = {}
    _collect(output, operands, name)
    tensors = {operand.tensor.name: operand.tensor for operand in operands.values()}
    values = {}
    for key, given in (constants or {}).items():
        if key not in tensors or operands[key].stage is not None:
            raise CompileError(f"kernel `{name}`: constant `{key}` is not one of its tensors")
        array = np.asarray(given)
        expected = tensors[key]
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise CompileError(
                f"kernel `{name}`: constant `{key}` is {array.dtype}{list(array.shape)}, declared "
                f"as {expected.dtype}{list(expected.shape)}"
            )
        values[key] = array
    stages = tuple(o.stage for o in operands.values() if o.stage is not None)
    whole = sum(
        math.prod(stage.extents.values())
        for stage in stages
        if isinstance(stage.body, Reduction)
        and isinstance(stage.body.body, Call)
        and stage.body.body.op is Op.MULTIPLY
    )
    return Kernel(name, stages, tensors, values, whole if macs is None else macs)


def _data_axis(stage: str, index: Index) -> Axis:
    name, use = bare_axis(index, f"compute `{stage}`")
    if use.reduced:
        raise CompileError(
            f"compute `{stage}`: `{name}` is a reduction axis; make data axes with `axes`"
        )
    return Axis(name, use.extent)


def _refuse_padding(stage: Compute, tree: Expression, operands: Sequence[DeclaredTensor]) -> None:
    """Refuse padded scales: scales of `requantise` have no pad value."""
    if isinstance(tree, Reduction):
        _refuse_padding(stage, tree.body, operands)
    if not isinstance(tree, Call):
        return
    for part in tree.arguments:
        _refuse_padding(stage, part, operands)
    if tree.op is not Op.REQUANTISE:
        return
    shapes = {operand.tensor.name: operand.tensor.shape for operand in operands}
    for read in reads_of(tree.arguments[1]):
        for affine, size in zip(read.index, shapes[read.tensor], strict=True):
            reach = [factor * (stage.extents[axis] - 1) for axis, factor in affine.terms]
            low = affine.constant + sum(min(0, value) for value in reach)
            high = affine.constant + sum(max(0, value) for value in reach)
            if low < 0 or high >= size:
                raise CompileError(
                    f"compute `{stage.output.name}`: `{read}` reaches {low}..{high} of {size} "
                    "elements; scales have no padding"
                )


def _collect(operand: DeclaredTensor, found: dict[str, DeclaredTensor], kernel_name: str) -> None:
    for source in operand.sources:
        _collect(source, found, kernel_name)
    known = found.setdefault(operand.tensor.name, operand)
    if known is not operand and known != operand:
        raise CompileError(
            f"kernel `{kernel_name}`: two tensors are named `{operand.tensor.name}`; rename one"
        )
