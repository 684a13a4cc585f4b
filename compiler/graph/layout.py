"""Layered drawing of a directed graph: boxes in ranks from top to bottom, as Netron draws them.

Edges over several ranks pass through an empty place in each rank between, so that they go round the
boxes. Places are sorted by the mean position of their neighbours, a few times down and up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

EMPTY_WIDTH = 16
"""Width of a place that only an edge passes through."""

GAP, RANK_GAP = 24, 36
"""Pixels between neighbours, and between ranks."""

SORTED_TIMES = 4


@dataclass(slots=True)
class DrawnBox:
    """A rectangle of the drawing; a height of 0 is an empty place."""

    key: str
    rank: int
    width: float
    height: float
    x: float = 0.0
    """Centre, set by `arrange`."""
    top: float = 0.0


@dataclass(frozen=True, slots=True)
class DrawnEdges:
    """Edges as SVG path data, each with True where an arrow ends, and the area of the drawing."""

    paths: Sequence[tuple[str, bool]]
    left: float
    width: float
    height: float


def arrange(
    boxes: Iterable[DrawnBox], edges: Sequence[tuple[str, str]], rank_gap: float = RANK_GAP
) -> DrawnEdges:
    """Place boxes and draw the edges between them, which lead to higher ranks."""
    all_boxes = {box.key: box for box in boxes}
    steps = list(_split(all_boxes, edges))
    ranks: list[list[DrawnBox]] = [
        [] for _ in range(1 + max(box.rank for box in all_boxes.values()))
    ]
    for box in all_boxes.values():
        ranks[box.rank].append(box)
    _sort(ranks, steps)
    bottom: float = GAP
    for rank in ranks:
        for box in rank:
            box.top = bottom
        bottom += max(box.height for box in rank) + rank_gap
    left = min(box.x - box.width / 2 for box in all_boxes.values()) - GAP
    right = max(box.x + box.width / 2 for box in all_boxes.values()) + GAP
    return DrawnEdges(
        [(_path(all_boxes[start], all_boxes[end]), last) for start, end, last in steps],
        left, right - left, bottom - rank_gap + GAP,
    )  # fmt: skip


def _path(start: DrawnBox, end: DrawnBox) -> str:
    y1, y2 = start.top + start.height, end.top
    middle = (y1 + y2) / 2
    return (
        f"M{start.x:.0f} {y1:.0f}C{start.x:.0f} {middle:.0f} {end.x:.0f} {middle:.0f} "
        f"{end.x:.0f} {y2:.0f}"
    )


def _split(
    boxes: dict[str, DrawnBox], edges: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, bool]]:
    """Yield edges between neighbouring ranks, adding empty places; True at the end of an arrow."""
    for number, (start, end) in enumerate(edges):
        before = start
        for rank in range(boxes[start].rank + 1, boxes[end].rank):
            place = f"edge {number} at {rank}"
            boxes[place] = DrawnBox(place, rank, EMPTY_WIDTH, 0)
            yield before, place, False
            before = place
        yield before, end, True


def _sort(ranks: list[list[DrawnBox]], steps: Sequence[tuple[str, str, bool]]) -> None:
    """Set the centre of every box."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for start, end, _ in steps:
        above.setdefault(end, []).append(start)
        below.setdefault(start, []).append(end)
    boxes = {box.key: box for rank in ranks for box in rank}
    for rank in ranks:
        _place(rank, {box.key: 0.0 for box in rank})
    for turn in range(SORTED_TIMES):
        near, order = (above, ranks) if turn % 2 == 0 else (below, ranks[::-1])
        for rank in order:
            wanted = {}
            for box in rank:
                others = [boxes[key].x for key in near.get(box.key, ())]
                wanted[box.key] = sum(others) / len(others) if others else box.x
            rank.sort(key=lambda box: wanted[box.key])
            _place(rank, wanted)


def _place(rank: list[DrawnBox], wanted: Mapping[str, float]) -> None:
    """Set boxes side by side, around the mean of where they want to be."""
    total = sum(box.width for box in rank) + GAP * (len(rank) - 1)
    x = sum(wanted[box.key] for box in rank) / len(rank) - total / 2
    for box in rank:
        box.x = x + box.width / 2
        x += box.width + GAP
