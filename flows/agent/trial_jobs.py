"""Trials of kernels on an agent's processor: a network and choices come in, outcomes go out.

No machine code travels. The agent finds the kernel in the network by its workload, builds each
candidate for its own processor, and judges it as `tilewright tune` does here.
"""

import time
from dataclasses import asdict
from typing import Any

from ...compiler.cpu.kernels.choices import choice_of, choice_text
from ...compiler.host import host_target
from ...errors import DeviceError
from ...runtime.artifact import load
from ...runtime.wire import Message, WireError
from ..execution.recorded_choices import usable_threads
from ..tuning.kernel_records import versions_now
from ..tuning.machines import CpuMachine
from ..tuning.measuring import ProcessMeasurer
from ..tuning.tasks import KernelTask, tasks_of


class TrialJobs:
    """The kernels of networks that were sent, and the processes that judge candidates."""

    def __init__(self) -> None:
        self._target = host_target()
        if self._target is None:
            raise DeviceError("the agent's processor has no kernels in machine code to tune")
        self._measurer = ProcessMeasurer()
        self._tasks: dict[tuple[str, int], dict[str, KernelTask]] = {}

    def processor(self) -> dict[str, Any]:
        """Return what a client needs for spaces, features and records."""
        assert self._target is not None
        return {
            "target": asdict(self._target),
            "threads": usable_threads(),
            "versions": versions_now(),
        }

    def judge(self, artifact: bytes, message: Message) -> dict[str, Any]:
        """Return the outcomes of candidates, in order."""
        key = message.take("digest", str), message.take("threads", int)
        if key not in self._tasks:
            assert self._target is not None
            found = tasks_of(load(artifact).graph, CpuMachine(self._target, key[1]))
            self._tasks[key] = {task.workload: task for task in found}
        task = self._tasks[key].get(message.take("workload", str))
        texts = message.take("choices", list)
        if task is None or not all(isinstance(text, str) for text in texts):
            raise WireError("candidates of a kernel that the network lacks")
        setting = task.setting(message.take("seed", int))
        choices = list(map(choice_of, texts))
        incumbent = choice_of(message.take("incumbent", str))
        began = time.perf_counter()
        outcomes = list(self._measurer.measure(setting, choices, incumbent))
        return {
            "run_s": time.perf_counter() - began,
            "outcomes": [
                {
                    "choice": choice_text(one.choice),
                    "verdict": str(one.verdict),
                    "text": one.text,
                    "program": one.program,
                    "steps": one.steps,
                    "times": asdict(one.times) if one.times else {},
                }
                for one in outcomes
            ],
        }
