"""`tilewright run --trace`: a timeline that adds up, of what the machine did and nothing else."""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tilewright.compiler.module import Segment
from tilewright.flows.execution.samples import random_samples
from tilewright.flows.execution.timed import TimedSegment, time_segments
from tilewright.flows.reports.terminal import shorten
from tilewright.flows.reports.trace import trace_json
from tilewright.flows.reports.trace_slices import Track, wait_name
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.encoding import word_bytes
from tilewright.isa.instructions import Sync, Unit
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import load, open_device
from tilewright.runtime.session import Session
from tilewright.sim.timing import time_program
from tilewright.sim.timing.stalls import Wait

SEEDS = range(6)

CYCLE = 1.0
"""A clock at which a microsecond is a cycle."""


def random_segment(seed: int, memory: MemoryModel | None = None) -> TimedSegment:
    """A random program as a segment without layers."""
    configuration = PRESETS["tiny" if seed % 2 else "8x8"]
    program, _ = random_program(configuration, seed)
    notes = ("",) * len(program)
    segment = Segment(tuple(program), notes, (), (), (), (), b"", 0, 0)
    return TimedSegment(segment, time_program(program, configuration, memory), {})


def slices(trace: dict, track: Track | None = None) -> list[dict]:
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    return [event for event in events if track is None or event["tid"] == track]


@pytest.fixture
def trace(tilewright, artifact, tmp_path) -> dict:
    path = tmp_path / "trace.json"
    said = tilewright("run", artifact, "--trace", path, "--clock", "50")
    assert f"trace: `{path}`, " in said
    assert "https://ui.perfetto.dev" in said
    return json.loads(path.read_text())


@pytest.fixture
def timed(artifact) -> TimedSegment:
    (segment,) = time_segments(load(artifact))
    return segment


def test_the_command_writes_the_trace_of_the_whole_run(trace, timed):
    assert trace["otherData"]["time"] == "at 50 MHz: one cycle is 20 ns"
    assert max(e["ts"] + e["dur"] for e in slices(trace)) <= timed.timing.cycles / 50
    for event in slices(trace):
        assert event["ts"] == pytest.approx(event["args"]["cycle"] / 50)
        assert event["dur"] == pytest.approx(event["args"]["cycles"] / 50)
    titles = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert titles == [
        "FETCH", "LOAD", "GEMM", "VECTOR", "STORE", "main memory: read", "main memory: write",
    ]  # fmt: skip


def test_every_instruction_appears_by_layer_and_mnemonic(trace, timed):
    fetched = [e["args"]["instruction"] for e in slices(trace, Track.FETCH) if e["cat"] == "work"]
    assert fetched == list(range(len(timed.program)))
    worked = {
        e["args"]["instruction"]: e["name"]
        for e in slices(trace)
        if e["cat"] == "work" and e["tid"] != Track.FETCH
    }
    assert sorted(worked) == list(range(len(timed.program) - 1)), "all but HALT"
    names = {layer.output: timed.names[layer.output] for layer in timed.segment.layers}
    for layer in timed.segment.layers:
        for index in layer.places:
            mnemonic = timed.program[index].mnemonic
            assert worked[index] == f"{shorten(names[layer.output], 28)}: {mnemonic}"
    assert {e["args"].get("layer") for e in slices(trace)} == {*names.values(), None}


