"""A worker of an agent: a process with one device, which runs the jobs of one lease.

Everything that looks into an artifact happens here, where a crash costs one job. Programs are
checked before they run, since simulators trust them.
"""

import errno
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...atomic_write import FULL
from ...errors import (
    ArtifactError,
    CompileError,
    ConfigurationError,
    DeviceError,
    InputError,
    IsaError,
    ProgramError,
    ToolError,
)
from ...isa.checker import check
from ...isa.configuration import DEFAULT, Configuration
from ...isa.encoding import decode_program
from ...isa.memory_model import MemoryModel
from ...runtime.arrays import from_npy, to_npy
from ...runtime.artifact import load
from ...runtime.board import joined_ranges
from ...runtime.device import Device, OtherConfigurationError
from ...runtime.devices import HostDevice, is_board, open_device
from ...runtime.known_machines import machine_of
from ...runtime.session import Session
from ...runtime.spot_checks import WrongResultError
from ...runtime.wire import Channel, JobVerdict, Message, WireError
from ...sim.processes import end_with_parent

if TYPE_CHECKING:
    from .trial_jobs import TrialJobs

MAX_TEXT = 1000
"""Characters of the text of a verdict."""

OPTIONS = {"max_cycles": int, "technology": str}
"""Options of devices that a client may choose; a file name would be one on the agent's machine."""

Answer = tuple[dict[str, Any], list[bytes]]
"""Fields and byte strings of an answer."""


class JobWorker:
    """The device of a lease, and the artifacts that its jobs name.

    Parameters
    ----------
    address : str
        Of the device on this machine.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._device: Device | None = None
        self._artifacts: dict[str, bytes] = {}
        self._checked: set[tuple[str, int]] = set()
        self._sessions: dict[tuple[str, bool], Session] = {}

    @cached_property
    def _trials(self) -> "TrialJobs":
        # Imported here: the code generator is large, and few workers tune.
        from .trial_jobs import TrialJobs

        if not isinstance(self.device, HostDevice):
            raise WireError("trials of kernels on a device that is no processor")
        return TrialJobs()

    def processor(self, _: Message) -> Answer:
        """Describe this machine's processor, for which kernels are tuned."""
        return self._trials.processor(), []

    def trials(self, message: Message) -> Answer:
        """Judge candidates of a kernel of a network."""
        data = self._artifacts[message.take("digest", str)]
        return self._trials.judge(data, message), []

    @property
    def device(self) -> Device:
        """The open device."""
        if self._device is None:
            raise WireError("a job before the device is open")
        return self._device

    def open(self, message: Message) -> Answer:
        """Open the device as a machine with a memory."""
        configuration = Configuration.from_dict(message.take("configuration", dict), "lease")
        # Clients send parameters alone; presets have names for the messages of the tools.
        configuration = machine_of(configuration.hash) or configuration
        try:
            memory = MemoryModel.of_parameters(message.take("memory", dict))
        except TypeError as problem:
            raise WireError(f"a memory that is none ({problem})") from None
        options = message.take("options", dict)
        for name, value in options.items():
            if type(value) is not OPTIONS.get(name):
                raise WireError(f"option `{name}`, which a client cannot choose")
        self._device = open_device(self.address, configuration, memory, **options)
        board = {
            name: getattr(self._device, name)
            for name in ("clock_hz", "memory_bytes")
            if hasattr(self._device, name)
        }
        return {"memory": asdict(self._device.memory), **board}, []

    def identify(self, message: Message) -> Answer:
        """Return the hash of a board's configuration."""
        try:
            with open_device(self.address, DEFAULT):
                return {"hash": DEFAULT.hash}, []
        except OtherConfigurationError as problem:
            return {"hash": problem.found}, []

    def artifact(self, message: Message) -> Answer:
        """Keep an artifact; the agent has checked its signature."""
        self._artifacts[message.take("digest", str)] = message.only_part()
        return {}, []

    def run(self, message: Message) -> Answer:
        """Run a program on a data window; the answer has the bytes that changed."""
        digest, device = message.take("digest", str), self.device
        words = self._artifacts[digest]
        before = np.frombuffer(message.only_part(), np.uint8)
        if (digest, before.size) not in self._checked:
            instructions = decode_program(words, device.configuration)
            check(instructions, device.configuration, before.size)
            self._checked.add((digest, before.size))
        window = before.copy()
        began = time.perf_counter()
        result = device.run(words, window)
        run_s = time.perf_counter() - began
        ranges = joined_ranges(before != window)
        fields = {
            "run_s": run_s,
            "ranges": [place for part in ranges for place in part],
            "cycles": result.cycles,
            "exact": result.exact,
            "counters": result.counters,
        }
        changed = b"".join(window[start:end].tobytes() for start, end in ranges)
        return fields, [changed, *([] if result.spans is None else [to_npy(result.spans)])]

    def network(self, message: Message) -> Answer:
        """Run a network on this machine's processor."""
        key = message.take("digest", str), message.take("keep_all", bool)
        session = self._sessions.get(key)
        if session is None:
            module = load(self._artifacts[key[0]])
            session = self._sessions[key] = Session(module, self.device, keep_all=key[1])
        names = message.take("inputs", list)
        try:
            arrays = [from_npy(part) for part in message.parts]
            inputs = dict(zip(names, arrays, strict=True))
        except (ValueError, TypeError) as problem:
            raise WireError(f"inputs that are none ({problem})") from None
        began = time.perf_counter()
        run = session.run(inputs)
        run_s = time.perf_counter() - began
        host, timed = run.host, {}
        if timing := message.take("timing", dict):
            timed["benchmark"] = session.benchmark(inputs, **timing).to_json()
            host = host.typical(tuple(session.step_times))
        shown = {**(run.values if key[1] else {}), **run.outputs}
        kernels = [
            {
                "output": kernel.output,
                "nodes": [node.outputs[0].name for node in kernel.nodes],
                "exact": kernel.exact,
            }
            for kernel in run.host.kernels
        ]
        fields = {
            "run_s": run_s,
            "outputs": list(shown),
            "seconds": dict(host.seconds),
            "kernels": kernels,
            **timed,
        }
        return fields, [to_npy(array) for array in shown.values()]

    def scratchpads(self, message: Message) -> Answer:
        """Return the scratchpads after the last run."""
        contents = self.device.scratchpads()
        fields = {"memories": [memory.name for memory in contents]}
        return fields, [data.tobytes() for data in contents.values()]

    def check(self, message: Message) -> Answer:
        """Compare the device with the definition of the instructions, on a known program."""
        # Imported here: only a board after a fault is checked.
        from ..verify.programs.random_programs import random_program

        device = self.device
        program, image = random_program(device.configuration, message.take("seed", int))
        got = device.run(program, image.copy()).dram
        with open_device("reference", device.configuration) as reference:
            wrong = int(np.count_nonzero(got != reference.run(program, image.copy()).dram))
        if wrong:
            raise WrongResultError(f"device `{self.address}`: {wrong:,} bytes are wrong")
        return {}, []


