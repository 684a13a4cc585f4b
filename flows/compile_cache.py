"""Compiled networks, kept: the same model for the same machine is compiled once.

A kept module is an artifact in the cache folder, named after everything that it follows from: the
model's bytes, the configuration, what was asked for, and the compiler's own source. Whatever is
wrong with a kept file, the model is compiled again.
"""

import contextlib
import hashlib
import os
import time
from dataclasses import astuple
from functools import cache
from pathlib import Path

from ..compiler.module import Module
from ..compiler.options import Options
from ..errors import TilewrightError
from ..isa.configuration import Configuration
from ..runtime.artifact import SUFFIX, load, save
from ..sim.toolchain import cache_folder, kept_folder

ROOT = Path(__file__).parents[1]
KIND = "networks"
"""The folder inside the cache."""
SOURCES = ("compiler", "isa", "runtime", "sim/timing")
"""Folders whose code a compiled module follows from; the timing model chooses its schedules."""
DAYS_KEPT = 30
"""A module that nobody asked for so long is removed."""
SECONDS_A_DAY = 24 * 60 * 60


class CompileCache:
    """Where the modules of one model lie.

    Parameters
    ----------
    model
        The ONNX file.
    """

    def __init__(
        self, model: Path, configuration: Configuration, options: Options, *, keep_all: bool
    ) -> None:
        digest = hashlib.sha256(model.read_bytes())
        asked = (configuration.name, configuration.parameters(), astuple(options), keep_all)
        digest.update(repr((model.stem, asked, _source_digest())).encode())
        self.configuration = configuration
        self.path = cache_folder() / KIND / f"{digest.hexdigest()[:32]}{SUFFIX}"

    def load(self) -> Module | None:
        """The kept module; None where there is none that can be read."""
        try:
            module = load(self.path, self.configuration, trusted=True)
            os.utime(self.path)
        except (TilewrightError, OSError):
            return None
        return module

    def save(self, module: Module) -> None:
        """Keep a module, and forget those that nobody asks for any more."""
        with contextlib.suppress(TilewrightError, OSError):
            folder = kept_folder(KIND, "keeping compiled networks")
            save(module, self.path, level=0)
            oldest = time.time() - DAYS_KEPT * SECONDS_A_DAY
            for other in folder.glob(f"*{SUFFIX}"):
                if other.stat().st_mtime < oldest:
                    other.unlink()


@cache
def _source_digest() -> str:
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)} ".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