@pytest.mark.parametrize("clock_mhz", [CYCLE, 100.0, 133.3, 375.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_slices_of_one_track_never_overlap(seed, clock_mhz):
    """Nor do they in whole nanoseconds, which Perfetto counts in."""
    made = trace_json([random_segment(seed)] * 2, "random", "sim", clock_mhz)
    tracks = defaultdict(list)
    for event in slices(made):
        assert event["dur"] > 0
        begin, cycles = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
        tracks[event["pid"], event["tid"]].append((begin, begin + cycles))
    assert len({pid for pid, _ in tracks}) == 2
    for spans in tracks.values():
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize("seed", SEEDS)
def test_slices_sum_to_the_activity(seed):
    segment = random_segment(seed)
    made = trace_json([segment], "random", "sim", CYCLE)
    for unit in Unit:
        spent = Counter()
        for event in slices(made, Track[unit.name]):
            spent["work" if event["cat"] == "work" else event["name"]] += event["dur"]
        expected = Counter()
        found = segment.activity
        mine = found.unit == unit
        for wait, by, begin, end in zip(
            found.wait[mine], found.by[mine], found.begin[mine], found.end[mine], strict=True
        ):
            if wait != Wait.DONE:
                name = "work" if wait == Wait.WORK else wait_name(segment, Wait(wait), int(by))
                expected[name] += int(end - begin)
        assert spent == expected
        done = segment.activity.cycles(unit)[Wait.DONE]
        assert spent.total() + done >= segment.timing.cycles


@pytest.mark.parametrize("seed", SEEDS)
def test_every_instruction_of_a_random_program_appears_synchronising_ones_too(seed):
    segment = random_segment(seed)
    made = trace_json([segment], "random", "sim", CYCLE)
    shown = [e for e in slices(made) if e["cat"] in ("work", "sync") and e["tid"] != Track.FETCH]
    assert sorted(e["args"]["instruction"] for e in shown) == list(range(len(segment.program) - 1))
    syncs = {e["args"]["instruction"] for e in shown if e["cat"] == "sync"}
    assert syncs == {i for i, one in enumerate(segment.program) if isinstance(one, Sync)}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_token_is_an_arrow_between_slices_of_its_two_units(seed):
    segment = random_segment(seed)
    made = trace_json([segment], "random", "sim", CYCLE)
    starts = {e["id"]: e for e in made["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in made["traceEvents"] if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == np.count_nonzero(segment.timing.links.givers >= 0)
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"]
        assert start["name"] == f"{Track(start['tid']).unit_name} to {Track(end['tid']).unit_name}"
        inside = [
            e for e in slices(made, start["tid"]) if e["ts"] <= start["ts"] < e["ts"] + e["dur"]
        ]
        assert [e["cat"] for e in inside] in (["work"], ["sync"])


@pytest.mark.parametrize("bandwidth", [(1, 1), (1, 3)])
def test_the_channels_carry_the_bytes_of_the_program_and_its_words(bandwidth):
    beats, cycles = bandwidth
    memory = MemoryModel(latency_cycles=30, beats=beats, cycles=cycles)
    segment = random_segment(0, memory)
    configuration = segment.timing.configuration
    read, written = segment.beats
    words = np.count_nonzero(read.instruction < 0)
    assert words * configuration.bus_bytes == len(segment.program) * word_bytes(configuration)
    for beat, counter in ((read, "LOAD_BYTES"), (written, "STORE_BYTES")):
        moved = np.count_nonzero(beat.instruction >= 0) * configuration.bus_bytes
        assert moved >= segment.timing.counters[counter] > 0
        assert np.diff(beat.cycle).min() >= 1
        span = beat.cycle[-1] - beat.cycle[0]
        assert beat.cycle.size <= span * beats / cycles + cycles
    made = trace_json([segment], "random", "sim", CYCLE)
    curve = [e for e in made["traceEvents"] if e["name"] == "bytes read a cycle"]
    assert max(e["args"]["bytes"] for e in curve) <= configuration.bus_bytes * beats / cycles + 1


def test_a_measurement_that_is_not_the_models_is_shown_as_it_is():
    segment = random_segment(1)
    moved = replace(segment, spans=segment.timing.spans + 7)
    assert segment.agrees
    assert replace(segment, spans=segment.timing.spans).agrees
    assert not moved.agrees
    made = trace_json([moved], "random", "rtl", CYCLE)
    assert "stalls are not in the timing model" in made["otherData"]["slices"]
    assert {event["cat"] for event in slices(made)} == {"work"}
    ends = {e["args"]["instruction"]: e["ts"] + e["dur"] for e in slices(made)}
    assert moved.spans is not None
    retired = moved.spans[:-1, 1]
    assert [ends[index] for index in range(len(retired))] == (retired + 1).tolist()


@pytest.mark.slow
def test_the_hardware_agrees_with_its_trace(artifact):
    module = load(artifact)
    memory = MemoryModel(latency_cycles=90, beats=1, cycles=2)
    (inputs,) = random_samples(module.graph, 1, 0)
    with open_device("rtl", module.configuration, memory) as device:
        results = Session(module, device).run(inputs).results
    (segment,) = time_segments(module, memory, results)
    assert segment.spans is not None
    assert segment.agrees
