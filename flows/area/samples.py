"""Configurations to which the area model is fitted: presets, extremes and random ones."""

from collections.abc import Iterator
from itertools import count, islice
from random import Random

from ...errors import ConfigurationError
from ...isa.configuration import PRESETS, Configuration
from ..synthesis.devices import FpgaDevice, find_device
from .resources import resources

PRESET_CHIPS = {
    "tiny": "ecp5-25",
    "4x4": "ecp5-45",
    "8x8": "ecp5-45",
    "8x16": "ecp5-85",
    "16x8": "ecp5-85",
    "16x16": "ecp5-85",
    "ecp5-25": "ecp5-25",
    "ecp5-45": "ecp5-45",
    "ecp5-85": "ecp5-85",
    "transformer-25": "ecp5-25",
    "transformer-85": "ecp5-85",
}
"""Presets that are measured, each with its chip."""

_OPTIONS: tuple[tuple[str, dict[str, int | str], dict[str, str]], ...] = (
    ("packed", {"packed_weights": "int4"}, {"tiny": "ecp5-25", "4x4": "ecp5-25", "8x8": "ecp5-25"}),
    (
        "rows",
        {"row_statistics": "all", "lut_tables": 2},
        {"tiny": "ecp5-25", "4x4": "ecp5-25", "8x8": "ecp5-25"},
    ),
    (
        "transposed",
        {"transposed_weights": "int8"},
        {"tiny": "ecp5-25", "4x4": "ecp5-25", "8x8": "ecp5-45", "16x16": "ecp5-85"},
    ),
    (
        "lines",
        {"depthwise_lines": "two", "depthwise_taps": 2},
        {"8x8": "ecp5-45", "8x16": "ecp5-85"},
    ),
    ("lines", {"depthwise_lines": "two"}, {"16x8": "ecp5-85", "16x16": "ecp5-85"}),
)
"""Options: the name, the parameters, and the presets to measure with them, on these chips."""

EXTREMES = (
    (PRESETS["tiny"].replace(name="deep-queues", queue_depth=64), "ecp5-25"),
    (PRESETS["tiny"].replace(name="deep-banks", act_depth=32768), "ecp5-25"),
    *(
        (PRESETS[name].replace(name=f"{option}-{name}", **changes), chip)
        for option, changes, chips in _OPTIONS
        for name, chip in chips.items()
    ),
)
"""Queues that are block RAMs, banks deeper than a block, and options, each with its chip."""

LANES = ("2x2", "2x4", "4x2", *["4x4"] * 6, *["4x8", "8x4"] * 2, *["8x8"] * 5, "8x16", "16x8")

LEVELS: dict[str, tuple[int | str, ...]] = {
    "act_banks": (2, 4, 4, 8),
    "act_depth": (16, 128, 512, 1024, 2048, 4096, 8192),
    "wgt_banks": (1, 2, 2, 4),
    "wgt_depth": (16, 128, 256, 512, 1024, 2048, 4096),
    "acc_banks": (2, 2, 4, 8),
    "acc_depth": (16, 128, 256, 512, 1024, 2048),
    "param_depth": (4, 16, 64, 128, 256, 512),
    "lut_tables": (1, 2, 4, 8, 16),
    "bus_bits": (32, 64, 128, 256),
    "burst_beats": (4, 8, 16, 32, 64),
    "outstanding_bursts": (2, 4, 8, 16, 32, 64),
    "queue_depth": (2, 2, 4, 8, 8, 16, 32),
    "token_bits": (2, 3, 4, 5, 6),
    "extent_bits": (6, 8, 10, 12, 14, 16),
    "tile_loops": (1, 2, 3, 4, 5, 6),
    "row_loops": (1, 2, 3),
    "map_loops": (1, 2, 3, 4, 5, 6),
    "reduce_loops": (1, 2, 3),
    "dma_loops": (1, 2, 3, 4, 5, 6),
    "address_bits": (20, 24, 28, 32),
    "depthwise_taps": (0, 0, 2, 3, 4, 8),
    "counters": ("all", "all", "basic", "none"),
}
"""Values that random configurations take; those that are listed twice are drawn twice as often."""

CHANGED = 0.5
"""Share of the parameters that a random configuration changes."""


def samples() -> Iterator[tuple[Configuration, str]]:
    """Yield configurations with the names of their chips, the same ones in each call."""
    for name, chip in PRESET_CHIPS.items():
        yield PRESETS[name], chip
    yield from EXTREMES
    for number in count():
        yield _drawn(number)


def first_samples(number: int, device: str | None = None) -> list[tuple[Configuration, str]]:
    """Return the first `number` samples.

    Parameters
    ----------
    device
        The chip of all samples, without those that are too large for it or have block RAMs that
        only synthesis can count; None for the ECP5 that `samples` gives to each one.
    """
    if device is None:
        return list(islice(samples(), number))
    chip = find_device(device)
    fitting = (configuration for configuration, _ in samples() if _fits(configuration, chip))
    return [(configuration, device) for configuration in islice(fitting, number)]


def _fits(configuration: Configuration, chip: FpgaDevice) -> bool:
    found = resources(configuration, chip)
    return not found.short and ("ram" in found.known or "ram" not in chip.family.resources)


def _drawn(number: int) -> tuple[Configuration, str]:
    """Draw the random configuration with a number; draw again while it breaks a rule."""
    random = Random(number)
    while True:
        lanes_in, lanes_out = map(int, random.choice(LANES).split("x"))
        base = PRESETS["8x8"].replace(
            name=f"random-{number}", lanes_in=lanes_in, lanes_out=lanes_out
        )
        changes: dict[str, int | str] = {
            name: random.choice(values)
            for name, values in LEVELS.items()
            if random.random() < CHANGED
        }
        if random.random() < CHANGED:
            changes["vector_lanes"] = random.choice((2, 4, 8))
        chip = random.choice(("ecp5-25", "ecp5-45", "ecp5-45", "ecp5-85"))
        try:
            return base.replace(**changes), chip
        except ConfigurationError:
            continue
