"""`make verify`: one question has one answer, whichever command or function is asked.

A case is a random network, machine and main memory. `compile`, `run` (of the model and of the
artifact), `report`, `report --pair`, `sweep`, `what-if`, `ablation` and the API must all give
the same cycles, and with `--program-for` the cycles of that other program. Each of them compiles
with an empty cache of its own. No program for a narrower memory port is faster on a machine than
the program that was compiled for it, whatever was compiled before, and no program is slower behind
a wider port, the arbiter's decisions apart.
"""

import argparse
import io
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ...compiler.frontend import import_model
from ...compiler.module import Module
from ...compiler.placement import STRICT_PLACEMENT
from ...compiler.scheduling.kernel_programs import ProgramStore
from ...errors import CompileError, ConfigurationError, TilewrightError, UsageError
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import load_configuration, memory_text
from ...sim.cache import kept_folder
from ...sim.timing import time_program
from ..cli.main import guarded
from ..cli.main import main as tilewright
from ..cli.memory_options import memory_options
from ..execution.compile_graph import compile_graph
from .grant_order import cycles_in_order_of
from .network_cases import NetworkCase, random_case

CASES = 1000
CHUNK = 25
"""Cases between two lines of progress of a process."""

CACHE = "TILEWRIGHT_CACHE"
SHARED = ("native", "host")
"""Folders of the cache that hold no networks."""

PORT_BITS = (32, 64, 128, 256)


class AgreementError(TilewrightError):
    """Two ways to ask one question gave two answers."""


def check(case: NetworkCase) -> bool:
    """Ask every way, and return whether the machine runs any layer of the network.

    Raises
    ------
    AgreementError
        If two answers differ; the message names the ways and the case.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-agreement-") as folder:
        found = answers(case, Path(folder))
    for question, answered in found.items():
        if len(set(answered.values())) > 1:
            raise AgreementError(
                f"{case}, {question}: expected one number of cycles, got {answered}"
            )
    return bool(found)


def check_ports(case: NetworkCase) -> list[int]:
    """Compile for all widths of the memory port, and return the cycles, narrowest first.

    Raises
    ------
    AgreementError
        If a program for a narrower port is faster on a machine than its own, if a program depends
        on those that were compiled before, or if a program is slower behind a wider port that
        serves the same bursts in the same order.
    """
    base = load_configuration(case.machine)
    compiled = partial(
        compile_graph, import_model(case.model()),
        memory=case.memory, placement=STRICT_PLACEMENT, cache=False,
    )  # fmt: skip
    found: list[tuple[Module, Configuration, int]] = []
    store = ProgramStore()
    for bits in PORT_BITS:
        with suppress(ConfigurationError, CompileError):
            machine = base.replace(bus_bits=bits)
            module = compiled(configuration=machine)
            own = _cycles(module, machine, case.memory)
            later = _cycles(compiled(configuration=machine, store=store), machine, case.memory)
            if later != own:
                raise AgreementError(
                    f"{case}: expected {own} cycles with {bits} bits after other machines too, got "
                    f"{later}"
                )
            others = [_cycles(other, machine, case.memory) for other, _, _ in found]
            if own > min(others, default=own):
                raise AgreementError(
                    f"{case}: expected no more cycles than of other programs, got {own} with "
                    f"{bits} bits; programs for narrower memory ports take {others} there"
                )
            found.append((module, machine, own))
    if case.memory.bus is None:
        for module, machine, _ in found:
            _check_wider(case, module, machine)
    return [cycles for _, _, cycles in found]


def _check_wider(case: NetworkCase, module: Module, machine: Configuration) -> None:
    """Time programs behind wider ports whose bursts have as many bytes."""
    for bits in (each for each in PORT_BITS if each > machine.bus_bits):
        beats = machine.burst_bytes * 8 // bits
        with suppress(ConfigurationError):
            wider = machine.replace(bus_bits=bits, burst_beats=beats)
            for segment in module.segments:
                narrow = time_program(segment.program, machine, case.memory)
                cycles = cycles_in_order_of(narrow, wider)
                if cycles > narrow.cycles:
                    raise AgreementError(
                        f"{case}: expected at most the {narrow.cycles} cycles of "
                        f"{machine.bus_bits} bits with {bits} bits and the same order of bursts, "
                        f"got {cycles}"
                    )


def _cycles(module: Module, machine: Configuration, memory: MemoryModel) -> int:
    return sum(time_program(one.program, machine, memory).cycles for one in module.segments)


def answers(case: NetworkCase, folder: Path) -> dict[str, dict[str, int]]:
    """Return the cycles that each way gives, by question; nothing if no layer fits the machine."""
    model = folder / "network.onnx"
    model.write_bytes(case.model())
    artifact, database, page = folder / "network.tw", folder / "records.db", folder / "page.html"
    here = [model, "--config", case.machine]
    memory = memory_options(case.memory).split()
    compiled = _json(folder, "compile", *here, *memory, "-o", artifact)
    if not compiled.get("cycles") or "unfit" in json.dumps(compiled["placement"]):
        return {}
    other = ["--program-for", memory_text(case.other)]
    side = f"{case.machine},{memory_text(case.memory)}"
    vary = _vary(case.memory)
    own = {
        "compile": compiled["cycles"],
        "run": _run(folder, *here, *memory),
        "run of the artifact": _run(folder, artifact),
        "report": _report(folder, page, *here, *memory),
        "report of the artifact": _report(folder, page, artifact),
        "sweep": _sweep(folder, database, *here, *vary),
        "what-if": _what_if(folder, artifact)["base"]["cycles"],
        "API": _api(folder, case, case.memory),
    }
    a, b = _json(folder, "report", model, "--pair", side, side, "-o", page)["sides"]
    own |= {"report, side A": a["figures"]["cycles"], "report, side B": b["figures"]["cycles"]}
    if case.seed % 8 == 0:  # it compiles many variants
        own["ablation"] = _json(folder, "ablation", *here, *memory)["variants"][0]["cycles"]
    with_other = {
        "run": _run(folder, *here, *memory, *other),
        "report": _report(folder, page, *here, *memory, *other),
        "sweep": _sweep(folder, database, *here, *vary, *other),
        "API": _api(folder, case, case.other),
    }
    if case.memory.bus is None and case.other.bus is None:
        with_other["what-if"] = _retimed(folder, case.memory, *here, *other)
    return {"the program for this memory": own, "the program for another": with_other}


def _vary(memory: MemoryModel) -> list[str]:
    """Return the options with which a sweep has this memory only."""
    return [word for part in memory_text(memory).split(",") for word in ("--vary", part)]


def _run(folder: Path, *words: object) -> int:
    return _json(folder, "run", *words)["totals"]["cycles"]


def _report(folder: Path, page: Path, *words: object) -> int:
    return _json(folder, "report", *words, "-o", page)["summary"]["cycles"]


def _sweep(folder: Path, database: Path, *words: object) -> int:
    said = _json(folder, "sweep", *words, "--workers", 0, "--database", database)
    (point,) = said["points"]
    return point["cycles"]["network"]


def _what_if(folder: Path, *words: object) -> dict[str, Any]:
    return _json(folder, "what-if", *words)


def _retimed(folder: Path, memory: MemoryModel, *words: object) -> int:
    latency, bandwidth, outstanding = memory_text(memory).split(",")
    options = [f"--{each}" for each in (latency, bandwidth, outstanding)]
    (row,) = _what_if(folder, *words, *options)["rows"]
    return row["cycles"]


def _api(folder: Path, case: NetworkCase, made_for: MemoryModel) -> int:
    """Return the cycles of a run through the public API."""
    from ... import Session, open_device
    from ..execution.samples import random_samples

    configuration = load_configuration(case.machine)
    graph = import_model(folder / "network.onnx")
    module = compile_graph(graph, configuration, memory=made_for, cache=False)
    with open_device("sim", configuration, case.memory) as device:
        sample = next(iter(random_samples(graph, 1, 0)))
        return sum(result.cycles or 0 for result in Session(module, device).run(sample).results)


def _json(folder: Path, command: str, *words: object) -> dict[str, Any]:
    """Run a command line with an empty cache, and return what `--json` prints."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory(dir=folder) as cache,
        _cache(cache),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
    ):
        code = tilewright([command, *map(str, words), "--json"])
    if code:
        line = " ".join([command, *map(str, words)])
        raise AgreementError(f"`tilewright {line}`: {stderr.getvalue().strip()}")
    return json.loads(stdout.getvalue())


