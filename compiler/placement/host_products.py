"""Products that the host multiplies: their number, their multiplications, and why."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..graph import Graph, Node, QMatMul, accelerated_nodes
from ..graph import operators as ops
from ..graph.macs import all_macs_of, macs_of
from ..graph.operators.integer import Accelerated
from ..passes.expand_recurrent_layers import MAX_STEPS
from ..passes.recognise_own_kernels import has_integer_form
from .decide import Decision
from .float_reasons import float_reader, is_elementwise, is_move, joins_layer

CONVOLUTION, DENSE, PRODUCT, RECURRENT, OWN = (
    "convolution", "dense layer", "matrix product", "recurrent layer", "own kernel",
)  # fmt: skip

IN_FLOAT = "in float"
DOUBLE = "in double precision"
DYNAMIC = "scales computed at run time"
INPUT = "input not quantised"
WEIGHTS = "weights not in int8 with a scale for each output channel"
OPERANDS = "scales along another axis, or sums beyond int32"
WIDER = "quantised to "
CONSTANTS = "no operand that changes"
LONG = f"more than {MAX_STEPS} steps"
NO_FORM = "without a form in int8"
UNFIT = "does not fit the accelerator"
PLACED = "placed there"

ADVICE = {
    IN_FLOAT: "a float model is to be quantised first: see `tilewright quantise`; `run` and "
    "`compile` take `--calibrate FILE` too",
    DOUBLE: "export the model in float32, then quantise it: see `tilewright quantise`",
    DYNAMIC: "the accelerator needs scales that are known before: quantise the float model with "
    "samples (`tilewright quantise`)",
    INPUT: "a product runs in int8 if its operands and its result are quantised, as `tilewright "
    "quantise` does for the float model",
    WIDER: "the accelerator multiplies int8: quantise the float model to 8 bits, as `tilewright "
    "quantise` does",
    LONG: "a program has the instructions of each step: give the sequence in parts, with the "
    "states as inputs and outputs",
    OPERANDS: "give each operand of the product one scale, and multiply fewer than 16,000 elements "
    "at a time",
    WEIGHTS: "quantise the float model so, as `tilewright quantise` does; scales of blocks must be "
    "whole multiples of the channel's, so that the weights still fit int8, as `--weights 4` "
    "chooses them",
}
"""The beginning of a reason -> what to do about it."""

FACTORS_AND_SUMS = "Add", "Mul", "Div"

QUOTIENT = "no division of integers; multiply by the reciprocal instead, quantised"
RESULT = "result not quantised"
BY_CHANNEL = "scales by channel"

MAX_SEARCHED = 64
"""Number of values to look at behind a function of two values."""

SUM = "elementwise sum"

COMBINED = {
    "Mul": ("elementwise product", ops.QMul), "Div": ("quotient", ()),
    "Add": (SUM, ops.QAdd), "Sub": (SUM, ops.QAdd),
}  # fmt: skip
"""Functions of two values: their kind, and their form in int8."""

Row = dict[str, Any]


def host_products(graph: Graph, decision: Decision | None = None) -> list[Row]:
    """Return the kinds of products of which the host runs some, as JSON values.

    Each row has `kind`, `host` and `all`, their numbers, `macs`, the host's multiplications,
    `reasons`: reason -> number, and a `sentence` that says so. The multiplications of all rows and
    the accelerator's are those of the graph.

    Parameters
    ----------
    decision : Decision or None
        The placement; without it, the accelerator runs all that have a form in int8.
    """
    everything: Counter[str] = Counter()
    found: dict[str, list[tuple[Node, str]]] = {}
    able = {node.output.name for node in accelerated_nodes(graph)}
    for node in graph.nodes:
        if not macs_of(graph, node):
            continue
        kind, name = _kind(graph, node), node.outputs[0].name
        everything[kind] += 1
        if name not in able:
            found.setdefault(kind, []).append((node, _reason(graph, node)))
        elif decision is not None and name not in decision.accelerated:
            unfit = isinstance(decision.cycles.get(name), str)
            found.setdefault(kind, []).append((node, UNFIT if unfit else PLACED))
    rows = []
    for kind, hosted in found.items():
        reasons = Counter(reason for _, reason in hosted)
        rows.append(
            {
                "kind": kind,
                "host": len(hosted),
                "all": everything[kind],
                "macs": all_macs_of(graph, [node for node, _ in hosted]),
                "reasons": dict(reasons.most_common()),
                "sentence": _sentence(kind, everything[kind], reasons),
            }
        )
    all_in_float = all([*row["reasons"]] == [IN_FLOAT] for row in rows)
    idle = sum(everything.values()) == sum(row["host"] for row in rows)
    advice = ""
    if not (all_in_float and idle):
        advice = _advice(rows)
    elif any(isinstance(node.attributes, ops.Quantize | Accelerated) for node in graph.nodes):
        advice = ADVICE[INPUT]  # the quantiser refuses a quantised model
    elif any(_has_weights(graph, node) for node in graph.nodes):
        advice = ADVICE[IN_FLOAT]
    if rows and advice:
        rows[-1]["sentence"] += f"; {advice}"
    return rows


def host_combinations(graph: Graph) -> list[Row]:
    """Return rows like those of `host_products` for sums and products of two quantised values.

    They are elementwise, one of the values perhaps broadcast, and have no multiplications of
    layers, `macs`. Sums of other results in float are left out: some quantisers leave them so.
    """
    if not accelerated_nodes(graph):
        return []
    found: dict[str, Counter[str]] = {}
    for node in graph.nodes:
        operator = node.attributes
        if isinstance(operator, ops.Binary) and operator.kind in COMBINED:
            kind, _ = COMBINED[operator.kind]
            reason = _combined_reason(graph, node)
            if len(_integers_behind(graph, node)) > 1 and (kind, reason) != (SUM, INPUT):
                found.setdefault(kind, Counter())[reason] += 1
    forms = dict(COMBINED.values())
    rows = []
    for kind, reasons in found.items():
        count, form = reasons.total(), forms[kind]
        whole = count + sum(isinstance(node.attributes, form) for node in graph.nodes)
        sentence = _sentence(kind, whole, reasons)
        if not reasons.keys().isdisjoint((RESULT, INPUT)):
            sentence += f"; {ADVICE[INPUT]}"
        rows.append(
            {"kind": kind, "host": count, "all": whole, "macs": 0, "reasons": dict(reasons),
             "sentence": sentence}
        )  # fmt: skip
    return rows


def _integers_behind(graph: Graph, node: Node) -> set[str]:
    """Return the quantised values of which alone a node is an elementwise function.

    Empty if it depends on anything else, or on more than `MAX_SEARCHED` values.
    """
    waiting, seen, found = [*node.inputs], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or graph.is_constant(name):
            continue
        seen.add(name)
        maker = graph.producer(name)
        if maker is None or len(seen) > MAX_SEARCHED:
            return set()
        if isinstance(maker.attributes, ops.Dequantize | ops.GeneralDequantize):
            found.add(maker.inputs[0])
        elif is_elementwise(maker):
            waiting += maker.inputs
        else:
            return set()
    return found


def _combined_reason(graph: Graph, node: Node) -> str:
    """Say why the accelerator cannot compute a function of two quantised values."""
    given = [_quantised_as(graph, name) for name in node.inputs]
    if not all(given):
        return INPUT
    wider = [dtype for dtype in given if dtype not in ("int8", "uint8")]
    if wider:
        return wider[0] if wider[0] == DYNAMIC else f"{WIDER}{wider[0]}"
    if float_reader(graph, node, lambda user: joins_layer(graph, user)):
        return RESULT
    assert isinstance(node.attributes, ops.Binary), "functions of two values"
    return QUOTIENT if node.attributes.kind == "Div" else BY_CHANNEL


def unmarked_masks(graph: Graph) -> list[Row]:
    """Return a row like those of `host_products` for softmaxes of scores and inputs in float."""
    if not accelerated_nodes(graph):
        return []
    added: Counter[str] = Counter()
    for node in graph.nodes:
        if isinstance(node.attributes, ops.Softmax):
            added.update(_float_inputs_added(graph, node))
    return [
        {
            "kind": "softmax",
            "host": count,
            "all": sum(isinstance(n.attributes, ops.Softmax | ops.QSoftmax) for n in graph.nodes),
            "macs": 0,
            "reasons": {f"input `{name}` is added in float": count},
            "sentence": f"softmax in float on the host, as input `{name}` is added and may hold "
            f"any numbers: if they are a mask, 0 and below -1,000, give `--mask {name}`",
        }
        for name, count in added.items()
    ]


def _float_inputs_added(graph: Graph, softmax: Node) -> set[str]:
    """Return the inputs in float that are added to quantised scores."""
    names, found, scores = [softmax.inputs[0]], set[str](), False
    while names:
        name = names.pop()
        maker = graph.producer(name)
        if maker is None:
            found |= {name} - {each.name for each in graph.constants}
        elif isinstance(maker.attributes, ops.Dequantize):
            scores = True
        elif is_move(maker):
            names += maker.inputs[:1]
        elif isinstance(maker.attributes, ops.Binary) and maker.attributes.kind in FACTORS_AND_SUMS:
            names += maker.inputs
    return found if scores else set()


def _sentence(kind: str, whole: int, reasons: Counter[str]) -> str:
    count = reasons.total()
    listed = ", ".join(
        f"{reason} ({number})" if len(reasons) > 1 else reason
        for reason, number in reasons.most_common()
    )
    verb = "runs" if count == 1 else "run"
    return f"{count} of {whole} {kind}{'s' * (whole != 1)} {verb} on the host: {listed}"


def _advice(rows: Sequence[Row]) -> str:
    """Say what to do about the most frequent reason; empty if there is nothing to do."""
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row["reasons"])
    for reason, _ in reasons.most_common():
        if reason == IN_FLOAT:
            continue  # the user left parts of the network in float
        for beginning, advice in ADVICE.items():
            if reason.startswith(beginning):
                return advice
    return ""


def idle_sentence(graph: Graph, rows: Sequence[Row]) -> str:
    """Say why nothing runs on the accelerator, and what to do."""
    if rows:
        return "; ".join(row["sentence"] for row in rows)
    inputs = {value.name for value in graph.inputs}
    if not any(inputs.intersection(node.inputs) for node in graph.nodes):
        return "its outputs are constants or inputs, so there is nothing to compute"
    return "no convolution and no matrix product depends on the network's inputs"


def _has_weights(graph: Graph, node: Node) -> bool:
    """Whether the quantiser can quantise a layer: its weights are constants."""
    if not isinstance(node.attributes, ops.Conv | ops.ConvTranspose | ops.MatMul | ops.Recurrent):
        return False
    weights = node.inputs[1]
    maker = graph.producer(weights)
    if maker is not None and isinstance(maker.attributes, ops.Dequantize):
        weights = maker.inputs[0]
    is_matrix = len(graph.types[weights].shape) == 2
    return graph.is_constant(weights) and (is_matrix or not isinstance(node.attributes, ops.MatMul))


def _kind(graph: Graph, node: Node) -> str:
    operator = node.attributes
    if isinstance(operator, ops.OwnKernel | ops.QKernel):
        return OWN
    if isinstance(operator, ops.Recurrent):
        return RECURRENT
    if isinstance(operator, ops.Conv | ops.ConvTranspose):
        return CONVOLUTION
    if isinstance(operator, ops.Convolving):
        return DENSE if operator.kind == "dense" else CONVOLUTION
    if isinstance(operator, QMatMul) or not any(map(graph.is_constant, node.inputs[:2])):
        return PRODUCT
    return DENSE


def _reason(graph: Graph, node: Node) -> str:
    """Say why the accelerator cannot run a product."""
    if isinstance(node.attributes, Accelerated):
        return CONSTANTS
    if isinstance(node.attributes, ops.IntegerMatMul):
        return OPERANDS
    if isinstance(node.attributes, ops.OwnKernel) and not has_integer_form(node.attributes):
        return NO_FORM
    steps = node.outputs[0].type.shape[0] if isinstance(node.attributes, ops.Recurrent) else 0
    if steps > MAX_STEPS and accelerated_nodes(graph):
        return LONG
    operands = [name for name in node.inputs[:2] if not graph.is_constant(name)]
    given = [_quantised_as(graph, name) for name in operands]
    if not any(given):
        if node.outputs[0].type.dtype == "float64":
            return DOUBLE
        in_float = float_reader(graph, node, lambda user: joins_layer(graph, user))
        return IN_FLOAT if in_float else INPUT
    wider = [dtype for dtype in given if dtype not in ("", "int8", "uint8")]
    if wider:
        return wider[0] if wider[0] == DYNAMIC else f"{WIDER}{wider[0]}"
    if not all(given):
        return INPUT
    if isinstance(node.attributes, ops.Recurrent):
        return IN_FLOAT
    weighted = len(operands) < len(node.inputs[:2])
    return WEIGHTS if weighted and _has_one_scale(graph, *operands) else OPERANDS


def _has_one_scale(graph: Graph, name: str) -> bool:
    """Whether a dequantised operand has the same scale everywhere."""
    maker = _dequantised_by(graph, name)
    operator = maker and maker.attributes
    return not isinstance(operator, ops.Dequantize) or operator.axis is None


def _quantised_as(graph: Graph, name: str) -> str:
    """Return the integer type that an operand was dequantised from; empty for floats."""
    maker = _dequantised_by(graph, name)
    if maker is None:
        return ""
    dtype = graph.types[maker.inputs[0]].dtype
    general = isinstance(maker.attributes, ops.GeneralDequantize)
    return DYNAMIC if general and dtype in ("int8", "uint8") else dtype


def _dequantised_by(graph: Graph, name: str) -> Node | None:
    """Return the dequantisation that an operand comes from, moved perhaps; None for floats."""
    maker = graph.producer(name)
    while maker is not None and (is_move(maker) or isinstance(maker.attributes, ops.Pad)):
        name = maker.inputs[0]
        maker = graph.producer(name)
    dequantises = isinstance(maker and maker.attributes, ops.Dequantize | ops.GeneralDequantize)
    return maker if dequantises else None
