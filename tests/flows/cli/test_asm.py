"""`tilewright asm`: the times and the bytes of a program that a user wrote."""

import json
import re

import pytest

from tilewright.flows.cli.main import main

COPY = """
# 64 bytes from 0 to 1,024, by way of the scratchpad of activations
load destination=act length=64 memory=0 local=0 signal=store
store source=act length=64 local=0 memory=1024 wait=load
halt
"""


@pytest.fixture
def copied(tmp_path):
    path = tmp_path / "copy.asm"
    path.write_text(COPY, "utf-8")
    return path


def run(tilewright, copied, tmp_path, device):
    data, after = tmp_path / "data.bin", tmp_path / "after.bin"
    data.write_bytes(bytes(range(1, 65)) + bytes(1024))
    words = ["--config", "8x8", "--device", device, "--data", data, "-o", after]
    return tilewright("asm", copied, *words), data.read_bytes(), after.read_bytes()


def test_a_program_is_checked_timed_and_dumped(tilewright, copied, tmp_path):
    said, before, after = run(tilewright, copied, tmp_path, "sim")
    assert "checked: 3 instructions, 1 token, no conflict" in said
    assert "  store source=act length=64 local=0 memory=1024 wait=load" in said
    assert after == before[:1024] + before[:64]
    assert said.endswith(f"0x000430  {before[48:64].hex(' ')}\n")


@pytest.mark.parametrize("device", ["sim", "reference"])
def test_the_times_for_machines(tilewright, copied, device):
    said = json.loads(tilewright("asm", copied, "--config", "8x8", "--device", device, "--json"))
    assert (said["device"], said["configuration"], said["changed_bytes"]) == (device, "8x8", 0)
    load, store, halt = said["instructions"]
    assert (load["text"], halt["text"]) == (COPY.splitlines()[2].replace(" memory=0", ""), "halt")
    if device == "sim":
        assert 0 < load["start"] < load["retired"] < store["start"] < store["retired"]
        assert said["cycles"] == store["retired"]
    else:
        assert said["cycles"] is load["start"] is None
    assert halt["start"] is None


@pytest.mark.slow
def test_the_hardware_takes_the_same_cycles(tilewright, copied, tmp_path):
    on_sim, on_rtl = (run(tilewright, copied, tmp_path, device) for device in ("sim", "rtl"))
    assert on_rtl[0].replace("rtl: ", "sim: ") == on_sim[0]
    assert on_rtl[2] == on_sim[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("halt\nlode x=1", "line 2: "),
        ("load destination=act length=8 memory=0x10000 local=0\nhalt", "memory"),
        (COPY.replace(" wait=load", ""), "error: instruction 1 on line 4 (store): races with "
         "instruction 0 on line 3 (load): no token orders them"),
    ],
)  # fmt: skip
def test_faults_are_told_before_anything_runs(capsys, tmp_path, text, message):
    path = tmp_path / "wrong.asm"
    path.write_text(text, "utf-8")
    assert main(["asm", str(path), "--config", "8x8"]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_file(capsys, tmp_path):
    path = tmp_path / "none.asm"
    assert main(["asm", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"error: FILE.asm `{path}`: cannot be read, got `No such file or directory`; check the "
        "path\n"
    )


def test_a_trace_holds_the_instructions(tilewright, copied, tmp_path):
    path = tmp_path / "trace.json"
    said = tilewright("asm", copied, "--config", "8x8", "--trace", path, "--latency", "3")
    assert f"trace: `{path}`, " in said
    trace = json.loads(path.read_text())
    works = {event["name"]: event for event in trace["traceEvents"] if event.get("cat") == "work"}
    assert {"load", "store"} <= works.keys()
    assert "latency_cycles=3," in trace["otherData"]["memory"]
    times = {
        name: [int(cycle) for cycle in cycles]
        for *cycles, name in re.findall(r"^ +(\d+) +(\d+)  (\w+) ", said, re.M)
    }
    for name, (start, retired) in times.items():
        work = works[name]["args"]
        assert start <= work["cycle"] < work["cycle"] + work["cycles"] <= retired + 1


@pytest.mark.slow
def test_the_hardware_records_a_waveform_and_the_same_trace(capsys, copied, tmp_path):
    waveform, traces = tmp_path / "run.fst", [tmp_path / "sim.json", tmp_path / "rtl.json"]
    words = "asm", str(copied), "--config", "tiny"
    assert main([*words, "--trace", str(traces[0])]) == 0
    rtl = "--device", "rtl", "--trace", str(traces[1]), "--waveform", str(waveform)
    assert main([*words, *rtl]) == 0
    assert f"waveform: `{waveform}`, " in capsys.readouterr().out
    assert waveform.stat().st_size
    events = [json.loads(path.read_text())["traceEvents"] for path in traces]
    assert events[0] == events[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--waveform", "run.fst"], "`--waveform`: expected `--device rtl`, got `sim`"),
        (["--device", "reference", "--trace", "t.json"], "`--trace`: expected `--device sim`, "),
        (["--device", "reference", "--latency", "3"], "`--latency`: expected `--device sim`, "),
        (["--trace", "copy.asm"], "`--trace copy.asm`: expected another file than the input"),
    ],
)
def test_recordings_that_a_device_cannot_make(capsys, copied, monkeypatch, options, message):
    monkeypatch.chdir(copied.parent)
    assert main(["asm", "copy.asm", *options]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_a_program_that_nobody_wrote_is_refused_before_it_is_read(capsys, tmp_path):
    (tmp_path / "long.asm").write_text("halt\n" * 2_000_000)
    assert main(["asm", str(tmp_path / "long.asm"), "--config", "tiny"]) == 2
    assert "expected at most 262,144 instructions, got 2,000,000" in capsys.readouterr().err
