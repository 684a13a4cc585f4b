"""Agents over TLS on this machine: the same results, and a sentence for whoever is not known."""

import socket
import ssl
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright import Placement, Session, compile_graph, import_model
from tilewright.errors import DeviceError, UsageError
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.memory_model import MemoryModel
from tilewright.runtime import Comparison, open_device
from tilewright.runtime.agents import connect
from tilewright.runtime.identity import fingerprint_of, load_identity
from tilewright.runtime.remote import RemoteDevice
from tilewright.runtime.wire import JobError, JobVerdict

from .agents import Person, allow, know, person, running

SMALL = PRESETS["tiny"]
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8_qdq.onnx"


@pytest.fixture(scope="module")
def two_agents(tmp_path_factory):
    """Two agents of two owners, who both know Ann; and Eve, whom nobody knows."""
    home = tmp_path_factory.mktemp("homes")
    with pytest.MonkeyPatch.context() as patch:
        left, right, ann, eve = (
            person(home, name, patch) for name in ("left", "right", "ann", "eve")
        )
        for owner in (left, right):
            allow(owner, ann)
        with (
            running(left, "--offer", "sim,reference", "--places", "1") as first,
            running(right, "--offer", "sim,rtl,host", "--places", "2") as second,
        ):
            for one in (ann.use(patch), eve.use(patch)):
                one.use(patch)
                know("left", first, left)
                know("right", second, right)
            yield ann, eve, first, second


@pytest.fixture
def ann(two_agents, monkeypatch) -> Person:
    return two_agents[0].use(monkeypatch)


def same_run(address: str, local: str, memory: MemoryModel | None = None) -> RemoteDevice:
    """Run programs on a remote and on a local device, and compare everything."""
    with open_device(address, SMALL, memory) as remote, open_device(local, SMALL, memory) as here:
        for seed in range(2):
            program, image = random_program(SMALL, seed)
            ours, theirs = image.copy(), image.copy()
            result, expected = remote.run(program, ours), here.run(program, theirs)
            assert result.dram is ours
            np.testing.assert_array_equal(ours, theirs)
            assert (result.cycles, result.exact) == (expected.cycles, expected.exact)
            assert result.counters == expected.counters
            if expected.spans is None:
                assert result.spans is None
            else:
                np.testing.assert_array_equal(result.spans, expected.spans)
        for memory_name, data in here.scratchpads().items():
            np.testing.assert_array_equal(remote.scratchpads()[memory_name], data)
        assert isinstance(remote, RemoteDevice)
        return remote


@pytest.mark.parametrize(
    "device",
    ["left/sim", "left/reference", "right/sim", pytest.param("right/rtl", marks=pytest.mark.slow)],
)
def test_two_agents_give_the_bytes_and_cycles_of_local_devices(ann, device):
    remote = same_run(f"remote://{device}", device.partition("/")[2])
    assert remote.times.runs == 2
    assert remote.times.run_s > 0


def test_the_memory_of_the_client_is_simulated(ann):
    same_run("remote://left/sim", "sim", MemoryModel(latency_cycles=200, cycles=3))


def test_a_client_with_another_key_is_refused_with_a_sentence(two_agents, monkeypatch):
    eve = two_agents[1].use(monkeypatch)
    with pytest.raises(DeviceError) as refused:
        open_device("remote://left/sim", SMALL)
    assert str(refused.value).startswith("agent `left`: it does not know your key, or ")
    assert str(refused.value).endswith(
        f"hand your certificate (`{eve.certificate}`) to its owner, who runs `tilewright agent "
        "--allow FILE`"
    )


def test_an_agent_with_another_key_is_refused_with_a_sentence(two_agents, monkeypatch, tmp_path):
    ann, _, first, _ = two_agents
    liar = person(tmp_path, "liar", monkeypatch)
    ann.use(monkeypatch)
    know("impostor", first, liar)
    with pytest.raises(DeviceError, match="agent `impostor`: it shows another key than the one"):
        open_device("remote://impostor/sim", SMALL)


