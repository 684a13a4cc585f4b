"""Connections to agents, which offer devices of other machines; see docs/guide/agents.md.

An address is `remote://AGENT/DEVICE`. AGENT is a name that `tilewright devices --add` gave, or
`HOST:PORT`. Options follow as in `?wait=60&limit=600`: the longest wait for a free device and the
longest job, in seconds. Nothing here waits longer than its own clock allows.
"""

import hashlib
import math
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .. import __version__
from ..atomic_write import write_output
from ..errors import DeviceError, UsageError
from ..file_access import read_part
from ..isa.configuration import CONTRACT_VERSION
from .identity import (
    AGENTS,
    Certificate,
    Identity,
    certificates,
    check_name,
    fingerprint_of,
    keys_folder,
    load_identity,
    refusal,
    trust,
)
from .transports import host_of
from .wire import WIRE_VERSION, Channel, JobError, JobVerdict, Message, WireError

PORT = 7462
"""Port of agents."""

CONNECTING_S = 10.0
SILENCE_S = 20.0
"""Seconds without a sign of life after which an agent counts as lost; it gives one every 2 s."""

WAIT_S, LIMIT_S = 3600.0, 3600.0
"""Longest wait for a device, and longest job, unless the address says otherwise."""

LISTED = {
    "name": str, "kind": str, "state": str, "client": str, "waiting": int, "faults": int,
    "why": str, "configurations": list,
}  # fmt: skip
"""Fields of a device in an agent's list; `configurations` are texts such as `HASH`."""

