"""`tilewright sweep`: from options or a file to a table, JSON and exports."""

import json
import re
import shlex
import shutil
import sys
import threading
from pathlib import Path

import pytest

from tilewright.flows.area.resources import resources
from tilewright.flows.cli.commands.sweep import fit
from tilewright.flows.cli.main import main
from tilewright.flows.sweep import Database, Space
from tilewright.flows.sweep.executors import RUNGS
from tilewright.flows.sweep.records import Record
from tilewright.flows.sweep.spaces import read_description
from tilewright.flows.synthesis.devices import find_device
from tilewright.isa.configuration import DEFAULT, PRESETS
from tilewright.sim.timing import native

OPTIONS = ("--vary", "lanes=4x4,8x8,16x16", "--vary", "bus_bits=32,128", "--workers", 0)
"""The space of `conftest.VARY`."""


@pytest.fixture
def database(kept, tmp_path):
    return shutil.copy(kept, tmp_path / "sweep.db")


@pytest.fixture
def fails(capsys):
    """Run a command line that fails; its exit code and its line."""

    def call(*arguments: object) -> tuple[int, str]:
        code = main([str(argument) for argument in arguments])
        return code, capsys.readouterr().err.removeprefix("error: ").rstrip("\n")

    return call


def test_the_front_is_a_table(tilewright, model, database, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = tilewright("sweep", model, *OPTIONS, "--database", database).splitlines()
    assert said[0] == "networks       digits_int8_qdq"
    assert said[2] == "varied         lanes: 4x4, 8x8, 16x16"
    assert said[4].startswith("points         6: ")
    assert said[7] == "the front, smallest cycles, multipliers, ram:"
    assert said[8].split()[:5] == ["lanes", "bus_bits", "cycles", "ms", "of"]
    front = [line.split() for line in said[9:-3]]
    assert said[-3].startswith("verdict: lanes=16x16,bus_bits=")
    cycles = [int(cells[2].replace(",", "")) for cells in front]
    assert cycles == sorted(cycles)
    assert {cells[0] for cells in front} == {"4x4", "8x8", "16x16"}
    assert said[-1].startswith(f"{database}: ")


def test_a_table_is_as_narrow_as_the_terminal(monkeypatch):
    """Equal columns go first, from the right, then others; objectives stay."""
    columns = {
        "lanes": ["4x4", "8x8"], "cycles": ["20", "10"], "ram": ["64", "64"],
        "lut": ["1,000", "2,000"], "MACs a cycle": ["16", "64"], "ram bits": ["8", "8"],
    }  # fmt: skip
    for width, left, said in (
        (55, list(columns), []),
        (38, ["lanes", "cycles", "lut", "MACs a cycle"], ["in all rows: ram 64, ram bits 8"]),
        (22, ["lanes", "cycles", "lut"], [
            "in all rows: ram 64, ram bits 8",
            "left out for lack of width: MACs a cycle; `--json FILE` has all",
        ]),
    ):  # fmt: skip
        monkeypatch.setenv("COLUMNS", str(width))
        kept = dict(columns)
        assert fit(kept, {"lanes", "cycles"}) == said
        assert list(kept) == left


@pytest.mark.parametrize("conditions", [(), ("--where", "ms(digits_int8_qdq) < 0.01")])
def test_no_line_is_wider_than_the_terminal(
    conditions, tilewright, model, database, tmp_path, monkeypatch
):
    words = ("sweep", model, *OPTIONS, "--database", database, *conditions)
    monkeypatch.setenv("COLUMNS", "60")
    wide = tilewright(*words).splitlines()
    assert max(map(len, wide)) > 60, "a pipe gets whole lines"
    monkeypatch.setenv("TERM", "dumb")  # without the codes of bold headings
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    said = tilewright(*words).splitlines()
    named = [line for line in said if str(database) in line]  # a path is not broken
    assert [line for line in said if len(line) > 60 and line not in named] == []
    (at,) = (at for at, line in enumerate(said) if line.startswith("verdict: "))
    assert said[at + 1].startswith(" " * len("verdict: "))
    whole = " ".join(wide).partition("verdict: ")[2]
    assert " ".join(said[at:]).split()[1:] == whole.split(), "no word is lost"


@pytest.mark.parametrize("scheduler", [(), ("--scheduler", "tcp://127.0.0.1:1")])
def test_the_timing_model_is_compiled_while_a_local_cluster_starts(
    tilewright, model, database, monkeypatch, scheduler
):
    compiled = threading.Event()
    monkeypatch.setattr(native, "library", compiled.set)
    tilewright("sweep", model, *OPTIONS, "--database", database, *scheduler)
    assert compiled.wait(timeout=0 if scheduler else 60) == (not scheduler)


def test_machines_with_equal_objectives_take_one_line(tilewright, model, tmp_path, monkeypatch):
    """A look-up table more takes no block RAM more."""
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--vary", "lanes=4x4", "--vary", "lut_tables=1,2", "--vary", "latency=16,64")
    said = tilewright("sweep", model, *options, "--database", tmp_path / "s.db", "--workers", 0)
    assert "points         4: 4 on the front" in said
    heading, *front = said.partition("smallest")[2].splitlines()[1:-4]
    assert heading.split()[-1] == "equal"
    assert [line.split()[0:3:2] + line.split()[-1:] for line in front] == [
        ["4x4", "16", "2"], ["4x4", "64", "2"],
    ]  # fmt: skip


@pytest.mark.slow
def test_the_front_takes_the_same_cycles_on_the_rtl(model, tmp_path, capsys):
    options = ("--config", "4x4", "--vary", "lut_tables=1", "--vary", "latency=16,64")
    arguments = ("sweep", model, *options, "--database", tmp_path / "s.db", "--workers", 0, "--rtl")
    assert main([str(argument) for argument in arguments]) == 0
    said = capsys.readouterr().out
    assert said.endswith("RTL: the same cycles there for 2 points on the front\n")
    with Database(tmp_path / "s.db") as database:
        rows = [row for row in database.rows() if row["evaluator"] in ("sim", "rtl")]
    cycles = {(row["evaluator"], row["latency"]): row["figures"]["cycles"] for row in rows}
    assert len(cycles) == 4
    for latency in (16, 64):
        assert cycles["sim", latency] == cycles["rtl", latency]


def test_cycles_that_differ_on_the_rtl_are_a_fault(fails, model, database, monkeypatch):
    def wrong(graph, configuration, memories, program_for):
        return [Record({"cycles": 17})] * len(memories)

    monkeypatch.setitem(RUNGS, "rtl", wrong)
    code, message = fails("sweep", model, *OPTIONS, "--database", database, "--rtl")
    assert code == 1
    assert "cycles on the RTL, got (17,); this is a fault of Tilewright: report it" in message


def test_json_has_every_point(tilewright, model, database, tmp_path):
    path = tmp_path / "sweep.json"
    said = tilewright("sweep", model, *OPTIONS, "--database", database, "--json", path)
    values = json.loads(path.read_text())
    assert values["verdict"] in said
    assert values["verdict"].startswith("verdict: lanes=16x16,")
    assert len(values["points"]) == 6
    assert values["objectives"] == ["cycles", "multipliers", "ram"]
    assert sum(values["counts"].values()) == 6
    point = values["points"][1]
    assert point["chosen"] == {"lanes": "4x4", "bus_bits": "128"}
    assert point["followed"] == {"vector_lanes": 4}
    assert point["bound"]["digits_int8_qdq"] <= point["cycles"]["digits_int8_qdq"]
    assert point["figures"]["macs_per_cycle"] == 16
    printed = tilewright("sweep", model, *OPTIONS, "--database", database, "--json")
    assert json.loads(printed) == values


def test_a_file_and_options_describe_the_same_sweep(tilewright, model, database, tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(
        'where = ["multipliers <= 100"]\nminimise = ["ms", "ram"]\nclock_mhz = 50\n'
        '[vary]\nlanes = ["4x4", "8x8", "16x16"]\nbus_bits = "32..64"\n'
    )
    options = ("--database", database, "--workers", 0, "--vary", "bus_bits=32,128", "--json")
    by_file = json.loads(tilewright("sweep", model, "--space", path, *options))
    assert by_file["vary"] == ["lanes", "bus_bits"]
    assert by_file["where"] == ["multipliers <= 100"]
    assert by_file["counts"]["excluded"] == 2
    by_options = tilewright(
        "sweep", model, *OPTIONS, "--database", database, "--where", "multipliers <= 100",
        "--minimise", "ms,ram", "--clock", 50, "--json",
    )  # fmt: skip
    assert json.loads(by_options) == by_file


def test_a_device_is_a_budget(tilewright, model, database):
    values = json.loads(
        tilewright("sweep", model, *OPTIONS, "--database", database, "--chip", "ecp5-45", "--json")
    )
    assert values["where"] == [
        "multipliers <= 72", "ram <= 108", "lut <= 43848", "ff <= 43848",
    ]  # fmt: skip
    states = {point["chosen"]["lanes"]: point["state"] for point in values["points"]}
    assert states["16x16"] == "excluded"


def test_logic_is_that_of_a_machine_for_the_chip(tilewright, model, database):
    """Lanes with more multipliers take fewer look-up tables."""
    options = ("sweep", model, *OPTIONS, "--database", database, "--minimise", "ms,lut", "--json")
    fewest, on_chip = (
        {point["chosen"]["lanes"]: point["figures"] for point in json.loads(said)["points"]}
        for said in (tilewright(*options), tilewright(*options, "--chip", "ecp5-85"))
    )
    assert on_chip["4x4"]["lut"] < fewest["4x4"]["lut"]
    assert on_chip["4x4"]["multipliers"] == fewest["4x4"]["multipliers"] == 20
    with Database(database) as records:
        rows = [row["figures"] for row in records.rows() if row["evaluator"] == "resources"]
    assert {row.get("chip") for row in rows} == {None, "ecp5-85"}
    assert {row["lut"] for row in rows} >= {on_chip["4x4"]["lut"], fewest["4x4"]["lut"]}


def test_resources_are_those_of_the_chips_family(tilewright, model, database):
    options = ("--chip", "xc7z020", "--database", database, "--json")
    values = json.loads(tilewright("sweep", model, *OPTIONS, *options))
    assert values["where"] == [
        "multipliers <= 220", "ram <= 280", "lut <= 53200", "ff <= 106400",
    ]  # fmt: skip
    point = next(point for point in values["points"] if point["chosen"]["lanes"] == "4x4")
    machine = DEFAULT.replace(lanes_in=4, lanes_out=4, bus_bits=32)
    found = resources(machine, find_device("xc7z020"))
    assert {name: point["figures"][name] for name in found.used} == found.used


@pytest.mark.parametrize(
    ("device", "where"),
    [
        ("gw2ar-18", ["multipliers <= 96", "ram <= 46", "lut <= 20736", "ff <= 15552"]),
        ("asic", []),
    ],
)
def test_resources_of_a_gowin_and_an_asic(device, where, tilewright, model, database):
    options = ("--config", "4x4", "--vary", "bus_bits=32", "--chip", device)
    said = tilewright("sweep", model, *options, "--database", database)
    values = json.loads(tilewright("sweep", model, *options, "--database", database, "--json"))
    assert values["where"] == where
    found = resources(PRESETS["4x4"], find_device(device)).used
    found.pop("memory_bits", None)  # the sweep's `ram_bits` are those of scratchpads
    (point,) = values["points"]
    assert {name: point["figures"][name] for name in found} == found
    assert ("gates" in said) == ("lut" not in said) == (device == "asic")
    smallest = "cycles, gates, ram_bits" if device == "asic" else "cycles, multipliers, ram"
    assert f"the front, smallest {smallest}:" in said


def test_gates_can_be_minimised_on_any_device(tilewright, model, database):
    options = ("--config", "4x4", "--vary", "bus_bits=32", "--minimise", "ms,gates", "--json")
    values = json.loads(tilewright("sweep", model, *options, "--database", database))
    gates = resources(PRESETS["4x4"], find_device("asic")).used["gates"]
    assert values["points"][0]["figures"]["gates"] == gates


def test_a_machine_whose_memories_only_synthesis_knows_is_told(fails, model, database):
    deep = ("--config", "4x4", "--set", "act_depth=32768", "--vary", "bus_bits=32")
    code, message = fails("sweep", model, *deep, "--chip", "xczu3eg", "--database", database)
    assert code == 2
    assert "on `xczu3eg`: a queue or a bank is so deep that its block RAMs are known" in message


def test_a_condition_on_logic_excludes_machines(tilewright, model, database):
    where = ("--where", "lut <= 25000 and ff <= 25000")
    values = json.loads(
        tilewright("sweep", model, *OPTIONS, *where, "--database", database, "--json")
    )
    for point in values["points"]:
        assert (point["state"] == "excluded") == (point["chosen"]["lanes"] == "16x16")


def test_energy_is_a_figure_of_the_program(tilewright, model, database):
    """Main memory's bandwidth changes the time of a program, and so its power."""
    options = ("--config", "4x4", "--vary", "bandwidth=1/4,1/1", "--database", database)
    options = (*options, "--program-for", "default")
    values = json.loads(tilewright("sweep", model, *options, "--workers", 0, "--json"))
    slow, fast = (point["figures"] for point in values["points"])
    run = json.loads(tilewright("run", model, "--config", "4x4", "--json"))["efficiency"]
    middle = (run["energy_j"]["least"] + run["energy_j"]["greatest"]) / 2
    assert slow["energy_uj"] == fast["energy_uj"] == pytest.approx(1e6 * middle, abs=1e-3)
    power = 2 * fast["energy_uj"] / (fast["ms"] + slow["ms"])
    limited = ("--where", f"energy_uj / ms < {power}")
    values = json.loads(tilewright("sweep", model, *options, *limited, "--workers", 0, "--json"))
    assert [point["state"] for point in values["points"]] == ["front", "excluded"]


def test_databases_merge_and_export(tilewright, model, database, tmp_path):
    other, table, lines = (tmp_path / name for name in ("other.db", "all.csv", "all.jsonl"))
    said = tilewright(
        "sweep", "--database", other, "--merge", database, "--export", table, "--export", lines
    )
    count = len(lines.read_text().splitlines())
    assert said.splitlines() == [
        f"{database}: {count} new results",
        f"{table}: {count} results",
        f"{lines}: {count} results",
    ]
    assert len(table.read_text().splitlines()) == count + 1
    again = tilewright("sweep", model, *OPTIONS, "--database", other, "--exhaustive")
    assert "programs       0 compiled, 6 known from earlier" in again


def test_weights_count_networks(tilewright, model, database):
    one, three = (
        json.loads(tilewright("sweep", model, *OPTIONS, "--database", database, "--json", *weight))
        for weight in ((), ("--weight", "digits_int8_qdq=3"))
    )
    for before, after in zip(one["points"], three["points"], strict=True):
        if before["cycles"] and after["cycles"]:
            assert after["figures"]["cycles"] == 3 * before["figures"]["cycles"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--vary", "lanes"),
            "`--vary lanes`: expected NAME=VALUES, for example `--vary lanes=8x8,8x16`",
        ),
        (
            ("--vary", "lates=16"),
            "`--vary lates=16`: unknown parameter `lates`; expected lanes, or a parameter of the "
            "configuration (`tilewright config show`), or a property of main memory (latency, "
            "bandwidth, outstanding, shared_bus); did you mean `lanes`?",
        ),
        (
            ("--space", "quik"),
            "`--space quik`: neither one of quick, memory, sizes nor a TOML file; did you mean "
            "`quick`?",
        ),
        (
            ("--minimise", "cycles,size"),
            "`--minimise cycles,size`: expected figures to minimise, for example cycles, ms, "
            "energy_uj, multipliers, ram, lut, ff, gates, ram_bits, macs_per_cycle, or a "
            "parameter, got `size`",
        ),
        (
            ("--chip", "up5k"),
            "`--chip up5k`: expected one of ecp5-25, ecp5-45, ecp5-85, gw2ar-18, gw2a-18, "
            "xc7z020, xc7a35t, xc7a100t, xczu3eg, xck26, asic, because the resources of "
            "others are known only after synthesis; choose "
            "one, or set limits with `--where`",
        ),
        (
            ("--weight", "digits"),
            "`--weight digits`: expected MODEL=NUMBER, for example `--weight resnet18=3`",
        ),
        (
            ("--weight", "resnet=2"),
            "weight of `resnet`: expected one of the networks digits_int8_qdq; correct it",
        ),
        (
            ("--time-limit", "0"),
            "`--time-limit 0`: expected more than 0 and at most 1,000,000 seconds; correct it",
        ),
        (("--workers", "-1"), "`--workers -1`: expected 0 or more; correct it"),
        (
            ("--search", "random"),
            "`--search random`: expected also `--evaluations N`, the number of machines to "
            "compile; add it",
        ),
        (
            ("--search", "nsga", "--evaluations", 5),
            "`--search nsga`: expected one of random, nsga2, model",
        ),
        (
            ("--search", "model", "--evaluations", 5, "--exhaustive"),
            "`--search` and `--exhaustive`: expected one of the two; leave one of them out",
        ),
        (
            ("--search", "model", "--evaluations", 5, "--minimise", "ms,energy_uj"),
            "`--search model`: expected objectives that are known before compilation, or cycles, "
            "got `energy_uj`; choose `--search nsga2`, or limit it with `--where`",
        ),
        (
            ("--evaluations", 5),
            "`--evaluations`: expected together with `--search`; add it, or leave both out",
        ),
        (
            ("--export", "all.xlsx"),
            "`--export all.xlsx`: expected a name that ends in .csv, .jsonl or .parquet; "
            "choose one",
        ),
    ],
)
def test_wrong_options_are_explained(fails, model, database, options, message):
    assert fails("sweep", model, "--database", database, *options) == (2, message)


