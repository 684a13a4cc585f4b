"""Trials of layers on devices: simulators and boards, here or lent by agents."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...compiler.module import Module, Segment
from ...errors import CompileError, UsageError
from ...runtime.device import Device
from ...runtime.devices import is_board, kind_of
from ...runtime.wire import JobError, JobVerdict
from .layer_bench import LayerBench
from .shared_devices import SharedDevices

PROCESS_ENDED = JobVerdict.CRASHED, JobVerdict.MEMORY
"""Verdicts on a process that others may have ended; a whole network is worth a second try."""


@dataclass(frozen=True, slots=True)
class LayerTrial:
    """A schedule of a layer that a device ran.

    Parameters
    ----------
    verdict, text
        How it ended, and why, unless it is `ok`.
    cycles
        As the device counts them; None unless the verdict is `ok`.
    device
        The device's name; empty if none ran it.
    """

    layer: str
    steps: str
    verdict: JobVerdict
    text: str = ""
    cycles: int | None = None
    device: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "verdict": str(self.verdict)}


class LayerTrials:
    """Times schedules of layers on devices, several at a time.

    Attributes
    ----------
    log
        All trials, in the order in which they were asked for.
    """

    def __init__(self, shared: SharedDevices) -> None:
        self.shared = shared
        self.log: list[LayerTrial] = []
        memories = {one.memory for one in shared.devices}
        if len(memories) != 1:
            raise UsageError(
                "`--device`: expected devices with equal main memories, got "
                + ", ".join(f"`{one.name}` with {one.memory}" for one in shared.devices)
                + "; tune for one after the other"
            )
        (self.memory,) = memories

    @property
    def width(self) -> int:
        """Number of devices that are not lost, 1 at least."""
        return max(1, len(self.shared.devices))

    @property
    def on_board(self) -> bool:
        """Whether a board is among the devices: its memory may be faster than it says."""
        return any(is_board(one.name) for one in self.shared.all)

    @property
    def counted_by(self) -> str:
        """The kinds of devices that count cycles, and the names of boards."""
        names = (one.name if is_board(one.name) else kind_of(one.name) for one in self.shared.all)
        return " ".join(sorted(set(names)))

    def cycles(self, bench: LayerBench, texts: Sequence[str]) -> list[LayerTrial]:
        """Run schedules of a layer alone, and compare what they compute with the definition."""
        built: list[Segment | CompileError] = []
        for text in texts:
            try:
                built.append(bench.program(text))
            except CompileError as problem:
                built.append(problem)
        _ = bench.values  # computed once, before threads ask for them

        def run(device: Device, place: int) -> LayerTrial:
            segment = built[place]
            trial = LayerTrial(bench.name, texts[place], JobVerdict.OK, device=device.name)
            assert not isinstance(segment, CompileError)
            result, apart = bench.run(segment, device)
            if apart:
                return replace(trial, verdict=JobVerdict.WRONG, text=apart)
            if result.cycles is None:
                text = f"device `{device.name}`: counts no cycles"
                return replace(trial, verdict=JobVerdict.FAILED, text=text)
            return replace(trial, cycles=result.cycles)

        places = [place for place, one in enumerate(built) if not isinstance(one, CompileError)]
        answers = dict(zip(places, self.shared.share(places, run), strict=True))
        for place, text in enumerate(texts):
            answer = answers.get(place, built[place])
            if isinstance(answer, LayerTrial):
                self.log.append(answer)
                continue
            verdict = answer.verdict if isinstance(answer, JobError) else JobVerdict.FAILED
            self.log.append(LayerTrial(bench.name, text, verdict, str(answer)))
        return self.log[-len(texts) :]

    def network_cycles(self, module: Module) -> int:
        """Return the cycles of all programs of a network on one of the devices.

        Raises
        ------
        JobError
            If it does not run, or the device counts no cycles.
        """

        def run(device: Device, network: Module) -> int:
            cycles = 0
            for segment in network.segments:
                inputs = {one.name: np.zeros(one.shape, np.int8) for one in segment.inputs}
                found = device.run(segment.program, segment.image(inputs)).cycles
                if found is None:
                    raise JobError(JobVerdict.FAILED, f"device `{device.name}`: counts no cycles")
                cycles += found
            return cycles

        (answer,) = self.shared.share([module], run)
        if isinstance(answer, JobError) and answer.verdict in PROCESS_ENDED:
            (answer,) = self.shared.share([module], run)
        if isinstance(answer, JobError):
            raise answer
        return answer
