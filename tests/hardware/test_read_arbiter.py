"""FETCH and LOAD share the read channels: each receives its own data, in order."""

import random

import numpy as np
import pytest

from tilewright.hardware.read_arbiter import ReadArbiter
from tilewright.isa.pipeline import FETCH_BURSTS

from .axi_memory import CommandSource, ReadMemory, Sink, simulate
from .simulated import simulated
from .transfers import CONFIGURATIONS

MEMORY_BYTES = 8192


class Client:
    """Request bursts of a stream, no more than `limit` in flight."""

    def __init__(self, requests, beats, bursts, limit, generator, idle):
        commands = [
            address | (count - 1) << len(requests.payload.address) for address, count in bursts
        ]
        self.source = CommandSource(requests, commands, generator, idle)
        payload = beats.payload

        def read(ctx):
            return tuple(ctx.get(value) for value in (payload.data, payload.failed, payload.last))

        self.sink = Sink(beats, generator, idle, read)
        self.limit = limit

    def drive(self, ctx):
        finished = sum(last for _, _, last in self.sink.taken)
        if len(self.source.accepted) - finished < self.limit:
            self.source.drive(ctx)
        else:
            self.source.offered = False
            ctx.set(self.source.stream.valid, 0)
        self.sink.drive(ctx)

    def sample(self, ctx):
        self.source.sample(ctx)
        self.sink.sample(ctx)


class ArbiterSimulation:
    """Two clients and a memory."""

    def __init__(self, name, bursts, idle, seed=0, latency=3, failing=frozenset()):
        configuration = CONFIGURATIONS[name]
        self.configuration = configuration
        generator = random.Random(seed)
        image = np.random.default_rng(seed).integers(0, 256, MEMORY_BYTES, np.uint8)
        block = simulated(ReadArbiter, configuration)
        arbiter = block.top
        fetch, load = bursts
        limit = configuration.outstanding_bursts
        self.fetch = Client(
            arbiter.fetch_requests, arbiter.fetch_beats, fetch, FETCH_BURSTS, generator, idle
        )
        self.load = Client(arbiter.load_requests, arbiter.load_beats, load, limit, generator, idle)
        self.memory = ReadMemory(
            arbiter.memory,
            image,
            configuration.bus_bytes,
            configuration.burst_bytes,
            generator,
            idle,
            latency,
            failing,
        )
        clients = (self.fetch, self.load)
        expected = [sum(count for _, count in wanted) for wanted in bursts]

        def finished(ctx):
            return [len(client.sink.taken) for client in clients] == expected

        simulate(block, [*clients, self.memory], finished)
        for client, wanted in zip(clients, bursts, strict=True):
            assert client.sink.taken == [
                (
                    int.from_bytes(
                        image[here : here + configuration.bus_bytes].tobytes(), "little"
                    ),
                    int(here in failing),
                    int(beat == count - 1),
                )
                for address, count in wanted
                for beat in range(count)
                for here in [address + beat * configuration.bus_bytes]
            ]


def random_bursts(name, seed, count):
    configuration, generator = CONFIGURATIONS[name], random.Random(seed)
    bursts = []
    for _ in range(count):
        first = generator.randrange(configuration.burst_beats)
        beats = generator.randint(1, configuration.burst_beats - first)
        burst = generator.randrange(MEMORY_BYTES // configuration.burst_bytes)
        address = burst * configuration.burst_bytes + first * configuration.bus_bytes
        bursts.append((address, beats))
    return bursts


@pytest.mark.parametrize("name", ["tiny", "16x16", "wide bus", "single beats"])
@pytest.mark.parametrize("idle", [0.0, 0.3])
def test_each_client_gets_its_own_beats_in_order(name, idle):
    ArbiterSimulation(name, [random_bursts(name, 1, 12), random_bursts(name, 2, 30)], idle)


def test_requests_and_beats_use_every_cycle():
    bench = ArbiterSimulation("16x16", [[], [(64 * index, 8) for index in range(8)]], 0.0)
    requests = [cycle for cycle, _, _ in bench.memory.requests]
    assert requests == list(range(requests[0], requests[0] + 8))
    assert bench.memory.beat_cycles == list(
        range(bench.memory.beat_cycles[0], bench.memory.beat_cycles[0] + 64)
    )


def test_fetch_goes_first():
    bench = ArbiterSimulation("16x16", [[(0, 1)], [(1024, 1)]], 0.0)
    assert [address for _, address, _ in bench.memory.requests] == [0, 1024]


def test_failed_beats_are_marked_and_others_are_not():
    ArbiterSimulation(
        "8x16", [[(128, 4)], [(256, 8), (512, 2)]], 0.2, failing=frozenset({136, 264})
    )