def test_a_search_tells_what_it_chose_from(tilewright, model, database):
    search = ("--search", "model", "--evaluations", 4, "--seed", 2)
    said = tilewright("sweep", model, *OPTIONS, "--database", database, *search)
    assert (
        "search         model, seed 2: 4 of at most 4 machines evaluated, in a space of 6 "
        "combinations" in said
    )
    assert "4 known from earlier" in said
    assert "the front of the evaluated machines, smallest cycles" in said
    told = json.loads(
        tilewright("sweep", model, *OPTIONS, "--database", database, *search, "--json")
    )
    assert told["search"] == {"method": "model", "evaluations": 4, "seed": 2}
    assert told["evaluated"] == 4


@pytest.mark.parametrize(("method", "library"), [("nsga2", "optuna"), ("model", "xgboost")])
def test_a_missing_library_is_told(fails, model, database, monkeypatch, method, library):
    monkeypatch.setitem(sys.modules, library, None)
    options = ("--search", method, "--evaluations", 4)
    code, line = fails("sweep", model, "--database", database, *options)
    assert code == 3
    assert line.startswith(f"`{library}`: not installed, so `--search {method}` cannot run; ")
    assert line.endswith(", or choose `--search random`")


PAGE = Path(__file__).parents[3] / "docs" / "guide" / "sweeps.md"


