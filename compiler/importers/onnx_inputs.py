"""Inputs of ONNX models: their types, requested extents, and fixed values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from ...errors import ImportModelError
from ..graph import Builder, TensorType, Value
from ..graph.types import DTYPES, check_size
from ..passes.masks import round_mask
from .onnx_tensors import ELEMENT_TYPES
from .refusals import RefusedError

KINDS = {"sequence_type": "sequences", "optional_type": "optional values"}
"""Kinds of inputs that are not tensors -> cause of their rejection."""

FLOATS = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
"""Types of masks that are inputs."""

Fixed = Mapping[str, np.ndarray]
"""Input -> its fixed value."""


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """The caller's settings for the inputs of a model."""

    batch: int
    fixed: Fixed
    dims: Mapping[str, int]
    folder: Path | None
    masks: Collection[str] = ()


def check_overrides(
    inputs: Iterable[onnx.ValueInfoProto], name: str, settings: ImportSettings
) -> None:
    """Reject fixed inputs, masks and requested dimensions that the model does not have.

    Raises
    ------
    ImportModelError
        For the first of them; the message names it.
    """
    known = {value.name for value in inputs}
    unknown = sorted({*settings.fixed} - known)
    if unknown:
        raise ImportModelError(
            f"model `{name}`: expected inputs of the model to fix, got `{unknown[0]}`; its inputs "
            f"are {', '.join(f'`{value.name}`' for value in inputs)}"
        )
    floats = [v.name for v in inputs if v.type.tensor_type.elem_type in FLOATS]
    unknown = [each for each in settings.masks if each not in floats or each in settings.fixed]
    if unknown:
        raise ImportModelError(
            f"model `{name}`: expected float inputs for masks, got `{unknown[0]}`; its float "
            f"inputs are {', '.join(f'`{each}`' for each in floats) or 'none'}"
        )
    extents = [extent for value in inputs for extent in value.type.tensor_type.shape.dim]
    open_ = dict.fromkeys(extent.dim_param for extent in extents if extent.dim_param)
    unknown = sorted({*settings.dims} - {*open_})
    if unknown:
        raise ImportModelError(
            f"model `{name}`: expected an open dimension of the model, got `{unknown[0]}`; its "
            f"open dimensions are {', '.join(f'`{one}`' for one in open_) or 'none'}"
        )


def with_extents(
    inputs: Sequence[onnx.ValueInfoProto], name: str, settings: ImportSettings
) -> ImportSettings:
    """Return settings whose `dims` hold the extents of all named dimensions that are open.

    A name means one extent in the whole model: the caller's, that of a fixed input, or the batch,
    if the name is that of an input's leading dimension.

    Raises
    ------
    ImportModelError
        If extents are missing; the message lists all of them.
    """
    places = [
        (value.name, axis, dimension)
        for value in inputs
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim)
        if not dimension.HasField("dim_value") or dimension.dim_value < 0
    ]
    extents = {one.dim_param: settings.batch for _, axis, one in places if not axis}
    for value, axis, dimension in places:
        if value in settings.fixed and axis < np.ndim(settings.fixed[value]):
            extents[dimension.dim_param] = np.shape(settings.fixed[value])[axis]
    extents |= settings.dims
    extents.pop("", None)
    missing = [
        (one.dim_param, axis, value)
        for value, axis, one in places
        if axis and one.dim_param not in extents and value not in settings.fixed
    ]
    if missing:
        raise ImportModelError(f"model `{name}`: {_missing_extents(missing)}")
    return replace(settings, dims=extents)


def _missing_extents(missing: Iterable[tuple[str, int, str]]) -> str:
    """Return the sentence about dimensions without extent, given their names, axes and inputs."""
    listed, remedies = [], []
    for symbol, axis, value in missing:
        option = f"--dim {symbol}=EXTENT"
        if not symbol:
            listed.append(f"dimension {axis} of `{value}`, which has no name")
        elif option not in remedies:
            listed.append(f"`{symbol}` (dimension {axis} of `{value}`)")
            remedies.append(option)
    remedies = remedies if len(remedies) == len(listed) else []
    given = f" or give `{' '.join(remedies)}`" if remedies else ""
    return (
        f"expected the extents of all dimensions, got none for {', '.join(listed)}; export the "
        f"model with a static shape{given}"
    )


def import_input(
    builder: Builder, value: onnx.ValueInfoProto, name: str, settings: ImportSettings
) -> str:
    """Add an input, or the constant that replaces a fixed input; return its name in the graph.

    Raises
    ------
    ImportModelError
        If the type or the fixed value of the input does not fit.
    """
    if value.name not in settings.fixed:
        given = builder.input(Value(value.name, _input_type(value, name, settings)))
        return round_mask(builder, given) if value.name in settings.masks else given
    where = f"model `{name}`: input `{value.name}`"
    kind = value.type.tensor_type
    dtype = ELEMENT_TYPES.get(kind.elem_type)
    if dtype is None:
        return builder.input(Value(value.name, _input_type(value, name, settings)))
    given = np.asarray(settings.fixed[value.name])
    data = given.astype(DTYPES[dtype])
    extents = [settings.dims.get(d.dim_param, d.dim_value) for d in kind.shape.dim]
    fits = not kind.HasField("shape") or (
        len(extents) == data.ndim
        and all(e in (0, size) for e, size in zip(extents, data.shape, strict=True))
    )
    if not fits or not np.array_equal(data.astype(given.dtype), given, equal_nan=True):
        raise ImportModelError(
            f"{where}: expected {dtype}{[extent or '?' for extent in extents]} to fix it, got "
            f"{given.dtype}{list(given.shape)}; give a value of its type and shape"
        )
    return builder.constant(data, value.name, exact=True)


def _input_type(value: onnx.ValueInfoProto, name: str, settings: ImportSettings) -> TensorType:
    where, batch = f"model `{name}`: input `{value.name}`", settings.batch
    kind = value.type.tensor_type
    cause = KINDS.get(value.type.WhichOneof("value") or "")
    if kind.elem_type == onnx.TensorProto.STRING:
        cause = "strings"
    if cause:
        raise RefusedError(
            f"{where}: expected a tensor of numbers, got {cause}; take them out of the model",
            cause,
        )
    if not value.type.HasField("tensor_type") or kind.elem_type not in ELEMENT_TYPES:
        raise ImportModelError(
            f"{where}: expected a tensor of {', '.join(DTYPES)}, got another type; convert it"
        )
    if not kind.HasField("shape"):
        raise ImportModelError(
            f"{where}: expected a shape, got none; export the model with a static shape"
        )
    shape = []
    for axis, dimension in enumerate(kind.shape.dim):
        if dimension.dim_value > 0:
            shape.append(dimension.dim_value)
        elif dimension.HasField("dim_value") and dimension.dim_value == 0:
            shape.append(0)
        elif dimension.dim_param in settings.dims:
            shape.append(settings.dims[dimension.dim_param])
        else:
            assert axis == 0, "`with_extents` found the extents of all other dimensions"
            shape.append(batch)
    if batch != 1 and shape and shape[0] != batch:
        raise ImportModelError(
            f"{where}: expected a batch of {batch}, got a model fixed to {shape[0]}; "
            "export the model with an open leading dimension"
        )
    return check_size(TensorType(ELEMENT_TYPES[kind.elem_type], tuple(shape)))
