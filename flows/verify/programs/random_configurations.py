"""Configurations for verification: every parameter at its ends, small enough to build in seconds.

In the presets, many sizes are equal, which can hide errors of a generator. Each named entry here
therefore changes a few parameters independently, and `random_configuration` draws any legal small
machine.
"""

import random
from typing import Any

from ....isa.configuration import PRESETS, Configuration

SMALL_PRESETS = ("tiny", "4x4", "8x8", "8x16", "16x8")
"""Presets that Verilator builds in seconds."""

SMALL = PRESETS["4x4"].replace(
    name="small",
    act_depth=64,
    wgt_depth=64,
    acc_depth=32,
    param_depth=16,
    lut_tables=1,
    address_bits=24,
)
"""Changes of the named entries."""

EXTRA_OPERATIONS = (
    "absolute_difference = abs(a - b)",
    "square_difference = min(max(a - b, -255), 255) * min(max(a - b, -255), 255)",
    "leaky = a if a >= 0 else a >> 3",
    "bits = (a & b) ^ ~a | b << 2",
    "larger_sum = max(a, b) * a_multiplier + min(b, 31) * b_multiplier",
    "gate = wrap(a, 18) * (b > 16)",
    "votes = 5 * (a == b) - (a != 7)",
    "minus = a - b",
    "ceiling = min(a, a_multiplier)",
)
"""Operations of VECTOR that together use the whole syntax of laws."""

_CHANGES: dict[str, dict[str, Any]] = {
    "wide-in": {"lanes_in": 16, "lanes_out": 4},
    "wide-out": {"lanes_in": 4, "lanes_out": 16, "bus_bits": 64},
    "two-by-eight": {"lanes_in": 2, "lanes_out": 8, "vector_lanes": 2, "depthwise_taps": 2},
    "eight-by-two": {"lanes_in": 8, "lanes_out": 2, "vector_lanes": 2, "depthwise_taps": 8},
    "narrow-vector": {"lanes_in": 8, "lanes_out": 4, "vector_lanes": 2, "bus_bits": 64},
    "no-taps": {"depthwise_taps": 0},
    "one-tap": {"lanes_in": 8, "lanes_out": 4, "depthwise_taps": 1},
    "five-taps": {"lanes_in": 8, "lanes_out": 8, "depthwise_taps": 5},
    "lines": {"lanes_in": 16, "lanes_out": 4, "depthwise_lines": "two", "acc_depth": 128},
    "lines-of-two": {
        "lanes_in": 8,
        "lanes_out": 16,
        "depthwise_taps": 2,
        "depthwise_lines": "two",
        "row_loops": 3,
    },
    "lines-of-one": {"lanes_in": 4, "lanes_out": 4, "depthwise_taps": 1, "depthwise_lines": "two"},
    "bus-64": {"bus_bits": 64, "burst_beats": 8},
    "bus-128": {"bus_bits": 128, "burst_beats": 4, "outstanding_bursts": 8},
    "bus-256": {"lanes_in": 8, "lanes_out": 8, "bus_bits": 256, "burst_beats": 2},
    "single-beats": {"burst_beats": 1, "outstanding_bursts": 1},
    "longest-bursts": {"burst_beats": 256, "outstanding_bursts": 2},
    "page-bursts": {"bus_bits": 128, "burst_beats": 256, "outstanding_bursts": 4},
    "many-bursts": {"burst_beats": 2, "outstanding_bursts": 64},
    "one-burst": {"bus_bits": 64, "outstanding_bursts": 1, "queue_depth": 1},
    "queue-1": {"queue_depth": 1, "token_bits": 2},
    "queue-2": {"queue_depth": 2, "token_bits": 3},
    "queue-32": {"queue_depth": 32, "token_bits": 5},
    "one-loop": {
        "tile_loops": 1,
        "row_loops": 1,
        "map_loops": 1,
        "reduce_loops": 1,
        "dma_loops": 1,
    },
    "most-loops": {
        "tile_loops": 6,
        "row_loops": 4,
        "map_loops": 6,
        "reduce_loops": 4,
        "dma_loops": 6,
    },
    "uneven-loops": {
        "tile_loops": 2,
        "row_loops": 3,
        "map_loops": 5,
        "reduce_loops": 1,
        "dma_loops": 2,
        "extent_bits": 7,
    },
    "short-extents": {"extent_bits": 4, "queue_depth": 8},
    "long-extents": {"extent_bits": 16, "dma_loops": 3},
    "least-memory": {
        "act_banks": 2,
        "act_depth": 8,
        "wgt_banks": 1,
        "wgt_depth": 8,
        "acc_depth": 8,
        "param_depth": 2,
        "address_bits": 20,
    },
    "many-banks": {
        "act_banks": 16,
        "act_depth": 8,
        "wgt_banks": 8,
        "wgt_depth": 16,
        "acc_banks": 16,
        "acc_depth": 8,
        "lut_tables": 8,
    },
    "deep-weights": {"wgt_depth": 1024, "act_depth": 16, "acc_depth": 256, "param_depth": 4},
    "many-tables": {"lut_tables": 16, "param_depth": 64, "vector_lanes": 2, "bus_bits": 64},
    "full-addresses": {"address_bits": 32, "token_bits": 8, "acc_banks": 4},
    "basic-counters": {"counters": "basic"},
    "no-counters": {"counters": "none", "bus_bits": 64},
    "packed-weights": {"packed_weights": "int4", "wgt_depth": 64},
    "packed-words": {"packed_weights": "int4", "lanes_out": 16, "bus_bits": 32},
    "packed-beats": {"packed_weights": "int4", "lanes_in": 8, "lanes_out": 4, "bus_bits": 128},
    "transposed-weights": {"transposed_weights": "int8", "burst_beats": 2},
    "transposed-bytes": {
        "transposed_weights": "int8",
        "packed_weights": "int4",
        "lanes_out": 8,
        "lanes_in": 4,
        "bus_bits": 128,
    },
    "row-statistics": {"row_statistics": "all", "lut_tables": 2},
    "narrow-rows": {
        "row_statistics": "all",
        "lut_tables": 4,
        "lanes_in": 8,
        "vector_lanes": 2,
        "param_depth": 128,
    },
    "wide-rows": {
        "row_statistics": "all",
        "lut_tables": 4,
        "lanes_in": 16,
        "lanes_out": 16,
        "vector_lanes": 8,
        "map_loops": 3,
    },
    "one-operation": {"extra_operations": EXTRA_OPERATIONS[:1]},
    "many-operations": {"extra_operations": EXTRA_OPERATIONS, "lut_tables": 2},
}


