"""The bytes of a model: its file, and those of tensors that lie in other files.

A model may come from a stranger, so it names other files only in its own folder. ONNX is imported
when such a tensor is met, so that a network from the cache does not wait for it.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..errors import ImportModelError
from ..file_access import UnreadableError, read_part, reason
from ..quoting import is_count

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

MAX_MODEL_BYTES = 1 << 31
"""Size limit of a model's file, and of a tensor: the most that protobuf can hold."""
MAX_EXTERNAL_BYTES = 1 << 32
"""Size limit of all tensors of a model that lie in other files."""
LOCATION_KEY = b"location"
"""Text in every ONNX file that has a tensor in another file, whatever the order of its fields."""


def read_model(path: Path) -> bytes:
    """Return the content of a model's file.

    Raises
    ------
    ImportModelError
        When it is not a file that can be read, or is larger than ONNX files can be.
    """
    try:
        return read_part(path, limit=MAX_MODEL_BYTES)
    except OSError as problem:
        raise ImportModelError(
            f"model `{path}`: expected a readable file, got `{reason(problem)}`; check the path "
            "and its permissions"
        ) from None


def read_external(tensor: "onnx.TensorProto", folder: Path) -> bytes:
    """Return the bytes of a tensor that lies in another file.

    Raises
    ------
    OSError
        When the file cannot be read, is outside the folder, or is too short.
    """
    location, offset, length = _place(tensor)
    path = folder / location
    parts = PurePosixPath(location)
    if not location or parts.is_absolute() or ".." in parts.parts or "\0" in location:
        raise UnreadableError(location, f"the path `{location}`, which leads out of the folder")
    # `Path.resolve` would raise RuntimeError at links that lead to each other.
    if Path(os.path.realpath(folder)) not in Path(os.path.realpath(path)).parents:
        raise UnreadableError(location, f"the link `{location}`, which leads out of the folder")
    try:
        return read_part(path, offset, length, limit=MAX_MODEL_BYTES)
    except OSError as problem:
        raise UnreadableError(location, f"`{location}`: {reason(problem)}") from None


def digest_external(model: bytes, path: Path) -> bytes:
    """Return a hash of all tensors of a model that lie in other files.

    A model or a tensor that cannot be read adds nothing: the importer refuses it.
    """
    import onnx
    from google.protobuf.message import DecodeError

    digest, proto = hashlib.sha256(), onnx.ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError:
        return b""
    left = MAX_EXTERNAL_BYTES
    for tensor in _tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            try:
                data = read_external(tensor, path.parent)
            except OSError:
                return b""
            left -= len(data)
            if left < 0:
                raise ImportModelError(
                    f"model `{path}`: expected at most {MAX_EXTERNAL_BYTES:,} bytes of tensors in "
                    "other files, got more; split the network"
                )
            digest.update(hashlib.sha256(data).digest())
    return digest.digest()


def _place(tensor: "onnx.TensorProto") -> tuple[str, int, int | None]:
    """Return path, offset and length of a tensor's data."""
    found: dict[str, str] = {}
    for entry in tensor.external_data:
        key, value = entry.key, entry.value
        if isinstance(key, bytes) or isinstance(value, bytes):  # protobuf's sign of other encodings
            raise UnreadableError("", "a path that is not UTF-8")
        found[key] = value
    numbers = [found.get(name, "") for name in ("offset", "length")]
    if not all(map(is_count, filter(None, numbers))):
        raise UnreadableError("", f"offset and length `{numbers[0]}` and `{numbers[1]}`")
    return found.get("location", ""), int(numbers[0] or 0), int(numbers[1]) if numbers[1] else None


def _tensors(message: "Message") -> "Iterator[onnx.TensorProto]":
    """Yield all tensors inside a message, however deep."""
    import onnx

    for field, content in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for part in [content] if not field.is_repeated else content:
            if isinstance(part, onnx.TensorProto):
                yield part
            else:
                yield from _tensors(part)
