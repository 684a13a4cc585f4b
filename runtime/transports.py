"""Streams of bytes to a board: a serial port or a TCP connection, by address.

An address is `serial:///dev/ttyUSB0?baud=3000000` or `tcp://HOST:PORT`. Both take `timeout`, the
seconds without an answer after which the host asks again.
"""

import errno
import fcntl
import os
import select
import socket
import termios
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from typing_extensions import override

from ..errors import DeviceError

USUAL_BAUD = 115_200
USUAL_TIMEOUT_S = 0.5
MAX_TIMEOUT_S = 60.0

CONNECTING_S = 5.0
"""Longest wait for a TCP connection."""

SENDING_S = 10.0
"""Longest wait for room to send."""

CHUNK_BYTES = 1 << 16


class LinkBrokenError(DeviceError):
    """The stream ended: the board was unplugged, or the server stopped."""


@dataclass(frozen=True, slots=True)
class Address:
    """A board's address.

    Parameters
    ----------
    text : str
        As the user wrote it.
    path : str
        The serial port; empty for TCP.
    host, port
        Of the server; empty and 0 for a serial port.
    baud : int
        Bits per second of a serial port.
    timeout_s : float
        Seconds without an answer after which the host asks again.
    """

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    baud: int = USUAL_BAUD
    timeout_s: float = USUAL_TIMEOUT_S

    @staticmethod
    def parse(text: str) -> "Address":
        """Read an address.

        Raises
        ------
        DeviceError
            If it is malformed.
        """
        try:
            parts = urlsplit(text)
            options = dict(pair.split("=", 1) for pair in parts.query.split("&") if pair)
            timeout_s = float(options.pop("timeout", USUAL_TIMEOUT_S))
            if parts.scheme == "serial":
                baud = int(options.pop("baud", USUAL_BAUD))
                found = Address(text, path=parts.path, baud=baud, timeout_s=timeout_s)
                placed = parts.path and not parts.netloc and baud > 0
            else:
                host, port = host_of(parts), parts.port or 0
                found = Address(text, host=host, port=port, timeout_s=timeout_s)
                placed = host and port and parts.path in ("", "/")
        except ValueError:
            raise _malformed(text) from None
        if options or not placed or not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise _malformed(text)
        return found

    def open(self) -> "Transport":
        """Open the stream.

        Raises
        ------
        DeviceError
            With the reason and the remedy.
        """
        return SerialTransport(self) if self.path else TcpTransport(self)


def host_of(parts: SplitResult) -> str:
    """Return the host of an address, empty without one; `ValueError` if it is illegal."""
    host = parts.hostname or ""
    if not host.isprintable() or (host and not host.encode("idna")):
        raise ValueError(host)
    return host


def _malformed(text: str) -> DeviceError:
    return DeviceError(
        f"device `{text}`: expected `serial:///dev/ttyUSB0?baud=3000000` or `tcp://HOST:PORT`, "
        f"each with `timeout=SECONDS` up to {MAX_TIMEOUT_S:.0f} if wanted; correct the address"
    )


