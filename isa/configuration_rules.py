"""What a configuration must keep to be a machine: rules, and sentences for broken ones."""

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from ..errors import IsaError
from .vector_operations import operations_with

if TYPE_CHECKING:
    from .configuration import Configuration

POWERS_OF_TWO = (
    ("lanes_in", 2, 64),
    ("lanes_out", 2, 64),
    ("vector_lanes", 2, 64),
    ("act_banks", 2, 16),
    ("act_depth", 8, 1 << 16),
    ("wgt_banks", 1, 16),
    ("wgt_depth", 8, 1 << 16),
    ("acc_banks", 2, 16),
    ("acc_depth", 8, 1 << 16),
    ("param_depth", 2, 1 << 14),
    ("lut_tables", 1, 16),
    ("bus_bits", 32, 256),
    ("burst_beats", 1, 256),
    ("outstanding_bursts", 1, 64),
    ("queue_depth", 1, 64),
)
"""Parameters that are powers of two: least and greatest."""

RANGES = (
    ("token_bits", 2, 8),
    ("extent_bits", 4, 16),
    ("tile_loops", 1, 6),
    ("row_loops", 1, 4),
    ("map_loops", 1, 6),
    ("reduce_loops", 1, 4),
    ("dma_loops", 1, 6),
    ("address_bits", 20, 32),
)
"""Other parameters: least and greatest."""


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def rules(machine: "Configuration") -> Iterator[tuple[bool, str]]:
    """Yield whether each rule holds, and the sentence that says how it is broken.

    The first rules are the types of the parameters: where one is broken, the others are not asked.
    """
    for field in fields(machine):
        if field.name in ("name", "extra_operations"):
            continue
        value, least = getattr(machine, field.name), int(field.name != "depthwise_taps")
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            kind = "positive whole number" if least else "whole number, 0 or more"
            yield False, f"`{field.name}` must be a {kind}, not {value!r}"
            return
    for name, low, high in POWERS_OF_TWO:
        value = getattr(machine, name)
        yield (
            _is_power_of_two(value) and low <= value <= high,
            f"`{name}` must be a power of two from {low} to {high}, not {value}",
        )
    for name, low, high in RANGES:
        value = getattr(machine, name)
        yield low <= value <= high, f"`{name}` must lie in {low} to {high}, not {value}"
    lanes, vector = (machine.lanes_in, machine.lanes_out), machine.vector_lanes
    for name, value in zip(("lanes_in", "lanes_out"), lanes, strict=True):
        yield (
            value % vector == 0,
            f"`{name}` must be a multiple of vector_lanes ({vector}), not {value}",
        )
    yield (
        machine.depthwise_taps <= machine.lanes_in,
        f"`depthwise_taps` must be at most lanes_in ({machine.lanes_in}), since each tap has a "
        f"row of the weight tile, not {machine.depthwise_taps}",
    )
    yield (
        machine.wgt_depth % machine.lanes_in == 0,
        f"`wgt_depth` must be a multiple of lanes_in ({machine.lanes_in}), so that no weight tile "
        f"crosses a bank, not {machine.wgt_depth}",
    )
    yield (
        machine.burst_bytes <= 4096,
        f"a burst of {machine.burst_bytes} bytes (burst_beats x bus_bits / 8) would cross the "
        "4096-byte boundary of AXI4; lower `burst_beats`",
    )
    yield (
        machine.lanes_in * 4 >= machine.bus_bytes,
        f"`bus_bits` = {machine.bus_bits} moves over four activation rows of {machine.lanes_in} "
        "bytes a beat; lower it or raise `lanes_in`",
    )
    yield _operations_rule(machine)


def _operations_rule(machine: "Configuration") -> tuple[bool, str]:
    extra = machine.extra_operations
    if not isinstance(extra, list | tuple) or not all(isinstance(e, str) for e in extra):
        return False, f"`extra_operations` must be a list of texts `name = law`, not {extra!r}"
    try:
        operations_with(tuple(extra))
    except IsaError as problem:
        return False, f"`extra_operations`: {problem}"
    return True, ""