@contextmanager
def _cache(folder: str) -> Iterator[None]:
    """Keep networks in another folder, but share compiled simulators and the host's figures."""
    for name in SHARED:
        Path(folder, name).symlink_to(kept_folder(name).resolve())
    before = os.environ.get(CACHE)
    os.environ[CACHE] = folder
    try:
        yield
    finally:
        del os.environ[CACHE]
        if before is not None:
            os.environ[CACHE] = before


def agree(seeds: range) -> int:
    """Check cases, and return how many have layers for the accelerator; the ports of every fourth.

    Raises
    ------
    AgreementError
        At the first difference.
    """
    compared = 0
    for case in map(random_case, seeds):
        if check(case):
            compared += 1
            if case.seed % 4 == 0:
                check_ports(case)
    return compared


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.flows.verify.agreement", description=__doc__
    )
    parser.add_argument("--cases", type=int, default=CASES, help=f"(default: {CASES})")
    parser.add_argument("--seed", type=int, default=0, help="of the first case (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args(arguments)

    def call() -> None:
        if options.cases < 1 or options.jobs < 1:
            raise UsageError("`--cases` and `--jobs`: expected at least 1; correct them")
        seeds = range(options.seed, options.seed + options.cases)
        chunks = [seeds[first : first + CHUNK] for first in range(0, len(seeds), CHUNK)]
        done = compared = 0
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
            for chunk, found in zip(chunks, pool.map(agree, chunks), strict=True):
                done, compared = done + len(chunk), compared + found
                print(
                    f"agreement: {done:,} cases, {compared:,} with layers for the accelerator: "
                    "every way gives the same cycles",
                    flush=True,
                )

    return guarded(call)


if __name__ == "__main__":
    sys.exit(main())
