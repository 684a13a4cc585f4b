"""Arithmetic on `Affine` for declarations and bounds inference, and names in expressions."""

from collections.abc import Callable, Mapping

from ...isa.expressions import Affine, Expression, Read, with_reads


def variable(name: str) -> Affine:
    """Return the affine form of one variable."""
    return Affine(((name, 1),))


def total(*parts: Affine | int) -> Affine:
    """The sum."""
    terms: dict[str, int] = {}
    constant = 0
    for part in parts:
        if isinstance(part, int):
            constant += part
            continue
        constant += part.constant
        for name, factor in part.terms:
            terms[name] = terms.get(name, 0) + factor
    return Affine(tuple(sorted((k, v) for k, v in terms.items() if v)), constant)


def scaled(affine: Affine, factor: int) -> Affine:
    """Multiply every coefficient and the constant by `factor`."""
    if factor == 1:
        return affine
    if not factor:
        return Affine()
    return Affine(tuple((k, v * factor) for k, v in affine.terms), affine.constant * factor)


def renamed(affine: Affine, name_of: Callable[[str], str]) -> Affine:
    """Rename the variables; the new names must be distinct."""
    return Affine(tuple(sorted((name_of(k), v) for k, v in affine.terms)), affine.constant)


def value_of(affine: Affine, values: Mapping[str, int]) -> int:
    """Evaluate for given values of the variables."""
    result = affine.constant
    for name, factor in affine.terms:
        result += factor * values[name]
    return result


def with_names(tree: Expression, name_of: Callable[[str], str]) -> Expression:
    """Rename the variables in the indices of an expression."""
    return with_reads(
        tree, lambda read: Read(read.tensor, tuple(renamed(one, name_of) for one in read.index))
    )
