"""Logic and flip-flops of a configuration on an FPGA or an ASIC: an estimate, unit by unit.

The look-up tables, or gates, and the flip-flops of a unit are sums over its `features`, each
multiplied by a factor. `python -m tilewright.flows.area` fits the factors in `coefficients.json` to
measured syntheses.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...hardware.technology import Technology
from ...isa.configuration import Configuration
from .features import exact_luts, features

DATA = Path(__file__).with_name("coefficients.json")


def estimated(technology: Technology) -> tuple[str, str]:
    """Return the resources that the model estimates."""
    return "gates" if technology is Technology.ASIC else "lut", "ff"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated resources of a machine.

    Parameters
    ----------
    units
        Look-up tables, or gates, and flip-flops by unit.
    """

    units: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> Counter[str]:
        """Resources of the core by name."""
        return sum(map(Counter, self.units.values()), Counter())

    @property
    def lut(self) -> int:
        """Look-up tables of the core."""
        return self.total["lut"]

    @property
    def ff(self) -> int:
        """Flip-flops of the core."""
        return self.total["ff"]


@cache
def read_model() -> Mapping[str, Any]:
    """Return the fitted model of each technology: factors, errors, date, rows."""
    return json.loads(DATA.read_text("utf-8"))


def is_modelled(technology: Technology) -> bool:
    """Whether the model knows a technology."""
    return technology.value in read_model()


def estimate(
    configuration: Configuration,
    technology: Technology = Technology.ECP5,
    multipliers: int | None = None,
) -> Estimate:
    """Estimate look-up tables, or gates, and flip-flops.

    Operations that the configuration adds to VECTOR are not included.

    Parameters
    ----------
    technology
        A technology for which `is_modelled` is true.
    multipliers
        Multipliers of the ECP5; None for the fewest that the machine can be built with. With more
        of them, lanes of VECTOR take less logic.
    """
    factors, exact = read_model()[technology.value]["units"], exact_luts(configuration, technology)
    units = {}
    for unit, quantities in features(configuration, technology, multipliers).items():
        used = {
            name: round(sum(factor * quantities[of] for of, factor in factors[unit][name].items()))
            for name in estimated(technology)
        }
        if exact[unit]:
            used["lut"] += exact[unit]
        units[unit] = used
    return Estimate(units)
