"""Words of messages that depend on a number."""


def counted(number: int, what: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1."""
    return f"{number:,} {what}{'s' * (number != 1)}"
