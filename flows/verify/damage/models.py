"""Feed damaged model files to the whole tool, which must give a clear error or a right result.

`python -m tilewright.flows.verify.damage --models 10000 --operators MODEL.onnx ...` damages the
given files, random ones of its own and ONNX's operator tests, and imports, compiles and runs each
of them in a process with a limit on time and memory. A file fails if the process dies, hangs,
raises an exception other than our errors, or computes values that differ from the definition. The
report gives the seed that reproduces it.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ....compiler.frontend import import_model
from ....compiler.options import Options
from ....compiler.pipeline import compile_module
from ....errors import TilewrightError, UsageError
from ....isa.configuration import PRESETS
from ..fuzz.fuzz_runs import FuzzRunner
from ..fuzz.random_models import random_model
from .campaign import Files, Operators, run_command
from .file_damage import damaged
from .workers import Trial

MACHINE = "4x4"

OPTIONS = Options(most_instructions=1 << 16)
"""Longer programs are refused, because they exceed the time limit on a busy machine."""


def try_model(model: bytes, seed: int, runner: FuzzRunner) -> tuple[str, str]:
    """Import, compile and run a file; return the kind of result and its message."""
    step = "importing"
    try:
        graph = import_model(model)
        step = "compiling"
        module = compile_module(graph, PRESETS[MACHINE], options=OPTIONS)
        step = "running"
        outcome = runner.compare(module, seed, "sim")
    except TilewrightError as refusal:
        return "refused", str(refusal)
    except Exception as problem:
        return "failed", f"{step} raises {type(problem).__name__}: {problem}"
    return outcome.kind, outcome.text


@contextmanager
def model_trial() -> Iterator[Trial]:
    """A trial of model files; it keeps devices open."""
    with FuzzRunner() as runner:
        yield lambda model, seed: try_model(model, seed, runner)


def damaged_files(
    given: Sequence[tuple[str, bytes]], operators: Sequence[tuple[str, bytes]], seeds: range
) -> Iterator[tuple[int, str, bytes]]:
    """Damaged copies of random models, of operators and of the given files, in turn."""
    for seed in seeds:
        if operators and seed % 2:
            source, model = operators[seed // 2 % len(operators)]
        elif given and seed % 4:
            source, model = given[seed // 4 % len(given)]
        else:
            source, model = f"random {seed}", random_model(seed)
        yield seed, source, damaged(model, seed)


def _read(path: Path) -> tuple[str, bytes]:
    try:
        return str(path), path.read_bytes()
    except OSError as problem:
        raise UsageError(
            f"damaged models: cannot read `{path}`: {problem.strerror}; check the path"
        ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Try files, print the results, and return 1 if any failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.damage", description=__doc__
    )
    parser.add_argument("given", nargs="*", type=Path, metavar="MODEL", help="ONNX file to damage")

    def files(options: argparse.Namespace, operators: Operators) -> Files:
        return partial(damaged_files, [_read(path) for path in options.given], operators)

    return run_command(parser, arguments, "models", 1000, files, model_trial)
