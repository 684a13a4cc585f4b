"""Levels of the CPU target for tests: all of them are compiled, and run where the processor can."""

from hypothesis import strategies as st

from tilewright.compiler.cpu import LEVELS, CpuTarget, generic, host, host_levels

levels = st.sampled_from(host_levels() or tuple(LEVELS))
"""Levels that this machine runs."""

VECTOR_LEVELS = ("avx512vnni", "avx2", "sse2")
"""One level for each length of vectors. The others have dot products besides, so that kernels
without dot products have the same LLVM code there, as `test_vector_levels.py` checks."""


def target_at(level: str | None) -> CpuTarget:
    """This machine, at a level if one is given; any processor of it where this one lacks it.

    Code for the latter is compiled, then refused with a `ProcessorError`, which `conftest` reports.
    """
    return host(level) if level in (None, *host_levels()) else generic(level)
