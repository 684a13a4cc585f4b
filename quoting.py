"""Names and other texts, written into other languages so that they stay texts there.

Names come from users, and with models, artifacts and databases from strangers. Each function puts
a text into one language; what follows it there cannot depend on the text.
"""

import html
import json
import re
import shlex
from typing import Any

MAX_NAME = 200
"""Characters of a name."""

_TCL = re.compile(r'["\\$\[\]{};#\s]')
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that a spreadsheet computes."""
_VERILOG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


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


def shell_word(text: str) -> str:
    """Return a word of a command line, which a user may copy from a terminal."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = printable(text.replace("\\", "\\\\")).replace("'", "\\'")
    return f"$'{escaped}'"


def tcl_word(text: str) -> str:
    """Return a word of a Tcl command without substitutions."""
    if text and not _TCL.search(text) and text.isprintable():
        return text
    parts = (
        f"\\{char}" if char in '"\\$[]{}' else char if char.isprintable() else f"\\u{ord(char):04x}"
        for char in printable(text)
    )
    return f'"{"".join(parts)}"'


def comment(text: str) -> str:
    """Return the text of a comment on one line, in C, Verilog, Tcl, Make, Python or TOML."""
    return printable(text).replace("*/", "* /").replace("/*", "/ *").rstrip("\\")


def c_string(text: str) -> str:
    """Return a string literal in C; other characters than ASCII are UTF-8."""
    made = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "backslashreplace")
    )
    return f'"{made}"'


def verilog_name(text: str) -> str:
    """Return an identifier in Verilog, an escaped one if needed."""
    if _VERILOG_NAME.fullmatch(text):
        return text
    escaped = "".join(char if "!" <= char <= "~" else "_" for char in text) or "_"
    return f"\\{escaped} "


def make_word(text: str) -> str:
    """Return a word of a makefile's recipe or variable."""
    return shell_word(printable(text)).replace("$", "$$").replace("#", "\\#")


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
