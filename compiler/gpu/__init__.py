"""Kernels for GPUs: loop programs of blocks and threads as PTX, through LLVM, or as OpenCL C.

schedule = default_schedule(kernel, GpuTarget("sm80"))
module = compile_program(schedule.program(), schedule.target)
module.code, module.kernels  # the text, and how each kernel is launched
"""

from ..cpu.kernels.choices import digest_of
from .kernel import GpuKernel, compile_copy, compile_kernel, planned_for, with_device_choice
from .lower import GpuModule, KernelLaunch, compile_program
from .schedules import default_schedule
from .target import LEVELS, GpuTarget

__all__ = [
    "LEVELS", "GpuKernel", "GpuModule", "GpuTarget", "KernelLaunch", "compile_copy",
    "compile_kernel", "compile_program", "default_schedule", "digest_of", "planned_for",
    "with_device_choice",
]  # fmt: skip
