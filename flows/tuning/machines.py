"""Machines whose kernels are tuned: their spaces, the code of a candidate, and its clock.

All else about tuning is the same for every machine. A machine travels to processes that measure, so
it holds no device; they open one when they load a candidate.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from typing_extensions import override

from ...compiler.cpu import CompiledKernel, CpuTarget, Description
from ...compiler.cpu.codegen.machine_code import assemble
from ...compiler.cpu.execution.kernel import Frame, load_kernel, lower_description
from ...compiler.cpu.kernels.choices import Choice, space_of
from ...compiler.cpu.kernels.description import TunableDescription
from ...wording import counted
from ..execution.recorded_choices import CPU_KERNEL, target_parameters
from ..execution.shipped_choices import shipped_places
from ..sweep.records import digest_of
from .definitions import Arrays
from .features import Features, features_of


class LoadedCandidate(Protocol):
    """A candidate that a process has loaded."""

    description: Description

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Compute the kernel."""
        ...

    def clock(self, arrays: Arrays) -> Callable[[int], float]:
        """Bind arrays; return what calls the kernel a number of times and gives the seconds."""
        ...


@dataclass(frozen=True, slots=True)
class CandidateCode:
    """A candidate that was built.

    Parameters
    ----------
    program
        All that distinguishes its program from others.
    steps
        The steps of its schedule.
    code
        For `TuningMachine.load`.
    """

    program: str
    steps: str
    code: bytes


class TuningMachine(ABC):
    """A kind of machine; subclasses are frozen dataclasses.

    Attributes
    ----------
    evaluator
        The evaluator of its trials in the database.
    """

    __slots__ = ()
    evaluator: ClassVar[str]

    @property
    @abstractmethod
    def title(self) -> str:
        """The machine, for people."""

    @property
    @abstractmethod
    def host(self) -> CpuTarget:
        """The processor for which a network's kernels are planned."""

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, int | str]:
        """Return what a record's target is."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions that its times depend on besides `kernel_records.versions_now`, or instead."""
        return {}

    @property
    def digest(self) -> str:
        """Hash under which its records stand."""
        return digest_of(json.dumps(dict(self.parameters), sort_keys=True))

    @property
    def shipped(self) -> Sequence[str]:
        """Texts under which shipped records for it are found."""
        return ()

    @abstractmethod
    def questions(self, product: TunableDescription) -> Mapping[str, tuple[int | str, ...]]:
        """The free decisions of a kernel, each with its legal answers, the default first."""

    def space(self, product: TunableDescription) -> list[Choice]:
        """All answers to the questions, the default's first."""
        return space_of(product, self.questions)

    @abstractmethod
    def check(self, product: TunableDescription) -> None:
        """Refuse a candidate that cannot be scheduled, without building it.

        Raises
        ------
        CompileError
            The reason.
        """

    def estimated(
        self, product: TunableDescription, points: Sequence[Choice]
    ) -> list[dict[str, Any]]:
        """Rows with the `choice`, its figures and a `text` for the best points by an estimate."""
        return []

    @abstractmethod
    def features(self, product: TunableDescription, choice: Choice) -> Features:
        """Numbers that describe a candidate to a model."""

    @abstractmethod
    def build(self, product: TunableDescription) -> CandidateCode:
        """Build a candidate.

        Raises
        ------
        CompileError
            If its schedule is illegal.
        """

    @abstractmethod
    def load(self, product: TunableDescription, code: bytes) -> LoadedCandidate:
        """Load a candidate where it is measured."""


@dataclass(frozen=True, slots=True)
class CpuMachine(TuningMachine):
    """A processor.

    Parameters
    ----------
    threads
        Threads that share a kernel's loops.
    """

    target: CpuTarget
    threads: int
    evaluator = CPU_KERNEL

    @property
    @override
    def title(self) -> str:
        threads = counted(self.threads, "thread")
        return f"{self.target.cpu}, {self.target.level}, {threads}"

    @property
    @override
    def host(self) -> CpuTarget:
        return self.target

    @property
    @override
    def parameters(self) -> Mapping[str, int | str]:
        return target_parameters(self.target, self.threads)

    @property
    @override
    def shipped(self) -> Sequence[str]:
        return shipped_places(self.target, self.threads)

    @override
    def questions(self, product: TunableDescription) -> Mapping[str, tuple[int | str, ...]]:
        return product.questions(self.target)

    @override
    def check(self, product: TunableDescription) -> None:
        product.plan(self.target)

    @override
    def features(self, product: TunableDescription, choice: Choice) -> Features:
        return features_of(product, self.target, self.threads, choice)

    @override
    def build(self, product: TunableDescription) -> CandidateCode:
        plan, lowered = lower_description(product, self.target)
        code = assemble(lowered.text, self.target, plan.schedule.kernel.name)
        kernel = CompiledKernel(product, self.target, code, Frame.of(plan, lowered))
        steps = "\n".join(map(str, plan.schedule.steps))
        # Layouts say where the code finds its weights, so they belong to the program.
        return CandidateCode(f"{lowered.text}\n{plan.layouts!r}", steps, kernel.to_bytes())

    @override
    def load(self, product: TunableDescription, code: bytes) -> LoadedCandidate:
        return _OnProcessor(load_kernel(code, product, self.target, self.threads), self.threads)


class _OnProcessor(LoadedCandidate):
    """A kernel of the processor."""

    def __init__(self, kernel: CompiledKernel, threads: int) -> None:
        self.kernel, self.description = kernel, kernel.description
        # Processor time does not count what else the computer does, but only that of one thread.
        self._now = time.thread_time if threads == 1 else time.perf_counter

    @override
    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        return self.kernel(*arrays)

    @override
    def clock(self, arrays: Arrays) -> Callable[[int], float]:
        rest = dict(arrays)
        kernel, now = self.kernel, self._now
        bound = kernel.bind(**{name: rest.pop(name) for name in kernel.description.constants})
        out = bound(*rest.values())
        frame, places = bound.frame()
        for name, array in rest.items():
            frame[places[name]] = array.ctypes.data
        frame[len(frame) - 1] = out.ctypes.data

        def run(count: int, held: Any = (bound, rest, out)) -> float:
            before = now()
            for _ in range(count):
                kernel.call(frame)
            return now() - before

        return run
