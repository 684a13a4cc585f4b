"""The fit of the area model: linear least squares for each unit, without negative factors.

Each row counts by its relative error, since a small machine matters as much as a large one. Every
quantity counts bits, cells or levels of existing logic, so a negative factor would be wrong. While
there is one, the fit drops the quantity with the most negative part.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...hardware.technology import Technology
from ..synthesis.devices import RESOURCES
from .features import UNITS, exact_luts, features
from .model import estimated
from .rows import AreaRow

ALIKE = {Technology.ULTRASCALE: Technology.XILINX7}
"""Technologies with few rows, each with one that has the same logic cells."""

DIGITS = 5
"""Significant digits of a factor."""


class Sheet:
    """The rows of one unit and one resource as a matrix.

    Attributes
    ----------
    names
        The quantities, with the constant first.
    quantities
        float64[rows, quantities]
    used
        The amounts that the model explains: the resource without the exact part, float64[rows].
    totals
        The resource of the whole core, float64[rows].
    """

    def __init__(self, rows: Sequence[AreaRow], unit: str, resource: str) -> None:
        machines = [row.machine for row in rows]
        found = [
            features(machine, row.technology, row.multipliers)[unit]
            for machine, row in zip(machines, rows, strict=True)
        ]
        exact = [
            exact_luts(machine, row.technology)[unit] * (resource == "lut")
            for machine, row in zip(machines, rows, strict=True)
        ]
        self.names = list(found[0])
        self.quantities = np.array([[float(of[name]) for name in self.names] for of in found])
        self.used = np.array(
            [
                float(row.units.get(unit, {}).get(resource, 0) - part)
                for row, part in zip(rows, exact, strict=True)
            ]
        )
        self.totals = np.array([float(row.resources[resource]) for row in rows])

    def fit(self, chosen: np.ndarray) -> np.ndarray:
        """Return the factors that fit the chosen rows, float64[quantities]."""
        scale = np.abs(self.quantities).max(axis=0)
        scale[scale == 0] = 1
        weights = 1 / self.totals[chosen]
        matrix = self.quantities[chosen] / scale * weights[:, None]
        target = self.used[chosen] * weights
        kept = list(range(len(self.names)))
        while True:
            found = np.linalg.lstsq(matrix[:, kept], target, rcond=None)[0]
            if not kept or found.min() >= 0:
                break
            parts = found * matrix[:, kept].mean(axis=0)
            del kept[int(np.argmin(np.where(found < 0, parts, np.inf)))]
        factors = np.zeros(len(self.names))
        factors[kept] = found / scale[kept]
        return factors


def fit(rows: Sequence[AreaRow]) -> dict[str, Any]:
    """Fit the rows of one technology.

    Returns
    -------
    dict
        `units`: the factors of each unit. `errors`: the errors on rows that a fit did not see.
    """
    units: dict[str, dict[str, dict[str, float]]] = {unit: {} for unit in UNITS}
    errors = {}
    every = np.arange(len(rows))
    for resource in estimated(rows[0].technology):
        missing = np.zeros(len(rows))
        for unit in UNITS:
            sheet = Sheet(rows, unit, resource)
            factors = sheet.fit(every)
            units[unit][resource] = {
                name: float(f"{factor:.{DIGITS}g}")
                for name, factor in zip(sheet.names, factors, strict=True)
                if factor
            }
            for row in every:
                guess = sheet.quantities[row] @ sheet.fit(np.delete(every, row))
                missing[row] += guess - sheet.used[row]
        errors[resource] = _errors(np.abs(missing / sheet.totals), rows)
    return {"errors": errors, "units": units}


def scale(
    rows: Sequence[AreaRow], units: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, Any]:
    """Scale another technology's fit to a few rows: a factor for each resource, the median ratio.

    Parameters
    ----------
    rows
        The rows, at least two.
    units
        The factors of the other technology, whose logic cells are alike.

    Returns
    -------
    dict
        As `fit` returns it. The errors are those of each row by the factors that the others give.
    """
    scaled: dict[str, dict[str, dict[str, float]]] = {unit: {} for unit in UNITS}
    errors = {}
    for resource in estimated(rows[0].technology):
        guesses = np.zeros(len(rows))
        for unit in UNITS:
            sheet = Sheet(rows, unit, resource)
            guesses += sheet.quantities @ [units[unit][resource].get(n, 0.0) for n in sheet.names]
        used = np.array([float(row.resources[resource]) for row in rows])
        ratios = used / guesses
        factor = float(np.median(ratios))
        for unit in UNITS:
            scaled[unit][resource] = {
                name: float(f"{factor * value:.{DIGITS}g}")
                for name, value in units[unit][resource].items()
            }
        others = [float(np.median(np.delete(ratios, row))) for row in range(len(rows))]
        errors[resource] = _errors(np.abs(others * guesses / used - 1), rows)
    return {"errors": errors, "units": scaled}


def _errors(found: np.ndarray, rows: Sequence[AreaRow]) -> dict[str, Any]:
    """Return the median and the worst of the rows' errors, float64[rows]."""
    return {
        "median": round(float(np.median(found)), 4),
        "worst": round(float(found.max()), 4),
        "worst_row": rows[int(found.argmax())].configuration,
    }


def fit_or_scale(
    technology: Technology, rows: Sequence[AreaRow], fitted: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Fit the rows of a technology; if they are few, scale the fit of a technology like it.

    Parameters
    ----------
    fitted
        The fits so far, by technology.
    """
    if technology in ALIKE:
        return scale(rows, fitted[ALIKE[technology].value]["units"])
    return fit(rows)


def errors_table(model: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the errors of a model as the table of `docs/guide/synthesis.md`."""
    lines = ["| family | rows | | median error | worst |", "| --- | ---: | --- | ---: | ---: |"]
    for family, found in model.items():
        for resource, of in found["errors"].items():
            errors = f"{100 * of['median']:.1f} % | {100 * of['worst']:.1f} %"
            lines.append(f"| `{family}` | {found['rows']} | {RESOURCES[resource]} | {errors} |")
    return "".join(f"{line}\n" for line in lines)
