"""Queries about the reduction inside an expression."""

from ...isa.expressions import Expression, Reduction, walk, with_parts


def reduction_of(tree: Expression) -> Reduction:
    """The only reduction inside an expression."""
    return next(part for part in walk(tree) if isinstance(part, Reduction))


def has_reduction(tree: Expression) -> bool:
    """Whether an expression contains a reduction."""
    return any(isinstance(part, Reduction) for part in walk(tree))


def with_reduction(tree: Expression, value: Expression) -> Expression:
    """Replace the reduction of an expression."""
    if isinstance(tree, Reduction):
        return value
    return with_parts(tree, lambda part: with_reduction(part, value))
