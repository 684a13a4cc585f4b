"""Arguments that make no sense: one line and exit code 2; interruptions and faults of our own."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.flows.cli import main as command
from tilewright.flows.cli.main import guarded, main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "the following arguments are required: MODEL; `tilewright run --help` shows "
         "what there is"),
        (["run", "m.onnx", "--zz", "x"], "unknown arguments `--zz x`; `tilewright run --help` "
         "shows what there is"),
        (["run", "m.onnx", "--device", "/dev/ttyUSB0"], "`--device /dev/ttyUSB0`: expected one of "
         "reference, sim, rtl, gate, host, gpu, or a board's address; did you mean "
         "`serial:///dev/ttyUSB0`?"),
        (["measure", "/dev/ttyUSB0"], "`measure /dev/ttyUSB0`: expected the address of a board: "
         "`serial://...`, `tcp://...` or `remote://AGENT/BOARD`; did you mean "
         "`serial:///dev/ttyUSB0`?"),
        (["tune", "m.onnx", "--schedule", "f"], "unknown arguments `--schedule f`; it is an "
         "option of `run`, `report`, `passes` and 2 others; `tilewright tune --help` shows what "
         "there is"),
        (["run", "m.onnx", "--device", "cpu"], "`--device cpu`: expected one of reference, sim, "
         "rtl, gate, host, gpu, or a board's address; `host` is this computer's processor"),
        (["asm", "m.asm", "--device", "cpu"], "`--device cpu`: expected one of reference, sim, "
         "rtl, gate, or a board's address; choose one"),
        (["asm", "m.asm", "--device", "ttyACM1"], "`--device ttyACM1`: expected one of reference, "
         "sim, rtl, gate, or a board's address; did you mean `serial:///dev/ttyACM1`?"),
        (["asm", "m.asm", "--device", "localhost:45871"], "`--device localhost:45871`: expected "
         "one of reference, sim, rtl, gate, or a board's address; did you mean "
         "`tcp://localhost:45871`?"),
        (["asm", "m.asm", "--device", "tcp:127.0.0.1:9"], "`--device tcp:127.0.0.1:9`: expected "
         "one of reference, sim, rtl, gate, or a board's address; did you mean "
         "`tcp://127.0.0.1:9`?"),
        (["asm", "m.asm", "--device", "ulx3s-25f"], "`--device ulx3s-25f`: expected one of "
         "reference, sim, rtl, gate, or a board's address; `tilewright doctor` shows the address "
         "of a board at a serial port, and `tilewright board --virtual ulx3s-25f` serves a virtual "
         "one"),
        (["run", "m.onnx", "--device", "rtl", "--waveform", "w.vcd"], "`--waveform w.vcd`: "
         "expected a name that ends in `.fst`; rename it"),
        (["run", "m.onnx", "--records", "my.db"], "`--records my.db`: there is no such file; "
         "`tilewright tune MODEL --database my.db` makes one"),
        (["report", "m.onnx", "-o", "r.pdf"], "`--output r.pdf`: expected a name that ends in "
         "`.html` or `.htm`; rename it"),
        (["sweep", "m.onnx", "-o", "r.csv"], "`--output r.csv`: expected a name that ends in "
         "`.html` or `.htm`; rename it"),
        (["config", "list", "--fast"], "unknown arguments `--fast`; `tilewright config list "
         "--help` shows what there is"),
        (["run", "m.onnx", "--device", "fpga"], "`--device fpga`: expected one of reference, sim, "
         "rtl, gate, host, gpu, or a board's address; choose one"),
        (["run", "m.onnx", "--technology", "ecp5"], "`--technology`: expected `--device gate`, got "
         "`sim`; only a netlist has cells"),
        (["report", "m.onnx", "--device", "gate", "--technology", "gowinn"], "`--technology "
         "gowinn`: expected one of ecp5, gowin, ice40; did you mean `gowin`?"),
        (["run", "m.onnx", "--samples", "0"], "`--samples 0`: expected 1 or more; correct it"),
        (["run", "m.onnx", "--seed", "-1"], "`--seed -1`: expected 0 or more; correct it"),
        (["run", "m.onnx", "--bandwidth", "fast"], "`--bandwidth fast`: expected pairs such "
         "as `1/4`, got `fast`; correct it"),
        (["run", "m.onnx", "--waveform", "w.fst"], "`--waveform`: expected `--device rtl`, got "
         "`sim`; only the RTL has waveforms"),
        (["run", "m.onnx", "--device", "reference", "--trace", "t.json"], "`--trace`: expected "
         "`--device sim`, `rtl` or `gate`, got `reference`; the definition of the instructions "
         "knows no time"),
        (["synth", "--config", "tiny"], "`--chip`: expected one of ecp5-25, ecp5-45, ecp5-85, "
         "up5k, gw2ar-18, gw2a-18, ccgm1a1, xc7z020, xc7a35t, xc7a100t, "
         "xczu3eg, xck26, 5csea6, asic, got none; choose one"),
        (["synth", "--chip", "ecp5_25"], "`--chip ecp5_25`: expected one of ecp5-25, ecp5-45, "
         "ecp5-85, up5k, gw2ar-18, gw2a-18, ccgm1a1, xc7z020, xc7a35t, xc7a100t, "
         "xczu3eg, xck26, 5csea6, asic; did you mean `ecp5-25`?"),
        (["synth", "--ledger", "--config", "tiny", "--chip", "asic"], "`--chip asic`: expected "
         "a chip with `--ledger` and `--check`; choose one"),
        (["synth", "--chip", "up5k", "--seeds", "0"], "`--seeds 0`: expected 1 or more; correct "
         "it"),
        (["synth", "--chip", "up5k", "--clock", "0"], "`--clock 0`: expected 1 to 1000 MHz; "
         "correct it"),
        (["synth", "--ledger", "--no-place"], "`--no-place`: expected `--check` with it, since "
         "rows of the ledger have a clock; leave it out"),
        (["synth", "--ledger", "--json"], "`--json`: expected one configuration without "
         "`--ledger` and `--check`; leave one of them out"),
        (["synth", "--chip", "up5k", "--check"], "`--ledger`, `--check`: expected both "
         "`--config` and `--chip` for one row, or none of them for all rows; add or remove one"),
        (["synth", "--config", "tiny", "--chip", "xczu3eg", "--check"], "`--check`: expected a "
         "row of docs/reference/area.md, got tiny on xczu3eg; add it with `--ledger`"),
        (["export", "m.onnx"], "one of the arguments --c --hex is required; `tilewright export "
         "--help` shows what there is"),
        (["export", "m.onnx", "--c", "c", "--input", "x.npz"], "`--input`: expected `--hex DIR`; "
         "the C takes its inputs when it runs"),
        (["verilog", "--multipliers", "-1"], "`--multipliers -1`: expected 0 or more; correct it"),
        (["verilog", "--memories", "list"], "`--memories list`: expected a name that ends in "
         "`.json`; rename it"),
        (["verilog", "--technology", "ecp"], "`--technology ecp`: expected one of portable, ecp5, "
         "xilinx7, ultrascale, gowin, ice40, gatemate, cyclone5, asic; choose one"),
        (["verilog", "-o", "core.txt"], "`--output core.txt`: expected a name that ends in `.v` or "
         "`.sv`; rename it"),
        (["run", "m.onnx", "--device", "host", "--trace", "t.json"], "`--trace`: expected "
         "`--device sim`, `rtl` or `gate`, got `host`; there are no cycles without an "
         "accelerator"),
        (["run", "m.onnx", "--device", "host", "--placement", "cost"], "`--placement cost`: "
         "expected a device that is an accelerator, got `--device host`; leave one of them out"),
        (["run", "m.onnx", "--device", "host", "--place", "a=accelerator"],
         "`--place a=accelerator`: expected a device that is an accelerator, got `--device host`; "
         "leave one of them out"),
        (["run", "m.onnx", "--place", "conv1"], "`--place conv1`: expected LAYER=host or "
         "LAYER=accelerator; correct it"),
        (["compile", "m.onnx", "--place", "conv1=fpga"], "`--place conv1=fpga`: expected "
         "LAYER=host or LAYER=accelerator; correct it"),
        (["compile", "m.onnx", "--clock", "0"], "`--clock 0`: expected a positive number; "
         "correct it"),
        (["run", "m.onnx", "--host-gops", "3", "--json"], "`--host-gops`: expected `--placement "
         "cost` or `--table`, which estimate times, got neither; add one, or leave it out"),
        (["compile", "m.onnx", "--link-gbps", "5"], "`--link-gbps`: expected `--placement cost` or "
         "`--table`, which estimate times, got neither; add one, or leave it out"),
        (["run", "m.onnx", "--device", "host", "--stalls", "0.1"], "`--stalls`: expected `--device "
         "sim`, `rtl` or `gate`, got `host`; it has no effect there, leave it out"),
        (["run", "m.onnx", "--device", "reference", "--latency", "9"], "`--latency`: expected "
         "`--device sim`, `rtl` or `gate`, got `reference`; it has no effect there, leave it out"),
        (["report", "m.onnx", "--device", "reference"], "`--device reference`: expected one of "
         "sim, rtl, gate, or a board's address; choose one"),
        (["what-if", "m.onnx", "--latency", "low"], "`--latency low`: expected a number of cycles "
         "without a unit, such as `64`, got `low`; correct it"),
        (["what-if", "m.onnx", "--bandwidth", "1,half"], "`--bandwidth 1,half`: expected pairs "
         "such as `1/4`, got `half`; correct it"),
        (["what-if", "m.onnx", "--vary", "bus_bits"], "`--vary bus_bits`: expected PARAM=N,... "
         "such as `bus_bits=64,128`; correct it"),
        (["config", "show", "16x16", "--set", "name=3"], "`--set name=3`: `name` stands in "
         "a file of parameters alone; begin one with `tilewright config show --json mine.json`, "
         "and give `--config mine.json`"),
        (["sweep", "m.onnx", "--latency", "10"], "unknown arguments `--latency 10`; give `--vary "
         "latency=VALUES`"),
        (["run", "m.onnx", "--shape", "x=1,8"], "unknown arguments `--shape x=1,8`; did you mean "
         "`--dim`?"),
        (["run", "m.onnx", "--dims", "N=1"], "unknown arguments `--dims N=1`; did you mean "
         "`--dim`?"),
        (["run", "m.onnx", "--rate", "50"], "unknown arguments `--rate 50`; it is an option of "
         "`sweep`; `tilewright run --help` shows what there is"),
        (["boards", "--config", "4x4"], "unknown arguments `--config`; it is an option of `run`, "
         "`report`, `what-if` and 13 others; `tilewright boards --help` shows what there is"),
        (["run", "m.onnx", "--chop", "x"], "unknown arguments `--chop x`; `tilewright run --help` "
         "shows what there is"),
        (["what-if", "a.onnx", "b.onnx"], "unknown arguments `b.onnx`; `tilewright what-if` takes "
         "one MODEL"),
        (["what-if", "m.onnx", "--bus-bits", "32,64"], "unknown arguments `--bus-bits 32,64`; give "
         "`--vary bus_bits=VALUES`"),
        (["run", "m.onnx", "--act-depth", "512"], "unknown arguments `--act-depth 512`; give "
         "`--set act_depth=VALUE`"),
        (["tune", "m.onnx", "--listing"], "unknown arguments `--listing`; did you mean `--list`?"),
        (["sweep", "m.onnx", "--clock", "0"], "`--clock 0`: expected a positive number; correct "
         "it"),
        (["sweep", "m.onnx", "--clock", "fast"], "`--clock fast`: expected a number; correct it"),
        (["run", "m.onnx", "--samples", "1.5"], "`--samples 1.5`: expected a whole number; "
         "correct it"),
    ],
)  # fmt: skip
def test_usage(fail, arguments, message):
    assert fail(*arguments) == (2, f"error: {message}")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "--dim", "N="), 2, "expected NAME=EXTENT with a whole number"),
        (("passes", "--until", ""), 2, "expected a position from 0 to"),
        (("run", "--device", "zynq:///a.bit?buffer="), 1, "expected `zynq:///PATH/BOARD.bit?"),
        (("run", "--device", "zynq://[?"), 1, "expected `zynq:///PATH/BOARD.bit?"),
    ],
)
def test_thousands_of_digits_and_broken_addresses_are_explained(fail, model, words, code, says):
    command_word, option, value = words
    found, said = fail(command_word, model, "--config", "8x8", option, value + "9" * 5000)
    assert found == code
    assert says in said


def test_a_result_file_that_cannot_be_written(model, tmp_path, capsys):
    target = tmp_path / "nowhere" / "result.json"
    assert main(["run", str(model), "--config", "8x8", "--json", str(target)]) == 2
    assert capsys.readouterr().err == (
        f"error: `--json {target}`: cannot be written, got `No such file or directory`; choose "
        "another path\n"
    )


@pytest.mark.parametrize("words", [("run", "--trace"), ("report", "--output")])
def test_a_timeline_or_page_that_cannot_be_written(fail, model, tmp_path, words):
    command_word, option = words
    target = tmp_path / "nowhere" / "file"
    code, said = fail(command_word, model, "--config", "8x8", option, target)
    assert (code, said) == (
        2,
        f"error: `{option} {target}`: cannot be written, got `No such file or directory`; choose "
        "another path",
    )


def test_a_machine_that_needs_another_program(fail, model):
    assert fail("what-if", model, "--config", "8x8", "--vary", "lanes_in=4,8") == (
        2,
        "error: `--vary lanes_in=...`: expected one of `queue_depth`, `outstanding_bursts`, "
        "`bus_bits`, `burst_beats`, which leave the program as it is; `lanes_in` changes its words "
        "or its tokens: compile the model for each value with `--set lanes_in=...`",
    )


def test_a_parameter_that_no_machine_has(fail, model):
    assert fail("what-if", model, "--config", "8x8", "--vary", "clock=2") == (
        2,
        "error: `--vary clock=...`: expected one of `queue_depth`, `outstanding_bursts`, "
        "`bus_bits`, `burst_beats`; choose one",
    )


def test_a_memory_that_no_memory_is(fail, model):
    assert fail("what-if", model, "--config", "8x8", "--latency", "64,0") == (
        2,
        "error: `--latency 64,0`: `latency_cycles` must be from 1 to 1048576, not 0",
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu", "m.onnx"], "unknown command `rnu`; did you mean `run`?"),
        (["frobnicate"], "unknown command `frobnicate`; `tilewright --help` lists them"),
        (["config", "shwo"], "unknown action `shwo`; did you mean `show`?"),
        (["run", "m.onnx", "--device", "tcp://localhost:1", "--latency", "9"], "`--latency`: "
         "expected `--device sim`, `rtl` or `gate`, got `tcp://localhost:1`; it has no effect "
         "there, leave it out"),
        (["board"], "`board`: expected `--virtual`; a board of silicon needs no server, open it "
         "with `--device 'serial:///dev/ttyUSB0?baud=3000000'`"),
        (["board", "--virtual", "--uart", "1"], "`--uart 1`: expected 4 to 65536; correct it"),
        (["board", "--virtual", "--terminal", "--port", "9"], "`--terminal`, `--port`: expected "
         "one of them; leave one out"),
        (["board", "--virtual", "--fault", "flop=0.1"], "`--fault flop=0.1`: expected "
         "NAME=PROBABILITY per byte, with NAME one of lose, flip, pause, reset, unplug, for "
         "example `--fault flip=0.001`"),
        (["board", "--virtual", "--fault", "flip=often"], "`--fault flip=often`: expected "
         "NAME=PROBABILITY per byte, with NAME one of lose, flip, pause, reset, unplug, for "
         "example `--fault flip=0.001`"),
        (["run", "m.onnx", "--device", "simm"], "`--device simm`: expected one of reference, sim, "
         "rtl, gate, host, gpu, or a board's address; did you mean `sim`?"),
        (["run", "m.onnx", "--placement", "costs"], "`--placement costs`: expected one of "
         "accelerator, cost, host; did you mean `cost`?"),
        (["run", "m.onnx", "--placment", "cost"], "unknown arguments `--placment cost`; did you "
         "mean `--placement`?"),
    ],
)  # fmt: skip
def test_the_nearest_word_is_suggested(fail, words, message):
    assert fail(*words) == (2, f"error: {message}")


def test_bytes_where_text_is_expected(fail, model):
    assert fail("asm", model) == (
        2,
        f"error: FILE.asm `{model}`: expected a program as text, got bytes; `--data` takes those",
    )
    code, said = fail("compile", model, "--schedule", f"dense={model}")
    assert (code, said) == (
        2,
        f"error: `--schedule dense={model}`: `{model}` cannot be read (it is not text in UTF-8); "
        "correct the path",
    )


def test_a_layer_that_is_misspelt(fail, model, tmp_path, capsys):
    path = tmp_path / "digits.tw"
    assert main(["compile", str(model), "-o", str(path)]) == 0
    capsys.readouterr()
    code, said = fail("inspect", path, "--layer", "desne")
    assert (code, said.rpartition("; ")[2]) == (2, "did you mean `dense`?")


def test_a_parameter_that_is_misspelt(fail):
    code, said = fail("config", "show", "16x16", "--set", "act_dpeth=8")
    assert (code, said.rpartition("; ")[2]) == (2, "did you mean `act_depth`?")


def test_other_spellings_mean_the_same(capsys):
    for words in (["CONFIG", "check", "16X16"], ["config", "check", "Tiny"]):
        assert main(words) == 0
    assert capsys.readouterr().out.startswith("legal: 16x16 (")
    with pytest.raises(SystemExit) as stopped:
        main(["quantize", "--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("usage: tilewright quantise ")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "quantize" not in capsys.readouterr().out


def test_output_that_has_no_room_is_told():
    run = [sys.executable, "-m", command.__name__, "config", "list"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "error: output: cannot be read or written, got `No space left on device`; make room, check "
        "the permissions, or choose another path\n",
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_file_that_the_system_refuses_is_no_fault_of_ours(number, capsys):
    def refuse() -> None:
        raise OSError(number, os.strerror(number), "some/file")

    assert guarded(refuse) == 1
    assert capsys.readouterr().err == (
        f"error: file `some/file`: cannot be read or written, got `{os.strerror(number)}`; make "
        "room, check the permissions, or choose another path\n"
    )


@pytest.mark.parametrize("option", ["--trace", "--json", "--output"])
def test_a_full_disk_leaves_no_part_of_a_file(fail, model, tmp_path, monkeypatch, option):
    name = "out.html" if option == "--output" else "out.json"
    replace, target = os.replace, tmp_path / name

    def refuse(source, place) -> None:
        if Path(place) == target:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, place)

    monkeypatch.setattr("os.replace", refuse)
    words = ["report", model] if option == "--output" else ["run", model]
    assert fail(*words, option, target) == (
        2,
        f"error: `{option} {target}`: cannot be written, got `No space left on device`; make room, "
        "or choose another path",
    )
    assert not list(tmp_path.iterdir())


LONG_WORK = {
    "sweep": ["--output", "--export", "--json"],
    "ablation": ["--figure", "--json"],
    "quantise": ["--output"],
    "compile": ["--output"],
    "report": ["--output", "--json"],
    "run": ["--trace", "--json"],
    "tune": ["--export", "--output"],
}
"""Commands that can run for minutes, and their options that name an output file."""


@pytest.mark.parametrize(
    ("words", "option"), [(words, option) for words in LONG_WORK for option in LONG_WORK[words]]
)
def test_outputs_are_checked_before_the_model_is_read(fail, tmp_path, words, option):
    target = tmp_path / "nowhere" / {"--figure": "f.svg", "--export": "e.csv"}.get(option, "f.json")
    samples = ["--calibrate", tmp_path / "absent.npz"] if words == "quantise" else []
    code, said = fail(words, tmp_path / "absent.onnx", *samples, option, target)
    assert code == 2
    assert f"{target}`: cannot be written, got `No such file or directory`" in said


@pytest.mark.parametrize(
    ("words", "option"),
    [("report", "--output"), ("compile", "--output"), ("sweep", "--output"), ("run", "--trace"),
     ("quantise", "--output"), ("tune", "--output")],
)  # fmt: skip
def test_an_output_never_replaces_the_model(fail, model, tmp_path, words, option):
    copy = tmp_path / "mine.onnx"
    copy.write_bytes(Path(model).read_bytes())
    same = tmp_path / "link.onnx"
    same.symlink_to(copy)
    samples = ["--calibrate", tmp_path / "samples.npz"] if words == "quantise" else []
    code, said = fail(words, copy, *samples, option, same)
    assert code == 2
    assert said.endswith("expected another file than the input; choose another path")
    assert copy.read_bytes() == Path(model).read_bytes()


def test_names_that_the_terminal_lacks_are_escaped(tmp_path):
    path = tmp_path / "größe.onnx"
    run = [sys.executable, "-m", command.__name__, "run", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(run, env=environment, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: model `")
    assert b"gr\\xf6\\xdfe.onnx`" in done.stderr
