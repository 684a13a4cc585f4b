"""Serial ports of this computer, with the board that each one probably is.

Linux tells what a USB device calls itself. A board whose name stands in that is the likely one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys/class/tty")
LEVELS_ABOVE = 4
"""Folders between a port and the USB device that it belongs to, at most."""


@dataclass(frozen=True, slots=True)
class SerialPort:
    """A port, what its USB device calls itself, and the boards that have this name."""

    path: str
    device: str
    boards: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Name the port and the likely board."""
        likely = f", probably {' or '.join(self.boards)}" if self.boards else ""
        return f"serial://{self.path}: {self.device}{likely}"


def serial_ports(boards: Iterable[str], folder: Path = SYSFS) -> list[SerialPort]:
    """Find the serial ports behind USB.

    Parameters
    ----------
    boards
        Names of boards, such as `ULX3S-85F`.
    """
    known, found = list(boards), []
    for port in sorted(folder.glob("tty*/device")):
        device = _usb_device(port.resolve())
        if device is not None:
            named = " ".join(filter(None, (_read(device / n) for n in ("manufacturer", "product"))))
            name = named or f"USB {_read(device / 'idVendor')}:{_read(device / 'idProduct')}"
            found.append(SerialPort(f"/dev/{port.parent.name}", name, _likely(name, known)))
    return found


def _usb_device(place: Path) -> Path | None:
    for folder in [place, *place.parents][:LEVELS_ABOVE]:
        if (folder / "idVendor").is_file():
            return folder
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _likely(name: str, boards: Iterable[str]) -> tuple[str, ...]:
    """Return the boards with most words in a name, the first word among them.

    `ULX3S FPGA 85K v3.1.7` has both words of ULX3S-85F, where digits tell the size.
    """
    words = set(re.findall(r"[a-z]+\d+[a-z]+|[a-z]+|\d+", name.lower()))
    scores: dict[str, int] = {}
    for board in boards:
        first, *others = re.split(r"[-_ ]", board.lower())
        if first in words:
            sizes = (re.sub(r"\D", "", other) or other for other in others)
            scores[board] = 1 + sum(size in words or f"{size}k" in words for size in sizes)
    best = max(scores.values(), default=0)
    return tuple(board for board, score in scores.items() if score == best)
