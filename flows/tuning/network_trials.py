"""Trials of schedules in the whole network: the best so far is recorded at once, and used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import dumps

from ...compiler.module import Module
from ...errors import CompileError
from ...runtime.wire import JobError, JobVerdict
from ..sweep.records import Record
from .layer_records import LayerRecords, failure
from .layer_trials import LayerTrials


@dataclass(frozen=True, slots=True)
class TriedChange:
    """A change: the names of its layers, the network's cycles with it, and whether it was kept."""

    layers: tuple[str, ...]
    cycles: int
    kept: bool


class NetworkTrials:
    """A network, its fastest schedules so far, and their cycles.

    Parameters
    ----------
    module, compile_with, devices, records
        As for `layer_search.search_network`.

    Attributes
    ----------
    kept
        The fastest schedules, by layer.
    before, cycles
        Cycles with the compiler's schedules and with these.
    chains, first_tiles
        The divisions into layers, and the smaller first tiles, that were tried.
    """

    def __init__(
        self,
        module: Module,
        compile_with: Callable[[Mapping[str, str]], Module],
        devices: LayerTrials | None = None,
        records: LayerRecords | None = None,
    ) -> None:
        self._compile_with, self._devices, self.records = compile_with, devices, records
        self._module: Module | None = module
        self.kept: dict[str, str] = {}
        self.chains: list[TriedChange] = []
        self.first_tiles: list[TriedChange] = []
        before = self._cycles({}, self.module)
        assert before is not None  # the compiler's own schedules fit
        self.before = self.cycles = before

    @property
    def division(self) -> str:
        """The fastest schedules as a text, on which layouts of layers depend."""
        return dumps(self.kept, sort_keys=True)

    def module(self) -> Module:
        """Return the network with the fastest schedules."""
        if self._module is None:
            self._module = self._compile_with(self.kept)
        return self._module

    def attempt(self, schedules: dict[str, str]) -> int | None:
        """Time the network with these schedules, and keep them if they are the fastest.

        Returns
        -------
        int or None
            The cycles; None if other layers no longer fit, or the device failed.

        Raises
        ------
        JobError
            If no device is left.
        """
        made: list[Module] = []  # stays empty if the cycles are known

        def compiled() -> Module:
            made.append(self._compile_with(schedules))
            return made[0]

        cycles = self._cycles(schedules, compiled)
        if cycles is not None and cycles < self.cycles:
            self.kept, self.cycles, self._module = schedules, cycles, made[0] if made else None
            if self.records is not None:
                self.records.keep(schedules, self.before, cycles)
        return cycles

    def _cycles(self, schedules: Mapping[str, str], compiled: Callable[[], Module]) -> int | None:
        def measure(_: object = None) -> list[Record]:
            try:
                module = compiled()
            except CompileError as problem:
                return [Record(error=str(problem))]
            if self._devices is None:
                return [Record({"cycles": module.report["cycles"]})]
            try:
                return [Record({"cycles": self._devices.network_cycles(module)})]
            except JobError as problem:
                if not schedules or problem.verdict is JobVerdict.LOST:
                    raise  # without the network's own cycles, or a device, nothing can be tried
                return [failure(problem.verdict, str(problem))]

        if self.records is None:
            (found,) = measure()
        else:
            text = dumps(dict(schedules), sort_keys=True)
            (found,) = self.records.outcomes("network", [text], measure)
        return found.figures.get("cycles")
