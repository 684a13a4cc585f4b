"""A reader of tensors in ONNX files: dense or sparse, in the model's file or next to it."""

import math
from pathlib import Path

import numpy as np
import onnx

from ...errors import ImportModelError
from ...file_access import reason
from ..graph.types import DTYPES, MAX_BYTES
from ..model_file import read_external
from .refusals import RefusedError

ONNX_TYPES: dict[str, int] = {
    name: onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, kind in DTYPES.items()
}
"""Element type of the graph -> ONNX's number for it."""

ELEMENT_TYPES: dict[int, str] = {number: name for name, number in ONNX_TYPES.items()}
"""ONNX's number of an element type -> its name in the graph."""


def read_tensor(tensor: onnx.TensorProto, where: str, folder: Path | None) -> np.ndarray:
    """Return the elements of a tensor.

    Parameters
    ----------
    tensor : onnx.TensorProto
        Tensor to read.
    where : str
        Place in the model, for messages.
    folder : Path or None
        Folder of the model's file, which contains external data; None if there is no file.

    Raises
    ------
    ImportModelError
        If the tensor is damaged, its type is not supported, or its data cannot be found.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        raise RefusedError(
            f"{where}: expected a tensor of numbers, got strings; take them out of the model",
            "strings",
        )
    if tensor.data_type not in ELEMENT_TYPES:
        kinds = onnx.TensorProto.DataType
        known = tensor.data_type in kinds.values()
        got = kinds.Name(tensor.data_type) if known else str(tensor.data_type)
        raise ImportModelError(
            f"{where}: expected one of {', '.join(DTYPES)}, got `{got.lower()}`; convert it"
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = _with_data(tensor, where, folder)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ImportModelError(
            f"{where}: expected {ELEMENT_TYPES[tensor.data_type]}{list(tensor.dims)}, got "
            f"{len(tensor.raw_data)} bytes that do not make it; export the model again"
        ) from error


def _with_data(tensor: onnx.TensorProto, where: str, folder: Path | None) -> onnx.TensorProto:
    """Return a tensor with its data, read from a file next to the model."""
    if folder is None:
        raise ImportModelError(
            f"{where}: expected its data in the file, got a reference to another file; save the "
            "model with `save_as_external_data=False`"
        )
    whole = onnx.TensorProto()
    whole.CopyFrom(tensor)
    try:
        whole.raw_data = read_external(whole, folder)
    except OSError as error:
        raise ImportModelError(
            f"{where}: expected its data in a file next to the model, got {reason(error)}; copy "
            "that file too, or export the model again"
        ) from error
    whole.data_location = onnx.TensorProto.DEFAULT
    del whole.external_data[:]
    return whole


def read_sparse(tensor: onnx.SparseTensorProto, where: str, folder: Path | None) -> np.ndarray:
    """Return the elements of a sparse tensor; missing ones are zero.

    Raises
    ------
    ImportModelError
        If the tensor is damaged or too large.
    """
    values = read_tensor(tensor.values, where, folder)
    indices = read_tensor(tensor.indices, where, folder).astype(np.int64)
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0 or math.prod(shape) * values.itemsize > MAX_BYTES:
        raise ImportModelError(
            f"{where}: expected a shape of at most {MAX_BYTES:,} bytes, got {list(shape)}; "
            "correct it"
        )
    dense = np.zeros(shape, dtype=values.dtype)
    try:
        if indices.ndim == 2:
            dense[tuple(indices.T)] = values
        else:
            dense.ravel()[indices] = values
    except (IndexError, ValueError) as error:
        raise ImportModelError(
            f"{where}: expected an index within {list(shape)} for each of {values.size} values, "
            f"got {list(indices.shape)} others; export the model again"
        ) from error
    return dense
