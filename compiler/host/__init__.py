"""Kernels for what the accelerator does not run: nodes of a graph -> kernels of the CPU target.

A matcher looks at a node and what follows it, and says which description of `compiler.cpu`
computes them, if any. Nodes that no matcher takes are computed by their definition, in NumPy.
"""

from .kernel import HostKernel, Matcher, Scope
from .select import LEAST_WORK, select_kernels

__all__ = ["LEAST_WORK", "HostKernel", "Matcher", "Scope", "select_kernels"]
