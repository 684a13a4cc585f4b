"""Queries about the reduction inside an expression."""

from ...isa.expressions import Call, Expression, Reduction


def reduction_of(tree: Expression) -> Reduction:
    """The only reduction inside an expression."""
    if isinstance(tree, Reduction):
        return tree
    if isinstance(tree, Call):
        for argument in tree.arguments:
            if has_reduction(argument):
                return reduction_of(argument)
    raise AssertionError(f"`{tree}` holds no reduction")


def has_reduction(tree: Expression) -> bool:
    """Whether an expression contains a reduction."""
    if isinstance(tree, Call):
        return any(map(has_reduction, tree.arguments))
    return isinstance(tree, Reduction)


def with_reduction(tree: Expression, value: Expression) -> Expression:
    """Replace the reduction of an expression."""
    if isinstance(tree, Reduction):
        return value
    if isinstance(tree, Call):
        return Call(tree.op, tuple(with_reduction(part, value) for part in tree.arguments))
    return tree
