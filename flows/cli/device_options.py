"""`--device`, which runs programs, and `--chip`, which has resources: alike in all commands."""

import argparse
import re
from collections.abc import Sequence

from ...errors import UsageError, did_you_mean


def add_device(
    parser: argparse.ArgumentParser, names: Sequence[str], note: str = "", *, beside: bool = False
) -> None:
    """Add `--device`, which takes one of `names`, in any case, or an address.

    An address is that of a board, or of a device that an agent lends on another machine. `beside`
    allows a GPU for the host's steps behind it.
    """

    def device(text: str) -> str:
        from ...runtime.devices import is_address, is_board, kind_of, without_gpu

        name = text if is_address(text) else text.lower()
        alone, gpu = without_gpu(name)
        if gpu and not beside:
            raise UsageError(
                f"`--device {text}`: this command runs no steps of the host; give "
                f"`--device {alone}`"
            )
        if is_board(name) or kind_of(name) in names:
            return name
        raise UsageError(
            f"`--device {text}`: expected one of {', '.join(names)}, or a board's address"
            + (address_hint(text, names) or did_you_mean(name, names, "; choose one"))
        )

    parser.add_argument(
        "--device", type=device, default="sim", metavar="NAME|ADDRESS",
        help=f"what runs the program: {', '.join(names)}, a board's address, or "
        f"remote://AGENT/DEVICE (default: sim){note}",
    )  # fmt: skip


def address_hint(text: str, names: Sequence[str] = ()) -> str:
    """Return what a user meant who wrote part of a board's address, its name, or `cpu`."""
    from ...runtime.devices import own_hardware
    from ..board.known_boards import known_boards

    if re.fullmatch(r"(/dev/)?tty\w+", text):
        return f"; did you mean `serial:///dev/{text.removeprefix('/dev/')}`?"
    if match := re.fullmatch(r"(?:tcp:/*)?([\w.-]+:\d+)", text):
        return f"; did you mean `tcp://{match[1]}`?"
    if own := own_hardware(text):
        return own if own.split("`")[1] in names else ""
    if text.lower() in map(str.lower, known_boards()):
        return (
            "; `tilewright doctor` shows the address of a board at a serial port, and `tilewright "
            f"board --virtual {text}` serves a virtual one"
        )
    return ""


def add_chip(parser: argparse.ArgumentParser, use: str) -> None:
    """Add `--chip`; `use` continues the help, after an FPGA or an ASIC."""
    parser.add_argument("--chip", metavar="NAME", help=f"FPGA, or `asic`, {use}")
