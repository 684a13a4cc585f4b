"""Words of messages that depend on a number."""


def three_digits(number: float) -> str:
    """Return a number with three digits, or with all before the point: `0.143`, `11.0`, `1,234`."""
    if abs(number) >= 99.95:
        return f"{number:,.0f}"
    return f"{number:#.3g}" if number else "0"


def counted(number: int, what: str) -> str:
    """Return a number with a noun, in the plural unless the number is 1."""
    return f"{number:,} {what}{'s' * (number != 1)}"
