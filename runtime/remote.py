"""A device of another machine, which an agent lends: `remote://AGENT/DEVICE`.

The device is leased from when it is opened until it is closed. A lease that ran out is asked for
again, and a job whose agent was lost is repeated, since a run depends on its data alone. What an
agent answers is checked: the form of every answer, and for the first run of each program the bytes
and, where time is simulated, the cycles, by a run on `sim` here.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from weakref import WeakSet

import numpy as np
from typing_extensions import override

from ..errors import DeviceError
from ..isa.configuration import Configuration, Memory
from ..isa.encoding import word_bytes
from ..isa.memory_model import MemoryModel
from ..isa.registers import counter_registers
from ..wording import counted
from .agents import AgentConnection, RemoteAddress, artifact_digest, connect
from .arrays import from_npy
from .device import Device, LoadedProgram, Result
from .devices import DEVICES, ReferenceDevice, SimDevice
from .known_machines import machine_of
from .wire import JobError, JobVerdict, Message, WireError

RETRIES = 2
"""Times that a job is repeated because the agent was lost, or a lease ran out."""

RECONNECTING_S = 20.0
"""Seconds in which an agent that was lost may come back, as one does that is started anew."""

PAUSE_S = 0.5

REPEATED = (JobVerdict.LOST, JobVerdict.STALE, JobVerdict.MISSING)
"""Verdicts that say nothing about the job."""

ENDED = (
    JobVerdict.STALE, JobVerdict.FAULT, JobVerdict.WRONG, JobVerdict.CRASHED, JobVerdict.TIMEOUT,
    JobVerdict.MEMORY,
)  # fmt: skip
"""Verdicts after which the lease is over."""

GRACE_S = 180.0
"""Seconds beyond a job's limit that an agent may take, to start a process and end it."""

Say = Callable[[str], None]


@dataclass(slots=True)
class RemoteTimes:
    """Seconds of all jobs of a device; time in the queue is never time of a run.

    Parameters
    ----------
    queued_s : float
        In the agent's queue, until the device was free.
    opened_s : float
        Until it was ready, such as building a simulator.
    run_s : float
        On the device.
    runs : int
    """

    queued_s: float = 0.0
    opened_s: float = 0.0
    run_s: float = 0.0
    runs: int = 0

    def __str__(self) -> str:
        return (
            f"{self.queued_s:.1f} s in the queue, {self.opened_s:.1f} s to open, "
            f"{self.run_s:.3f} s in {counted(self.runs, 'run')}"
        )


def lent_machine(address: str) -> Configuration | None:
    """Return the machine that an agent's boards of an address hold.

    Returns
    -------
    Configuration or None
        None if there is no such board, if they hold several machines, or one unknown here.

    Raises
    ------
    DeviceError
        If the agent cannot be reached or refuses.
    """
    wanted = RemoteAddress.parse(address)
    connection = connect(wanted.agent)
    try:
        hashes = {
            told
            for each in connection.devices()
            if wanted.device in (each["name"], each["kind"])
            for told in each["configurations"]
        }
    finally:
        connection.close()
    return machine_of(int(hashes.pop(), 16)) if len(hashes) == 1 else None


