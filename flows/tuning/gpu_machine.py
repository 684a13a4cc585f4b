"""GPUs as machines whose kernels are tuned: candidates are built anywhere, and timed on a device.

The static filter needs no device: `gpu.product_plans` leaves out what exceeds a block, `build` what
the code generator refuses, and, where NVIDIA's assembler is installed, what spills registers.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from typing_extensions import override

from ...compiler.cpu import CpuTarget
from ...compiler.cpu.execution.kernel import code_generator_digest
from ...compiler.cpu.kernels.choices import Choice, Choices, choice_of, choice_text
from ...compiler.cpu.kernels.description import TunableDescription
from ...compiler.gpu import GpuTarget, compile_kernel, planned_for
from ...compiler.gpu.kernel import GpuKernel, check_choice, declare, kernel_of, space_plan
from ...runtime.gpu import GpuDriver, open_driver
from ...runtime.gpu.driver import device_parameters
from ..execution.recorded_choices import GPU_KERNEL
from ..sweep.child_process import pickled
from .definitions import Arrays
from .device_kernels import LoadedKernel, load_module
from .features import Features, work_of
from .gpu_assembler import assembled
from .gpu_estimates import estimate
from .machines import CandidateCode, LoadedCandidate, TuningMachine

LISTED, ASSEMBLED = 100, 3
"""Candidates with the best estimates that a list has, and those that are assembled for it."""


@dataclass(frozen=True, slots=True)
class GpuMachine(TuningMachine):
    """A GPU.

    Parameters
    ----------
    driver
        Name of its driver; empty for a level without a device.
    device
        Its name.
    """

    driver: str
    device: str
    target: GpuTarget
    evaluator = GPU_KERNEL

    @classmethod
    def of(cls, driver: GpuDriver) -> "GpuMachine":
        """The machine of an open driver."""
        return cls(driver.name, driver.device, driver.target)

    @property
    @override
    def title(self) -> str:
        tf32 = " with TF32" if self.target.tf32 else ""
        return f"{self.device or 'no device'}, {self.target.level}{tf32}"

    @property
    @override
    def host(self) -> CpuTarget:
        return planned_for()

    @property
    @override
    def parameters(self) -> Mapping[str, int | str]:
        return device_parameters(self.driver, self.device, self.target)

    @property
    @override
    def versions(self) -> Mapping[str, str]:
        return {"code": code_generator_digest("gpu")[:32]}

    @override
    def questions(self, product: TunableDescription) -> Mapping[str, tuple[int | str, ...]]:
        choices = Choices(product.choice)
        space_plan(product, self.target, choices)
        return choices.asked

    @override
    def check(self, product: TunableDescription) -> None:
        check_choice(product, self.target)

    @override
    def features(self, product: TunableDescription, choice: Choice) -> Features:
        plan = space_plan(product, self.target, Choices(choice))
        assert plan is not None
        tile = asdict(plan.tile)
        return {
            **{f"tile {name}": float(value) for name, value in tile.items()},
            **{name: float(value) for name, value in choice if isinstance(value, int)},
            **{f"estimated {name}": one for name, one in estimate(plan, self.target).items()},
            "log macs": float(np.log2(work_of(product))),
        }

    @override
    def estimated(
        self, product: TunableDescription, points: Sequence[Choice]
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for point in points:
            plan = space_plan(product, self.target, Choices(point))
            assert plan is not None
            rows.append({"choice": choice_text(point), **estimate(plan, self.target)})
        rows = sorted(rows, key=lambda row: row["seconds"])[:LISTED]
        for place, row in enumerate(rows):
            row["text"] = (
                f"{1e6 * row['seconds']:.1f} us estimated, {row['shared_bytes'] / 1024:.0f} KiB of "
                "shared memory"
            )
            if place < ASSEMBLED and self.target.properties.cpu:
                candidate = product.with_choice(choice_of(row["choice"]))
                found = assembled(compile_kernel(candidate, self.target).module.code, self.target)
                if found is not None:
                    row["registers"], row["spilled_bytes"] = (
                        max(found.registers),
                        found.spilled_bytes,
                    )
                    row["text"] += (
                        f", {row['registers']} registers, {found.spilled_bytes} bytes spilled"
                    )
        return rows

    @override
    def build(self, product: TunableDescription) -> CandidateCode:
        kernel = compile_kernel(product, self.target)
        if self.target.properties.cpu and (found := assembled(kernel.module.code, self.target)):
            found.check()
        shapes = [(one.grid, one.threads, one.shared_bytes) for one in kernel.module.kernels]
        steps = ",".join(f"{name}={value}" for name, value in product.choice)
        return CandidateCode(f"{kernel.module.code}{shapes}", steps, pickled(kernel.module))

    @override
    def load(self, product: TunableDescription, code: bytes) -> LoadedCandidate:
        module = pickle.loads(code)  # from a process of this one
        kernel = kernel_of(product, declare(product, self.target), module)
        return _OnDevice(_driver(self), kernel)


@cache
def _driver(machine: GpuMachine) -> GpuDriver:
    """The device, opened once in a process that measures."""
    driver = open_driver(machine.driver)
    driver.target = machine.target
    return driver


class _OnDevice(LoadedCandidate):
    """A kernel of a GPU."""

    def __init__(self, driver: GpuDriver, kernel: GpuKernel) -> None:
        self.driver, self.kernel = driver, kernel
        assert isinstance(kernel.description, TunableDescription)
        self.description = kernel.description

    def _loaded(self, arrays: Arrays) -> LoadedKernel:
        kernel, rest = self.kernel, dict(arrays)
        constants = {name: rest.pop(name) for name in self.description.constants}
        given = {name: array.reshape(kernel.tensors[name][1]) for name, array in rest.items()}
        output = kernel.tensors[kernel.module.kernels[-1].tensors[-1]]
        return load_module(
            self.driver, kernel.module, {**given, **kernel.prepare(constants)}, *output
        )

    @override
    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        loaded = self._loaded(dict(zip(self.description.operands, arrays, strict=True)))
        loaded.run()
        return loaded.result().reshape(self.description.output.shape)

    @override
    def clock(self, arrays: Arrays) -> Callable[[int], float]:
        return self._loaded(arrays).seconds_of
