"""Kernels of the CPU target for the nodes that the host runs.

A matcher looks at a node and the nodes after it. It returns the description of `compiler.cpu` that
computes them, or None. NumPy computes all other nodes by their definition.

The names below load neither LLVM nor kernels. `select`, `recurrence` and `kernel_store` do, and are
imported when there is a kernel to find or to run.
"""

from .kernel import HostKernel, HostScope, HostStep, Matcher
from .order import Alias, Evaluate, Event, Finish, RunKernel, Start, overlaps
from .plan import HostPlan, host_nodes, host_target, plan_host, report_of_host
from .work import MIN_WORK, may_have_kernels

__all__ = [
    "MIN_WORK", "Alias", "Evaluate", "Event", "Finish", "HostKernel", "HostPlan", "HostScope",
    "HostStep", "Matcher", "RunKernel", "Start", "host_nodes", "host_target",
    "may_have_kernels", "overlaps", "plan_host", "report_of_host",
]  # fmt: skip
