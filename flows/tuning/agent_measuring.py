"""Measuring of candidates on the processors of other machines, which agents lend."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...compiler.cpu import LEVELS, CpuTarget
from ...compiler.cpu.kernels.choices import Choice, choice_text, digest_of, workload_of
from ...compiler.graph import Graph
from ...compiler.module import Module
from ...errors import UsageError
from ...isa.configuration import DEFAULT
from ...runtime.artifact import artifact_bytes
from ...runtime.device import Device
from ...runtime.remote import RemoteDevice
from ...runtime.wire import JobError, JobVerdict, Message, WireError
from ...wording import counted
from .machines import CpuMachine
from .measuring import TrialMeasurer
from .outcome import Times, TrialOutcome, TrialVerdict
from .shared_devices import SharedDevices
from .trial import TuningSetting

GROUP = 4
"""Candidates of one job, which the agent builds in parallel."""

VERDICTS: Mapping[JobVerdict, TrialVerdict] = {
    JobVerdict.LOST: TrialVerdict.LOST,
    JobVerdict.STALE: TrialVerdict.LOST,
    JobVerdict.MISSING: TrialVerdict.LOST,
    JobVerdict.TIMEOUT: TrialVerdict.TIMEOUT,
    JobVerdict.CRASHED: TrialVerdict.CRASH,
    JobVerdict.MEMORY: TrialVerdict.CRASH,
}
"""Verdicts on the candidates of a job that failed; of all others, `tool error`."""


class AgentMeasurer(TrialMeasurer):
    """Judges candidates on processors that agents lend, all of one kind.

    Parameters
    ----------
    addresses
        Such as `remote://lab/host`.
    graph
        The network of the kernels.
    versions
        What a time depends on, as `kernel_records.versions_now` gives it; that of the agents must
        be the same, since they share the records.

    Raises
    ------
    DeviceError
        If an agent cannot be reached or refuses.
    UsageError
        If a device is not a processor, or they differ.
    """

    def __init__(self, addresses: Sequence[str], graph: Graph, versions: Mapping[str, str]) -> None:
        steps = tuple(node.outputs[0].name for node in graph.nodes)
        self._artifact = artifact_bytes(Module(graph.name, DEFAULT, graph, steps, (), {}))
        self.shared = SharedDevices(addresses)
        try:
            told = [self._processor(device, versions) for device in self.shared.devices]
        except BaseException:
            self.close()
            raise
        self.target, self.threads = told[0]
        for device, one in zip(self.shared.devices, told, strict=True):
            if one != told[0]:
                self.close()
                raise UsageError(
                    f"`--device {device.name}`: expected the processor of "
                    f"`{addresses[0]}`, {self.target.cpu} with "
                    f"{counted(self.threads, 'thread')}, got {one[0].cpu} with {one[1]}; tune "
                    "unlike machines one after the other"
                )

    def close(self) -> None:
        """Give the processors back."""
        self.shared.close()

    def sentences(self) -> list[str]:
        """Return the seconds in queues, and the agents that were lost."""
        return self.shared.sentences()

    def _processor(self, device: Device, versions: Mapping[str, str]) -> tuple[CpuTarget, int]:
        assert isinstance(device, RemoteDevice)
        answer = device.job("processor", [], "", b"")
        try:
            target = CpuTarget(**answer.take("target", dict))
            if target.level not in LEVELS or not all(
                isinstance(one, str) for one in (target.triple, target.cpu, target.features)
            ):
                raise WireError("a processor that there is not")
            theirs, threads = answer.take("versions", dict), answer.take("threads", int)
        except (WireError, TypeError) as problem:
            raise _nonsense(device, problem) from None
        if theirs != dict(versions):
            raise UsageError(
                f"`--device {device.name}`: expected an agent with the versions {dict(versions)}, "
                f"got {theirs}; install the same Tilewright and llvmlite on both sides"
            )
        return target, max(1, threads)

    def measure(
        self, setting: TuningSetting, choices: Sequence[Choice], incumbent: Choice
    ) -> Iterator[TrialOutcome]:
        """Judge candidates, each on the processor that is free first."""
        assert isinstance(setting.machine, CpuMachine)
        fields = {
            "workload": digest_of(workload_of(setting.product)),
            "threads": setting.machine.threads,
            "seed": setting.seed,
            "incumbent": choice_text(incumbent),
        }
        groups = [choices[at : at + GROUP] for at in range(0, len(choices), GROUP)]

        def run(device: Device, group: Sequence[Choice]) -> list[TrialOutcome]:
            assert isinstance(device, RemoteDevice)
            texts = list(map(choice_text, group))
            answer = device.job("trials", [], "network", self._artifact, choices=texts, **fields)
            try:
                told = [Message("outcome", one) for one in answer.take("outcomes", list)]
                if [one.take("choice", str) for one in told] != texts:
                    raise WireError("outcomes of other candidates")
                found = list(map(_outcome, group, told))
                device.times.run_s += answer.take("run_s", float)
                device.times.runs += len(found)
                return found
            except (WireError, AttributeError, TypeError, ValueError) as problem:
                raise _nonsense(device, problem) from None

        for group, answer in zip(groups, self.shared.share(groups, run), strict=True):
            if not isinstance(answer, JobError):
                yield from answer
                continue
            verdict = VERDICTS.get(answer.verdict, TrialVerdict.TOOL_ERROR)
            for choice in group:
                yield TrialOutcome(choice, verdict, str(answer))


def _nonsense(device: RemoteDevice, problem: Exception) -> JobError:
    """Return the error of an agent whose answers are none: it says nothing about candidates."""
    return JobError(JobVerdict.LOST, str(device.connected().false(problem)))


def _outcome(choice: Choice, told: Message) -> TrialOutcome:
    """Read an outcome; raises `WireError` and others for one that cannot be right."""
    verdict, values = TrialVerdict(told.take("verdict", str)), told.take("times", dict)
    times = Times(**values) if values else None
    if (verdict is TrialVerdict.OK) != (times is not None):
        raise WireError("a verdict that does not fit its times")
    if times is not None:
        figures: list[Any] = [times.ratio, times.to_incumbent, times.median_s, times.default_s]
        numbers = [*figures, times.spread_s, times.turns]
        if not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
            raise WireError("times that are no numbers")
        if min(figures) <= 0 or times.spread_s < 0 or times.turns < 1:
            raise WireError("times that are none")
    text, program, steps = (told.take(name, str) for name in ("text", "program", "steps"))
    return TrialOutcome(choice, verdict, text, program, steps, times)
