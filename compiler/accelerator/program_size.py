"""About how many instructions kernels take, so that an absurd program is refused unmade.

Networks of today take some 10^4 instructions, and some 10^5 on the smallest machines. What takes
millions has a shape that nobody meant, such as a batch of 65,536, and would keep the compiler and
its memory busy until someone ends it.
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
    """Refuse kernels that together take more instructions than there may be.

    Raises
    ------
    CompileError
        Naming the kernel that takes most.
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
    """What is said of a program with too many instructions."""
    return CompileError(
        f"the program needs {needed}, but `most_instructions` is {most_instructions:,}; make the "
        "input shapes smaller (a batch in parts), choose a larger configuration, or raise "
        "`most_instructions`"
    )
