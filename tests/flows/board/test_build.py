"""`tilewright build` and `tilewright flash` with programs in place of the tools."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewright.flows.board.design import Design
from tilewright.flows.board.floorplan import COLOURS
from tilewright.flows.board.known_boards import pin_boards
from tilewright.flows.cli.live_page import LivePage
from tilewright.flows.cli.live_steps import LiveSteps
from tilewright.flows.cli.main import main
from tilewright.isa.configuration import PRESETS

YOSYS = """
module = {"cells": {}, "netnames": {}, "ports": {}}
json.dump({"modules": {"top": module}}, open("mapped.json", "w"))
"""

NEXTPNR = """
seed = int(given[given.index("--seed") + 1]) if "--seed" in given else 0
bels = ("TRELLIS_COMB", "TRELLIS_FF", "DP16KD", "MULT18X18D")
used = json.loads(os.environ.get("FAKE_USED", "[100, 100, 10, 12]"))
rounds = 5000 if 0 < seed <= int(os.environ.get("FAKE_STUCK", "0")) else 0
for number in range(1, 1 + rounds):
    conflicts = max(2, 900 - number)
    print(f"Info:     iter={number} wires=9000 overused={conflicts} overuse=7", flush=True)
path = [("clk-to-q", 0.5, "a"), ("routing", 9.0, "b"), ("logic", 1.0, "b")]
json.dump({
    "utilization": {bel: {"used": count, "available": 0} for bel, count in zip(bels, used)},
    "fmax": {"clk": {"achieved": 60.0 + 10 * seed, "constraint": 80}},
    "critical_paths": [{"from": "clk", "to": "clk", "path": [
        {"type": kind, "delay": ns, "to": {"cell": "system.core.gemm." + name}}
        for kind, ns, name in path]}],
}, open("report.json", "w"))
if "--sdf" in given:
    open("wires.sdf", "w").close()
if "--textcfg" in given:
    open("layout", "w").write("layout of seed " + str(seed))
    array = "system.core.gemm.array."
    places = {array + "a": "X3/Y2/A", array + "b": "X4/Y2/A", array + "c": "X3/Y2/B"}
    places |= {"$lut$1": "X3/Y2/C", "system.uart.d": "X0/Y0/A", "e": ""}
    cells = {name: {"attributes": {"NEXTPNR_BEL": bel}} for name, bel in places.items()}
    json.dump({"modules": {"top": {"cells": cells}}}, open("placed.json", "w"))
