"""Rules that a configuration must obey, and a message for each broken rule."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..errors import IsaError
from .vector_operations import operations_with

if TYPE_CHECKING:
    from .configuration import Configuration

PAGE_BYTES = 4096
"""No burst of AXI4 crosses a multiple of this (ARM IHI 0022, A3.4.1); data windows begin at one."""

COUPLED: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "vector_lanes": lambda of: min(of["vector_lanes"], of["lanes_in"], of["lanes_out"]),
    "depthwise_taps": lambda of: min(of["depthwise_taps"], of["lanes_in"]),
    "wgt_depth": lambda of: max(of["wgt_depth"], of["lanes_in"]),
    "bus_bits": lambda of: min(of["bus_bits"], 32 * of["lanes_in"]),
    "burst_beats": lambda of: min(of["burst_beats"], 8 * PAGE_BYTES // of["bus_bits"]),
}
"""Parameters that others limit, with the nearest legal value; later entries see earlier ones."""


def fitted(values: Mapping[str, Any], fixed: Collection[str]) -> dict[str, Any]:
    """Adjust the coupled parameters to fit, except the `fixed` ones."""
    found = dict(values)
    for name, fit in COUPLED.items():
        # A value that is 0 or not a number breaks a rule of its own.
        with suppress(TypeError, ZeroDivisionError):
            if name not in fixed and fit(found) > 0:
                found[name] = fit(found)
    return found


def coupled_defaults(machine: "Configuration") -> dict[str, Any]:
    """Values of omitted parameters that depend on others."""
    values = {field.name: getattr(machine, field.name) for field in fields(machine)}
    missing = {
        field.name: field.metadata["parameter"].default
        for field in fields(machine)
        if field.metadata and field.default is None and values[field.name] is None
    }
    if not missing:
        return {}
    found = fitted({**values, **missing}, fixed=values.keys() - missing.keys())
    return {name: found[name] for name in missing}


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def rules(machine: "Configuration") -> Iterator[tuple[bool, str]]:
    """Yield for each rule whether it holds, and the message if it does not.

    Types are checked first; if one is wrong, the other rules are skipped.
    """
    if not isinstance(machine.name, str):
        yield False, f"`name` must be text, not {machine.name!r}"
        return
    for field in fields(machine):
        if not field.metadata:
            continue
        about, value = field.metadata["parameter"], getattr(machine, field.name)
        if about.choices:
            if value not in about.choices:
                yield False, f"`{field.name}` must be {about.legal}, not {value!r}"
                return
            continue
        least = min(1, about.low)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            kind = "positive whole number" if least else "whole number, 0 or more"
            yield False, f"`{field.name}` must be a {kind}, not {value!r}"
            return
    for field in fields(machine):
        if not field.metadata or field.metadata["parameter"].choices:
            continue
        about, value = field.metadata["parameter"], getattr(machine, field.name)
        kind = "a power of two from" if about.power_of_two else "from"
        yield (
            about.low <= value <= about.high
            and (_is_power_of_two(value) or not about.power_of_two),
            f"`{field.name}` must be {kind} {about.low} to {about.high}, not {value}",
        )
    lanes, vector = (machine.lanes_in, machine.lanes_out), machine.vector_lanes
    for name, value in zip(("lanes_in", "lanes_out"), lanes, strict=True):
        yield (
            value % vector == 0,
            f"`{name}` must be a multiple of vector_lanes ({vector}), not {value}; lower "
            "`vector_lanes` with it",
        )
    yield (
        machine.depthwise_taps <= machine.lanes_in,
        f"`depthwise_taps` must be at most lanes_in ({machine.lanes_in}), because each tap uses a "
        f"row of the weight tile, not {machine.depthwise_taps}",
    )
    most_taps = machine.lanes_in // machine.window_lines
    yield (
        machine.window_lines == 1 or 0 < machine.depthwise_taps <= most_taps,
        f"`depthwise_taps` must be from 1 to {most_taps} with `depthwise_lines`, because each tap "
        f"of a line uses a row of the weight tile, not {machine.depthwise_taps}"
        if most_taps
        else f"`depthwise_lines` cannot be set on this machine, because each of its "
        f"{machine.window_lines} lines uses a row of the weight tile, and lanes_in is "
        f"{machine.lanes_in}; raise `lanes_in`",
    )
    yield (
        machine.window_lines == 1 or machine.row_loops > 1,
        "`row_loops` must be at least 2 with `depthwise_lines`, for the lines and their pixels, "
        f"not {machine.row_loops}",
    )
    yield (
        machine.wgt_depth % machine.lanes_in == 0,
        f"`wgt_depth` must be a multiple of lanes_in ({machine.lanes_in}), so that no weight tile "
        f"crosses a bank, not {machine.wgt_depth}",
    )
    yield (
        machine.burst_bytes <= PAGE_BYTES,
        f"a burst of {machine.burst_bytes} bytes (burst_beats x bus_bits / 8) would cross the "
        "4096-byte boundary of AXI4; lower `burst_beats`",
    )
    yield (
        machine.lanes_in * 4 >= machine.bus_bytes,
        f"`bus_bits` = {machine.bus_bits} moves over four activation rows of {machine.lanes_in} "
        "bytes a beat; lower it or raise `lanes_in`",
    )
    yield (
        machine.row_statistics == "none" or machine.lut_tables > 1,
        "`lut_tables` must be at least 2 with `row_statistics`, because entries of 16 bits take "
        "two tables, not 1",
    )
    yield _operations_rule(machine)


def _operations_rule(machine: "Configuration") -> tuple[bool, str]:
    extra = machine.extra_operations
    if not isinstance(extra, list | tuple) or not all(isinstance(e, str) for e in extra):
        return False, f"`extra_operations` must be a list of strings `name = law`, not {extra!r}"
    try:
        operations_with(tuple(extra))
    except IsaError as problem:
        return False, f"`extra_operations`: {problem}"
    return True, ""
