"""Look-up tables and flip-flops of a configuration on an ECP5: an estimate, unit by unit.

A unit takes so many look-up tables and flip-flops for each of its `features`. The factors are
those of `coefficients.json`, which `python -m tilewright.flows.area` fits to measured syntheses.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...isa.configuration import Configuration
from .features import features, logic_ram_luts

DATA = Path(__file__).with_name("coefficients.json")

ESTIMATED = ("lut", "ff")
"""Resources that the model estimates."""

CONSTANT = "constant"
"""Name of the part of a unit that does not depend on the configuration."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated resources of a machine.

    Parameters
    ----------
    units
        Look-up tables and flip-flops by unit.
    """

    units: Mapping[str, Mapping[str, int]]

    @property
    def lut(self) -> int:
        """Look-up tables of the core."""
        return sum(unit["lut"] for unit in self.units.values())

    @property
    def ff(self) -> int:
        """Flip-flops of the core."""
        return sum(unit["ff"] for unit in self.units.values())


@cache
def read_model() -> Mapping[str, Any]:
    """Return the fitted model: factors, errors, date, rows."""
    return json.loads(DATA.read_text())


def estimate(configuration: Configuration, multipliers: int | None = None) -> Estimate:
    """Estimate look-up tables and flip-flops on an ECP5.

    Operations that the configuration adds to VECTOR are not included.

    Parameters
    ----------
    multipliers
        Of the chip; None for a machine with the fewest. With more of them, lanes of VECTOR take
        less logic.
    """
    factors, rams = read_model()["units"], logic_ram_luts(configuration)
    units = {}
    for unit, found in features(configuration, multipliers).items():
        quantities = {CONSTANT: 1, **found}
        used = {
            name: sum(factor * quantities[of] for of, factor in factors[unit][name].items())
            for name in ESTIMATED
        }
        units[unit] = {"lut": round(used["lut"]) + rams[unit], "ff": round(used["ff"])}
    return Estimate(units)
