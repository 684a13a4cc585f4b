"""Work that several devices share: each takes the next piece as soon as it is free.

Only a machine that is lost has its work done again, by another one; every other failure is the
answer for the piece that failed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TypeVar

from ...errors import DeviceError
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...runtime.device import Device
from ...runtime.devices import open_device
from ...runtime.remote import RemoteDevice
from ...runtime.wire import JobError, JobVerdict

_Work = TypeVar("_Work")
_Answer = TypeVar("_Answer")


class SharedDevices:
    """Devices, here or lent by agents, that are open until `close`.

    Parameters
    ----------
    addresses
        See `open_device`; agents queue what is not free.

    Attributes
    ----------
    devices
        Those that are not lost.
    lost
        A sentence for each of the others.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        configuration: Configuration | None = None,
        memory: MemoryModel | None = None,
    ) -> None:
        self.lost: list[str] = []
        with ExitStack() as held:
            self.devices = [
                held.enter_context(open_device(one, configuration, memory)) for one in addresses
            ]
            self._held = held.pop_all()
        self.all = tuple(self.devices)

    def close(self) -> None:
        self._held.close()

    def share(
        self, pieces: Sequence[_Work], run: Callable[[Device, _Work], _Answer]
    ) -> list[_Answer | JobError]:
        """Return the answer for each piece of work, or why there is none."""
        waiting = deque(range(len(pieces)))
        found: dict[int, _Answer | JobError] = {}

        def serve(device: Device, piece: int | None) -> None:
            while piece is not None:
                try:
                    found[piece] = run(device, pieces[piece])
                except DeviceError as problem:
                    found[piece] = failure = classified(problem, device)
                    if failure.verdict is JobVerdict.LOST:
                        self.devices.remove(device)
                        self.lost.append(f"`{device.name}` is lost: {problem}")
                        waiting.appendleft(piece)
                        return
                piece = following()

        def following() -> int | None:
            with suppress(IndexError):
                return waiting.popleft()

        with ThreadPoolExecutor(len(self.all)) as threads:
            try:
                while waiting and self.devices:
                    # Each begins with a piece of its own, however late its thread starts.
                    first = [following() for _ in self.devices]
                    list(threads.map(serve, list(self.devices), first))
            except BaseException:  # such as Ctrl-C: what runs already is awaited, no more
                waiting.clear()
                raise
        for piece in waiting:
            found.setdefault(piece, JobError(JobVerdict.LOST, "; ".join(self.lost)))
        return [found[piece] for piece in range(len(pieces))]

    def sentences(self) -> list[str]:
        """Return the times of each device, for people."""
        times = [f"{one.name}: {one.times}" for one in self.all if isinstance(one, RemoteDevice)]
        return [*times, *self.lost]


def classified(problem: DeviceError, device: Device) -> JobError:
    """Return a failure with its verdict: what is not an agent's answer is a lost agent."""
    if isinstance(problem, JobError):
        return problem
    is_remote = isinstance(device, RemoteDevice)
    return JobError(JobVerdict.LOST if is_remote else JobVerdict.FAULT, str(problem))