class Transport(ABC):
    """A stream of bytes in both directions, which may lose and change them."""

    seconds_per_byte: float = 0.0
    """Time that a byte takes."""

    def __init__(self, address: Address, file: int) -> None:
        self.address, self._file = address, file

    def send(self, data: bytes) -> None:
        """Send all bytes.

        Raises
        ------
        LinkBrokenError
            If the stream has ended.
        """
        left = memoryview(data)
        while left:
            if not select.select([], [self._file], [], SENDING_S)[1]:
                raise self._broken("it takes no bytes")
            try:
                left = left[os.write(self._file, left) :]
            except BlockingIOError:
                continue
            except OSError as problem:
                raise self._broken(problem.strerror) from None

    def receive(self, seconds: float) -> bytes:
        """Return the bytes that have arrived; wait for the first one for some seconds.

        Raises
        ------
        LinkBrokenError
            If the stream has ended.
        """
        if not select.select([self._file], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            data = os.read(self._file, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError as problem:
            raise self._broken(problem.strerror) from None
        if not data:
            raise self._broken("the other side closed it")
        return data

    @abstractmethod
    def close(self) -> None:
        """Close the stream."""

    def _broken(self, why: str | None) -> LinkBrokenError:
        return LinkBrokenError(
            f"device `{self.address.text}`: the connection broke ({why}); check the cable and that "
            "the board has power, and run again"
        )


class TcpTransport(Transport):
    """A TCP connection."""

    def __init__(self, address: Address) -> None:
        try:
            self._socket = socket.create_connection((address.host, address.port), CONNECTING_S)
        except OSError as problem:
            reason = problem.strerror or str(problem) or type(problem).__name__
            raise DeviceError(
                f"device `{address.text}`: cannot connect ({reason}); start a board there, for "
                "example with `tilewright board --virtual`, or correct the address"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._has_answered = False
        super().__init__(address, self._socket.fileno())

    @override
    def receive(self, seconds: float) -> bytes:
        data = super().receive(seconds)
        self._has_answered |= bool(data)
        return data

    def _broken(self, why: str | None) -> LinkBrokenError:
        if self._has_answered:
            return super()._broken(why)
        return LinkBrokenError(
            f"device `{self.address.text}`: it closed the connection at once, as a board does that "
            "another program uses; close that program, or wait until it is done"
        )

    @override
    def close(self) -> None:
        self._socket.close()


class SerialTransport(Transport):
    """A serial port, for this process alone, without any handling of characters."""

    def __init__(self, address: Address) -> None:
        rate = getattr(termios, f"B{address.baud}", None)
        if rate is None:
            known = sorted(int(n[1:]) for n in dir(termios) if n[:1] == "B" and n[1:].isdigit())
            raise DeviceError(
                f"device `{address.text}`: this system has no rate of {address.baud} baud; choose "
                f"one of {', '.join(str(n) for n in known if n >= 9600)}"
            )
        try:
            file = os.open(address.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as problem:
            raise DeviceError(_why_not(address, problem)) from None
        try:
            self._configure(file, rate)
        except (OSError, termios.error) as problem:
            os.close(file)
            raise DeviceError(
                f"device `{address.text}`: `{address.path}` is not a serial port that can be used "
                f"({problem.args[-1]}); see `ls /dev/ttyUSB* /dev/ttyACM*`"
            ) from None
        self.seconds_per_byte = 10 / address.baud
        super().__init__(address, file)

    @staticmethod
    def _configure(file: int, rate: int) -> None:
        """Set raw mode and rate, drop what is waiting, and keep other processes out."""
        characters = termios.tcgetattr(file)[-1]
        controls = termios.CS8 | termios.CREAD | termios.CLOCAL
        # So a read without bytes is one of a port that is gone.
        characters[termios.VMIN], characters[termios.VTIME] = 1, 0
        settings = [0, 0, controls, 0, rate, rate, characters]
        termios.tcsetattr(file, termios.TCSANOW, settings)
        termios.tcflush(file, termios.TCIOFLUSH)
        fcntl.ioctl(file, termios.TIOCEXCL)

    @override
    def close(self) -> None:
        os.close(self._file)


def _why_not(address: Address, problem: OSError) -> str:
    start = f"device `{address.text}`: "
    if problem.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return (
            f"{start}there is no `{address.path}`; plug the board in, and see "
            "`ls /dev/ttyUSB* /dev/ttyACM*`"
        )
    if problem.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{start}no permission to use `{address.path}`; join its group "
            "(`sudo usermod -aG dialout $USER`) and log in again"
        )
    if problem.errno == errno.EBUSY:
        return f"{start}another program uses `{address.path}`; close it"
    return f"{start}cannot open `{address.path}` ({problem.strerror}); check the port"


def reopen(address: Address, seconds: float) -> Transport:
    """Open a stream that broke, as soon as it is there again.

    Raises
    ------
    DeviceError
        If it is not there within some seconds.
    """
    deadline = time.monotonic() + seconds
    pause = 0.05
    while True:
        try:
            return address.open()
        except DeviceError:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
