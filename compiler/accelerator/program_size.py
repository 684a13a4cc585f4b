"""Estimated program size, so that an absurd program is rejected before generation.

Networks of today take about 10^4 instructions, or 10^5 on the smallest machines. A program of
millions of instructions usually comes from a mistaken shape, such as a batch of 65,536. It would
keep the compiler busy, and fill its memory, until the user stops it.
"""

from collections.abc import Iterable

from ...errors import CompileError
from ...isa.configuration import Configuration
from ..tensor import Kernel
from .estimate import estimate_instructions
from .search import Candidate

Work = tuple[Kernel, Candidate]


def refuse_huge_programs(
    work: Iterable[Work], configuration: Configuration, most_instructions: int
) -> None:
    """Refuse kernels that together take more instructions than allowed.

    Raises
    ------
    CompileError
        When they do; the message names the kernel with the most instructions.
    """
    counts = [
        (estimate_instructions(schedule.plan(kernel, configuration), configuration), kernel)
        for kernel, schedule in work
    ]
    total = sum(count for count, _ in counts)
    if total <= most_instructions:
        return
    count, kernel = max(counts, key=lambda entry: entry[0])
    raise too_large(
        f"about {total:,} instructions, of which `{kernel.name}` takes {count:,} for an output of "
        f"{list(kernel.output.shape)}",
        most_instructions,
    )


def too_large(needed: str, most_instructions: int) -> CompileError:
    """The error for a program with too many instructions."""
    return CompileError(
        f"the program needs {needed}, but `most_instructions` is {most_instructions:,}; make the "
        "input shapes smaller (a batch in parts), choose a larger configuration, or raise "
        "`most_instructions`"
    )