def verification_configurations() -> dict[str, Configuration]:
    """The small presets and the named corners, by name; always the same ones in the same order."""
    corners = {name: SMALL.replace(name=name, **changes) for name, changes in _CHANGES.items()}
    return {name: PRESETS[name] for name in SMALL_PRESETS} | corners


def random_configuration(seed: int) -> Configuration:
    """Draw a legal configuration of at most 8 x 8 lanes; the same seed gives the same one."""
    chance = random.Random(seed)

    def power(low: int, high: int) -> int:
        return 1 << chance.randint(low.bit_length() - 1, high.bit_length() - 1)

    lanes_in, lanes_out = power(2, 8), power(2, 8)
    row_statistics = chance.choice(("none", "none", "all"))
    widest_bus = min(256, 4 * lanes_in * 8)
    bus_bits = power(32, widest_bus)
    machine = Configuration(
        name=f"random-{seed}",
        lanes_in=lanes_in,
        lanes_out=lanes_out,
        vector_lanes=power(2, min(lanes_in, lanes_out)),
        act_banks=power(2, 8),
        act_depth=power(8, 128),
        wgt_banks=power(1, 4),
        wgt_depth=power(max(8, lanes_in), 128),
        acc_banks=power(2, 8),
        acc_depth=power(8, 128),
        param_depth=power(2, 32),
        lut_tables=power(1 if row_statistics == "none" else 2, 4),
        bus_bits=bus_bits,
        burst_beats=power(1, min(256, 4096 * 8 // bus_bits)),
        outstanding_bursts=power(1, 64),
        queue_depth=power(1, 16),
        token_bits=chance.choice((2, 2, 3, 4, chance.randint(2, 8))),
        extent_bits=chance.choice((4, 5, 8, 12, chance.randint(4, 16))),
        tile_loops=chance.randint(1, 6),
        row_loops=chance.randint(1, 4),
        map_loops=chance.randint(1, 6),
        reduce_loops=chance.randint(1, 4),
        dma_loops=chance.randint(1, 6),
        address_bits=chance.choice((20, 24, 32)),
        depthwise_taps=min(lanes_in, chance.choice((0, 1, 2, 3, chance.randint(0, lanes_in)))),
        extra_operations=tuple(chance.sample(EXTRA_OPERATIONS, chance.choice((0, 0, 0, 1, 3)))),
        counters=chance.choice(("all", "all", "basic", "none")),
        packed_weights=chance.choice(("none", "none", "int4")),
        transposed_weights=chance.choice(("none", "int8")),
        row_statistics=row_statistics,
    )
    with_lines = chance.random() < 0.5
    if with_lines and machine.row_loops > 1 and 0 < 3 * machine.depthwise_taps <= machine.lanes_in:
        return machine.replace(depthwise_lines="two")
    return machine


SHARED = 0.4
"""Share of the memories whose reads and writes share a bus."""


def random_memory_parameters(seed: int) -> dict[str, Any]:
    """Arguments of `MemoryModel.of_parameters`, from a fast memory to one that mostly stalls.

    Extreme values are as frequent as all others together; the same seed gives the same memory.
    """
    chance = random.Random(seed)
    cycles = chance.choice((1, 1, 2, 3, 7, 16))
    found = {
        "latency_cycles": chance.choice((1, 2, 16, 64, 200, chance.randint(1, 300))),
        "beats": chance.choice((1, cycles, chance.randint(1, cycles))),
        "cycles": cycles,
        "outstanding_bursts": chance.choice((1, 2, 3, 16, 64, chance.randint(1, 128))),
        "stall_probability": chance.choice((0.0, 0.0, 0.1, 0.5, 0.8, 0.95)),
        "seed": seed,
    }
    if chance.random() < SHARED:
        refresh_cycles = chance.randint(1, 12)
        found["beats"] = 1
        found["bus"] = {
            "read_gap_cycles": chance.choice((0, 4, chance.randint(0, 20))),
            "write_gap_cycles": chance.choice((0, 5, chance.randint(0, 20))),
            "refresh_cycles": refresh_cycles,
            "refresh_interval_cycles": chance.choice((2 * refresh_cycles, 60, 781)),
        }
    return found
