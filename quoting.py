"""Names and other texts, written into other languages so that they stay texts there.

Names come from users, and with models, artifacts and databases from strangers. Each function puts
a text into one language; what follows it there cannot depend on the text.
"""

import html
import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

MAX_NAME = 1_000
"""Characters of a name."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that a spreadsheet computes."""


def printable(text: str, keep: str = "") -> str:
    """Return a text for a terminal: characters that are not printable become escapes.

    Parameters
    ----------
    text : str
        The text.
    keep : str
        Characters that stay although they are not printable, such as a newline.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in keep
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def is_name(text: object) -> bool:
    """Tell whether a text can be a name: one line of printable characters, neither empty nor long.

    Spaces at the ends do not count as printable.
    """
    return (
        isinstance(text, str)
        and 0 < len(text) <= MAX_NAME
        and text.isprintable()
        and text == text.strip()
    )


def is_count(text: str) -> bool:
    """Tell whether a text is a whole number from 0 on, of up to 18 ASCII digits.

    `int` refuses thousands of digits, though `isdecimal` holds for them.
    """
    return 0 < len(text) < 19 and text.isascii() and text.isdecimal()


def shell_word(text: str) -> str:
    """Return a word of a command line, which a user may copy from a terminal."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = printable(text.replace("\\", "\\\\")).replace("'", "\\'")
    return f"$'{escaped}'"


def tcl_word(text: str) -> str:
    """Return a word of a Tcl command without substitutions, in braces where possible."""
    text = printable(text)
    if "\\" not in text and _is_balanced(text):
        return f"{{{text}}}"
    return '"' + "".join(f"\\{char}" if char in '"\\$[]{}' else char for char in text) + '"'


def tcl_list(words: Iterable[str]) -> str:
    """Return a list in Tcl, which is a word of a command once `tcl_word` has quoted it."""
    return " ".join(tcl_word(word) for word in words)


def _is_balanced(text: str) -> bool:
    """Tell whether each brace has its partner."""
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def plain_word(text: str) -> str:
    """Return a word of a language without escapes, such as that of pin constraints.

    Raises
    ------
    ValueError
        For a text with other characters than letters, digits and `_ . / + -`.
    """
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", text):
        raise ValueError(f"expected letters, digits and `_ . / + -`, got {text!a}")
    return text


def comment(text: str) -> str:
    """Return the text of a comment on one line, in C, Verilog, Tcl, Make, Python or TOML."""
    return printable(text).replace("*/", "* /").replace("/*", "/ *").rstrip("\\")


def c_name(text: str) -> str:
    """Return a C identifier derived from a text that begins with a letter."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def csv_cell(value: Any) -> Any:
    """Return a cell of a table in CSV; a spreadsheet computes no text in it.

    Numbers stay as they are. The `csv` module quotes what else needs it.
    """
    if not isinstance(value, str):
        return value
    text = printable(value, keep="\n")
    return f"'{text}" if text.startswith(_FORMULA) else text


def html_text(text: str) -> str:
    """Return text or the value of a quoted attribute in HTML."""
    return html.escape(text)


def script_json(values: Any) -> str:
    """Return JSON inside an element `script` of HTML, which no text in it can end."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
