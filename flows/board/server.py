"""A server between a host's stream of bytes and a virtual board."""

import os
import pty
import select
import socket
import termios
import threading
import time
import tty
from abc import ABC, abstractmethod

from typing_extensions import override

from ...errors import DeviceError
from ...sim.board import VirtualBoard
from .faults import NO_FAULTS, FaultRates, Faults

SLICE_CYCLES = 50_000
"""Cycles between two looks at the stream: about a tenth of a second."""

WAITING_S = 0.2
"""Longest sleep of a board without work; then the server looks whether it shall stop."""

CHUNK_BYTES = 1 << 14

BACKLOG_BYTES = 1 << 16
"""Bytes waiting for the board, at most; the host's wait in the stream."""


class Port(ABC):
    """A stream of bytes to a host that comes and goes."""

    address: str
    """Address that the host opens."""

    hosts = 0
    """Number of hosts that have come so far; 0 where that cannot be seen."""

    def begin(self) -> None:
        """Let hosts in."""
        return

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait until there are bytes or a host, or for some seconds."""

    @abstractmethod
    def receive(self) -> bytes:
        """Return the bytes that are there, without waiting."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send bytes; those that no host takes are lost."""

    @abstractmethod
    def unplug(self) -> None:
        """End the connection to the host."""

    @abstractmethod
    def close(self) -> None:
        """Free the port."""


class TcpPort(Port):
    """A TCP port on this computer, for one host at a time.

    Parameters
    ----------
    port : int
        0 for any free one.

    Raises
    ------
    DeviceError
        If the port is taken.
    """

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(("127.0.0.1", port))
        except OSError as problem:
            self._listener.close()
            raise DeviceError(
                f"board: cannot listen on port {port} ({problem.strerror}); choose another one, or "
                "leave `--port` out for any free one"
            ) from None
        self._listener.setblocking(False)
        self._host: socket.socket | None = None
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def begin(self) -> None:
        """See `Port.begin`; until then, hosts are refused."""
        self._listener.listen(1)

    @override
    def wait(self, seconds: float) -> None:
        streams = [self._listener, *([self._host] if self._host else [])]
        select.select(streams, [], [], seconds)

    def receive(self) -> bytes:
        """See `Port.receive`; a second host is turned away."""
        try:
            arrived, _ = self._listener.accept()
        except BlockingIOError:
            pass
        else:
            if self._host and self._alive():
                arrived.close()
            else:
                self.unplug()
                self._host = arrived
                self.hosts += 1
                arrived.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                arrived.setblocking(False)
        if self._host is None:
            return b""
        try:
            data = self._host.recv(CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self.unplug()
        return data

    def _alive(self) -> bool:
        """Whether the host has not closed its end."""
        assert self._host is not None
        try:
            return bool(self._host.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    @override
    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left and self._host is not None:
            try:
                left = left[self._host.send(left) :]
            except BlockingIOError:
                select.select([], [self._host], [], WAITING_S)
            except OSError:
                self.unplug()

    @override
    def unplug(self) -> None:
        if self._host is not None:
            self._host.close()
            self._host = None

    @override
    def close(self) -> None:
        self.unplug()
        self._listener.close()


class TerminalPort(Port):
    """A pseudo-terminal, which a host opens like a serial port."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        tty.setraw(theirs)
        self.address = f"serial://{os.ttyname(theirs)}"
        # Kept open, so that the terminal survives a host that closes it.
        self._theirs = theirs
        os.set_blocking(self._ours, False)

    @override
    def wait(self, seconds: float) -> None:
        select.select([self._ours], [], [], seconds)

    @override
    def receive(self) -> bytes:
        try:
            return os.read(self._ours, CHUNK_BYTES)
        except BlockingIOError:
            return b""

    @override
    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left and select.select([], [self._ours], [], WAITING_S)[1]:
            left = left[os.write(self._ours, left) :]

    def unplug(self) -> None:
        """Drop the bytes on their way: a terminal has no connection that could end."""
        termios.tcflush(self._ours, termios.TCIOFLUSH)

    @override
    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)


class Server:
    """Serve a virtual board on a port until stopped; its memory is cleared for each host.

    A host may connect as soon as there is a server.

    Parameters
    ----------
    board : VirtualBoard
    port : Port
    rates : FaultRates
        Faults of the link and of the power.
    seed : int
        Of the faults.
    """

    def __init__(
        self, board: VirtualBoard, port: Port, rates: FaultRates = NO_FAULTS, seed: int = 0
    ) -> None:
        self.board, self.port = board, port
        self.faults = Faults(rates, seed)
        self._stops = threading.Event()
        port.begin()
        self._cycles = 0

    @property
    def cycles(self) -> int:
        """Cycles that the board was simulated for when it was last looked at."""
        return self._cycles

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._stops.set()

    def serve(self) -> None:
        """Serve until `stop`, then free board and port."""
        waiting, hosts = b"", self.port.hosts
        try:
            while not self._stops.is_set():
                if not waiting and not self.board.busy:
                    self.port.wait(WAITING_S)
                if len(waiting) < BACKLOG_BYTES:
                    received = self._received()
                    if self.port.hosts > hosts:
                        # The next host must not find data, programs or answers of the last one.
                        if hosts:
                            self.board.clear()
                        waiting, hosts = b"", self.port.hosts
                    waiting += received
                if waiting or self.board.busy:
                    taken, sent = self.board.run(waiting, SLICE_CYCLES)
                    waiting = waiting[taken:]
                    self._cycles = self.board.cycles
                    self._send(sent)
        finally:
            self.port.close()
            self.board.close()

    def _received(self) -> bytes:
        data = self.port.receive()
        faults = self.faults
        if faults.happens("pause", len(data)):
            time.sleep(faults.rates.pause_s)
        if faults.happens("reset", len(data)):
            self.board.reset()
        if faults.happens("unplug", len(data)):
            self.port.unplug()
            return b""
        return faults.damage(data)

    def _send(self, data: bytes) -> None:
        if self.faults.happens("pause", len(data)):
            time.sleep(self.faults.rates.pause_s)
        if data:
            self.port.send(self.faults.damage(data))
