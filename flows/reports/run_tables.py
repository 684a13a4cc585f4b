"""Results of a run: tables and sentences for people, JSON values for machines."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from ...compiler.graph import is_accelerated
from ...isa.settings import memory_text
from ...runtime.devices import GpuDevice
from ...runtime.profile import Profile
from ...runtime.remote import RemoteDevice
from ..cli.clock_options import DEFAULT_CLOCK_MHZ
from ..cli.console import idle_line
from ..cli.memory_options import program_sentence
from ..execution.run_samples import RunOutcome
from . import terminal as report
from .efficiency import efficiency_of
from .speed import Speed, speed_of


def show(
    outcome: RunOutcome,
    say: Callable[[str], None] = report.say,
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
) -> None:
    """Print the tables and sentences of a run."""
    profile, count = outcome.profile, outcome.samples.count
    plural = "s" * (count != 1)
    say(f"network        {outcome.module.name}: {report.host_sentence(profile)}")
    if outcome.device.has_accelerator:
        say(f"configuration  {report.configuration_sentence(outcome.module.configuration)}")
    gpu = outcome.device.gpu or outcome.device
    chip = f", {gpu.driver.device}" if isinstance(gpu, GpuDevice) else ""
    say(f"device         {outcome.device.name}{chip}")
    if isinstance(outcome.device, RemoteDevice):
        say(f"agent          {outcome.device.times}")
    if line := program_sentence(outcome.module, outcome.device.memory):
        say(f"memory         {line}")
    say(f"inputs         {count} sample{plural} of {outcome.samples.source}")
    say("")
    report.stdout().print(report.layer_table(profile))
    if free := sum(map(report.is_free, profile.layers)):
        say(report.free_sentence(free))
    say("")
    if not outcome.module.segments:
        able = any(map(is_accelerated, outcome.module.graph.nodes))
        if not able and outcome.device.has_accelerator:
            say(idle_line(outcome.module.report))
    elif profile.cycles is not None:
        say_cycles(profile, say)
        for row in outcome.module.report.get("host_products", ()):
            say(row["sentence"])
    if speed := outcome_speed(outcome, clock_mhz):
        say(speed.sentence())
    there = speed.accelerator_ms if speed else None
    if efficiency := efficiency_of(outcome.module, profile.macs, there):
        for line in efficiency.sentences():
            say(line)
    if outcome.benchmark:
        for line in outcome.benchmark.sentences(is_whole=not outcome.module.segments):
            say(line)
    elif any(layer.microseconds for layer in profile.layers):
        say("host times: one run, the first; later runs take less")
    lines = report.agreement_sentences(report.agreement(outcome.outputs, outcome.samples), count)
    if outcome.comparison is not None:
        lines += report.comparison_sentences(outcome.comparison, outcome.module)
    for line in lines:
        say(line)
    say(f"{count} sample{plural} in {outcome.seconds:.1f} s")


def outcome_speed(outcome: RunOutcome, clock_mhz: float) -> Speed | None:
    """Return the speed of a run; without an accelerator it is that of whole runs."""
    speed = speed_of(outcome.profile, clock_mhz)
    if speed and speed.accelerator_ms is None and outcome.benchmark:
        return replace(speed, host_ms=outcome.benchmark.median * 1e3)
    return speed


def say_cycles(profile: Profile, say: Callable[[str], None] = report.say) -> None:
    """Print the cycles of all layers, and how the cycles of a layer are counted."""
    kind = "exact" if profile.exact else "without the memory's random stalls"
    say(f"cycles per sample: {profile.cycles:,} ({kind})")
    say("per-layer cycles: how much later the run ends because of the layer")
    if profile.all_macs != profile.macs:
        say(f"use: share of the multiplier array, for the accelerator's {profile.macs:,} MACs")
    if any((layer.utilisation or 0) > 1 for layer in profile.layers):
        say("use above 100%: the layer overlaps with the one before it")


def to_json(outcome: RunOutcome, clock_mhz: float = DEFAULT_CLOCK_MHZ) -> dict[str, Any]:
    """Return a run as JSON values.

    In the totals, `macs` are the accelerator's multiplications; `all_macs` include the host's.
    """
    configuration = outcome.module.configuration
    profile, speed = outcome.profile.to_json(), outcome_speed(outcome, clock_mhz)
    there = speed.accelerator_ms if speed else None
    efficiency = efficiency_of(outcome.module, outcome.profile.macs, there)
    device = outcome.device
    remote = {"agent": asdict(device.times)} if isinstance(device, RemoteDevice) else {}
    result: dict[str, Any] = {
        "network": outcome.module.name,
        "configuration": {
            "name": configuration.name,
            "hash": f"{configuration.hash:#010x}",
            **configuration.parameters(),
        },
        "device": outcome.device.name,
        **remote,
        "memory": asdict(outcome.device.memory),
        "program_for": memory_text(outcome.module.memory),
        "samples": outcome.samples.count,
        "inputs": outcome.samples.source,
        "seconds": outcome.seconds,
        "benchmark": outcome.benchmark.to_json() if outcome.benchmark else None,
        "speed": None if speed is None else speed.to_json(),
        "efficiency": None if efficiency is None else efficiency.to_json(),
        **profile,
        "totals": {**profile["totals"], "all_macs": outcome.profile.all_macs},
        **report.agreement(outcome.outputs, outcome.samples),
    }
    if outcome.comparison is not None:
        result["comparison"] = {
            "equal": outcome.comparison.equal,
            "not_kept": outcome.comparison.not_kept,
            "on_chip": outcome.comparison.on_chip,
            "tallies": [asdict(tally) for tally in outcome.comparison.tallies],
        }
    return json.loads(json.dumps(result))
