"""Leases of devices: who may use which one, until when; a pure state machine.

Time comes in with each call, and nothing is waited for here. A lease ends when its client releases
it, or does not renew it in time. Its token is larger than that of every lease before, so whoever
comes late with an old one is recognised. A device that failed is checked before it is leased again,
and set aside after `MAX_FAULTS` faults without a success in between.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ...errors import did_you_mean
from ...runtime.known_machines import machine_text
from ...wording import counted

TERM_S = 60.0
"""Seconds for which a lease holds without a sign of life."""

MAX_FAULTS = 3
"""Faults in a row after which a device is set aside."""

QUARANTINE_S = 600.0
"""Seconds until a device that was set aside is checked again."""

ABSENT_S = 15.0
"""Quarantine of a board that has never answered: it may just be starting."""

MAX_IN_A_ROW = 8
"""Leases with one bitstream that may overtake an older request for another one."""

ANY = 0
"""The bitstream of a request that takes every machine, and of a device that is none."""


class LeaseState(StrEnum):
    """The state of a device."""

    READY = "ready"
    LEASED = "leased"
    CHECKING = "being checked"
    QUARANTINED = "set aside"


class StaleLeaseError(Exception):
    """A token is not that of a lease in force; the text says what became of it."""


@dataclass(slots=True)
class LentDevice:
    """A device that one client at a time uses.

    Parameters
    ----------
    name : str
        Of this one.
    pool : str
        Name that any device of its kind answers to, such as `rtl` or `board`.
    bitstreams : frozenset of int
        Hashes of the configurations that it can be; empty for a simulator, which is any machine.
    loaded : int
        The configuration that it is now; `ANY` where that costs nothing to change.
    checked : bool
        Whether it has to pass a check after a fault, as boards have to.
    """

    name: str
    pool: str
    bitstreams: frozenset[int] = frozenset()
    loaded: int = ANY
    checked: bool = False
    state: LeaseState = LeaseState.READY
    token: int = 0
    client: str = ""
    expires: float = 0.0
    running: bool = False
    faults: int = 0
    why: str = ""
    until: float = 0.0
    in_a_row: int = 0

    def fits(self, ticket: "Ticket") -> bool:
        """Whether it is of the kind that a request names."""
        return ticket.device in (self.name, self.pool) and (
            ticket.bitstream == ANY or not self.bitstreams or ticket.bitstream in self.bitstreams
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that waits.

    Parameters
    ----------
    number : int
    client : str
    device : str
        A device's name or its pool's.
    bitstream : int
        Hash of the configuration that it has to be; `ANY` if it does not matter.
    asked : float
        When the request came.
    """

    number: int
    client: str
    device: str
    bitstream: int
    asked: float


@dataclass(frozen=True, slots=True)
class Lease:
    """A device for a client.

    Parameters
    ----------
    token : int
        Proves the lease to the device.
    unit : str
        The device's name.
    ticket : Ticket
        The request.
    waited_s : float
        Seconds that it waited.
    switches : bool
        Whether the device has to load another bitstream first.
    """

    token: int
    unit: str
    ticket: Ticket
    waited_s: float
    switches: bool


