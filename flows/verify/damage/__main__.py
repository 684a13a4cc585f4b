"""Feed damaged model files to the whole tool: a clear error or a correct result, nothing else.

`python -m tilewright.flows.verify.damage --models 10000 --operators MODEL.onnx ...` damages the
given files, random ones of its own and ONNX's operator tests, and imports, compiles and runs each
of them in a process with a limit on time and memory. A file fails if the process dies, hangs,
raises an exception other than our errors, or computes values that differ from the definition. The
report gives the seed that reproduces it.
"""

import argparse
import multiprocessing
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from onnx.backend.test.loader import load_model_tests

from ....compiler.compile import compile_graph
from ....compiler.frontend import import_model
from ....compiler.options import Options
from ....errors import TilewrightError, UsageError
from ....isa.configuration import PRESETS
from ...cli.json_output import write_json
from ...cli.main import guarded
from ..fuzz.fuzz_runs import FuzzRunner
from ..fuzz.random_models import random_model
from .file_damage import damaged

MACHINE = "4x4"
LIMIT_S = 60.0
LIMIT_BYTES = 4 << 30
WORKERS = 2

OPTIONS = Options(most_instructions=1 << 16)
"""Longer programs are refused, because they exceed the time limit on a busy machine."""


@dataclass(frozen=True, slots=True)
class FileResult:
    """Result for one file: `equal`, `refused` or the kind of failure, with its message."""

    seed: int
    source: str
    kind: str
    text: str = ""


@dataclass(slots=True)
class Count:
    """Totals of a run."""

    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[FileResult] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, result: FileResult) -> None:
        """Count a file."""
        self.kinds[result.kind] += 1
        if result.kind not in ("equal", "refused"):
            self.failures.append(result)


def try_model(model: bytes, seed: int, runner: FuzzRunner) -> tuple[str, str]:
    """Import, compile and run a file; return the kind of result and its message."""
    step = "importing"
    try:
        graph = import_model(model)
        step = "compiling"
        module = compile_graph(graph, PRESETS[MACHINE], options=OPTIONS)
        step = "running"
        outcome = runner.compare(module, seed, "sim")
    except TilewrightError as refusal:
        return "refused", str(refusal)
    except Exception as problem:
        return "failed", f"{step} raises {type(problem).__name__}: {problem}"
    return outcome.kind, outcome.text


def _work(pipe: Connection, limit_bytes: int) -> None:
    """Try files that come through a pipe until it closes."""
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    with FuzzRunner() as runner:
        try:
            while True:
                seed, model = pipe.recv()
                pipe.send(try_model(model, seed, runner))
        except EOFError:
            return


class Worker:
    """A separate process that may die or hang without harm.

    Parameters
    ----------
    limit_s, limit_bytes
        Time limit per file, and memory limit of the process.
    """

    def __init__(self, limit_s: float = LIMIT_S, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_s, self.limit_bytes = limit_s, limit_bytes
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.limit_bytes), daemon=True)
        self.process.start()
        theirs.close()
        self.deadline = float("inf")

    def send(self, seed: int, model: bytes) -> None:
        """Begin with a file."""
        self.deadline = time.monotonic() + self.limit_s
        self.pipe.send((seed, model))

    def answer(self, wait_s: float = 0.05) -> tuple[str, str] | None:
        """Result of the file; None while the process works on it."""
        try:
            if self.pipe.poll(wait_s):
                return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            self.pipe.close()
            self._start()
            return "crashed", f"the process ended with code {code}"
        if time.monotonic() > self.deadline:
            self.stop()
            self._start()
            return "hung", f"no result after {self.limit_s:.0f} s"
        return None

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def try_models(
    files: Iterator[tuple[int, str, bytes]],
    workers: Sequence[Worker],
    told: Callable[[Count], None] = lambda count: None,
) -> Count:
    """Try files until there are no more.

    Parameters
    ----------
    files
        Seed, source and bytes of each.
    workers
        Processes that share the files; the caller stops them.
    told
        Called after each file.
    """
    count, started = Count(), time.monotonic()
    busy: dict[int, tuple[int, str]] = {}
    while True:
        for index, worker in enumerate(workers):
            if index not in busy and (following := next(files, None)) is not None:
                seed, source, model = following
                busy[index] = seed, source
                worker.send(seed, model)
        if not busy:
            return count
        for index in list(busy):
            answer = workers[index].answer()
            if answer is not None:
                count.add(FileResult(*busy.pop(index), *answer))
                count.seconds = time.monotonic() - started
                told(count)


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


def operator_models() -> list[tuple[str, bytes]]:
    """The models of ONNX's own operator tests, without those of 100 kB and more."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        cases = load_model_tests(kind="node")
    models = [(case.name, case.model.SerializeToString()) for case in cases if case.model]
    return [(name, model) for name, model in models if len(model) < 100_000]


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
    parser.add_argument("files", nargs="*", type=Path, metavar="MODEL", help="ONNX files to damage")
    parser.add_argument("--models", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first (default: 1)")
    parser.add_argument(
        "--workers", type=int, default=WORKERS, help=f"processes (default: {WORKERS})"
    )
    parser.add_argument("--operators", action="store_true", help="damage ONNX's operator tests too")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="figures as JSON")
    options = parser.parse_args(arguments)
    failed = False

    def call() -> None:
        nonlocal failed
        if options.workers < 1:
            raise UsageError(f"`--workers {options.workers}`: expected at least 1; correct it")
        seeds = range(options.seed, options.seed + options.models)
        operators = operator_models() if options.operators else []
        files = damaged_files([_read(path) for path in options.files], operators, seeds)
        workers = [Worker() for _ in range(options.workers)]
        try:
            count = try_models(files, workers, _tell)
        finally:
            for worker in workers:
                worker.stop()
        failed = bool(count.failures)
        if options.json:
            failures = [asdict(result) for result in count.failures]
            figures = {"kinds": dict(count.kinds), "failures": failures}
            write_json(options.json, {**figures, "seconds": count.seconds})
        if options.json != "-":
            print(report(count))

    code = guarded(call)
    return code or int(failed)


def report(count: Count) -> str:
    """Summary for people."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(count.kinds.items()))
    lines = [f"damaged models: {count.kinds.total()} in {count.seconds:.0f} s: {kinds}"]
    lines += [
        f"  {result.kind}: seed {result.seed}, {result.source}: {result.text[:300]}"
        for result in count.failures
    ]
    return "\n".join(lines)


def _tell(count: Count) -> None:
    tried = count.kinds.total()
    if tried % 500 == 0:
        print(
            f"damaged models: {tried}, {len(count.failures)} failed, {count.seconds:.0f} s",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
