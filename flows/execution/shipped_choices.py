"""Schedules that Tilewright ships for common shapes on the processors where they were measured.

`python -m tilewright.flows.bench.shipped_records` makes the file: a line of JSON for each set, with
its processor, date and command, followed by a line for each record.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...compiler.cpu import CpuTarget

SHIPPED = Path(__file__).with_name("shipped_records.jsonl")

ANY = "any"
"""Stands for the number of threads where a record suits any."""


@dataclass(frozen=True, slots=True)
class ShippedRecord:
    """A schedule that is faster than the default.

    Parameters
    ----------
    workload
        Hash of what the kernel computes.
    ratio
        Time over the default's, measured apart from the search.
    shared_alike
        Whether its parallel loops are those of the default. It then suits any number of threads;
        otherwise it suits only the number that was measured.
    name
        The network and the kernel, for readers.
    """

    workload: str
    choice: str
    ratio: float
    shared_alike: bool
    name: str


@dataclass(frozen=True, slots=True)
class ShippedSet:
    """The records of one processor, level and number of threads.

    Parameters
    ----------
    processor
        LLVM's name of the processor that was measured, even if the code runs on any of the level.
    command, date, versions
        How, when and by which versions the records were made.
    """

    processor: str
    triple: str
    level: str
    threads: int
    date: str
    command: str
    versions: Mapping[str, str]
    records: tuple[ShippedRecord, ...]

    @property
    def title(self) -> str:
        """The target, for readers; a file has one set for each."""
        return _key(self.processor, self.triple, self.level, self.threads)

    def place_of(self, record: ShippedRecord) -> str:
        """Return the text under which a record is found."""
        threads = ANY if record.shared_alike else self.threads
        return _key(self.processor, self.triple, self.level, threads)


def processor_name() -> str:
    """Return LLVM's name of this machine's processor."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name()


def _key(processor: str, triple: str, level: str, threads: int | str) -> str:
    return f"shipped {processor} {triple} {level} {threads}"


def shipped_places(target: "CpuTarget", threads: int) -> tuple[str, str]:
    """Return the texts under which the records for a target on this machine are found."""
    name = processor_name()
    return (
        _key(name, target.triple, target.level, ANY),
        _key(name, target.triple, target.level, threads),
    )


def shipped_sets(path: Path) -> list[ShippedSet]:
    """Return the sets of a file; none if it does not exist."""
    found: list[ShippedSet] = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        fields = json.loads(line)
        if "workload" in fields:
            more = (*found[-1].records, ShippedRecord(**fields))
            found[-1] = replace(found[-1], records=more)
        else:
            found.append(ShippedSet(**fields, records=()))
    return found


def set_lines(sets: Iterable[ShippedSet]) -> str:
    """Return the text of a file, in the order of targets and workloads."""
    lines = []
    for one in sorted(sets, key=lambda each: each.title):
        fields = asdict(one)
        records = sorted(fields.pop("records"), key=lambda each: each["workload"])
        lines += [json.dumps(each) for each in (fields, *records)]
    return "".join(f"{line}\n" for line in lines)


@cache
def shipped_texts() -> Mapping[tuple[str, str], str]:
    """Return the choices by workload and target, without loading LLVM or NumPy."""
    return {
        (record.workload, one.place_of(record)): record.choice
        for one in shipped_sets(SHIPPED)
        for record in one.records
    }
