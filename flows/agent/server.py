"""The agent's server: clients with a known key lease devices and run signed artifacts on them.

One thread runs it all, so nothing is locked; work happens in workers. No byte is read from a client
before TLS has checked its key, and none is unpickled ever.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ... import __version__
from ...errors import TilewrightError
from ...isa.configuration import CONTRACT_VERSION, Configuration
from ...isa.memory_model import MemoryModel
from ...runtime.identity import Identity
from ...runtime.wire import (
    WIRE_VERSION,
    JobError,
    JobVerdict,
    Message,
    WireError,
    receive_message,
)
from .board_checks import BoardChecks
from .clients import Client, Door
from .leases import ANY, TERM_S, Lease, LeaseState, LeaseTable, LentDevice, StaleLeaseError, Ticket
from .worker_process import STARTING_S, WorkerProcess

HANDSHAKE_S = 10.0
"""Seconds that a stranger has to show a known key."""

MAX_CONNECTIONS = 64

TICK_S = 0.2
"""Seconds between two looks at the leases."""

ALIVE_S = 2.0
"""Seconds between two signs of life to a client that waits."""

OPENING = "opening"

IDLE_S = 3600.0
"""Seconds after which a client that says nothing is dropped."""

KINDS = "program", "network"
"""Kinds of artifacts: instruction words, and files that `runtime.artifact.save` writes."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "run": ("digest",), "network": ("digest", "keep_all", "inputs", "timing"), "scratchpads": (),
    "processor": (),
    "trials": ("digest", "workload", "threads", "seed", "choices", "incumbent"),
}  # fmt: skip
"""Requests that are jobs, with the fields that the worker sees."""

ARTIFACTS = {"run": "program-", "network": "network-", "trials": "network-"}
"""Beginning of the digests of what these jobs may use."""

HARMFUL = (
    JobVerdict.FAULT,
    JobVerdict.WRONG,
    JobVerdict.CRASHED,
    JobVerdict.TIMEOUT,
    JobVerdict.MEMORY,
)
"""Verdicts after which the device's state is not known."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what clients may use.

    Parameters
    ----------
    job_s : float
        Seconds of a job.
    memory_bytes : int
        Address space of a worker.
    artifact_bytes : int
        Bytes of all artifacts that are kept.
    """

    job_s: float = 3600.0
    memory_bytes: int = 16 << 30
    artifact_bytes: int = 1 << 30