def test_nothing_is_answered_before_the_key_is_known(two_agents, monkeypatch):
    """Neither plain bytes nor a hello over TLS without a certificate get an answer."""
    _, _, first, _ = two_agents
    host, port = first.place.split(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        plain.sendall(b"TWm1\x02\x00\x00\x00{}" * 100)
        assert b"TWm1" not in plain.recv(1000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port)), 10) as plain:
        stream = context.wrap_socket(plain)
        try:
            got = stream.recv(1000)
        except OSError:
            got = b""
        assert got == b""


def test_old_versions_of_tls_are_refused(two_agents):
    _, _, first, _ = two_agents
    host, port = first.place.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((host, int(port)), 10) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)


def test_a_client_that_is_no_longer_allowed_is_refused(tmp_path, monkeypatch):
    owner, bob = (person(tmp_path, name, monkeypatch) for name in ("owner", "bob"))
    with running(owner, "--offer", "sim") as agent:
        know("lab", agent, owner)
        with pytest.raises(DeviceError, match="it does not know your key"):
            connect("lab")
        allow(owner, bob)
        wait_for(lambda: reached("lab"))
        (owner.folder / "clients" / "bob.pem").unlink()
        wait_for(lambda: not reached("lab"))


def reached(agent: str) -> bool:
    try:
        connect(agent).close()
    except DeviceError:
        return False
    return True


def wait_for(condition) -> None:
    for _ in range(100):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass")


def test_only_signed_artifacts_are_kept(ann):
    connection = connect("left")
    identity = load_identity()
    mine = identity.certificate.fingerprint
    for parts, signer, says in (
        ([b"words", identity.sign("program-00")], mine, "not this one of ann"),
        ([b"words", b""], mine, "not this one of ann"),
        ([b"words", identity.sign("")], fingerprint_of(b"?"), "not this one of a key that it"),
    ):
        with pytest.raises(JobError, match=says) as refused:
            connection.request("artifact", parts, kind="program", signer=signer)
        assert refused.value.verdict is JobVerdict.REFUSED
    assert connection.send_artifact("program", b"words").startswith("program-")
    connection.close()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("remote://nobody/sim", "agent `nobody`: expected HOST:PORT or one of those that you know"),
        ("remote://left", "expected `remote://AGENT/DEVICE`"),
        ("remote://left/sim?wait=never", "expected `remote://AGENT/DEVICE`"),
        ("remote://left/sim?colour=red", "expected `remote://AGENT/DEVICE`"),
        ("remote://127.0.0.1:1/sim", "cannot connect to 127.0.0.1:1"),
        ("remote://left/gpu", "refused: there is no device `gpu`; expected one of sim, reference"),
    ],
)
def test_addresses_that_lead_nowhere_end_in_a_sentence(ann, address, says):
    with pytest.raises((DeviceError, UsageError)) as refused:
        open_device(address, SMALL)
    assert says in str(refused.value)


def test_who_has_no_keys_is_told_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="make them with `tilewright agent --new-keys`"):
        open_device("remote://127.0.0.1:1/sim", SMALL)


def test_a_network_runs_on_the_processor_of_another_machine(ann):
    module = compile_graph(import_model(DIGITS), placement=Placement("host"))
    (value,) = module.graph.inputs
    sample = np.random.default_rng(0).random(value.type.shape, np.float32)
    with open_device("remote://right/host") as remote, open_device("host") as here:
        session = Session(module, remote)
        run, expected = session.run(sample), Session(module, here).run(sample)
        assert run.outputs.keys() == expected.outputs.keys()
        for name, array in expected.outputs.items():
            np.testing.assert_array_equal(run.outputs[name], array)
        assert run.profile == expected.profile
        times = session.benchmark(sample, repeat=2, min_repeat_ms=1.0)
        assert len(times.seconds) == 2
        checked = Comparison(module)
        checked.add(run.inputs, Session(module, remote, keep_all=True).run(sample))
        assert checked.equal


def test_a_network_with_segments_is_refused_there_as_here(ann):
    module = compile_graph(import_model(DIGITS), PRESETS["4x4"])
    with (
        open_device("remote://right/host") as remote,
        pytest.raises(DeviceError, match="without l"),
    ):
        Session(module, remote)
