"""Records of layers of the accelerator: what was timed, and the schedules that compilations use.

Each outcome is recorded as soon as it is known, and so is each schedule that makes the network
faster. So a run that was interrupted or killed continues where it was.
"""

from collections.abc import Callable, Mapping, Sequence
from json import dumps

from ...compiler.graph import Graph
from ...isa.configuration import Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import memory_text
from ...quoting import printable
from ...runtime.wire import JobVerdict
from ..execution.compile_cache import source_digest
from ..execution.recorded_choices import LAYERS, graph_digest
from ..sweep.record_checks import MAX_TEXT
from ..sweep.records import LOST, Database, Record, RecordKey, configuration_digest, digest_of
from .run_log import RunLog, add_log

LAYER_TRIAL = "accelerator trial"
"""The evaluator of outcomes, also of whole networks."""


def failure(verdict: JobVerdict, text: str) -> Record:
    """Return the outcome of what a device did not run; that of a lost one is tried again."""
    lost = LOST if verdict is JobVerdict.LOST else ""
    return Record(error=f"{lost}{verdict}: {text}")


class LayerRecords:
    """The records of a network's layers on a machine with a main memory.

    Parameters
    ----------
    counted_by
        What counts cycles. Outcomes of one are not taken for those of another one.
    """

    def __init__(
        self,
        database: Database,
        graph: Graph,
        configuration: Configuration,
        memory: MemoryModel,
        counted_by: str = "",
    ) -> None:
        self._database, self._source = database, f"{source_digest()} {counted_by}"
        self.network, self.target = graph_digest(graph), configuration_digest(configuration)
        self.memory = memory_text(memory)
        self.place = f"{configuration.name}, {self.memory}"
        self._subjects: dict[object, str] = {}
        database.name_network(self.network, printable(graph.name)[:MAX_TEXT])
        database.add_configurations([configuration])
        self._known = {
            key.version: record
            for key, record in database.of_evaluator(LAYER_TRIAL, self.network)
            if (key.configuration, key.memory) == (self.target, self.memory)
            and not (record.error or "").startswith(LOST)
            and (record.error or isinstance(record.figures.get("cycles"), int))
        }

    def subject(self, form: object, name: str) -> str:
        """Return the name of the first layer of a form: all of them take the same time."""
        return self._subjects.setdefault(form, name)

    def outcomes(
        self, subject: str, schedules: Sequence[str], measure: Callable[[list[int]], list[Record]]
    ) -> list[Record]:
        """Return the outcome of each schedule; those that are not known are measured.

        Parameters
        ----------
        subject
            What the schedules are for, and all else that their outcomes depend on.
        measure
            Called with the places of unknown schedules.
        """
        names = [digest_of(dumps([self._source, subject, one])) for one in schedules]
        if missing := [place for place, name in enumerate(names) if name not in self._known]:
            found = {
                names[place]: record
                for place, record in zip(missing, measure(missing), strict=True)
            }
            self._known |= found
            self._database.add(
                [(self._key(LAYER_TRIAL, name), record) for name, record in found.items()]
            )
        return [self._known[name] for name in names]

    def keep(self, schedules: Mapping[str, str], before: int, cycles: int) -> None:
        """Record schedules that compilations shall use."""
        source = source_digest()
        texts = dumps(dict(schedules), sort_keys=True)
        figures = {"cycles": cycles, "before": before, "schedules": dict(schedules)}
        figures["source"] = source
        self._database.add([(self._key(LAYERS, digest_of(f"{source} {texts}")), Record(figures))])

    def add_log(self, log: RunLog) -> None:
        """Record the trials of a layer, for the page."""
        add_log(self._database, log)

    def _key(self, evaluator: str, version: str) -> RecordKey:
        return RecordKey(evaluator, version, self.network, self.target, self.memory)
