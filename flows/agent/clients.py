"""The clients of an agent: who may come in, and the connections of those who did."""

import asyncio
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...runtime.identity import CLIENTS, Certificate, Identity, certificates, fingerprint_of
from ...runtime.wire import SENDING_S, encode
from .leases import Ticket


class Door:
    """The clients whose keys an agent knows.

    Parameters
    ----------
    identity : Identity
        The agent's own key, which may come in too, and the folder with the others' certificates.

    Attributes
    ----------
    context : SSLContext
    names, signers : dict
        Names and certificates, by fingerprint.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity, self._read_at = identity, -1.0
        self.names: dict[str, str] = {}
        self.signers: dict[str, Certificate] = {}
        self.context = identity.context(server=True, trusted=[identity.certificate])
        self.look()

    def look(self) -> None:
        """Read who may come in, if that has changed; who was removed stays until disconnected."""
        folder = self._identity.folder
        try:
            changed = (folder / CLIENTS).stat().st_mtime
        except OSError:
            changed = 0.0
        if changed == self._read_at:
            return
        self._read_at = changed
        clients = {**certificates(folder, CLIENTS), "owner": self._identity.certificate}
        self.names = {one.fingerprint: name for name, one in clients.items()}
        self.signers = {one.fingerprint: one for one in clients.values()}
        # TLS goes on knowing those that were removed; `name_of` does not.
        for name, one in clients.items():
            try:
                self.context.load_verify_locations(cadata=one.pem)
            except ssl.SSLError:  # a certificate that TLS cannot use lets nobody in
                self.names.pop(one.fingerprint, None)
                self.signers.pop(one.fingerprint, None)
                print(f"agent: certificate `{name}` cannot be used", file=sys.stderr)

    def name_of(self, writer: asyncio.StreamWriter) -> str:
        """Return the name of the client at a connection; empty for one that may not come in."""
        encrypted: ssl.SSLObject = writer.get_extra_info("ssl_object")
        der = encrypted.getpeercert(binary_form=True)
        return self.names.get(fingerprint_of(der), "") if der else ""


@dataclass(slots=True)
class Client:
    """A connection with a known client.

    Parameters
    ----------
    name : str
    writer : StreamWriter
    tokens : set of int
        Its leases.
    tickets : list of Ticket
        Its requests that wait.
    tasks : set of Task
        Its jobs.
    """

    name: str
    writer: asyncio.StreamWriter
    tokens: set[int] = field(default_factory=set)
    tickets: list[Ticket] = field(default_factory=list)
    tasks: set[asyncio.Task] = field(default_factory=set)

    async def send(self, op: str, parts: Sequence[bytes] = (), **fields: Any) -> None:
        """Send a message; a client that takes none is disconnected."""
        try:
            async with asyncio.timeout(SENDING_S):
                for part in encode(op, parts, **fields):
                    self.writer.write(part)
                await self.writer.drain()
        except (OSError, TimeoutError):
            self.writer.transport.abort()
