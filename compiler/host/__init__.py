"""Kernels for what the accelerator does not run: nodes of a graph -> kernels of the CPU target.

A matcher looks at a node and what follows it, and says which description of `compiler.cpu`
computes them, if any. Nodes that no matcher takes are computed by their definition, in NumPy.
"""

from .kernel import HostKernel, HostScope, Matcher
from .order import Alias, Evaluate, Event, Finish, RunKernel, RunRecurrence, Start, overlaps
from .plan import HostPlan, KernelStore, compile_host, host_target, plan_host, report_of_host
from .recurrence import Recurrence
from .select import LEAST_WORK, select_kernels

__all__ = [
    "LEAST_WORK",
    "Alias",
    "Evaluate",
    "Event",
    "Finish",
    "HostKernel",
    "HostPlan",
    "HostScope",
    "KernelStore",
    "Matcher",
    "Recurrence",
    "RunKernel",
    "RunRecurrence",
    "Start",
    "compile_host",
    "host_target",
    "overlaps",
    "plan_host",
    "report_of_host",
    "select_kernels",
]
