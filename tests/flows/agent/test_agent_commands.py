"""`tilewright agent` and `tilewright devices`: keys, agents, lists, and what is refused."""

import json
import stat

import pytest

from tilewright.errors import UsageError
from tilewright.flows.agent.leases import LeaseState, LeaseTable
from tilewright.flows.cli.commands.agent import offered
from tilewright.flows.cli.main import main

from .agents import Person, person, running


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Person:
    return person(tmp_path, "owner", monkeypatch)


def test_keys_are_made_once_and_only_their_owner_can_read_them(
    tmp_path, monkeypatch, tilewright, capsys
):
    home = Person(tmp_path / "ann", "ann").use(monkeypatch)
    said = tilewright("agent", "--new-keys", "ann")
    assert str(home.certificate) in said
    assert stat.S_IMODE((home.folder / "agent.key").stat().st_mode) == 0o600
    assert main(["agent", "--new-keys", "ann"]) == 2
    assert "has some already, which others may trust" in capsys.readouterr().err
    (home.folder / "agent.key").chmod(0o644)
    assert main(["agent"]) == 2
    assert "expected a file that only you can read and write" in capsys.readouterr().err


def test_devices_lists_what_is_here_and_there(owner, tilewright):
    with running(owner, "--offer", "sim,host", "--places", "2") as agent:
        tilewright("devices", "--add", f"lab={agent.place}", "--certificate", owner.certificate)
        found = json.loads(tilewright("devices", "--json"))
        assert [each["device"] for each in found["local"]][:2] == ["reference", "sim"]
        cuda = next(each for each in found["local"] if each["device"] == "gpu:cuda")
        assert bool(cuda["what"]) != ("problem" in cuda)
        (lab,) = found["agents"]
        listed = [(each["device"], each["kind"], each["state"]) for each in lab["devices"]]
        assert listed == [
            ("remote://lab/sim1", "sim", "ready"), ("remote://lab/sim2", "sim", "ready"),
            ("remote://lab/host", "host", "ready"),
        ]  # fmt: skip
        assert "remote://lab/sim2  ready" in tilewright("devices")
    assert "cannot connect to" in tilewright("devices")
    tilewright("devices", "--remove", "lab")
    assert json.loads(tilewright("devices", "--json"))["agents"] == []


def test_run_takes_a_device_of_an_agent(owner, tilewright, model, scans):
    with running(owner, "--offer", "sim") as agent:

        def result(device: str) -> dict:
            given = ("--config", "8x8", "--input", scans, "--samples", "1", "--json")
            return json.loads(tilewright("run", model, "--device", device, *given))

        there, here = result(f"remote://{agent.place}/sim"), result("sim")
    for name in ("layers", "totals", "counters"):
        for each in (there, here):
            for layer in each["layers"]:
                layer.pop("microseconds", None)
        assert there[name] == here[name], name
    assert there["agent"]["runs"] == 1
    assert there["agent"]["run_s"] > 0


def test_a_board_begins_with_a_check_and_a_simulator_has_places():
    units, addresses = offered("rtl", ["ulx=serial:///dev/ttyUSB0"], 2)
    assert [unit.name for unit in units] == ["rtl1", "rtl2", "ulx"]
    assert units[-1].state is LeaseState.CHECKING
    assert addresses["ulx"] == ["serial:///dev/ttyUSB0"]


@pytest.mark.parametrize(
    ("names", "boards", "says"),
    [
        ("fpga", [], "`--offer fpga`: expected names of reference, sim"),
        ("none", [], "expected at least one device"),
        ("sim", ["ulx"], "`--board ulx`: expected NAME=ADDRESS"),
        ("sim", ["rtl=tcp://h:1"], "with a name of your own"),
        ("sim", ["ulx=remote://lab/rtl"], "expected NAME=ADDRESS"),
        ("none", ["ulx=tcp://h:1", "ulx=tcp://h:2"], "each with a name of its own"),
        ("none", ["a/b=tcp://h:1"], "name `a/b`: expected letters"),
    ],
)
def test_offers_that_make_no_sense_are_refused(names, boards, says):
    with pytest.raises(UsageError) as refused:
        offered(names, boards, None)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["agent", "--name", "x"], "`--name`: expected `--allow FILE.pem`"),
        (["agent", "--term", "0"], "`--term 0`: expected more than 0"),
        (["agent", "--listen", "nowhere:x"], "`nowhere:x`: expected HOST:PORT"),
        (["agent", "--allow", "missing.pem"], "certificate `missing.pem`: expected one that"),
        (["agent", "--allow", __file__], "made, got `a file without one`; correct the path"),
        (["devices", "--add", "lab=h:1"], "`--add`, `--certificate`: expected both or neither"),
        (["devices", "--remove", "lab"], "agent `lab`: you know none of this name"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(owner, capsys, arguments, says):
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_client_has_the_name_in_its_certificate_and_replaces_no_other(
    tmp_path, monkeypatch, tilewright, capsys
):
    """Everybody's certificate is a file of the same name."""
    clients = [person(tmp_path, name, monkeypatch) for name in ("ann", "bob")]
    impostor = person(tmp_path / "elsewhere", "ann", monkeypatch)
    owner = person(tmp_path, "owner", monkeypatch)
    for client in (*clients, clients[0]):
        assert f"/{client.name}.pem; " in tilewright("agent", "--allow", client.certificate)
    assert main(["agent", "--allow", str(impostor.certificate)]) == 2
    assert "another certificate of `ann` is allowed already" in capsys.readouterr().err
    tilewright("agent", "--allow", impostor.certificate, "--name", "ann2")
    kept = sorted(path.stem for path in (owner.folder / "clients").iterdir())
    assert kept == ["ann", "ann2", "bob"]


def test_a_device_that_cannot_be_had_is_told_before_anything_is_compiled(
    tmp_path, monkeypatch, model, capsys
):
    monkeypatch.setattr("tilewright.flows.cli.commands.run.chosen_module", None)
    monkeypatch.setattr("tilewright.flows.cli.arguments.find_compiler", None)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
        assert main(["run", str(model), "--device", "remote://127.0.0.1:1/rtl"]) == 2
    assert "keys: you have none yet" in capsys.readouterr().err
    person(tmp_path, "ann", monkeypatch)
    assert main(["run", str(model), "--device", "remote://127.0.0.1:1/rtl"]) == 1
    assert "cannot connect to 127.0.0.1:1 (" in capsys.readouterr().err


def test_a_misspelt_device_is_answered_with_the_similar_one():
    units, _ = offered("sim,host", [], 2)
    table = LeaseTable.of(units)
    ticket = table.request("ann", "hots", 0, 0.0)
    assert table.hopeless(ticket).endswith("sim2, host; did you mean `host`?")