HASH = re.compile("0x[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """A device of an agent.

    Parameters
    ----------
    text : str
        As the user wrote it.
    agent : str
        Name or `HOST:PORT`.
    device : str
        As the agent calls it.
    wait_s, limit_s : float
        Longest wait and longest job.
    """

    text: str
    agent: str
    device: str
    wait_s: float = WAIT_S
    limit_s: float = LIMIT_S

    @staticmethod
    def parse(text: str) -> "RemoteAddress":
        """Read an address; raises `DeviceError` if it is malformed."""
        try:
            parts = urlsplit(text)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
                           if parts.query else ())  # fmt: skip
            wait_s, limit_s = (
                float(options.pop(name, default))
                for name, default in (("wait", WAIT_S), ("limit", LIMIT_S))
            )
        except ValueError:
            raise _malformed(text) from None
        device = parts.path.removeprefix("/")
        fits = parts.scheme == "remote" and parts.netloc and device and "/" not in device
        if options or not fits or not (0 < wait_s < math.inf and 0 < limit_s < math.inf):
            raise _malformed(text)
        return RemoteAddress(text, parts.netloc, device, wait_s, limit_s)


def _malformed(text: str) -> DeviceError:
    return DeviceError(
        f"device `{text}`: expected `remote://AGENT/DEVICE`, with AGENT a name of `tilewright "
        "devices` or HOST:PORT, and `?wait=SECONDS&limit=SECONDS` if wanted; correct the address"
    )


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """An agent that the user knows: its name, `HOST:PORT`, and certificate."""

    name: str
    place: str
    certificate: Certificate


def known_agents() -> dict[str, KnownAgent]:
    """Return the agents that the user has added, by name."""
    folder = keys_folder()
    found = {}
    for name, certificate in certificates(folder, AGENTS).items():
        try:
            place = read_part(_place_file(folder, name), limit=1000).decode("ascii").strip()
        except (OSError, ValueError):
            continue
        found[name] = KnownAgent(name, place, certificate)
    return found


def add_agent(name: str, place: str, certificate: Certificate) -> None:
    """Keep an agent; raises `UsageError` for a name or a place that is none."""
    host_and_port(place, "")
    folder = keys_folder()
    path = trust(folder, AGENTS, name, certificate)
    write_output(_place_file(folder, name), f"{place}\n", f"`{path}`")


def forget_agent(name: str) -> None:
    """Forget an agent; raises `UsageError` if there is none of this name."""
    check_name(name)
    folder = keys_folder()
    if name not in known_agents():
        raise UsageError(f"agent `{name}`: you know none of this name; see `tilewright devices`")
    (folder / AGENTS / f"{name}.pem").unlink(missing_ok=True)
    _place_file(folder, name).unlink(missing_ok=True)


def _place_file(folder: Path, name: str) -> Path:
    return folder / AGENTS / f"{name}.place"


def host_and_port(place: str, agent: str) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`; the port may be left out.

    Raises
    ------
    UsageError
        For another text.
    """
    try:
        parts = urlsplit(f"//{place}")
        host, port = host_of(parts), PORT if parts.port is None else parts.port
    except ValueError:
        host, port = "", 0
    if not host or parts.username or parts.path or parts.query:
        what = f"agent `{agent}`: `{place}`" if agent else f"`{place}`"
        raise UsageError(f"{what}: expected HOST:PORT; correct it")
    return host, port


class AgentConnection:
    """A connection to an agent; see `connect`.

    Parameters
    ----------
    agent : str
        Its name, for messages.
    identity : Identity
        The user's keys, which sign artifacts.
    channel : Channel
        Closed with the connection.

    Raises
    ------
    DeviceError
        If it has another version, or falls silent.
    ConnectionError
        If it closes the connection at once.
    """

    def __init__(self, agent: str, identity: Identity, channel: Channel) -> None:
        self.agent, self.identity, self._channel = agent, identity, channel
        self.is_closed = False
        self._greet()

    def _greet(self) -> None:
        """Compare versions."""
        ours = {"wire": WIRE_VERSION, "contract": CONTRACT_VERSION, "release": __version__}
        self._channel.send("hello", **ours)
        try:
            answer = self._channel.receive(CONNECTING_S)
            if answer.op == "done":
                raise JobError(
                    JobVerdict.REFUSED, f"agent `{self.agent}`: {answer.take('text', str)}"
                )
            theirs = [answer.take(name, int) for name in ("wire", "contract")]
            if answer.op != "welcome" or theirs != [WIRE_VERSION, CONTRACT_VERSION]:
                raise WireError("another version")
            self._renew_s = answer.take("term_s", float) / 3
        except WireError as problem:
            if str(problem) == "the end of the stream":
                raise ConnectionError("it closed the connection") from None
            raise self.false(problem) from None
        if not 0 < self._renew_s < math.inf:
            raise self.false("a term that is none")

    def close(self) -> None:
        """Close the connection; the agent ends what it was for."""
        self.is_closed = True
        self._channel.close()

    def lost(self, why: str) -> JobError:
        """Return the error of an agent that is not there."""
        return JobError(JobVerdict.LOST, f"agent `{self.agent}`: {why}")

    def false(self, what: object) -> JobError:
        """Return the error of an agent that answers nonsense."""
        return JobError(
            JobVerdict.WRONG,
            f"agent `{self.agent}`: it sent {what}, which no agent of this version does; do not "
            "use its results, and see what runs there",
        )

    def request(
        self,
        op: str,
        parts: Sequence[bytes] = (),
        *,
        seconds: float = CONNECTING_S + SILENCE_S,
        token: int | None = None,
        on_state: Callable[[Message], None] = lambda message: None,
        **fields: Any,
    ) -> Message:
        """Ask for something, and return the answer.

        Parameters
        ----------
        seconds : float
            Longest wait for the answer, whatever the agent says meanwhile.
        token : int or None
            The lease, which is renewed until the answer comes.
        on_state : callable
            Called with each sign of life.

        Raises
        ------
        JobError
            With the agent's verdict, or `LOST` if it falls silent. Unless the agent answered, the
            connection is closed, since a late answer would be taken for that to the next request.
        """
        try:
            answer = self._exchange(op, parts, seconds, token, on_state, fields)
            verdict, text = self._read_verdict(answer)
        except BaseException:
            self.close()
            raise
        if verdict is JobVerdict.OK:
            return answer
        raise JobError(verdict, f"agent `{self.agent}`: {verdict}: {' '.join(text.split())[:2000]}")

    def _exchange(
        self,
        op: str,
        parts: Sequence[bytes],
        seconds: float,
        token: int | None,
        on_state: Callable[[Message], None],
        fields: dict[str, Any],
    ) -> Message:
        """Send a request and receive the answer; see `request`."""
        if token is not None:
            fields["token"] = token
        end = renewed = time.monotonic()
        end += seconds
        try:
            self._channel.send(op, parts, **fields)
            while True:
                answer = self._channel.receive(min(SILENCE_S, max(0.1, end - time.monotonic())))
                if answer.op == "done":
                    break
                on_state(answer)
                now = time.monotonic()
                if now > end:
                    raise self.lost(f"no answer to `{op}` within {seconds:,g} s")
                if token is not None and now > renewed + self._renew_s:
                    self._channel.send("renew", token=token)
                    renewed = now
        except TimeoutError as problem:
            raise self.lost(f"it fell silent during `{op}` ({problem})") from None
        except OSError as problem:
            raise self.lost(f"the connection broke during `{op}` ({problem})") from None
        except ValueError as problem:
            raise JobError(JobVerdict.REFUSED, f"agent `{self.agent}`: {problem}") from None
        except WireError as problem:
            if str(problem).startswith(("the end", "a message that is cut")):
                raise self.lost(f"it ended during `{op}` with {problem}") from None
            raise self.false(problem) from None
        return answer

    def _read_verdict(self, answer: Message) -> tuple[JobVerdict, str]:
        """Return the verdict of an answer, and its text unless all is well."""
        try:
            verdict = JobVerdict(answer.take("verdict", str))
            return verdict, "" if verdict is JobVerdict.OK else answer.take("text", str)
        except (WireError, ValueError) as problem:
            raise self.false(problem) from None

    def devices(self) -> list[dict[str, Any]]:
        """Return the agent's devices, each with the fields of `LISTED`.

        Raises
        ------
        DeviceError
            If the agent is lost, or sends no such list.
        """
        try:
            listed = self.request("devices").take("devices", list)
        except WireError as problem:
            raise self.false(problem) from None
        for each in listed:
            if (
                not isinstance(each, dict)
                or any(type(each.get(name)) is not kind for name, kind in LISTED.items())
                or not all(isinstance(h, str) and HASH.fullmatch(h) for h in each["configurations"])
            ):
                raise self.false("a list of devices that is none")
        return listed

    def send_artifact(self, kind: str, data: bytes) -> str:
        """Send an artifact, signed by the user, and return the name under which it is kept."""
        digest = artifact_digest(kind, data)
        signer = self.identity.certificate.fingerprint
        seconds = SILENCE_S + CONNECTING_S
        parts = [data, self.identity.sign(digest)]
        self.request("artifact", parts, seconds=seconds, kind=kind, signer=signer)
        return digest


def connect(agent: str) -> AgentConnection:
    """Connect to an agent, which has to show the key that the user knows.

    Parameters
    ----------
    agent : str
        Name, or `HOST:PORT`.

    Raises
    ------
    DeviceError
        If it cannot be reached, has another key or version, or does not know the user's key.
    UsageError
        If the user has no keys, or the address is none.
    """
    identity = load_identity()
    place, trusted = _trusted(agent, identity)
    host, port = host_and_port(place, agent)
    try:
        plain = socket.create_connection((host, port), CONNECTING_S)
    except OSError as problem:
        why = problem.strerror or str(problem) or type(problem).__name__
        raise JobError(
            JobVerdict.LOST,
            f"agent `{agent}`: cannot connect to {host}:{port} ({why}); start it there with "
            "`tilewright agent`, or correct the address",
        ) from None
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain = stream = identity.context(server=False, trusted=trusted).wrap_socket(plain)
        shown = stream.getpeercert(binary_form=True) or b""
        if fingerprint_of(shown) not in {one.fingerprint for one in trusted}:
            raise ssl.SSLCertVerificationError("CERTIFICATE_VERIFY_FAILED")
        return AgentConnection(agent, identity, Channel(stream))
    except (ssl.SSLError, ConnectionError) as problem:
        plain.close()
        raise refusal(agent, problem) from None
    except OSError as problem:
        plain.close()
        raise JobError(
            JobVerdict.LOST,
            f"agent `{agent}`: no answer ({problem}); see that an agent runs there",
        ) from None
    except DeviceError:
        plain.close()
        raise


def artifact_digest(kind: str, data: bytes) -> str:
    """Return the name under which agents keep an artifact, which is what is signed."""
    return f"{kind}-{hashlib.sha256(data).hexdigest()}"


def _trusted(agent: str, identity: Identity) -> tuple[str, list[Certificate]]:
    """Return an agent's `HOST:PORT`, and the certificates of which it has to show one."""
    agents = known_agents()
    if agent in agents:
        return agents[agent].place, [agents[agent].certificate]
    if ":" not in agent:
        known = ", ".join(f"`{name}`" for name in agents) or "none"
        raise UsageError(
            f"agent `{agent}`: expected HOST:PORT or one of those that you know ({known}); add it "
            f"with `tilewright devices --add {agent}=HOST:PORT --certificate FILE`"
        )
    return agent, [identity.certificate, *(one.certificate for one in agents.values())]
