"""Zip archives of named bytes: equal entries give equal files, and damaged files are rejected.

Sizes are bounded before anything is unpacked, since a small file can unpack to any size.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from ..errors import ArtifactError

ZIP_MAGIC = b"PK\x03\x04"
"""First bytes of every zip file."""

MIN_ROOM = 1 << 30
MAX_EXPANSION = 32
"""A file may unpack to `MIN_ROOM` bytes, or to `MAX_EXPANSION` times its size."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every entry: the earliest one that a zip file can hold."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
AGAIN = "copy it again, or compile the model again"
"""Remedy for a damaged file, in messages."""

DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, KeyError,
    OverflowError, RuntimeError,
)  # fmt: skip
"""Exceptions that `zipfile` raises for damaged files."""


def pack(entries: Mapping[str, bytes], level: int) -> bytes:
    """Pack entries into a zip file; `level` is the compression, from 0 (none) to 9."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(entries.items()):
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = 3  # Unix, on all systems
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=level)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, bytes]:
    """Unpack a file that `pack` made.

    Raises
    ------
    ArtifactError
        If the file is damaged, or unpacks to much more than its size.
    """
    room = max(MIN_ROOM, MAX_EXPANSION * len(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if any(info.compress_type not in METHODS for info in infos):
                raise zipfile.BadZipFile("a method that is never written")
            size = sum(info.file_size for info in infos)
            if size > room:
                raise ArtifactError(
                    f"expected at most {room:,} bytes when unpacked, got {size:,}; compile the "
                    "model again with compression level 0 if these are its weights"
                )
            return {info.filename: archive.read(info) for info in infos}
    except DAMAGE:
        raise ArtifactError(
            f"expected a whole file, got {len(data)} bytes that are cut off or damaged; {AGAIN}"
        ) from None
