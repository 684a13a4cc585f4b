"""Arguments that make no sense: one line and exit code 2; interruptions and faults of our own."""

import os
import subprocess
import sys

import pytest

from tilewright.flows import command
from tilewright.flows.command import guarded, main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "the following arguments are required: MODEL; `tilewright run --help` shows "
         "what there is"),
        (["run", "m.onnx", "--device", "fpga"], "`--device fpga`: expected one of reference, sim, "
         "rtl; choose one"),
        (["run", "m.onnx", "--samples", "0"], "`--samples 0`: expected 1 or more; correct it"),
        (["run", "m.onnx", "--seed", "-1"], "`--seed -1`: expected 0 or more; correct it"),
        (["run", "m.onnx", "--bandwidth", "fast"], "`--bandwidth fast`: expected BEATS/CYCLES, "
         "for example `--bandwidth 1/4`"),
        (["run", "m.onnx", "--waveform", "w.fst"], "`--waveform`: expected `--device rtl`, got "
         "`sim`; only hardware has waveforms"),
        (["config", "show", "16x16", "--set", "name=3"], "`--set name=...`: expected a parameter "
         "of the machine; leave it out"),
    ],
)  # fmt: skip
def test_usage(fail, arguments, message):
    assert fail(*arguments) == (2, f"error: {message}")


def test_a_result_file_that_cannot_be_written(model, tmp_path, capsys):
    target = tmp_path / "nowhere" / "result.json"
    assert main(["run", str(model), "--config", "8x8", "--json", str(target)]) == 2
    assert capsys.readouterr().err == (
        f"error: `--json {target}`: cannot be written, got `No such file or directory`; choose "
        "another path\n"
    )


def test_an_interruption(capsys):
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert guarded(interrupt) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_a_fault_of_our_own(capsys):
    def fault() -> None:
        raise ZeroDivisionError("division by zero")

    assert guarded(fault) == 1
    assert capsys.readouterr().err == (
        "error: unexpected ZeroDivisionError: division by zero; this is a fault of Tilewright: "
        "call the command again with `-v` and report what it prints\n"
    )


@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_adds_the_traceback(place, capsys):
    words = (
        ["-v", "config", "show", "none"] if place == "before" else ["config", "show", "none", "-v"]
    )
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.splitlines()[-1].startswith("error: configuration `none`: neither a preset")


def test_a_reader_that_goes_away_is_no_error():
    run = [sys.executable, "-m", command.__name__, "config", "list"]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(run, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
