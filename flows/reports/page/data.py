"""The page's content as JSON values; the page's script draws it."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from .... import __version__
from ....compiler.module import Module
from ....errors import ConfigurationError
from ....isa.configuration import Configuration
from ....isa.encoding import word_bytes
from ....isa.instructions import Unit
from ....isa.memory_model import MemoryModel
from ....isa.registers import counter_text, unit_counters
from ....isa.settings import memory_text
from ....sim.timing.stalls import WAIT_TEXT
from ...cli.clock_options import DEFAULT_CLOCK_MHZ
from ...execution.retiming import VARIABLE, retime, settings
from ...execution.timed import TimedSegment
from .. import terminal as report
from ..efficiency import efficiency_of
from .bins import activity_bins
from .causes import CAUSE_TEXT, CausedStep, by_cause, path_steps
from .layer_rows import LayerFacts, layer_facts, layer_row
from .network_graph import network_graph
from .sentences import sentence
from .unit_timeline import timeline

LATENCIES = 16, 64, 128, 200
BANDWIDTHS = (1, 4), (1, 2), (1, 1)
"""Values in the page's what-if table; the run's own values are added."""


def report_data(
    module: Module,
    segments: Sequence[TimedSegment],
    device: str,
    memory: MemoryModel,
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
) -> dict[str, Any]:
    """Return the page's data.

    Parameters
    ----------
    segments : sequence of TimedSegment
        The module's segments, timed with `memory`.
    device : str
        `sim`, or a device whose measurements the segments hold.
    """
    paths = [path_steps(segment) for segment in segments]
    facts = [
        fact
        for segment, path in zip(segments, paths, strict=True)
        for fact in layer_facts(module, segment, path)
    ]
    completions = _completions(segments, facts)
    return {
        "network": module.name,
        "version": __version__,
        "date": datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
        "clock_mhz": clock_mhz,
        "device": device,
        "measured": _measured(segments),
        "configuration": _configuration(module.configuration),
        "memory": asdict(memory),
        "program_for": memory_text(module.memory),
        "made_for_memory": module.memory == memory.with_stalls(0.0),
        "summary": _summary(module, segments, facts, clock_mhz),
        "causes": {str(cause): text for cause, text in CAUSE_TEXT.items()},
        "waits": {wait.name.lower(): text for wait, text in WAIT_TEXT.items()},
        "layers": [layer_row(module, fact, sentence(module, fact)) for fact in facts],
        "graph": network_graph(module),
        "roofline": _roofline(module.configuration, memory),
        "activity": activity_bins(segments),
        "completions": completions,
        "path": _path(paths),
        "counters": _counters(segments),
        "what_if": _what_if(module, memory),
        "timeline": timeline(segments, paths, completions),
    }


def _measured(segments: Sequence[TimedSegment]) -> dict[str, Any] | None:
    """Compare the hardware's cycles with the model's; None if the hardware did not run."""
    spans = [segment.spans for segment in segments if segment.spans is not None]
    if not spans:
        return None
    return {
        "instructions": sum(len(span) - 1 for span in spans),
        "equal": all(segment.agrees for segment in segments),
    }


def _configuration(configuration: Configuration) -> dict[str, Any]:
    return {
        "name": configuration.name,
        "hash": f"{configuration.hash:#010x}",
        "sentence": report.configuration_sentence(configuration),
        "parameters": configuration.parameters(),
    }


def _summary(
    module: Module,
    segments: Sequence[TimedSegment],
    facts: Sequence[LayerFacts],
    clock_mhz: float,
) -> dict[str, Any]:
    """Return the figures of the headline."""
    configuration = module.configuration
    cycles = sum(segment.timing.cycles for segment in segments)
    macs = sum(fact.layer.macs for fact in facts)
    peak = configuration.lanes_in * configuration.lanes_out
    instructions = sum(len(segment.program) for segment in segments)
    efficiency = efficiency_of(module, macs, cycles / clock_mhz / 1e3)
    return {
        "cycles": cycles,
        "accelerator_ms": cycles / clock_mhz / 1e3,
        "efficiency": None if efficiency is None else efficiency.to_json(),
        "macs": macs,
        "peak": peak,
        "of_peak": macs / (cycles * peak) if cycles else None,
        "read_bytes": sum(fact.read_bytes for fact in facts),
        "written_bytes": sum(fact.written_bytes for fact in facts),
        "program_bytes": instructions * word_bytes(configuration),
        "instructions": instructions,
        "segments": len(segments),
        "host_steps": sum(isinstance(step, str) for step in module.steps),
    }


def _roofline(configuration: Configuration, memory: MemoryModel) -> dict[str, float]:
    """Return the two roofs: MACs per cycle, and bytes per cycle on one channel of the bus."""
    return {
        "peak": configuration.lanes_in * configuration.lanes_out,
        "bytes_per_cycle": configuration.bus_bytes / memory.beat_cycles,
    }


def _completions(
    segments: Sequence[TimedSegment], facts: Sequence[LayerFacts]
) -> list[dict[str, Any]]:
    """Return the consecutive spans of each layer's added cycles on the time axis."""
    rows, offset = [], 0
    for segment in segments:
        begin = offset
        for fact in facts:
            if fact.segment is segment:
                rows.append({"name": fact.name, "begin": begin, "end": begin + fact.added_cycles})
                begin += fact.added_cycles
        offset += segment.timing.cycles
    return rows