@dataclass(slots=True)
class LeaseTable:
    """All devices and requests of an agent.

    Parameters
    ----------
    units : iterable of LentDevice
    term_s : float
        Seconds for which a lease holds without a sign of life.
    last_token : int
        Tokens are larger; an agent that starts anew must not repeat one.
    """

    units: dict[str, LentDevice]
    term_s: float = TERM_S
    last_token: int = 0
    waiting: deque[Ticket] = field(default_factory=deque)
    _tickets: int = 0

    @staticmethod
    def of(
        units: Iterable[LentDevice], term_s: float = TERM_S, last_token: int = 0
    ) -> "LeaseTable":
        """Make a table; raises `ValueError` for two devices with one name."""
        units = list(units)
        by_name = {unit.name: unit for unit in units}
        if len(by_name) < len(units):
            raise ValueError("two devices with one name")
        return LeaseTable(by_name, term_s, last_token)

    # Requests --------------------------------------------------------------------------------

    def request(self, client: str, device: str, bitstream: int, now: float) -> Ticket:
        """Queue a request; `advance` grants it."""
        self._tickets += 1
        ticket = Ticket(self._tickets, client, device, bitstream, now)
        self.waiting.append(ticket)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a request that waits."""
        if ticket in self.waiting:
            self.waiting.remove(ticket)

    def position(self, ticket: Ticket) -> int:
        """Return the place of a request among those for the same devices, from 1 on."""
        units = [unit for unit in self.units.values() if unit.fits(ticket)]
        ahead = 0
        for other in self.waiting:
            if other is ticket:
                break
            ahead += any(unit.fits(other) for unit in units)
        return ahead + 1

    def hopeless(self, ticket: Ticket) -> str:
        """Return why no device will ever serve a request; empty if one may."""
        units = [unit for unit in self.units.values() if ticket.device in (unit.name, unit.pool)]
        if not units:
            names = dict.fromkeys(name for u in self.units.values() for name in (u.pool, u.name))
            return (
                f"there is no device `{ticket.device}`; expected one of {', '.join(names)}"
                + did_you_mean(ticket.device, names)
            )
        fitting = [unit for unit in units if unit.fits(ticket)]
        if not fitting:
            found = sorted({machine_text(one) for unit in units for one in unit.bitstreams})
            return (
                f"`{ticket.device}` is no machine with the configuration "
                f"{machine_text(ticket.bitstream)}, only {', '.join(found)}; choose that with "
                "`--config`, or load another bitstream"
            )
        if all(unit.state is LeaseState.QUARANTINED for unit in fitting):
            unit = fitting[0]
            faults = counted(unit.faults, "fault")
            return f"`{unit.name}` is set aside after {faults}, the last one: {unit.why}"
        return ""

    # Leases ----------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Lease]:
        """End leases that nobody renewed and quarantines that are over, and grant what can be."""
        for unit in self.units.values():
            if unit.state is LeaseState.LEASED and unit.expires <= now:
                if unit.running:
                    self.fault(unit.name, "its client fell silent during a job", now)
                else:
                    self._free(unit)
            elif unit.state is LeaseState.QUARANTINED and unit.until <= now:
                unit.state = LeaseState.CHECKING
        granted = []
        for unit in self.units.values():
            while unit.state is LeaseState.READY and (ticket := self._next(unit)) is not None:
                granted.append(self._grant(unit, ticket, now))
        return granted

    def renew(self, token: int, now: float) -> LentDevice:
        """Prolong a lease, and return its device.

        Raises
        ------
        StaleLeaseError
            If it is over.
        """
        unit = self._of(token, now)
        unit.expires = now + self.term_s
        return unit

    def begin(self, token: int, now: float) -> LentDevice:
        """Begin a job under a lease; raises as `renew`, and for a second job at a time."""
        unit = self.renew(token, now)
        if unit.running:
            raise StaleLeaseError(f"`{unit.name}` runs a job of this lease already")
        unit.running = True
        return unit

    def end(self, token: int, now: float, *, succeeded: bool = True) -> None:
        """End a job that did not harm the device; raises as `renew`."""
        unit = self.renew(token, now)
        unit.running = False
        unit.faults *= not succeeded

    def fail(self, token: int, why: str, now: float) -> LeaseState:
        """End a job, and the lease with it, because of a fault of the device; raises as `renew`."""
        return self.fault(self._of(token, now).name, why, now)

    def release(self, token: int, now: float) -> None:
        """End a lease, which leaves a device to be checked if a job runs; raises as `renew`."""
        unit = self._of(token, now)
        if unit.running:
            self.fault(unit.name, "its client left during a job", now)
        else:
            self._free(unit)

    # Faults ----------------------------------------------------------------------------------

    def fault(self, name: str, why: str, now: float) -> LeaseState:
        """Note a fault of a device, which is no longer leased, and return its new state."""
        unit = self.units[name]
        self._free(unit)
        if not unit.checked:
            return unit.state
        unit.faults, unit.why = unit.faults + 1, why
        unit.state = LeaseState.CHECKING
        if unit.faults >= MAX_FAULTS:
            seconds = QUARANTINE_S if unit.bitstreams else ABSENT_S
            unit.state, unit.until = LeaseState.QUARANTINED, now + seconds
        return unit.state

    def checked(self, name: str, problem: str, now: float) -> LeaseState:
        """Note the end of a check, with its fault or an empty text, and return the new state."""
        unit = self.units[name]
        if unit.state is not LeaseState.CHECKING:
            return unit.state
        if problem:
            return self.fault(name, problem, now)
        unit.state = LeaseState.READY
        return unit.state

    def _next(self, unit: LentDevice) -> Ticket | None:
        """Return the request that a free device serves next: one for the bitstream that it has."""
        fitting = [ticket for ticket in self.waiting if unit.fits(ticket)]
        if not fitting or unit.loaded == ANY or unit.in_a_row >= MAX_IN_A_ROW:
            return fitting[0] if fitting else None
        suits = (ticket for ticket in fitting if ticket.bitstream in (ANY, unit.loaded))
        return next(suits, fitting[0])

    def _grant(self, unit: LentDevice, ticket: Ticket, now: float) -> Lease:
        overtakes = any(unit.fits(other) for other in self._before(ticket))
        self.waiting.remove(ticket)
        self.last_token += 1
        wanted = ticket.bitstream if unit.loaded != ANY else ANY
        switches = wanted not in (ANY, unit.loaded)
        if switches:
            unit.loaded = wanted
        unit.in_a_row = unit.in_a_row + 1 if overtakes else 0
        unit.state, unit.client, unit.token = LeaseState.LEASED, ticket.client, self.last_token
        unit.expires, unit.running = now + self.term_s, False
        return Lease(self.last_token, unit.name, ticket, now - ticket.asked, switches)

    def _before(self, ticket: Ticket) -> Iterable[Ticket]:
        for other in self.waiting:
            if other is ticket:
                return
            yield other

    def _of(self, token: int, now: float) -> LentDevice:
        for unit in self.units.values():
            if unit.token == token and unit.state is LeaseState.LEASED:
                if unit.expires <= now:
                    break
                return unit
        raise StaleLeaseError(
            "the lease is over, since its client was silent for too long or its device failed"
        )

    def _free(self, unit: LentDevice) -> None:
        unit.state, unit.client, unit.token, unit.running = LeaseState.READY, "", 0, False
