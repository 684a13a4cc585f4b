"""Objects as notebooks show them: tables, and the picture of a graph."""

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.graph import Graph, Node, Output, TensorType, Value
from tilewright.compiler.graph.operators import Binary
from tilewright.html_tables import html_table

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return tw.import_model(ROOT / "examples" / "digits" / "digits_int8_qdq.onnx")


@pytest.fixture(scope="module")
def module(graph):
    return tw.compile_graph(graph, tw.PRESETS["8x8"], keep_all=True)


class Cells(HTMLParser):
    """The texts of a table's body, and the elements that are open at the end."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs) -> None:
        self.open.append(tag)
        if tag == "tr" and "tbody" in self.open:
            self.rows.append([])

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if "td" in self.open:
            self.rows[-1].append(data)


def test_a_table_escapes_text_and_groups_numbers():
    html = html_table("<b>", ("name", "count"), [("<i>", 12345), ("x", None), ("y", 0.25)])
    assert Cells(html).rows == [["<i>", "12,345"], ["x", "-"], ["y", "0.25"]]
    assert "<b>" not in html


def test_a_summary_has_every_layer_and_its_work(module):
    lines = module.summary().splitlines()
    assert lines[0].split() == ["layer", "operator", "side", "type", "MACs", "instructions"]
    assert len(lines) == 1 + sum(len(s.layers) for s in module.segments) + len(module.steps) - 1
    (conv2,) = (line.split() for line in lines if line.startswith("conv2 "))
    assert conv2[1:3] == ["conv", "accelerator"]
    assert conv2[-2] == "73,728"
    assert [row[0] for row in Cells(module._repr_html_()).rows] == [row[0] for row in module.rows()]


def test_objects_show_themselves_as_tables(graph, module):
    scan = np.zeros((1, 1, 8, 8), np.float32)
    comparison = tw.Comparison(module)
    with tw.open_device("sim", module.configuration) as sim:
        run = tw.Session(module, sim, keep_all=True).run(scan)
    comparison.add({"scan": scan}, run)
    assert [row[0] for row in Cells(graph._repr_html_()).rows] == [n.name for n in graph.nodes]
    layers = [layer.short for layer in run.profile.layers]
    assert [row[0] for row in Cells(run.profile._repr_html_()).rows] == layers
    assert [row[0] for row in Cells(run._repr_html_()).rows] == ["logits", *layers]
    tallies = Cells(comparison._repr_html_()).rows
    assert [row[0] for row in tallies] == [tally.name for tally in comparison.tallies]
    assert all(row[2] == "0" for row in tallies)
    parameters = dict(row[:2] for row in Cells(module.configuration._repr_html_()).rows)
    assert parameters["lanes_in"] == "8"


def test_the_picture_has_every_node_inside_and_no_two_in_one_place(graph, tmp_path):
    graph.plot().save(tmp_path / "graph.svg")
    picture = ElementTree.parse(tmp_path / "graph.svg").getroot()
    left, top, width, height = map(float, picture.attrib["viewBox"].split())
    boxes = []
    for rect in picture.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert left <= x <= x + w <= left + width
        assert top <= y <= y + h <= top + height
        assert not any(x < x2 and x1 < x + w and y < y2 and y1 < y + h for x1, y1, x2, y2 in boxes)
        boxes.append((x, y, x + w, y + h))
    assert len(boxes) == len(graph.nodes) + len(graph.inputs) + len(graph.outputs)
    assert "residual (accelerator)" in {title.text for title in picture.iter(f"{SVG}title")}


def test_an_edge_over_several_ranks_goes_round_the_nodes():
    kind = TensorType("float32", (1,))
    x, *values = (Value(name, kind) for name in ("x", "<a>", "b", "c"))
    nodes = []
    for before, value in zip(("x", "<a>", "b"), values, strict=True):
        nodes.append(Node(value.name, Binary("add"), (before, "x"), (value,)))
    picture = Graph("skip", (x,), (Output("out", "c"),), tuple(nodes)).plot()
    drawn = ElementTree.fromstring(picture.svg)
    lines = drawn.findall(f"{SVG}path")
    # x to a (twice, drawn once), b through one place and c through two; a to b to c to out
    assert len(lines) == 1 + 2 + 3 + 3
    assert "<a>" in {text.text for text in drawn.iter(f"{SVG}text")}