class Agent:
    """The devices of this machine, served to clients.

    Parameters
    ----------
    identity : Identity
        Keys, and the folder with the certificates of clients.
    units : sequence of LentDevice
    addresses : mapping
        Addresses of the device on this machine, by the name of the unit; a board that loads
        bitstreams has one for each.
    limits : Limits
    say : callable
        Called with each line of the log.
    """

    def __init__(
        self,
        identity: Identity,
        units: Sequence[LentDevice],
        addresses: Mapping[str, Sequence[str]],
        limits: Limits = Limits(),
        *,
        term_s: float = TERM_S,
        say: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.table = LeaseTable.of(units, term_s, last_token=time.time_ns() // 1000)
        self.say, self.clock = say, clock
        self._alive_s = min(ALIVE_S, term_s / 3)
        self._artifacts: OrderedDict[str, bytes] = OrderedDict()
        self._granted: dict[Ticket, asyncio.Future[Lease]] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._machines: dict[str, dict[str, Any]] = {}
        self._boards = BoardChecks(addresses, limits.memory_bytes)
        self._checks: set[asyncio.Task] = set()
        self._connections = 0
        self._door = Door(identity)

    # Door ------------------------------------------------------------------------------------

    async def serve(self, host: str, port: int, ready: Callable[[str, int], None]) -> None:
        """Serve until cancelled; `ready` is called with the address and the port."""
        server = await asyncio.start_server(
            self._connected, host, port, ssl=self._door.context, ssl_handshake_timeout=HANDSHAKE_S
        )
        try:
            ready(*server.sockets[0].getsockname()[:2])
            while True:
                self._tick()
                await asyncio.sleep(TICK_S)
        finally:
            server.close()
            for worker in list(self._workers.values()):
                await worker.stop()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection whose key TLS has checked."""
        self._connections += 1
        name = self._door.name_of(writer)
        client = Client(name, writer)
        try:
            if name and self._connections <= MAX_CONNECTIONS and await self._greet(reader, client):
                while (message := await receive_message(reader, IDLE_S)) is not None:
                    await self._guarded(client, self._answer(client, message))
        except (WireError, OSError) as problem:
            self.say(f"{name}: sent {problem}; disconnected")
        except asyncio.CancelledError:
            pass
        finally:
            self._connections -= 1
            await self._forget(client)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, client: Client) -> bool:
        """Compare versions, and return whether they fit."""
        hello = await receive_message(reader, HANDSHAKE_S, max_bytes=0)
        if hello is None:
            return False
        ours = {"wire": WIRE_VERSION, "contract": CONTRACT_VERSION}
        theirs = {name: hello.fields.get(name) for name in ours}
        if hello.op != "hello" or theirs != ours:
            await self._refuse(
                client,
                f"it has version {__version__} of Tilewright ({_versions(ours)}), you have "
                f"{hello.fields.get('release', '?')!s:.20} ({_versions(theirs)}); install the same "
                "one on both sides",
            )
            return False
        await client.send(
            "welcome", wire=WIRE_VERSION, contract=CONTRACT_VERSION, release=__version__,
            term_s=self.table.term_s,
        )  # fmt: skip
        return True

    async def _refuse(
        self, client: Client, text: str, verdict: JobVerdict = JobVerdict.REFUSED, **fields: Any
    ) -> None:
        await client.send("done", verdict=verdict, text=text, **fields)

    async def _forget(self, client: Client) -> None:
        """End all that a client has begun."""
        for task in client.tasks:
            task.cancel()
        if client.tasks:
            await asyncio.wait(client.tasks)
        for ticket in client.tickets:
            self.table.withdraw(ticket)
            self._granted.pop(ticket, None)
        for token in client.tokens:
            with suppress(StaleLeaseError):
                self.table.release(token, self.clock())
        self._tick()

    # Requests --------------------------------------------------------------------------------

    async def _answer(self, client: Client, message: Message) -> None:
        """Answer a request, or begin a job that will."""
        if message.op == "renew":
            with suppress(StaleLeaseError):
                self._token(client, message)
        elif message.op == "devices":
            await client.send("done", verdict=JobVerdict.OK, devices=self._listed())
        elif message.op == "artifact":
            await self._keep(client, message)
        elif message.op == "release":
            token = self._token(client, message)
            client.tokens.discard(token)
            self.table.release(token, self.clock())
            self._tick()
            await client.send("done", verdict=JobVerdict.OK)
        elif message.op != "lease" and message.op not in FIELDS:
            await self._refuse(client, f"it knows no request `{message.op:.40}`")
        elif any(not task.done() for task in client.tasks):
            await self._refuse(client, "it runs a request of this connection already")
        else:
            begin = self._lease if message.op == "lease" else self._job
            task = asyncio.create_task(self._guarded(client, begin(client, message)))
            client.tasks = {task}

    async def _guarded(self, client: Client, work: Any) -> None:
        """Do the work of a request, and send the verdict if it fails."""
        try:
            await work
        except JobError as problem:
            await self._refuse(client, str(problem), problem.verdict)
        except StaleLeaseError as problem:
            await self._refuse(client, str(problem), JobVerdict.STALE)
        except WireError as problem:
            await self._refuse(client, f"it cannot read the request: {problem}")
        except Exception as problem:
            text = f"unexpected {type(problem).__name__} in the agent: {problem}"
            self.say(f"{client.name}: {text}")
            await self._refuse(client, text, JobVerdict.CRASHED)

    def _token(self, client: Client, message: Message) -> int:
        """Return the token of a request, whose lease it prolongs; raises `StaleLeaseError`."""
        token = message.take("token", int)
        if token not in client.tokens:
            raise StaleLeaseError("the lease is over, or another client's")
        self.table.renew(token, self.clock())
        return token

    def _listed(self) -> list[dict[str, Any]]:
        """Return the devices, for `tilewright devices`."""
        return [
            {
                "name": unit.name,
                "kind": unit.pool,
                "state": unit.state,
                "client": unit.client,
                "waiting": sum(unit.fits(ticket) for ticket in self.table.waiting),
                "configurations": [f"{one:#010x}" for one in sorted(unit.bitstreams)],
                "faults": unit.faults,
                "why": unit.why,
            }
            for unit in self.table.units.values()
        ]

    async def _keep(self, client: Client, message: Message) -> None:
        """Keep an artifact that somebody trusted has signed."""
        kind, signer = message.take("kind", str), message.take("signer", str)
        if kind not in KINDS or len(message.parts) != 2:
            raise WireError("an artifact of no known kind")
        data, signature = message.parts
        digest = f"{kind}-{(await asyncio.to_thread(hashlib.sha256, data)).hexdigest()}"
        known = self._door.signers.get(signer)
        if known is None or not known.has_signed(digest, signature):
            who = self._door.names.get(signer, "a key that it does not trust")
            await self._refuse(
                client, f"it runs artifacts that a trusted key signed, not this one of {who}"
            )
            return
        if len(data) > self.limits.artifact_bytes:
            await self._refuse(
                client, f"it keeps at most {self.limits.artifact_bytes:,} bytes of artifacts"
            )
            return
        self._artifacts[digest] = data
        while sum(map(len, self._artifacts.values())) > self.limits.artifact_bytes:
            self._artifacts.popitem(last=False)
        await client.send("done", verdict=JobVerdict.OK, digest=digest)

    # Leases ----------------------------------------------------------------------------------

    async def _lease(self, client: Client, message: Message) -> None:
        """Wait for a device, open it, and tell the client."""
        machine = {
            name: message.take(name, dict) for name in ("configuration", "memory", "options")
        }
        try:
            configuration = Configuration.from_dict(machine["configuration"], "lease")
            MemoryModel.of_parameters(machine["memory"])
        except (TilewrightError, TypeError, ValueError) as problem:
            raise JobError(JobVerdict.FAILED, str(problem)) from None
        device, now = message.take("device", str), self.clock()
        bitstream = configuration.hash if message.take("board", bool) else ANY
        ticket = self.table.request(client.name, device, bitstream, now)
        lease = await self._granted_lease(client, ticket)
        unit = self.table.units[lease.unit]
        began = self.clock()
        if unit.checked:
            self._machines[unit.name] = machine
        self.table.begin(lease.token, began)
        answer = await self._supervised(
            client, lease.token, OPENING, self._open(unit, lease.token, machine)
        )
        await client.send(
            "done", **answer.fields, token=lease.token, device=unit.name, kind=unit.pool,
            queued_s=lease.waited_s, opened_s=self.clock() - began,
        )  # fmt: skip

    async def _open(self, unit: LentDevice, token: int, machine: Mapping[str, Any]) -> Message:
        """Start a worker for a lease, which opens the device."""
        worker = await self._boards.start(unit)
        self._workers[token] = worker
        return await worker.call("open", limit_s=self.limits.job_s + STARTING_S, **machine)

    async def _granted_lease(self, client: Client, ticket: Ticket) -> Lease:
        """Wait for a lease, and tell the client its position meanwhile."""
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._granted[ticket] = future
        client.tickets.append(ticket)
        try:
            self._tick()
            while not future.done():
                if why := self.table.hopeless(ticket):
                    raise JobError(JobVerdict.REFUSED, why)
                await client.send("waiting", position=self.table.position(ticket))
                await asyncio.wait([future], timeout=self._alive_s)
        finally:
            client.tickets.remove(ticket)
            self._granted.pop(ticket, None)
            self.table.withdraw(ticket)
            if future.done():  # also if the client has just left
                client.tokens.add(future.result().token)
        return future.result()

    def _tick(self) -> None:
        """Grant, end and check what is due."""
        self._door.look()
        for lease in self.table.advance(self.clock()):
            future = self._granted.get(lease.ticket)
            if future is None or future.done():
                self.table.release(lease.token, self.clock())
            else:
                future.set_result(lease)
        in_force = {unit.token for unit in self.table.units.values()}
        for token in [token for token in self._workers if token not in in_force]:
            self._later(self._workers.pop(token).stop())
        for unit in self.table.units.values():
            if unit.state is LeaseState.CHECKING and unit.name not in self._being_checked():
                self._later(self._check(unit), name=unit.name)

    def _being_checked(self) -> set[str]:
        return {task.get_name() for task in self._checks}

    def _later(self, work: Any, name: str = "stop") -> None:
        task = asyncio.create_task(work, name=name)
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check(self, unit: LentDevice) -> None:
        """Compare a device with a known answer after a fault."""
        problem = await self._boards.check(unit, self._machines.get(unit.name))
        state = self.table.checked(unit.name, problem, self.clock())
        self.say(f"{unit.name}: {problem or 'gives right answers'}; now {state}")
        self._tick()

    # Jobs ------------------------------------------------------------------------------------

    async def _job(self, client: Client, message: Message) -> None:
        """Run a job under a lease."""
        token = self._token(client, message)
        worker = self._workers.get(token)
        if worker is None:
            raise StaleLeaseError("the lease is over, since its device failed")
        limit_s = min(message.take("limit_s", float), self.limits.job_s)
        fields = {name: message.fields.get(name) for name in FIELDS[message.op]}
        digest = message.take("digest", str) if "digest" in fields else ""
        if digest:
            if digest not in self._artifacts and digest not in worker.artifacts:
                raise JobError(JobVerdict.MISSING, "the agent does not keep this artifact")
            if not digest.startswith(ARTIFACTS[message.op]):
                raise WireError("an artifact of another kind")

        async def work() -> Message:
            if digest and digest not in worker.artifacts:
                data = [self._artifacts[digest]]
                await worker.call("artifact", data, limit_s=STARTING_S, digest=digest)
                worker.artifacts.add(digest)
            return await worker.call(message.op, message.parts, limit_s=limit_s, **fields)

        unit, asked = self.table.begin(token, self.clock()), self.clock()
        answer = await self._supervised(client, token, "running", work())
        agent_s = self.clock() - asked
        await client.send("done", answer.parts, **answer.fields, device=unit.name, agent_s=agent_s)

    async def _supervised(self, client: Client, token: int, state: str, work: Any) -> Message:
        """Await a worker's answer with signs of life, and note the job's end in the table."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=self._alive_s))[0]:
                await client.send(state)
                if state == OPENING:  # the client does not know its token yet
                    self.table.renew(token, self.clock())
            answer = task.result()
        except JobError as problem:
            if problem.verdict in HARMFUL:
                unit = self.table.units[self.table.renew(token, self.clock()).name]
                state = self.table.fail(token, f"{problem.verdict}: {problem}", self.clock())
                self.say(f"{unit.name}: {problem.verdict}: {problem}; now {state}")
                self._tick()
            else:
                self.table.end(token, self.clock(), succeeded=False)
            raise
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        self.table.end(token, self.clock())
        return answer


def _versions(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!s:.20}" for name, value in found.items())
