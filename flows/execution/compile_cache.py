"""The cache of compiled networks: the same model for the same machine is compiled once.

A kept module is an artifact in the cache folder. Its name is a hash of everything that determines
it: the model's bytes and those of tensors in other files (or the graph), the
configuration, the options, the main memory and the measure that schedules were chosen by, the level
that the user set for the host's kernels, the name of the key that signs their code, and the
compiler's own source.
Beside it lies its report, which an artifact leaves out, with this user's mark of name, artifact and
report. A kept file that is damaged, was renamed or comes from somebody else is not used: the model
is compiled again.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...atomic_write import write_atomically
from ...compiler.cpu_level import level_cap
from ...compiler.model_file import LOCATION_KEY, digest_external, read_model
from ...compiler.options import Options
from ...errors import TilewrightError
from ...file_access import read_json, read_part
from ...isa.configuration import Configuration
from ...isa.settings import memory_text
from ...signing import is_signed, key_name, sign
from ...sim.cache import cache_folder, kept_folder, remove_unused, saying_why_not

if TYPE_CHECKING:
    from ...compiler.module import Module
    from ...compiler.pipeline import CompileRequest

ROOT = Path(__file__).parents[2]
KIND = "networks"
SUFFIX, REPORT_SUFFIX = ".tw", ".json"
"""File suffixes of a module and its report."""
SOURCES = (
    *("compiler", "isa", "runtime", "sim/timing"),
    *("flows/cli/calibration_options.py", "flows/execution/quantise_model.py"),
    "flows/execution/compile_graph.py",
)
"""Code that determines a compiled module; the timing model chooses its schedules."""
MEASURE = "exact cycles"
"""The measure of every kept module: the compiled timing model and the one in Python agree."""
CODE = (".py", ".cpp", ".h")
"""Suffixes of code."""
MARK = "compiled network"
"""The purpose of the marks of this cache."""


class CompileCache:
    """The place in the cache of one module.

    Parameters
    ----------
    name : str
        The network's name.
    digest : hashlib._Hash
        SHA-256 of the network; the other inputs are added to it.
    configuration : Configuration or None
        None for an artifact's own.
    options : Options
        The options of the compiler.
    keep_all : bool
        Whether every layer's output can be read.
    more : tuple
        All else that determines the module. Equal values must print equally.
    """

    def __init__(
        self,
        name: str,
        digest: "hashlib._Hash",
        configuration: Configuration | None,
        options: Options,
        *,
        keep_all: bool,
        more: tuple[object, ...] = (),
    ) -> None:
        machine = configuration and (configuration.name, configuration.parameters())
        asked = (machine, astuple(options), MEASURE, keep_all, level_cap(), key_name(), more)
        digest.update(repr((name, asked, source_digest())).encode())
        self.configuration = configuration
        self.path = cache_folder() / KIND / f"{digest.hexdigest()[:32]}{SUFFIX}"

    @classmethod
    def of_model(
        cls,
        model: Path,
        configuration: Configuration | None,
        options: Options,
        *,
        keep_all: bool,
        more: tuple[object, ...] = (),
    ) -> "CompileCache":
        """Return the place for the module of an ONNX file, or of an artifact to compile again.

        Raises
        ------
        ImportModelError
            When the model cannot be read.
        """
        data = read_model(model)
        digest = hashlib.sha256(data)
        if LOCATION_KEY in data:  # otherwise no tensor can lie elsewhere, and ONNX is not imported
            digest.update(digest_external(data, model))
        return cls(model.stem, digest, configuration, options, keep_all=keep_all, more=more)

    @classmethod
    def of_request(cls, request: "CompileRequest") -> "CompileCache":
        """Return the place for the module of a request on this processor."""
        from ...compiler.graph import print_graph
        from ...compiler.host import host_target

        graph = request.graph
        digest = hashlib.sha256(print_graph(graph).encode())
        more = (
            "graph", repr(host_target()), memory_text(request.memory), request.placement,
            request.costs, *sorted(request.schedules.items()), *sorted(request.choices.items()),
        )  # fmt: skip
        return cls(
            graph.name, digest, request.configuration, request.options,
            keep_all=request.keep_all, more=more,
        )  # fmt: skip

    def load(self) -> "Module | None":
        """Return the kept module with its report; None if either is missing or damaged."""
        from ...runtime.artifact import load

        found = self.read()
        if found is None:
            return None
        data, report = found
        try:
            return replace(load(data, self.configuration, trusted=True), report=report)
        except TilewrightError:
            return None

    def read(self) -> tuple[bytes, dict[str, Any]] | None:
        """Return the kept artifact and its report; None if either is missing or damaged."""
        try:
            data = read_part(self.path)
            report = read_json(self.path.with_suffix(REPORT_SUFFIX))
            mark = report.pop("mark")
            if not is_signed(self._signed(data, report), str(mark), MARK):
                return None
            self._touch()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return data, report

    def save(self, module: "Module") -> None:
        """Keep a module; print a warning on stderr if that fails."""
        from ...runtime.artifact import artifact_bytes

        with saying_why_not():
            kept_folder(KIND, "keeping compiled networks")
            write_atomically(self.path, artifact_bytes(module))
            self._describe(module.report)

    def keep(self, artifact: Path, report: Mapping[str, object]) -> None:
        """Keep a module from a file, with its report; print a warning on stderr if that fails."""
        with saying_why_not():
            kept_folder(KIND, "keeping compiled networks")
            write_atomically(self.path, artifact.read_bytes())
            self._describe(report)

    def _describe(self, report: Mapping[str, object]) -> None:
        """Keep the report beside the artifact, and remove modules that nobody asks for any more."""
        mark = sign(self._signed(self.path.read_bytes(), report), MARK)
        text = json.dumps({**report, "mark": mark})
        write_atomically(self.path.with_suffix(REPORT_SUFFIX), text.encode())
        remove_unused(self.path.parent, SUFFIX, REPORT_SUFFIX)

    def _signed(self, data: bytes, report: Mapping[str, object]) -> bytes:
        """Return what the mark covers: the name, the artifact and the report."""
        text = json.dumps([self.path.stem, hashlib.sha256(data).hexdigest(), report])
        return text.encode()

    def _touch(self) -> None:
        """Update the time of last use of the module."""
        os.utime(self.path)
        with contextlib.suppress(OSError):
            os.utime(self.path.with_suffix(REPORT_SUFFIX))


@cache
def source_digest() -> str:
    """Return a hash of the code that determines a compiled module."""
    digest = hashlib.sha256()
    for source in SOURCES:
        for path in sorted([ROOT / source, *(ROOT / source).rglob("*")]):
            if path.suffix in CODE:
                digest.update(f"{path.relative_to(ROOT)} ".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
