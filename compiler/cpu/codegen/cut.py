"""Find the iterations of a loop that need no guards and no border checks."""

from collections.abc import Callable

from ....isa.expressions import reads_of
from ...te.nodes import LEAVES, Assign, Block, For, Guard, Let, Update
from ...te.program import Program
from .environment import Environment


def middle_of(
    node: For, inside: Callable[[int, int], Environment], program: Program
) -> tuple[int, int]:
    """First and last iteration of the middle part of a loop.

    Parameters
    ----------
    node
        The loop.
    inside
        The environment of the body for a range of iterations.
    program
        The program that the loop belongs to; its tensors have borders.

    Returns
    -------
    All iterations; without the last, or without the first and the last, if that leaves fewer
    decisions to run time.
    """
    first, last = 0, node.extent - 1
    if last < 1:
        return first, last
    everywhere = undecided(node.body, inside(first, last), program)
    if not everywhere:
        return first, last
    without_last = undecided(node.body, inside(first, last - 1), program)
    if last > 1 and undecided(node.body, inside(1, last - 1), program) < without_last:
        return 1, last - 1
    return (first, last - 1) if without_last < everywhere else (first, last)


def undecided(block: Block, env: Environment, program: Program) -> int:
    """Number of guards and borders that must be checked at run time."""
    count = 0
    for node in block:
        if isinstance(node, Let):
            value = env.resolved(node.value)
            if node.digit is None:
                env = env.bind(node.variable, value)
            else:
                symbol = f"{node.variable}#"
                env = env.counting(node.variable, value, symbol, 0, node.digit.modulus - 1)
        elif isinstance(node, For):
            symbol = f"{node.variable}#"
            inner = env.counting(
                node.variable, env.resolved(node.start), symbol, 0, node.extent - 1
            )
            count += undecided(node.body, inner, program)
        elif isinstance(node, Guard):
            known = [env.decide(condition)[0] for condition in node.conditions]
            count += known.count(None)
            if False not in known:
                count += undecided(node.body, env, program)
        elif isinstance(node, (Assign, Update)):
            for read in reads_of(node.value):
                domain = program.domains.get(read.tensor, ())
                for affine, (low, high) in zip(read.index, domain, strict=False):
                    count += env.inside(env.resolved(affine), low, high) is None
        elif not isinstance(node, LEAVES):
            count += undecided(node.body, env, program)
    return count
