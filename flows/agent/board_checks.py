"""Boards of an agent: which machines they are, and whether they still give right answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...isa.configuration import PRESETS
from ...runtime.wire import JobError, Message
from .leases import LentDevice
from .worker_process import STARTING_S, WorkerProcess

Machine = Mapping[str, Any]
"""The fields that open a device: its configuration, memory and options."""


class BoardChecks:
    """The devices of this machine by their addresses.

    Parameters
    ----------
    addresses : mapping
        Addresses by the name of the device; a board that loads bitstreams has one for each.
    memory_bytes : int
        Address space of a worker.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]], memory_bytes: int) -> None:
        self._addresses, self._memory_bytes = addresses, memory_bytes
        self._places: dict[tuple[str, int], str] = {}

    async def start(self, unit: LentDevice) -> WorkerProcess:
        """Start a worker for a device, with the bitstream that it is lent with."""
        place = self._places.get((unit.name, unit.loaded), self._addresses[unit.name][0])
        return await WorkerProcess.start(place, self._memory_bytes)

    async def check(self, unit: LentDevice, machine: Machine | None) -> str:
        """Compare a board with a known answer, and return what is wrong with it, or an empty text.

        Parameters
        ----------
        machine : mapping or None
            The machine that it was last; None for one that was never lent. Then it is checked if
            it is a preset.
        """
        try:
            if not unit.bitstreams:
                await self._identify(unit)
            machine = machine or _preset(unit.loaded)
            if machine is not None:
                place = self._places[unit.name, unit.loaded]
                await self._ask(place, ("open", machine), ("check", {"seed": unit.faults}))
        except JobError as error:
            return f"{error.verdict}: {error}"
        return ""

    async def _identify(self, unit: LentDevice) -> None:
        """Ask a board which machines it can be."""
        found = []
        for address in self._addresses[unit.name]:
            answer = await self._ask(address, ("identify", {}))
            found.append(answer.take("hash", int))
            self._places[unit.name, found[-1]] = address
        unit.bitstreams, unit.loaded = frozenset(found), found[-1]

    async def _ask(self, address: str, *requests: tuple[str, Machine]) -> Message:
        """Start a worker, ask it one thing after another, and return the last answer."""
        worker = await WorkerProcess.start(address, self._memory_bytes)
        try:
            answer = Message("")
            for op, fields in requests:
                answer = await worker.call(op, limit_s=STARTING_S, **fields)
            return answer
        finally:
            await worker.stop()


def _preset(bitstream: int) -> dict[str, Any] | None:
    """Return how to open the preset with a hash; None if there is none."""
    for preset in PRESETS.values():
        if preset.hash == bitstream:
            return {"configuration": preset.parameters(), "memory": {}, "options": {}}
    return None
