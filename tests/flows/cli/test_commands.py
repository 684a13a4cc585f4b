"""`compile`, `inspect`, `config`, `doctor` and the options of `tilewright` itself."""

import json
import re
import subprocess
import sys
import warnings
from functools import partial

import pytest

import tilewright as package
from tilewright.compiler.graph import parse_graph
from tilewright.errors import CompileError, KernelWarning, warn_of_kernel
from tilewright.flows.area import provenance
from tilewright.flows.area.model import estimate
from tilewright.flows.area.resources import resources
from tilewright.flows.cli.commands import doctor
from tilewright.flows.cli.main import guarded, main
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.isa.assembly import parse_program
from tilewright.isa.configuration import CONTRACT_VERSION, PARAMETERS, PRESETS
from tilewright.isa.settings import load_configuration
from tilewright.runtime import load

NODES = ["conv1", "conv2", "conv3", "residual", "pool", "dense"]
"""Of the digits' network, on the accelerator; layers may hold several."""


def test_compile_names_the_file_after_the_model(tilewright, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = tilewright("compile", model)
    module = load(tmp_path / "digits_int8_qdq.tw")
    layers = len(module.segments[0].layers)
    assert said.startswith(f"digits_int8_qdq.tw: {layers} accelerator layers in ")
    assert module.configuration == PRESETS["16x16"]


def test_inspect_is_assembly_of_the_whole_program(tilewright, artifact):
    said = tilewright("inspect", artifact)
    assert parse_program(said) == load(artifact).segments[0].program


def test_inspect_names_layers_and_tiles(tilewright, artifact):
    said = tilewright("inspect", artifact)
    lines = said.splitlines()
    assert "# host: dequantize gives `logits.logits_scale`" in lines
    titles = [line for line in lines if line.startswith("# layer ")]
    titles = [title for title in titles if not title.endswith(", continued")]
    names = [title.partition(" (")[0].removeprefix("# layer ") for title in titles]
    assert " + ".join(names).split(" + ") == NODES
    layers = load(artifact).segments[0].layers
    counts = [
        line.split() for line in lines if line.startswith("#     ") and "instructions" in line
    ]
    assert [(int(row[1]), row[3], " ".join(row[4:])) for row in counts] == [
        (len(layer.places), layer.op, name) for layer, name in zip(layers, names, strict=True)
    ]
    assert any(line.startswith("# nodes `residual`, `pool`") for line in lines)
    assert "# node `dense`" in lines
    assert "#   load parameters `bias`" in lines
    assert "#   gemm `acc`" in lines


def test_inspect_shows_one_layer(tilewright, artifact):
    module = load(artifact)
    layer = module.segments[0].layers[1]
    said = tilewright("inspect", artifact, "--layer", "conv2")
    assert said.strip().startswith("# layer conv2 (conv): 73,728 MACs\n")
    assert parse_program(said) == tuple(module.segments[0].program[at] for at in layer.places)


@pytest.mark.parametrize("node", ["conv3", "residual"])
def test_inspect_shows_the_layer_that_holds_a_node(tilewright, artifact, node):
    module = load(artifact)
    layer = module.segments[0].layers[2 + (node != "conv3")]
    said = tilewright("inspect", artifact, "--layer", node)
    assert said.strip().startswith(f"# layer {'conv3' if node == 'conv3' else 'residual + pool'}")
    assert said.partition(" (")[2].startswith(layer.op)
    assert parse_program(said) == tuple(module.segments[0].program[at] for at in layer.places)


def test_inspect_shows_the_graph(tilewright, artifact):
    graph = load(artifact).graph
    said = tilewright("inspect", artifact, "--graph")
    assert parse_graph(said, {c.name: c.data for c in graph.constants}) == graph


def test_inspect_speaks_json(tilewright, artifact):
    found = json.loads(tilewright("inspect", artifact, "--json"))
    (segment,) = found["segments"]
    program = load(artifact).segments[0].program
    texts = [i["text"] for layer in segment["layers"] for i in layer["instructions"]]
    assert sorted(map(repr, parse_program("\n".join(texts)))) == sorted(map(repr, program[:-1]))
    (only,) = json.loads(tilewright("inspect", artifact, "--json", "--layer", "residual"))[
        "segments"
    ]
    (layer,) = only["layers"]
    assert layer["nodes"] == ["residual", "pool"]
    assert layer["name"] == " + ".join(layer["nodes"])


def test_config_lists_every_preset(tilewright):
    lines = tilewright("config", "list").splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(PRESETS)
    for line, preset in zip(lines, PRESETS.values(), strict=True):
        assert line.split()[-1] == f"{preset.hash:#010x}"


@pytest.mark.parametrize("name", PRESETS)
def test_config_show_json_is_a_file_that_config_reads(tilewright, name, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(tilewright("config", "show", name, "--json", "--set", "token_bits=3"))
    assert load_configuration(str(path)).hash == PRESETS[name].replace(token_bits=3).hash
    assert tilewright("config", "check", path).startswith(f"legal: {name},token_bits=3 (")
    told = json.loads(tilewright("config", "check", path, "--json"))
    assert (told["legal"], told["name"]) == (True, f"{name},token_bits=3")


def test_config_show_tells_parameters_and_sizes(tilewright):
    said = tilewright("config", "show", "8x16")
    rows = [line.split() for line in said.splitlines()]
    for name, value in PRESETS["8x16"].parameters().items():
        assert [name, str(value)] in [row[:2] for row in rows]
    assert ["ACT", "8192", "x", "8", "4", "65,536"] in rows


def test_config_show_tells_what_a_chip_must_have(tilewright):
    shown = tilewright("config", "show", "4x4", "--chip", "ecp5-45").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in shown[-17:]}
    found = estimate(PRESETS["4x4"], multipliers=72)
    assert rows["ecp5-45,"] == ["unit", "LUT", "FF", "RAM", "multipliers"]
    assert rows["array"][2:] == ["-", "12"]
    assert rows["gemm"] == [
        *(f"{found.units['gemm'][name]:,}" for name in ("lut", "ff")),
        "10",
        "-",
    ]
    assert rows["core"] == [f"{found.lut:,}", f"{found.ff:,}", "30", "28"]
    assert rows["chip"] == ["43,848", "43,848", "108", "72"]
    assert rows["share"][2:] == ["28%", "39%"]
    assert shown[-2].startswith("LUT and FF are estimates, in the median ")
    assert shown[-1].startswith("clock: about ")


def test_config_show_says_which_options_its_estimates_leave_out(tilewright, monkeypatch):
    shown = partial(tilewright, "config", "show", "4x4", "--set", "packed_weights=int4")
    left_out = "the estimates leave out packed_weights, which no measured machine has"
    monkeypatch.setattr(provenance, "_measured_options", frozenset)
    assert left_out in shown().splitlines()
    assert "leave out" not in tilewright("config", "show", "4x4")
    monkeypatch.setattr(provenance, "_measured_options", lambda: frozenset({"packed_weights"}))
    assert "leave out" not in shown()


def test_config_show_tells_gate_equivalents(tilewright):
    shown = tilewright("config", "show", "4x4", "--chip", "asic").splitlines()
    found = resources(PRESETS["4x4"], DEVICES["asic"]).used
    assert shown[-2].split() == ["core", *(f"{count:,}" for count in found.values())]
    assert shown[-1].startswith("gate equivalents and FF are estimates, in the median ")
    assert shown[-1].endswith(" off; others are exact")


def test_config_show_says_that_the_clock_of_a_huge_array_is_unknown(tilewright):
    changes = ("--set", "lanes_in=64", "--set", "lanes_out=64", "--chip", "ecp5-85")
    shown = tilewright("config", "show", "16x16", *changes).splitlines()
    assert shown[-1] == "clock: unknown for this size; measure it with `tilewright synth`"


def test_config_show_tells_when_a_chip_is_too_small(tilewright):
    shown = tilewright("config", "show", "16x16", "--chip", "ecp5-25").splitlines()
    assert "ecp5-25 has too few: LUT, FF, RAM, multipliers" in shown
    assert "ecp5-85, unit " in tilewright("config", "show", "16x16")


def test_config_show_tells_what_only_synthesis_can_tell(tilewright):
    shown = tilewright("config", "show", "gatemate", "--chip", "ccgm1a1").splitlines()
    assert shown[-4].split() == ["core", "unknown", "unknown", "22"]
    assert shown[-2].split() == ["share", "-", "-", "34%"]
    assert shown[-1] == (
        "only synthesis tells what is unknown: `tilewright synth --config gatemate --chip ccgm1a1 "
        "--no-place`"
    )


def test_doctor_tells_machines_the_same(tilewright):
    found, said = json.loads(tilewright("doctor", "--json")), tilewright("doctor")
    for tool in found["tools"]:
        assert (tool["usable"], tool["mend"]) == (True, "")
        assert re.search(rf"^{re.escape(tool['name'])} +usable ", said, re.M)
    for need in found["commands"]:
        assert need["commands"] in said
        assert bool(need["missing"]) == bool(need["remedy"])


def test_presets_for_machines(tilewright):
    presets = json.loads(tilewright("config", "list", "--json"))
    lines = tilewright("config", "list").splitlines()[1:]
    assert [(each["name"], each["hash"]) for each in presets] == [
        (words[0], words[-1]) for words in map(str.split, lines)
    ]


def test_doctor_finds_this_machine_usable(tilewright):
    said = tilewright("doctor")
    assert "all 12 tools that every command needs are usable\n" in said
    assert "NOT USABLE" not in said


def test_doctor_tells_findings_as_it_makes_them(capsys, monkeypatch):
    """A cold start takes a minute on a busy machine, so each finding is told at once."""
    monkeypatch.setattr("tilewright.flows.cli.progress.LINE_SECONDS", 0.0)
    seen = []

    def processor():
        seen.append(capsys.readouterr())
        return doctor.Finding("llvmlite", True, "tried")

    monkeypatch.setattr(doctor, "_processor", processor)
    assert main(["doctor"]) == 0
    (before,) = seen
    assert before.out.splitlines()[-1].startswith("rich            usable ")
    assert re.search(r"^\d+ s: trying llvmlite, 7 of 12$", before.err, re.M)


def test_doctor_starts_without_the_packages_that_it_examines():
    """Else a missing one would end it, and a cold start would be silent."""
    code = (
        "import sys; import tilewright.flows.cli.commands.doctor; "
        f"print(*sorted(set({doctor.PACKAGES}) & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["run", "m.onnx", "--config", ""], "`--config`"),
        (["run", "m.onnx", "--config="], "`--config`"),
        (["compile", "m.onnx", "-o", ""], "`-o`"),
        (["run", ""], "an argument"),
        ([""], "an argument"),
    ],
)
def test_an_empty_value_is_no_default(capsys, words, what):
    """A shell makes it of `"$MACHINE"` that is not set."""
    assert main(words) == 2
    assert capsys.readouterr().err == (
        f"error: {what}: expected a value, got an empty one; give one, or leave it out\n"
    )


