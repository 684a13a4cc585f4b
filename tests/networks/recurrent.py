"""Taggers of sequences: an embedding, recurrent layers, a dense layer and a softmax.

One is written with ONNX's LSTM and GRU; of the LSTM alone there are three forms, as the operator,
as a Scan and as a Loop over the same cell, since exporters choose among them.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper

from .builder import Builder

WORDS, FEATURES, HIDDEN, TAGS = 40, 12, 20, 6
FORMS = ("LSTM", "Scan", "Loop")


def tagger(directions: int) -> bytes:
    """LSTM over all tokens, GRU over its states, classes from the last one.

    Inputs `tokens` int64[batch, steps] and the states that the caller carries: `h0`, `c0`
    [directions, batch, HIDDEN] and `g0` [1, batch, HIDDEN]. Outputs: the tags' probabilities
    [batch, TAGS], then the states after the last step.
    """
    net = Builder(seed=directions)
    embedded = net.add("Gather", net.draw(WORDS, FEATURES, spread=3), "tokens")
    every, h, c = net.add(
        "LSTM",
        net.add("Transpose", embedded, perm=[1, 0, 2]),
        net.draw(directions, 4 * HIDDEN, FEATURES),
        net.draw(directions, 4 * HIDDEN, HIDDEN),
        net.draw(directions, 8 * HIDDEN),
        "",
        "h0",
        "c0",
        results=3,
        hidden_size=HIDDEN,
        direction="bidirectional" if directions == 2 else "forward",
    )
    turned = net.add("Transpose", every, perm=[0, 2, 1, 3])
    steps, batch = net.extent(turned, 0), net.extent(turned, 1)
    _, g = net.add(
        "GRU",
        net.reshape(turned, steps, batch, directions * HIDDEN),
        net.draw(1, 3 * HIDDEN, directions * HIDDEN),
        net.draw(1, 3 * HIDDEN, HIDDEN),
        net.draw(1, 6 * HIDDEN),
        "",
        "g0",
        results=2,
        hidden_size=HIDDEN,
        linear_before_reset=1,
    )
    last = net.add("Squeeze", g, net.whole(0))
    logits = net.add("Gemm", last, net.draw(TAGS, HIDDEN, spread=3), net.draw(TAGS), transB=1)
    inputs = {
        "tokens": ("int64", ("batch", "steps")),
        "h0": ("float32", (directions, "batch", HIDDEN)),
        "c0": ("float32", (directions, "batch", HIDDEN)),
        "g0": ("float32", (1, "batch", HIDDEN)),
    }
    return net.model(inputs, [net.add("Softmax", logits, axis=-1), h, c, g])


def draw_inputs(directions: int, batch: int, steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Tokens and first states of a tagger."""
    random = np.random.default_rng(seed)
    states = {"h0": directions, "c0": directions, "g0": 1}
    return {"tokens": random.integers(0, WORDS, (batch, steps))} | {
        name: random.normal(0, 0.5, (rows, batch, HIDDEN)).astype(np.float32)
        for name, rows in states.items()
    }


def lstm(form: str, steps: int) -> bytes:
    """An LSTM over features `x` [steps, 1, FEATURES] from zero states; all states, and the tags.

    Parameters
    ----------
    form
        One of `FORMS`; the weights, and so the results, are the same in all.
    """
    net = Builder(seed=7)
    w, r = net.draw(1, 4 * HIDDEN, FEATURES), net.draw(1, 4 * HIDDEN, HIDDEN)
    bias = net.draw(1, 8 * HIDDEN)
    if form == "LSTM":
        every, *_ = net.add("LSTM", "x", w, r, bias, results=3, hidden_size=HIDDEN)
        states = net.add("Squeeze", every, net.whole(1))
    else:
        turned = [net.hold(net.held[name][0].T) for name in (w, r)]
        both = net.hold(net.held[bias][0].reshape(2, -1).sum(axis=0))
        zeros = net.hold(np.zeros((1, HIDDEN)))
        body = _body(form, [*turned, both])
        if form == "Scan":
            found = net.add("Scan", zeros, zeros, "x", results=3, num_scan_inputs=1, body=body)
        else:
            count = net.scalar(net.extent("x", 0))
            going = net.hold(True, "bool")
            found = net.add("Loop", count, going, zeros, zeros, results=3, body=body)
        states = found[2]
    tags = net.add("MatMul", states, net.draw(HIDDEN, TAGS, spread=3))
    inputs = {"x": ("float32", (steps, 1, FEATURES))}
    return net.model(inputs, [states, net.add("Softmax", tags, axis=-1)])


def _body(form: str, weights: list[str]) -> onnx.GraphProto:
    """One step: states and a row of features, or the step's number -> states, the new one twice."""
    cell = Builder()
    row = "row"
    if form == "Loop":
        row = cell.add("Gather", "x", "step", axis=0)
    w, r, bias = weights
    sums = [cell.add("MatMul", row, w), cell.add("MatMul", "h", r)]
    gates = cell.add("Add", cell.add("Add", *sums), bias)
    i, o, f, c = cell.add("Split", gates, results=4, axis=-1)
    i, o, f = (cell.add("Sigmoid", gate) for gate in (i, o, f))
    kept = cell.add("Mul", f, "c")
    new = cell.add("Add", kept, cell.add("Mul", i, cell.add("Tanh", c)))
    state = cell.add("Mul", o, cell.add("Tanh", new))
    shown = cell.add("Identity", state)
    names, outputs = ["h", "c", "row"], [state, new, shown]
    nodes = cell.nodes
    if form == "Loop":
        names, outputs = ["step", "going", "h", "c"], ["on", *outputs]
        nodes = [*nodes, helper.make_node("Identity", ["going"], ["on"])]
    kinds = {"step": TensorProto.INT64, "going": TensorProto.BOOL, "on": TensorProto.BOOL}
    shapes = {"step": [], "going": [], "on": []}
    taken, shown = (
        [
            helper.make_tensor_value_info(
                name, kinds.get(name, TensorProto.FLOAT), shapes.get(name)
            )
            for name in listed
        ]
        for listed in (names, outputs)
    )
    return helper.make_graph(nodes, "cell", taken, shown)
