"""Synthesis and placement of machines. Their figures replace estimates and are kept as records.

Both run in this process, one after the other, because a placement may take several GB. A result is
kept under the configuration, the device, the hash of the RTL, the versions of the tools and, for a
placement, its seed and target. The tools' own results are in the cache, see `synthesis.flow`.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...isa.configuration import Configuration
from ...sim.gate.mapping import map_design
from ..area.counts import BLOCKS, count_blocks
from ..synthesis.devices import FpgaDevice
from ..synthesis.flow import (
    core_rtlil,
    flow_hash,
    hash_of,
    require_capacity,
    synthesise,
    tool_versions,
)
from ..synthesis.netlist import TOP
from ..synthesis.place_and_route import place_design
from .evaluators import PLACEMENT, SYNTHESIS, kept_failures, version_of
from .records import Database, Record, RecordKey, configuration_digest, digest_of
from .time_limit import TIME_LIMIT_S, TimeLimitError, call_within, lateness

REPLACED = ("gates", "lut", "ff", "ram")
"""Figures that synthesis measures; `multipliers` stays the fewest that a machine can have."""

Show = Callable[[str], None]
"""Receives the name of each step of a tool."""


@dataclass(frozen=True, slots=True)
class Build:
    """The device and seeds with which a sweep measures the machines on its front.

    Parameters
    ----------
    device
        The chip.
    seeds
        Seeds of the placer; empty to synthesise only.
    time_limit_s
        Seconds for a synthesis, and for each placement.
    """

    device: FpgaDevice
    seeds: tuple[int, ...] = ()
    time_limit_s: float = TIME_LIMIT_S

    @property
    def counted(self) -> list[str]:
        """The resources that synthesis counts."""
        return [name for name in (*REPLACED, "multipliers") if name in self.device.family.resources]

    def to_json(self) -> dict[str, Any]:
        """Return the device, the tools and the seeds as JSON values."""
        return {
            "chip": self.device.name,
            "tools": tool_versions(self.device),
            "seeds": list(self.seeds),
        }


@dataclass(slots=True)
class DesignFigures:
    """Measured figures of a machine.

    Parameters
    ----------
    rtl
        Hash of the RTL.
    counts
        Resources that synthesis counted, `Build.counted`.
    expected
        The same by estimate (`gates`, `lut` and `ff`) and by arithmetic.
    clocks_mhz
        The clock by seed.
    failures
        Why there is no clock, by seed.
    error
        Why there are no counts, or no clock at all.
    """

    rtl: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    clocks_mhz: dict[int, float] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def clock_mhz(self) -> float | None:
        """The median clock; None before a placement."""
        return statistics.median(self.clocks_mhz.values()) if self.clocks_mhz else None

    @property
    def off(self) -> dict[str, float]:
        """The relative error of each expected resource; positive if too much was expected."""
        return {
            name: (self.expected[name] - count) / count
            for name, count in self.counts.items()
            if count
        }

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON values."""
        return {
            "rtl": self.rtl,
            "counts": dict(self.counts),
            "expected": dict(self.expected),
            "clock_mhz": self.clock_mhz,
            "clocks_mhz": {str(seed): clock for seed, clock in self.clocks_mhz.items()},
            "failures": {str(seed): text for seed, text in self.failures.items()},
        }


class DesignBuilder:
    """Synthesises and places machines, or finds the records of earlier runs.

    Parameters
    ----------
    build
        The device, the seeds and the time limit.
    database
        Keeps each result as soon as it is known.
    """

    def __init__(self, build: Build, database: Database) -> None:
        self.build, self.database = build, database

    def synthesise(
        self, configuration: Configuration, estimates: Mapping[str, Any], show: Show
    ) -> DesignFigures:
        """Count the resources of a machine.

        Parameters
        ----------
        estimates
            Figures of `evaluators.resources`.
        """
        device, counted = self.build.device, self.build.counted

        def count() -> dict[str, Any]:
            found = synthesise(
                configuration,
                device,
                place=False,
                advance=lambda text, done, total: show(text.rpartition(": ")[2]),
            )
            return {name: found.resources.get(name, 0) for name in counted}

        show("elaboration")
        rtl, record = self._kept(SYNTHESIS, configuration, count)
        expected = {name: estimates[name] for name in counted}
        technology, chip = device.family.technology, device.capacity.get("multipliers")
        if technology in BLOCKS:
            expected["multipliers"] = count_blocks(configuration, technology, chip).multipliers
        return DesignFigures(
            rtl,
            {name: record.figures[name] for name in counted} if record.error is None else {},
            expected,
            error=record.error,
        )

    def place(self, measured: DesignFigures, configuration: Configuration, show: Show) -> None:
        """Place and route a synthesised machine with every seed, and add its clocks."""
        device = self.build.device
        target_mhz = device.clock_mhz
        for seed in self.build.seeds:

            def place(seed: int = seed) -> dict[str, Any]:
                require_capacity(synthesise(configuration, device, place=False))
                mapped = map_design(core_rtlil(configuration, device), device.family.mapping, TOP)
                found = place_design(
                    mapped, device, seed, target_mhz, lambda step: show(f"seed {seed}, {step}")
                )
                return {"seed": seed, "target_mhz": target_mhz, "clock_mhz": found.clock_mhz}

            show(f"seed {seed}")
            _, record = self._kept(
                PLACEMENT, configuration, place, f"{target_mhz:g} MHz, seed {seed}"
            )
            if record.error is None:
                measured.clocks_mhz[seed] = record.figures["clock_mhz"]
            else:
                measured.failures[seed] = record.error
        if not measured.clocks_mhz:
            measured.error = next(iter(measured.failures.values()))

    def _kept(
        self,
        rung: str,
        configuration: Configuration,
        evaluate: Callable[[], dict[str, Any]],
        about: str = "",
    ) -> tuple[str, Record]:
        """Return the hash of the RTL, and the record in the database or a new one.

        Parameters
        ----------
        about
            All that the result depends on, besides the machine, the device and the tools.
        """
        device = self.build.device
        rtl = hash_of(core_rtlil(configuration, device))
        tools = ", ".join(f"{name} {number}" for name, number in tool_versions(device).items())
        parts = [version_of(rung), flow_hash(device), device.name, rtl, tools, about]
        key = RecordKey(
            rung,
            digest_of(" / ".join(parts)),
            "",
            configuration_digest(configuration),
            "",
        )
        found = self.database.find([key]).get(key)
        if found is None:
            given = {"chip": device.name, "rtl": rtl, "tools": tools}
            found = self._limited(rung, lambda: Record(evaluate()))
            found = replace(found, figures={**found.figures, **given})
            self.database.add([(key, found)])
        return rtl, found

    def _limited(self, rung: str, evaluate: Callable[[], Record]) -> Record:
        limit_s = self.build.time_limit_s
        try:
            (record,) = call_within(limit_s, lambda: kept_failures(lambda: [evaluate()], 1))
        except TimeLimitError:
            return Record(error=lateness(rung, limit_s))
        return record