class RemoteDevice(Device):
    """A device that an agent lends.

    Parameters
    ----------
    configuration : Configuration
    memory : MemoryModel
        A board has its own.
    address : str
        See `agents.RemoteAddress`.
    options : mapping
        Of the device; see `open_device`.
    say : callable or None
        Called with a sentence when the place in the queue changes.

    Raises
    ------
    DeviceError
        If the agent cannot be reached or refuses, or the device fails there. A `JobError` has the
        verdict.
    """

    def __init__(
        self,
        configuration: Configuration,
        memory: MemoryModel,
        address: str,
        options: Mapping[str, Any],
        say: Say | None = None,
    ) -> None:
        super().__init__(configuration, memory)
        self.name, self.address = address, RemoteAddress.parse(address)
        self.times = RemoteTimes()
        self.is_board = self.address.device not in DEVICES
        self._options, self._say = dict(options), say
        self._sent: set[str] = set()
        self._checked = WeakSet[LoadedProgram]()
        self._agent: AgentConnection | None = connect(self.address.agent)
        self._token: int | None = None
        try:
            self._lease()
        except DeviceError:
            self.close()
            raise

    @override
    def _close(self) -> None:
        if self._agent is not None:
            if self._token is not None and not self._agent.is_closed:
                with suppress(JobError):
                    self._agent.request("release", token=self._token, seconds=5.0)
            self._agent.close()
        self._agent = self._token = None

    # Leases ----------------------------------------------------------------------------------

    def _lease(self) -> None:
        """Wait for the device, and have it opened."""
        place, agent = 0, self.connected()
        asked = time.monotonic()

        def tell(state: Message) -> None:
            nonlocal place, asked
            if state.op != "waiting":
                asked = time.monotonic()  # it opens the device, which has a limit of its own
            elif (now := state.take("position", int)) != place:
                place = now
                if self._say is not None and place > 1:
                    self._say(f"agent `{agent.agent}`: place {place} in the queue")
            elif time.monotonic() > asked + self.address.wait_s:
                raise JobError(
                    JobVerdict.TIMEOUT,
                    f"agent `{agent.agent}`: `{self.address.device}` was not free within "
                    f"{self.address.wait_s:,g} s, place {place} in the queue; wait longer with "
                    "`?wait=SECONDS`",
                )

        try:
            answer = agent.request(
                "lease",
                seconds=self.address.wait_s + self.address.limit_s + GRACE_S,
                on_state=tell,
                device=self.address.device,
                board=self.is_board,
                configuration=self.configuration.parameters(),
                memory=asdict(self.memory),
                options=self._options,
            )
        except WireError as problem:
            raise agent.false(problem) from None
        try:
            token = answer.take("token", int)
            memory = MemoryModel.of_parameters(answer.take("memory", dict))
            if self.is_board:
                self.memory = memory
                self.clock_hz = answer.take("clock_hz", int)
                self.memory_bytes = answer.take("memory_bytes", int)
            elif memory != self.memory:
                raise WireError("another main memory than it was asked for")
            self.times.queued_s += answer.take("queued_s", float)
            self.times.opened_s += answer.take("opened_s", float)
        except (WireError, TypeError, DeviceError) as problem:
            raise agent.false(problem) from None
        self._token = token

    def connected(self) -> AgentConnection:
        """Return the connection to the agent, a new one if it was lost."""
        if self._agent is None or self._agent.is_closed:
            self._token = None
            self._sent.clear()
            self._agent = self._reconnect()
        return self._agent

    def _reconnect(self) -> AgentConnection:
        end = time.monotonic() + RECONNECTING_S
        while True:
            try:
                return connect(self.address.agent)
            except DeviceError:  # one that ends may look like one that does not know the key
                if time.monotonic() > end:
                    raise
            time.sleep(PAUSE_S)

    def job(self, op: str, parts: list[bytes], kind: str, data: bytes, **fields: Any) -> Message:
        """Run a job on the device; again if the agent was lost or the lease is over."""
        for attempt in range(RETRIES + 1):
            agent = self.connected()  # it has its own time to try again in
            try:
                if self._token is None:
                    self._lease()
                if kind:
                    fields["digest"] = self._send_once(agent, kind, data)
                return agent.request(
                    op,
                    parts,
                    seconds=self.address.limit_s + GRACE_S,
                    token=self._token,
                    limit_s=self.address.limit_s,
                    **fields,
                )
            except JobError as problem:
                if problem.verdict is JobVerdict.MISSING:
                    self._sent.clear()
                elif problem.verdict in ENDED:
                    self._token = None
                if problem.verdict not in REPEATED or attempt == RETRIES:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _send_once(self, agent: AgentConnection, kind: str, data: bytes) -> str:
        digest = artifact_digest(kind, data)
        if digest not in self._sent:
            agent.send_artifact(kind, data)
            self._sent.add(digest)
        return digest

    # Runs ------------------------------------------------------------------------------------

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        answer = self.job("run", [dram.tobytes()], "program", program.words)
        agent = self.connected()
        try:
            after, result = self._result(answer, program, dram)
        except (WireError, ValueError) as problem:
            raise agent.false(problem) from None
        if program not in self._checked:
            self._check(program, dram, after, result)
            self._checked.add(program)
        dram[:] = after
        return result

    def _result(
        self, answer: Message, program: LoadedProgram, dram: np.ndarray
    ) -> tuple[np.ndarray, Result]:
        """Read an answer; raises `WireError` or `ValueError` for one that cannot be right."""
        places = answer.numbers("ranges")
        changed, *more = answer.parts or (b"",)
        after, used = dram.copy(), 0
        if len(places) % 2 or places != sorted(places) or (places and places[-1] > dram.size):
            raise WireError("ranges that do not fit the data window")
        for start, end in zip(places[::2], places[1::2], strict=True):
            after[start:end] = np.frombuffer(changed[used : used + end - start], np.uint8)
            used += end - start
        if used != len(changed) or len(more) > 1:
            raise WireError("more bytes than changed")
        spans = from_npy(more[0]) if more else None
        count = len(program.words) // word_bytes(self.configuration)
        if spans is not None and (spans.dtype != np.int64 or spans.shape != (count, 2)):
            raise WireError(f"spans as {spans.dtype}{list(spans.shape)}")
        counters = answer.take("counters", dict)
        known = counter_registers(self.configuration.counters)
        if not all(name in known and type(n) is int and n >= 0 for name, n in counters.items()):
            raise WireError("counters that there are not")
        cycles = answer.fields.get("cycles")
        if cycles is not None and (type(cycles) is not int or cycles < 0):
            raise WireError("cycles that are no number")
        self.times.run_s += answer.take("run_s", float)
        self.times.runs += 1
        exact = answer.take("exact", bool)
        return after, Result(
            device=self.name, dram=dram, cycles=cycles, exact=exact, spans=spans, counters=counters
        )

    def _check(
        self, program: LoadedProgram, dram: np.ndarray, after: np.ndarray, result: Result
    ) -> None:
        """Compare the first run of a program with `sim`; raises `JobError` if they differ."""
        sim = SimDevice(self.configuration, self.memory).run(program.program, dram.copy())
        wrong = int(np.count_nonzero(sim.dram != after))
        says = f"{wrong:,} bytes of the data window differ from those of `sim`" if wrong else ""
        timed = not self.is_board and self.address.device != ReferenceDevice.name
        if not says and timed and sim.exact:
            if (result.cycles, result.exact) != (sim.cycles, True):
                says = f"it counts {result.cycles} cycles, where `sim` counts {sim.cycles}"
            elif result.counters != sim.counters or _bytes(result.spans) != _bytes(sim.spans):
                says = "its counters, or the times of instructions, differ from those of `sim`"
        if says:
            raise JobError(
                JobVerdict.WRONG,
                f"device `{self.name}`: wrong result: {says}; do not use what it computed before, "
                "and see which device the agent offers under this name",
            )

    @override
    def scratchpads(self) -> dict[Memory, np.ndarray]:
        answer = self.job("scratchpads", [], "", b"")
        try:
            names = answer.take("memories", list)
            found = {Memory[name]: np.frombuffer(part, np.uint8)
                     for name, part in zip(names, answer.parts, strict=True)}  # fmt: skip
            if any(data.size != self.configuration.size_bytes(m) for m, data in found.items()):
                raise ValueError("scratchpads of another size")
        except (WireError, ValueError, KeyError, TypeError) as problem:
            raise self.connected().false(problem) from None
        return found


def _bytes(spans: np.ndarray | None) -> bytes:
    return b"" if spans is None else spans.tobytes()
