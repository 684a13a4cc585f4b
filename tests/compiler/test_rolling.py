"""Rings of rows between two steps: every window that a consumer reads holds the right rows."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.kernels import build_kernel
from tilewright.compiler.accelerator.phases import Phase, box_of, phases_of
from tilewright.compiler.accelerator.tile_plan import ring_between
from tilewright.compiler.graph import QMaxPool
from tilewright.compiler.te.rolling import Rolling
from tilewright.isa.configuration import PRESETS
from tilewright.isa.expressions import Read

from .test_lowering import out_extent, single_node

CONFIGURATION = PRESETS["4x4"]


@st.composite
def consumers(draw) -> tuple[Phase, Read, tuple[int, ...], int, int]:
    """A pool that reads a ring, the ring's tensor, and rows of the consumer's and maker's tiles."""
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 3)))
    strides = draw(st.tuples(st.integers(1, 7), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 3), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.integers(0, 6)] * 4))
    span = [dilations[i] * (kernel[i] - 1) + 1 for i in (0, 1)]
    height = draw(st.integers(max(1, span[0] - pads[0] - pads[2]), 40))
    least = max(1, span[1] - pads[1] - pads[3])
    width = draw(st.integers(least, max(least, 4)))
    out_shape = (
        1,
        out_extent(height, kernel[0], strides[0], dilations[0], pads[0], pads[2]),
        out_extent(width, kernel[1], strides[1], dilations[1], pads[1], pads[3]),
        4,
    )
    shape = (1, height, width, 4)
    pool = QMaxPool(kernel, strides, pads, dilations, -128, 127)
    graph = single_node(pool, [shape], out_shape)
    (phase,) = phases_of(build_kernel(graph.nodes[0], graph, CONFIGURATION))
    (read,) = phase.operands
    rows = draw(st.integers(1, out_shape[1]))
    return phase, read, shape, rows, draw(st.integers(1, 4))


def walk(phase: Phase, read: Read, ring: Rolling, rows: int) -> Counter:
    """Follow the consumer's tiles; every window must be one block of the right rows."""
    places: dict[int, int] = {}
    seen: Counter[str] = Counter()
    top = ring.borders[1][0]
    done = -top
    extents = phase.extents
    for y in range(0, extents["y"], rows):
        tile = {**extents, "y": min(rows, extents["y"] - y)}
        _, (first, last), _, _ = box_of(read, {"y": y}, tile)
        until = ring.due(done, last)
        assert until >= last
        made = [
            y
            for tile in ring.tiles(done, until)
            for y in range(tile * ring.tile, (tile + 1) * ring.tile)
        ]
        assert [y for y in made if y < ring.height] == list(
            range(max(done, 0), min(until, ring.height))
        )
        while done < until:
            end = min(until, done + ring.tile)
            covered = set()
            for low, high, place in ring.places(done, end):
                assert done <= low < high <= end
                assert place >= 0
                assert place + high - low <= ring.ring + ring.overhang
                covered |= set(range(low, high))
                places |= {place + i: low + i for i in range(high - low)}
                seen["overhang"] += place >= ring.ring
            assert covered == set(range(done, end))
            seen["wrap"] += end + top > ring.ring
            done = end
        place = ring.place(first)
        found = [places.get(place + i) for i in range(last - first)]
        assert found == list(range(first, last)), (first, last, ring)
    return seen


@settings(max_examples=400, deadline=None)
@given(case=consumers(), ahead=st.booleans())
def test_every_window_lies_together_and_holds_its_rows(case, ahead):
    phase, read, shape, rows, made = case
    tile = {**phase.extents, "y": rows}
    advance = rows * read.index[1].coefficient("y")
    ring = ring_between(read, phase, tile, shape, made, advance if ahead else 0)
    assert ring.advance == advance
    width = ring.extents[2]
    assert ring.elements == (ring.ring + ring.overhang) * ring.row_elements
    _, _, (left, right), _ = box_of(read, {}, phase.extents)
    assert -ring.borders[2][0] <= left < right <= width + ring.borders[2][1]
    seen = walk(phase, read, ring, rows)
    assert not (ring.whole and seen["wrap"])


def test_a_tall_image_wraps_many_times_and_overhangs():
    """3x3 windows of stride 1 over 40 rows, 2 output rows a tile."""
    pool = QMaxPool((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), -128, 127)
    graph = single_node(pool, [(1, 40, 3, 4)], (1, 40, 3, 4))
    (phase,) = phases_of(build_kernel(graph.nodes[0], graph, CONFIGURATION))
    (read,) = phase.operands
    ring = ring_between(read, phase, {**phase.extents, "y": 2}, (1, 40, 3, 4), 2, 2)
    assert (ring.advance, ring.span, ring.ring, ring.overhang) == (2, 4, 6, 2)
    assert ring.borders[1:3] == ((1, 1), (1, 1))
    assert not ring.whole
    seen = walk(phase, read, ring, 2)
    assert seen["wrap"] > 12
    assert seen["overhang"] > 5


def test_a_ring_that_would_hold_all_rows_is_the_whole_image():
    pool = QMaxPool((3, 1), (1, 1), (1, 0, 1, 0), (1, 1), -128, 127)
    graph = single_node(pool, [(1, 5, 2, 4)], (1, 5, 2, 4))
    (phase,) = phases_of(build_kernel(graph.nodes[0], graph, CONFIGURATION))
    tile = {**phase.extents, "y": 3}
    ring = ring_between(phase.operands[0], phase, tile, (1, 5, 2, 4), 1, 0)
    assert ring.whole
    assert (ring.ring, ring.overhang) == (7, 0)
