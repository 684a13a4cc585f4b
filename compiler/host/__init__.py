"""Kernels of the CPU target for the nodes that the host runs.

A matcher looks at a node and the nodes after it. It returns the description of `compiler.cpu` that
computes them, or None. NumPy computes all other nodes by their definition.
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
