"""Speed of a run against what the machine costs: resources of an ECP5, and estimated energy."""

from dataclasses import dataclass
from typing import Any

from ...compiler.module import Module
from ..area.energy import Energy, energy_of
from ..area.provenance import outdated, outdated_sentences
from ..area.resources import Resources, smallest_device

PRICES = ("lut", "multipliers")
"""Resources by which the speed is divided."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Operations of a sample on the accelerator, and what they take.

    Parameters
    ----------
    macs
        Multiplications with additions, as the model defines them.
    accelerator_ms
        Time on the accelerator.
    resources
        Of the machine on the smallest ECP5 that has enough.
    energy
        Estimated energy.
    """

    macs: int
    accelerator_ms: float
    resources: Resources
    energy: Energy

    @property
    def gops(self) -> float:
        """Billions of operations per second; a multiplication and an addition are two."""
        return 2 * self.macs / self.accelerator_ms / 1e6

    @property
    def gops_per_watt(self) -> tuple[float, float]:
        """Billions of operations per joule, with the greatest and the least energy."""
        operations = 2e-9 * self.macs
        return operations / self.energy.greatest, operations / self.energy.least

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; `estimates` names those that are estimates."""
        used, energy = self.resources.used, self.energy
        return {
            "gops": self.gops,
            "chip": self.resources.device.name,
            "resources": dict(used),
            "gops_per_lut": self.gops / used["lut"],
            "gops_per_multiplier": self.gops / used["multipliers"],
            "energy_j": {
                "least": energy.least,
                "greatest": energy.greatest,
                "arithmetic": energy.arithmetic,
                "scratchpads": energy.scratchpads,
                "main_memory": [energy.least_memory, energy.greatest_memory],
            },
            "gops_per_watt": list(self.gops_per_watt),
            "outdated": outdated(PRICES),
            "estimates": ["resources.lut", "resources.ff", "gops_per_lut", "energy_j",
                          "gops_per_watt"],
        }  # fmt: skip

    def sentences(self) -> list[str]:
        """Return the figures in two lines, and what the first one counts if it is outdated."""
        used, energy = self.resources.used, self.energy
        least, greatest = self.gops_per_watt
        shares = ", ".join(
            f"{part / energy.middle:.0%} {name}"
            for name, part in (
                ("arithmetic", energy.arithmetic),
                ("scratchpads", energy.scratchpads),
                ("main memory", (energy.least_memory + energy.greatest_memory) / 2),
            )
        )
        return [
            f"speed: {self.gops:.3g} GOPS; {1e3 * self.gops / used['lut']:.2g} per 1,000 LUT of "
            f"about {used['lut']:,}, {self.gops / used['multipliers']:.2g} per multiplier of "
            f"{used['multipliers']} ({self.resources.device.name})",
            *outdated_sentences(PRICES),
            f"energy per sample: {1e6 * energy.least:.3g} to {1e6 * energy.greatest:.3g} µJ, "
            f"{least:.3g} to {greatest:.3g} GOPS/W, an estimate for 45 nm: {shares}",
        ]


def efficiency_of(module: Module, macs: int, accelerator_ms: float | None) -> Efficiency | None:
    """Return the efficiency of a run; None where the accelerator's time is not known.

    Parameters
    ----------
    macs
        Multiplications on the accelerator.
    accelerator_ms
        Time of a sample there.
    """
    if not accelerator_ms or not macs:
        return None
    program = [instruction for segment in module.segments for instruction in segment.program]
    return Efficiency(
        macs,
        accelerator_ms,
        smallest_device(module.configuration),
        energy_of(program, module.configuration),
    )