def blocks(language: str) -> list[str]:
    """The blocks of a language in the page about sweeps."""
    return re.findall(rf"```{language}\n(.*?) *```", PAGE.read_text(), re.DOTALL)


def test_the_tour_gives_its_answer(tilewright, database, monkeypatch):
    monkeypatch.chdir(PAGE.parents[2])
    monkeypatch.setenv("COLUMNS", "200")
    (command,) = (block for block in blocks("sh") if "latency=100" in block)
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    narrow = [a.replace("256..2048", "512").replace("32..128", "128") for a in arguments]
    said = tilewright(*narrow, "--database", database, "--workers", 0)
    front, _, verdict = said.partition("smallest")[2].partition("verdict: ")
    assert [line.split()[0] for line in front.splitlines()[2:]] == ["8x8", "4x8", "4x4"]
    assert verdict.startswith("lanes=8x8,")
    assert "condition      multipliers <= 72\ncondition      ram <= 108\n" in said


def test_the_listing_in_python_runs(monkeypatch, capsys):
    monkeypatch.chdir(PAGE.parents[2])
    (listing,) = blocks("python")
    exec(compile(listing, str(PAGE), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("{'lanes': '8x8', 'latency': '16'} ")


def test_the_file_of_the_page_is_a_description(tmp_path):
    (text,) = blocks("toml")
    path = tmp_path / "space.toml"
    path.write_text(text)
    assert Space.of(read_description(str(path)).vary).combinations == 12


def test_no_model_is_told(fails):
    assert fails("sweep") == (2, "MODEL: expected a quantised ONNX file; name one")


def test_two_models_of_one_name_are_refused(fails, model, database):
    code, message = fails("sweep", model, model, *OPTIONS, "--database", database)
    assert (code, message) == (
        2, "MODEL: expected models of different names, got two `digits_int8_qdq`",
    )  # fmt: skip


def test_a_file_that_is_no_database_is_told(fails, model, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than the header of one" * 4)
    code, message = fails("sweep", model, *OPTIONS, "--database", path)
    assert code == 1
    assert message == (
        f"database `{path}`: cannot be used, got `file is not a database`; choose another file; "
        "this one is left as it is"
    )


def test_the_nearest_miss_is_named_before_anything_is_compiled(tilewright, model, database):
    words = ("sweep", model, *OPTIONS, "--database", database)
    where = ("--where", "ms(digits_int8_qdq) < 0.01", "--where", "multipliers < 100")
    said = tilewright(*words, *where).splitlines()
    assert "programs       0 compiled" in "\n".join(said)
    (excluded,) = (line for line in said if line.startswith("excluded "))
    assert excluded == (
        "excluded       4 by `ms(digits_int8_qdq) < 0.01`, 2 by `multipliers < 100`"
    )
    at = said.index("verdict: no machine meets every condition, of 6 tried; nothing was compiled")
    found = re.fullmatch(
        r"nearest: lanes=8x8,bus_bits=128 misses `ms\(digits_int8_qdq\) < 0.01` by at least "
        r"([\d.]+)%",
        said[at + 1],
    )
    needs = re.fullmatch(
        r" +it needs at least ([\d.]+) ms for digits_int8_qdq, at 100 MHz", said[at + 2]
    )
    assert found is not None
    assert needs is not None
    assert float(found[1]) == pytest.approx(100 * (float(needs[1]) / 0.01 - 1), abs=1.0)


def test_a_miss_by_far_is_said_as_a_multiple(tilewright, model, database):
    words = ("sweep", model, *OPTIONS, "--database", database)
    said = tilewright(*words, "--where", "ms(digits_int8_qdq) < 0.00001")
    multiple = re.search(r"< 0.00001` by at least ([\d,]+) times the limit$", said, re.MULTILINE)
    needs = re.search(r"it needs at least ([\d.]+) ms", said)
    assert multiple is not None
    assert needs is not None
    miss = float(needs[1]) / 1e-5 - 1
    assert int(multiple[1].replace(",", "")) == pytest.approx(miss, rel=0.01)


def test_the_cheapest_machine_that_meets_a_rate_is_found_at_its_own_clock(
    tilewright, model, database
):
    words = ("sweep", model, *OPTIONS, "--database", database, "--chip", "ecp5-85", "--json")
    found = json.loads(tilewright(*words, "--rate", 4000))
    front = [point for point in found["points"] if point["state"] == "front"]
    assert found["objectives"] == ["lut"]
    enough = [p for p in found["points"] if p["state"] in ("front", "beaten")]
    assert len({point["figures"]["clock_mhz"] for point in enough}) > 1
    assert all(point["figures"]["ms"] <= 0.25 for point in enough)
    assert front[0]["figures"]["lut"] == min(point["figures"]["lut"] for point in enough)
    assert found["where"][0] == "digits_int8_qdq at 4000 a second"


def test_every_main_memory_has_a_verdict(tilewright, model, tmp_path):
    options = ("--vary", "lanes=4x4,8x8", "--vary", "latency=16,64", "--workers", 0)
    said = tilewright("sweep", model, *options, "--database", tmp_path / "s.db").splitlines()
    first, second = said[-4:-2]
    assert re.fullmatch(r"verdict: lanes=8x8,latency=16 has the fewest cycles: .* MHz;", first)
    assert re.fullmatch(r" {9}lanes=8x8,latency=64: [\d.]+ ms for digits_int8_qdq, .* MHz", second)


def test_the_best_in_other_objectives_are_named_where_conditions_say_what_is_enough(
    tilewright, model, database
):
    words = ("sweep", model, *OPTIONS, "--database", database, "--where", "ms < 1")
    said = " ".join(tilewright(*words).split())
    found = re.search(
        r"verdict: lanes=16x16,bus_bits=\d+ has the fewest cycles of those that meet every "
        r"condition: [^;]+; (lanes=4x4,bus_bits=\d+) has the fewest multipliers and the "
        r"fewest block RAMs: "
        r"([\d.]+)",
        said,
    )
    assert found is not None
    points = json.loads(tilewright(*words, "--json"))["points"]
    best = min(
        (point for point in points if point["state"] == "front"),
        key=lambda point: (point["figures"]["multipliers"], point["figures"]["ram"]),
    )
    assert found[1] == ",".join(f"{name}={value}" for name, value in best["chosen"].items())
    assert float(found[2]) == pytest.approx(best["figures"]["ms"], rel=0.01)


def test_rates_of_their_own_hold_together(tilewright, fails, model, database, tmp_path):
    other = shutil.copy(model, tmp_path / "other.onnx")
    name = model.stem
    words = ("sweep", model, other, *OPTIONS, "--database", database)
    rates = ("--rate", f"{name}=4000", "--rate", "other=1000")
    found = json.loads(tilewright(*words, "--chip", "ecp5-85", *rates, "--json"))
    assert found["where"][0] == f"{name} at 4000 and other at 1000 a second together"
    figures = [p["figures"] for p in found["points"] if p["state"] in ("front", "beaten")]
    # Both networks are the same, so `ms` is twice the time of one.
    assert figures
    assert all(5000 * each["ms"] / 2 <= 1000 for each in figures)
    assert fails(*words, "--rate", "nothing=4") == (
        2, f"`--rate nothing=4`: expected one of the networks {name}, other; correct it"
    )  # fmt: skip
    assert fails(*words, "--rate", f"{name}=fast") == (
        2,
        f"`--rate {name}=fast`: expected a positive number, or one for each network, for example "
        f"`--rate {name}=200`; correct it",
    )


def test_an_own_clock_needs_a_device(fails, model):
    assert fails("sweep", model, "--clock", "own") == (
        2,
        "`--clock own`: expected also `--chip NAME`, the chip on which machines have a clock; "
        "add it",
    )


def test_each_excluded_point_counts_once(tilewright, model, database):
    words = ("sweep", model, "--vary", "lanes=4x4,8x8,16x16", "--database", database)
    said = tilewright(*words, "--where", "multipliers < 30", "--where", "ram < 40").splitlines()
    (points,) = (line for line in said if line.startswith("points "))
    (excluded,) = (line for line in said if line.startswith("excluded "))
    assert points == "points         3: 3 excluded by a condition"
    assert excluded == "excluded       2 by `multipliers < 30` and `ram < 40`, 1 by `ram < 40`"


def test_the_rule_that_rejects_points_is_told(tilewright, model, database):
    words = ("sweep", model, "--config", "4x4", "--vary", "bus_bits=64,256")
    said = tilewright(*words, "--where", "multipliers < 1", "--database", database).splitlines()
    assert (
        "rejected       1 combination: `bus_bits` = 256 moves over four activation rows of 4 bytes "
        "a beat; lower it or raise `lanes_in`"
    ) in said