def _path(paths: Sequence[Sequence[CausedStep]]) -> dict[str, Any]:
    """Return the critical path by cause, and by unit and activity."""
    steps = [step for path in paths for step in path]
    cells: Counter[tuple[str, str, str]] = Counter()
    for one in steps:
        unit = one.unit.name if one.unit is not None else "start"
        cells[unit, one.step.wait.name.lower(), str(one.cause)] += one.cycles
    return {
        "causes": {str(cause): cycles for cause, cycles in by_cause(steps).items()},
        "rows": [
            {"unit": unit, "does": does, "cause": cause, "cycles": cycles}
            for (unit, does, cause), cycles in cells.most_common()
        ],
        "steps": len(steps),
    }


def _counters(segments: Sequence[TimedSegment]) -> dict[str, Any]:
    """Return the hardware's performance counters, summed over segments."""
    total: Counter[str] = Counter()
    for segment in segments:
        total.update(segment.timing.counters)
    kept = segments[0].timing.configuration.counters if segments else "none"
    names = unit_counters(kept)
    return {
        "kept": kept,
        "fetched": total["FETCHED"],
        "names": list(names),
        "units": [
            {
                "unit": unit.name,
                "values": [total[f"{unit.name}_{name.upper()}"] for name in names],
                "texts": [counter_text(unit, name) for name in names],
            }
            for unit in Unit
        ],
    }


def _what_if(module: Module, memory: MemoryModel) -> dict[str, Any]:
    """Return cycles by latency and bandwidth, and for other machines that run the same program."""
    configuration = module.configuration
    latencies = sorted({*LATENCIES, memory.latency_cycles})
    bandwidths = sorted({*BANDWIDTHS, (memory.beats, memory.cycles)}, key=lambda b: b[0] / b[1])
    grid = settings(configuration, memory, {"latency": latencies, "bandwidth": bandwidths}, {})
    cycles = retime(module, grid)
    machines = [
        each
        for name, values in _machines(configuration).items()
        for each in settings(configuration, memory, {}, {name: values})
    ]
    return {
        "latencies": latencies,
        "bandwidths": [f"{beats}/{each}" for beats, each in bandwidths],
        "bus_bytes": configuration.bus_bytes,
        "grid": [
            cycles[row : row + len(bandwidths)] for row in range(0, len(cycles), len(bandwidths))
        ],
        "base": {
            "latency": memory.latency_cycles,
            "bandwidth": f"{memory.beats}/{memory.cycles}",
        },
        "machines": [
            {"name": name, "value": value, "cycles": total}
            for setting, total in zip(machines, retime(module, machines), strict=True)
            for name, value in setting.chosen.items()
        ],
    }


def _machines(configuration: Configuration) -> dict[str, list[int]]:
    """Half and twice each parameter that the program does not depend on, where there is such."""
    found: dict[str, list[int]] = {}
    for name in VARIABLE:
        now = getattr(configuration, name)
        for value in (now // 2, 2 * now):
            with contextlib.suppress(ConfigurationError):
                configuration.replace(**{name: value})
                found.setdefault(name, []).append(value)
    return found
