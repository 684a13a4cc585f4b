"""`make verify`: one question has one answer, whichever command or function is asked.

A case is a random network, machine and main memory. `compile`, `run` (of the model and of the
artifact), `report`, `report --compare`, `sweep`, `what-if`, `ablation` and the API must all give
the same cycles, and with `--program-for` the cycles of that other program. Each of them compiles
with an empty cache of its own. And no program for a narrower memory port is faster on a machine
than the program that was compiled for it.
"""

import argparse
import io
import json
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...compiler.frontend import import_model
from ...compiler.module import Module
from ...compiler.placement import STRICT_PLACEMENT
from ...errors import CompileError, ConfigurationError, TilewrightError, UsageError
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel, SharedBus
from ...isa.settings import load_configuration, memory_text
from ...sim.cache import kept_folder
from ...sim.timing import time_program
from ..cli.main import guarded
from ..cli.main import main as tilewright
from ..cli.memory_options import memory_options
from ..execution.compile_graph import compile_graph
from .fuzz.random_models import random_model

CASES = 1000
CHUNK = 25
"""Cases between two lines of progress of a process."""
MAX_STEPS = 2
"""Operators of a network."""

CACHE = "TILEWRIGHT_CACHE"
SHARED = ("native", "host")
"""Folders of the cache that hold no networks."""

PORT_BITS = (32, 64, 128, 256)
MAX_ANOMALY = 0.01
"""Share that a wider port may lose. Bursts that come earlier can make the arbiter serve another
unit first, so that the same program ends some cycles later."""

MACHINES = ("4x4", "8x8", "8x16", "16x8", "16x16", "ecp5-25", "gowin20")
CHANGES = (
    "bus_bits=32", "bus_bits=128", "bus_bits=256", "act_depth=512", "acc_depth=256",
    "queue_depth=2", "queue_depth=16", "outstanding_bursts=4", "burst_beats=8", "depthwise_taps=0",
)  # fmt: skip
LATENCIES = (3, 16, 64, 150, 400, 1000)
BANDWIDTHS = ((1, 1), (1, 1), (3, 4), (1, 2), (1, 5))
BUSES = (SharedBus.of_cycles(6, 7, 7, 781), SharedBus.of_cycles(0, 2, 9, 300))


class AgreementError(TilewrightError):
    """Two ways to ask one question gave two answers."""


@dataclass(frozen=True, slots=True)
class NetworkCase:
    """A network on a machine with a main memory.

    Parameters
    ----------
    machine
        In the syntax of `--config`.
    other
        Another memory that a program may be made for.
    """

    seed: int
    machine: str
    memory: MemoryModel
    other: MemoryModel


def random_case(seed: int) -> NetworkCase:
    """The case of a seed."""
    chance = random.Random(seed)
    while True:
        machine = ",".join([chance.choice(MACHINES), *chance.sample(CHANGES, chance.randint(0, 2))])
        with suppress(ConfigurationError):
            load_configuration(machine)
            return NetworkCase(seed, machine, _random_memory(chance), _random_memory(chance))


def _random_memory(chance: random.Random) -> MemoryModel:
    beats, cycles = chance.choice(BANDWIDTHS)
    memory = MemoryModel(
        latency_cycles=chance.choice(LATENCIES),
        beats=beats,
        cycles=cycles,
        outstanding_bursts=chance.choice((1, 4, 64, 64)),
    )
    if beats == 1 and chance.random() < 0.25:
        return replace(memory, bus=chance.choice(BUSES))
    return memory


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
        If a program for a narrower port is faster on a machine than its own, or if a wider port
        loses more than `MAX_ANOMALY` to a narrower one.
    """
    base = load_configuration(case.machine)
    graph = import_model(random_model(case.seed, MAX_STEPS))
    found: list[tuple[Module, int]] = []
    for bits in PORT_BITS:
        with suppress(ConfigurationError, CompileError):
            machine = base.replace(bus_bits=bits)
            module = compile_graph(
                graph, machine, memory=case.memory, placement=STRICT_PLACEMENT, cache=False
            )
            own = _cycles(module, machine, case.memory)
            others = [_cycles(other, machine, case.memory) for other, _ in found]
            least = min((cycles for _, cycles in found), default=own)
            if own > min([*others, least * (1 + MAX_ANOMALY)], default=own):
                raise AgreementError(
                    f"{case}: expected no more cycles with a wider memory port, got {own} for "
                    f"{bits} bits; programs for narrower ones take {others} there, and "
                    f"{[cycles for _, cycles in found]} on their own"
                )
            found.append((module, own))
    return [cycles for _, cycles in found]


def _cycles(module: Module, machine: Configuration, memory: MemoryModel) -> int:
    return sum(time_program(one.program, machine, memory).cycles for one in module.segments)


def answers(case: NetworkCase, folder: Path) -> dict[str, dict[str, int]]:
    """Return the cycles that each way gives, by question; nothing if no layer fits the machine."""
    model = folder / "network.onnx"
    model.write_bytes(random_model(case.seed, MAX_STEPS))
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
    a, b = _json(folder, "report", model, "--compare", side, side, "-o", page)["sides"]
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