def classify(problem: BaseException, address: str) -> tuple[JobVerdict, str]:
    """Return the verdict on a job that ended with an exception, and its text."""
    text = " ".join(str(problem).split())[:MAX_TEXT] or type(problem).__name__
    causes = list(_causes(problem))
    if any(isinstance(one, OSError) and one.errno in FULL for one in causes):
        return JobVerdict.DISK_FULL, f"the agent's machine has no room on its disk; {text}"
    if any(isinstance(one, MemoryError) for one in causes) or (
        isinstance(problem, OSError) and problem.errno == errno.ENOMEM
    ):
        return JobVerdict.MEMORY, f"the job needs more memory than the agent allows; {text}"
    if isinstance(problem, WrongResultError):
        return JobVerdict.WRONG, text
    if isinstance(problem, OtherConfigurationError):
        return JobVerdict.FAILED, text
    if isinstance(problem, DeviceError):
        return (JobVerdict.FAULT if is_board(address) else JobVerdict.FAILED), text
    if isinstance(problem, ToolError):
        return JobVerdict.TOOL, text
    own = ArtifactError, CompileError, ConfigurationError, InputError, IsaError, ProgramError
    if isinstance(problem, own):
        return JobVerdict.FAILED, text
    if isinstance(problem, WireError):
        return JobVerdict.REFUSED, f"the agent cannot read the request: {text}"
    return JobVerdict.CRASHED, f"unexpected {type(problem).__name__}: {text}"


def _causes(problem: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = problem
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def serve(descriptor: int, address: str, memory_bytes: int) -> None:
    """Run jobs that arrive on a socket, until its other end is closed."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    channel, worker = Channel(socket.socket(fileno=descriptor)), JobWorker(address)
    calls: dict[str, Callable[[Message], Answer]] = {
        call.__name__: call
        for call in (
            worker.open, worker.identify, worker.artifact, worker.run, worker.network,
            worker.scratchpads, worker.check, worker.processor, worker.trials,
        )
    }  # fmt: skip
    while True:
        try:
            message = channel.receive(None)
        except (WireError, OSError):
            return
        try:
            fields, parts = calls[message.op](message)
            channel.send("done", parts, verdict=JobVerdict.OK, **fields)
        except BrokenPipeError:
            return
        except Exception as problem:
            verdict, text = classify(problem, address)
            channel.send("done", verdict=verdict, text=text)


def _stop(*_: object) -> None:
    raise SystemExit