def test_version_tells_package_and_contract(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    expected = f"tilewright {package.__version__} (contract {CONTRACT_VERSION})\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    "command", ["run", "compile", "inspect", "export", "config", "doctor", "synth", "verilog"]
)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"usage: tilewright {command}" in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "shown"), [([], ""), (["help"], ""), (["help", "run"], " run")])
def test_help_needs_no_dashes(typed, shown, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(typed)
    assert stopped.value.code == 0
    assert f"usage: tilewright{shown} [" in capsys.readouterr().out


def test_config_show_explains_every_parameter(tilewright, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = tilewright("config", "show", "8x16").splitlines()
    for name, about in PARAMETERS.items():
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        assert about.meaning in line
        assert about.legal in line
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, tilewright("config", "show", "8x16").splitlines()[1:])) <= 80


def test_a_warning_is_one_line(capsys):
    def call() -> None:
        warn_of_kernel("Product", CompileError("no registers\nleft"))

    with warnings.catch_warnings():
        warnings.simplefilter("always", KernelWarning)
        assert guarded(call) == 0
    assert capsys.readouterr().err == (
        "warning: host kernel `Product` does not compile, so NumPy computes it, which takes "
        "longer: no registers left; this is a fault of Tilewright: report it with the model\n"
    )


def test_the_package_runs_as_the_command(tmp_path):
    command = [sys.executable, "-m", "tilewright"]
    shown = subprocess.run([*command, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.startswith("tilewright ")
    failed = subprocess.run([*command, "run", "nope"], cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: model `nope`")
