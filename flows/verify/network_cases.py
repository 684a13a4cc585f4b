"""Random networks on random machines with random memories."""

import random
from contextlib import suppress
from dataclasses import dataclass, replace

from ...errors import ConfigurationError
from ...isa.memory_model import MemoryModel, SharedBus
from ...isa.settings import load_configuration
from .fuzz.random_models import random_model

MAX_STEPS = 2
"""Operators of a network."""

MACHINES = ("4x4", "8x8", "8x16", "16x8", "16x16", "ecp5-25", "gowin20")
CHANGES = (
    "bus_bits=32", "bus_bits=128", "bus_bits=256", "act_depth=512", "acc_depth=256",
    "queue_depth=2", "queue_depth=16", "outstanding_bursts=4", "burst_beats=8", "depthwise_taps=0",
)  # fmt: skip
LATENCIES = (3, 16, 64, 150, 400, 1000)
BANDWIDTHS = ((1, 1), (1, 1), (3, 4), (1, 2), (1, 5))
BUSES = (SharedBus.of_cycles(6, 7, 7, 781), SharedBus.of_cycles(0, 2, 9, 300))


@dataclass(frozen=True, slots=True)
class NetworkCase:
    """A network on a machine with a main memory.

    Parameters
    ----------
    machine
        In the syntax of `--config`.
    other
        Another memory that a program may be made for.
    """

    seed: int
    machine: str
    memory: MemoryModel
    other: MemoryModel

    def model(self) -> bytes:
        """Return the network, an ONNX file."""
        return random_model(self.seed, MAX_STEPS)


def random_case(seed: int) -> NetworkCase:
    """The case of a seed."""
    chance = random.Random(seed)
    while True:
        machine = ",".join([chance.choice(MACHINES), *chance.sample(CHANGES, chance.randint(0, 2))])
        with suppress(ConfigurationError):
            load_configuration(machine)
            return NetworkCase(seed, machine, _random_memory(chance), _random_memory(chance))


def _random_memory(chance: random.Random) -> MemoryModel:
    beats, cycles = chance.choice(BANDWIDTHS)
    memory = MemoryModel(
        latency_cycles=chance.choice(LATENCIES),
        beats=beats,
        cycles=cycles,
        outstanding_bursts=chance.choice((1, 4, 64, 64)),
    )
    if beats == 1 and chance.random() < 0.25:
        return replace(memory, bus=chance.choice(BUSES))
    return memory
