"""The artifact: a compiled module as one file, loadable without the model.

A zip file of `manifest.json` (what there is, with a SHA-256 of every other entry), the encoded
programs, the constants, the graph as text with its arrays as `.npy`, and machine code of the host's
kernels; nothing is pickled. Equal modules give equal bytes. What a file says is proved again when
it is loaded: the graph is verified and the checker walks every program. Machine code cannot be
proved: it runs where it was made for this processor by this release, and like any executable only
from a source that is trusted (`load(code=False)` leaves it out and compiles it anew).
"""

import hashlib
import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..compiler.graph import Graph, parse_graph, print_graph, verify
from ..compiler.module import Module
from ..errors import ArtifactError, TilewrightError
from ..isa.checker import check
from ..isa.configuration import CONTRACT_VERSION, Configuration
from ..isa.encoding import decode_program, encode_program
from .manifest import describe_segment, module_of, read_segment, take

FORMAT = "tilewright artifact"
FORMAT_VERSION = 4
"""Counts incompatible changes of the file."""

SUFFIX = ".tw"
MANIFEST = "manifest.json"
GRAPH = "graph.txt"
CODE = "code/"
"""Folder of the host kernels' machine code, by their keys."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Every entry's time: the earliest that a zip file can say."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ZIP_MAGIC = b"PK\x03\x04"
AGAIN = "copy it again, or compile the model again"
DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, KeyError,
    OverflowError, RuntimeError,
)  # fmt: skip
"""What `zipfile` raises over files that are not as they were written."""


def save(module: Module, path: str | os.PathLike[str], *, level: int = 6) -> None:
    """Write a module; an older file of that name stays whole until the new one is.

    Parameters
    ----------
    module
        As `compile_graph` gives it; its report (times, for instance) is left out.
    path
        The file.
    level
        How hard to compress, 0 (not at all) to 9.

    Raises
    ------
    ArtifactError
        When the file cannot be written.
    """
    path = Path(path)
    entries = {GRAPH: print_graph(module.graph).encode()}
    for index, constant in enumerate(module.graph.constants):
        entries[_array_entry(index)] = _to_npy(constant.data)
    for index, segment in enumerate(module.segments):
        entries[_entry(index, "program")] = encode_program(segment.program, module.configuration)
        entries[_entry(index, "constants")] = segment.constants
    for key, code in module.code.items():
        entries[f"{CODE}{key}.bin"] = code
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "contract": CONTRACT_VERSION,
        "name": module.name,
        "configuration": {"name": module.configuration.name, **module.configuration.parameters()},
        "hash": f"{module.configuration.hash:#010x}",
        "steps": list(module.steps),
        "segments": [describe_segment(segment) for segment in module.segments],
        "constants": [constant.name for constant in module.graph.constants],
        "sha256": {name: _sha256(data) for name, data in sorted(entries.items())},
    }
    entries[MANIFEST] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    _write_atomically(path, _zip(entries, level))


def load(
    path: str | os.PathLike[str],
    configuration: Configuration | None = None,
    *,
    trusted: bool = False,
    code: bool = True,
) -> Module:
    """Read a module.

    Parameters
    ----------
    path
        The file.
    configuration
        The machine that it shall run on; the file's own if None.
    trusted
        Whether this very program wrote the file, so that undamaged bytes are enough and the
        checker need not walk the program again.
    code
        Whether to take the host kernels' machine code from the file; False compiles it anew, for a
        file from a source that is not trusted to bring executables.

    Raises
    ------
    ArtifactError
        When the file is unreadable, no artifact, damaged, of another version, or built for another
        configuration.
    """
    where = f"artifact `{path}`"
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise ArtifactError(
            f"{where}: expected a readable file, got `{problem.strerror}`; check the path"
        ) from None
    if not data.startswith(ZIP_MAGIC):
        raise ArtifactError(
            f"{where}: expected a file made by `tilewright compile`, got {len(data)} bytes of "
            "another kind; compile the model first"
        )
    try:
        module = _load(data, configuration, trusted)
    except TilewrightError as problem:
        raise ArtifactError(f"{where}: {problem}") from problem
    return module if code else replace(module, code={})


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file is meant as an artifact: by its first bytes, or else by its suffix."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC or Path(path).suffix == SUFFIX
    except OSError:
        return Path(path).suffix == SUFFIX


def _load(data: bytes, configuration: Configuration | None, trusted: bool) -> Module:
    entries = _unzip(data)
    manifest = _manifest(entries)
    built_for = _configuration(manifest)
    if configuration is not None and configuration.hash != built_for.hash:
        raise ArtifactError(
            f"expected a program for configuration `{configuration.name}`, got one for "
            f"`{built_for.name}`: {built_for.differences(configuration)}; compile the model "
            "again for this configuration, or run it on its own"
        )
    _check_digests(entries, take(manifest, "sha256", dict))
    try:
        graph = _graph(entries, take(manifest, "constants", list))
        segments = []
        for index, described in enumerate(take(manifest, "segments", list)):
            program = decode_program(entries[_entry(index, "program")], built_for)
            segment = read_segment(described, program, entries[_entry(index, "constants")])
            if not trusted:
                check(program, built_for, segment.data_bytes)
            segments.append(segment)
        code = {
            name.removeprefix(CODE).removesuffix(".bin"): entry
            for name, entry in entries.items()
            if name.startswith(CODE)
        }
        return replace(module_of(graph, built_for, manifest, segments), code=code)
    except KeyError as problem:
        raise ArtifactError(f"expected an entry {problem}, got none; {AGAIN}") from None


def _manifest(entries: Mapping[str, bytes]) -> dict:
    if MANIFEST not in entries:
        raise ArtifactError(
            f"expected a file made by `tilewright compile`, got a zip file without `{MANIFEST}`; "
            "compile the model first"
        )
    try:
        manifest = json.loads(entries[MANIFEST])
    except (ValueError, RecursionError):
        raise ArtifactError(f"entry `{MANIFEST}`: expected JSON, got other text; {AGAIN}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"entry `{MANIFEST}`: expected format `{FORMAT}`, got another one; compile the model "
            "first"
        )
    for key, name, expected in (
        ("version", "format", FORMAT_VERSION),
        ("contract", "contract", CONTRACT_VERSION),
    ):
        if manifest.get(key) != expected:
            raise ArtifactError(
                f"expected {name} version {expected}, got {manifest.get(key)}; compile the model "
                "again with this release of Tilewright"
            )
    return manifest


def _configuration(manifest: Mapping) -> Configuration:
    configuration = Configuration.from_dict(take(manifest, "configuration", dict), "manifest")
    stated = take(manifest, "hash", str)
    if stated != f"{configuration.hash:#010x}":
        raise ArtifactError(
            f"manifest: expected configuration hash `{configuration.hash:#010x}`, got `{stated}`; "
            f"{AGAIN}"
        )
    return configuration


def _check_digests(entries: Mapping[str, bytes], digests: Mapping[str, object]) -> None:
    for name in sorted({*entries, *digests} - {MANIFEST}):
        expected = digests.get(name, "none")
        got = _sha256(entries[name]) if name in entries else "none"
        if expected != got:
            raise ArtifactError(
                f"entry `{name}`: expected SHA-256 `{str(expected)[:12]}`, got `{got[:12]}`; the "
                f"file is damaged: {AGAIN}"
            )


def _graph(entries: Mapping[str, bytes], names: list) -> Graph:
    arrays = {}
    for index, name in enumerate(names):
        try:
            arrays[name] = np.load(io.BytesIO(entries[_array_entry(index)]), allow_pickle=False)
        except (ValueError, EOFError, TypeError) as problem:
            raise ArtifactError(
                f"entry `{_array_entry(index)}`: expected an array, got `{problem}`; {AGAIN}"
            ) from None
    return verify(parse_graph(entries[GRAPH].decode(errors="replace"), arrays), "artifact")


def _entry(segment: int, kind: str) -> str:
    return f"segments/{segment}/{kind}.bin"


def _array_entry(index: int) -> str:
    return f"graph/{index:04}.npy"


def _to_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _zip(entries: Mapping[str, bytes], level: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(entries.items()):
            info = zipfile.ZipInfo(name, EPOCH)
            info.create_system = 3  # the same everywhere: Unix
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=level)
    return buffer.getvalue()


def _unzip(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if any(info.compress_type not in METHODS for info in infos):
                raise zipfile.BadZipFile("a method that is never written")
            return {info.filename: archive.read(info) for info in infos}
    except DAMAGE:
        raise ArtifactError(
            f"expected a whole file, got {len(data)} bytes that are cut off or damaged; {AGAIN}"
        ) from None


def _write_atomically(path: Path, data: bytes) -> None:
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as problem:
        raise ArtifactError(
            f"artifact `{path}`: cannot be written, got `{problem.strerror}`; choose another path"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