"""

ECPPACK = """
open(given[-1], "w").write("bits of " + open(given[-2]).read())
"""

LOADER = """
open(os.environ["FAKE_LOG"], "w").write(json.dumps(given))
sys.exit(int(os.environ.get("FAKE_CODE", "0")))
"""


PROGRAMS = {
    "YOSYS": YOSYS,
    "NEXTPNR_ECP5": NEXTPNR,
    "ECPPACK": ECPPACK,
    "OPENFPGALOADER": LOADER,
}


@pytest.fixture(scope="module")
def elaborated(tmp_path_factory) -> Path:
    """A cache with the RTL alone, which takes seconds."""
    folder = tmp_path_factory.mktemp("elaborated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(folder))
        Design(replace(pin_boards()["ULX3S-25F"], clock_mhz=80), PRESETS["tiny"]).rtlil()
    return folder


@pytest.fixture
def tools(elaborated, tmp_path, monkeypatch) -> Path:
    """Programs in place of the tools, which note their calls in a file."""
    calls = tmp_path / "calls"
    shutil.copytree(elaborated, tmp_path / "cache")
    for name, code in PROGRAMS.items():
        program = tmp_path / name.lower()
        program.write_text(
            f"#!{sys.executable}\nimport json, os, sys\ngiven = sys.argv[1:]\n"
            'if given == ["-V"]:\n    sys.exit(print("1.0"))\n'
            f"open({str(calls)!r}, 'a').write({name!r} + '\\n')\n{code}"
        )
        program.chmod(0o755)
        monkeypatch.setenv(name, str(program))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "loader"))
    monkeypatch.chdir(tmp_path)
    return calls


BUILD = ["build", "--board", "ULX3S-25F", "--config", "tiny", "--clock", "80"]


def test_a_build_places_until_the_clock_is_met(tools, tmp_path, tilewright):
    report = json.loads(tilewright(*BUILD, "--json"))
    assert report["seeds"] == {"1": 70.0, "2": 80.0}
    assert report["meets_clock"]
    assert report["clock_mhz"] == 80
    assert report["hash"] == f"{PRESETS['tiny'].hash:#010x}"
    assert report["resources"] == {"lut": 100, "ff": 100, "ram": 10, "multipliers": 12}
    folder = tmp_path / "build" / "ULX3S-25F"
    assert json.loads((folder / "build.json").read_text()) == report
    assert (folder / "ULX3S-25F.bit").read_text() == "bits of layout of seed 2"
    assert sorted(path.name for path in folder.glob("[!.]*")) == [
        "ULX3S-25F.bit", "build.json", "floorplan.svg",
    ]  # fmt: skip
    picture = (folder / "floorplan.svg").read_text()
    ElementTree.fromstring(picture)
    assert "tiny on ULX3S-25F, 80.0 MHz: cells" in picture
    for legend in "array: 3<", "memory and bridge: 1<", "without a name: 1<":
        assert legend in picture
    assert f'x="30" y="52" width="11" height="5" fill="{COLOURS["array"]}"' in picture

    before = tools.read_text()
    said = tilewright(*BUILD, "-o", tmp_path / "again")
    assert tools.read_text() == before + "ECPPACK\n", "all else is kept"
    assert "placed         70.0 MHz with seed 1, 80.0 MHz with seed 2" in said
    assert f"next           tilewright flash {tmp_path / 'again'}" in said
    assert "--config tiny --device 'serial:///dev/ttyUSB0?baud=3000000'" in said


def served(words: Sequence[object], monkeypatch) -> tuple[int, str, str]:
    """Exit code of a build, and its page while a tool works and at the end."""
    pages: list[LiveSteps] = []
    texts: list[str] = []
    beside = LiveSteps.beside

    def watched(steps, advance):
        pages.append(steps)

        def noted(text: str, done: int, total: int | None) -> None:
            advance(text, done, total)
            texts.append(steps.page.text())

        return beside(steps, noted)

    monkeypatch.setattr(LiveSteps, "beside", watched)
    monkeypatch.setattr(LivePage, "keep", lambda page, what: page.close())
    code = main([str(word) for word in (*words, "--serve")])
    return code, texts[-1], pages[0].page.text()


def test_a_build_is_watched(tools, tmp_path, monkeypatch, capsys):
    code, during, after = served([*BUILD, "-o", tmp_path / "out"], monkeypatch)
    assert code == 0
    assert "watch the build in a browser" in capsys.readouterr().err
    assert "at work" in during
    assert re.search("<td[^>]*>tiny on ULX3S-25F: seed 1", after)
    assert f"bitstream: {tmp_path / 'out' / 'ULX3S-25F.bit'}" in after


def test_a_build_that_misses_its_clock_says_so_on_its_page(tools, monkeypatch, capsys):
    code, _, after = served([*BUILD, "--seeds", "1"], monkeypatch)
    assert code == 1
    assert "at work" not in after
    assert "80" in capsys.readouterr().err
    assert re.search("role=status>[^<]*clock", after)


def test_a_tool_that_fails_ends_the_page(tools, monkeypatch, capsys):
    monkeypatch.setenv("YOSYS", "/bin/false")
    code, _, after = served(BUILD, monkeypatch)
    assert code == 1
    assert "`yosys` rejected the design" in after


def test_a_project_that_is_written_at_once_has_no_page(capsys):
    assert main(["build", "--board", "PYNQ-Z1", "--serve"]) == 2
    assert "`--serve`: expected a board whose bitstream is built here" in capsys.readouterr().err


def test_a_missed_clock_names_the_path_and_remedies(tools, tmp_path, capsys):
    assert main([*BUILD, "--seeds", "1"]) == 1
    said = capsys.readouterr()
    assert said.err.splitlines()[-1] == (
        "error: `ULX3S-25F` at 80 MHz: the best of 1 seed reaches 70.0 MHz, since a path of 10.5 "
        "ns, 9.0 ns of them in wires, leads through `system.core.gemm.b`; ask for `--clock 70`, "
        "try more placements with `--seeds`, or lower `vector_lanes`, then `lanes_in` or "
        "`lanes_out`"
    )
    assert "system.core.gemm.b" in said.out
    assert not (tmp_path / "build").exists()


def test_a_router_that_is_stuck_gets_another_placement(tools, monkeypatch, tilewright, capsys):
    monkeypatch.setenv("FAKE_STUCK", "1")
    assert json.loads(tilewright(*BUILD, "--json"))["seeds"] == {"2": 80.0}
    monkeypatch.setenv("FAKE_STUCK", "9")
    assert main([*BUILD, "--seeds", "1", "--set", "queue_depth=4"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: `ULX3S-25F`: the router is stuck (wires in conflict: 2); try more placements with "
        "`--seeds`, or a smaller machine"
    )


def test_a_design_that_does_not_fit_is_never_placed(tools, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_USED", "[30000, 100, 10, 12]")
    assert main(BUILD) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: configuration `tiny` on `ULX3S-25F`: needs 30,000 LUT, the device has 24,288; "
        "lower `vector_lanes`, then `lanes_in` or `lanes_out`, or take a board with `ecp5-45`; "
        "without `--config`, the board takes `ecp5-25`, which fits"
    )
    assert tools.read_text() == "YOSYS\nNEXTPNR_ECP5\n"


def test_a_core_that_is_too_large_is_refused_at_once(tools, capsys):
    assert main(["build", "--board", "ULX3S-25F", "--config", "16x16"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error: configuration `16x16` on `ULX3S-25F`: needs 208 RAM, the device has 56; lower "
        "`act_depth`, `wgt_depth` or `acc_depth`, or the number of their banks; needs 160 "
    )
    assert said.endswith("without `--config`, the board takes `ecp5-25`, which fits\n")
    assert not tools.exists()


def test_the_address_of_a_board_is_one_word_of_a_shell(tools, tilewright):
    """`zsh` refuses a word with `?` that no file matches."""
    command = tilewright(*BUILD).splitlines()[-1]
    assert command.endswith(" --device 'serial:///dev/ttyUSB0?baud=3000000'")


def test_a_missing_packer_is_told_before_the_work(tools, monkeypatch, capsys):
    monkeypatch.setenv("ECPPACK", "no-such-packer")
    assert main(BUILD) == 3
    assert "`ECPPACK` is `no-such-packer`, which is not a program" in capsys.readouterr().err
    assert not tools.exists()


def test_a_tool_that_is_killed_is_no_wrong_design(tools, monkeypatch, capsys):
    Path(tools.parent / "yosys").write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "if sys.argv[1:] == ['-V']:\n    sys.exit(print('1.0'))\nos.kill(os.getpid(), 9)\n"
    )
    assert main(BUILD) == 1
    assert "`yosys` was killed by signal 9; free some memory" in capsys.readouterr().err


def test_flash_calls_the_loader(tools, tmp_path, tilewright):
    tilewright(*BUILD)
    assert tilewright("flash", "--board", "ulx3s-25f") == (
        "ULX3S-25F: loading build/ULX3S-25F/ULX3S-25F.bit\n"
    )
    loaded = tmp_path / "loader"
    assert json.loads(loaded.read_text()) == ["-b", "ulx3s", "build/ULX3S-25F/ULX3S-25F.bit"]
    tilewright("flash", "build/ULX3S-25F", "--keep")
    assert json.loads(loaded.read_text())[:3] == ["-b", "ulx3s", "-f"]


def test_flash_says_what_is_wrong(tools, monkeypatch, capsys):
    def fails(*words: str) -> tuple[int, str]:
        code = main(["flash", *words])
        return code, capsys.readouterr().err

    assert fails() == (
        2, "error: `flash`: expected either the folder of a build or `--board`; give one of them\n"
    )  # fmt: skip
    assert fails("nowhere") == (
        2, "error: folder `nowhere`: expected the bitstream of a build, got none; run `tilewright "
        "build --board NAME` first\n",
    )  # fmt: skip
    Path("deep").mkdir()
    Path("deep", "build.json").write_text("[" * 100_000)
    assert fails("deep")[1].startswith("error: folder `deep`: expected the bitstream of a build")
    assert fails("ULX3S-85F")[1].endswith("run `tilewright build --board ULX3S-85F` first\n")
    assert main(BUILD) == 0
    capsys.readouterr()
    monkeypatch.setenv("FAKE_CODE", "7")
    assert fails("--board", "ULX3S-25F") == (
        1, "error: board `ULX3S-25F`: openFPGALoader failed with code 7; check that the board is "
        "connected, and that you may open its USB device\n",
    )  # fmt: skip
    monkeypatch.delenv("OPENFPGALOADER")
    monkeypatch.setenv("PATH", "")
    assert fails("--board", "ULX3S-25F") == (
        3, "error: flash: no `openFPGALoader` found; install it (Debian and Ubuntu: `apt install "
        "openfpgaloader`), or set `OPENFPGALOADER`\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("board", "command"),
    [
        ("PYNQ-Z2", "vivado -mode batch -source build/PYNQ-Z2/build.tcl"),
        ("Arty-A7-35T", "vivado -mode batch -source build/Arty-A7-35T/board.tcl"),
        ("DE10-Nano", "quartus_sh -t build/DE10-Nano/quartus.tcl"),
    ],
)
def test_flash_knows_a_project_of_the_vendor(tools, board, command, capsys):
    script = Path(command.split()[-1])
    script.parent.mkdir(parents=True)
    script.touch()
    assert main(["flash", "--board", board]) == 2
    assert capsys.readouterr().err == (
        f"error: folder `build/{board}`: expected the bitstream of a build, got none; the "
        f"vendor's tool makes it, `{command}`, and loads it as `tilewright build` printed\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`--board`: expected one of the boards that `tilewright boards` lists, or a board "
         "file, got none; choose one"),
        (["--board", "iCEBreaker"], "board `iCEBreaker`: no configuration fits its iCE40UP5K; "
         "choose a board with a larger chip"),
        (["--board", "ULX3S-25F", "--clock", "0"], "`--clock 0`: expected 1 to 400; correct it"),
        (["--board", "ULX3S-25F", "--seeds", "0"], "`--seeds 0`: expected 1 to 1000; correct it"),
        (["--board", "ULX3S-25F", "--clock", "25", "--baud", "12000000"], "serial port of "
         "12,000,000 baud: a clock of 25 MHz gives 6,250,000 baud; choose a lower `--baud` or a "
         "faster `--clock`"),
    ],
)  # fmt: skip
def test_wrong_arguments(words, message, capsys):
    assert main(["build", *words]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_build_replaces_no_file_of_the_user(tools, tmp_path, capsys):
    for name in ("build.json", "layout.txt"):
        (tmp_path / name).write_text("mine", "utf-8")
    assert main([*BUILD, "-o", str(tmp_path)]) == 2
    assert "`" + str(tmp_path / "build.json") + "`: expected no file" in capsys.readouterr().err
    (tmp_path / "build.json").unlink()
    assert main([*BUILD, "-o", str(tmp_path)]) == 0
    assert (tmp_path / "layout.txt").read_text("utf-8") == "mine"
