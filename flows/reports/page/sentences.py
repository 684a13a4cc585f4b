"""A sentence for each layer that explains its time, with the layer's own figures."""

from ....compiler.accelerator.kernels.first_layer import find_images
from ....compiler.graph import Node, QConv
from ....compiler.module import Module
from ....isa.encoding import word_bytes
from ....isa.instructions import Unit
from ....isa.pipeline import READY_CYCLES
from ....runtime.names import short_name
from ....sim.timing.stalls import Wait
from .causes import Cause
from .layer_rows import PADDING, WINDOWS, LayerFacts

WORTH_TELLING = 0.2
"""Smallest share of the critical path at which a sentence names a second cause."""

FULL = 0.95
"""Smallest share of useful multiplications at which an array counts as full."""

NEAR_PEAK = 0.9
"""Smallest share of GEMM's work at which the array is a layer's only limit."""


def sentence(module: Module, fact: LayerFacts) -> str:
    """Return why a layer is slow."""
    if fact.bound is None:
        return "Hidden: no part of it is on the critical path."
    shares = {cause: cycles / fact.path_cycles for cause, cycles in fact.causes.items()}
    text = f"{shares[fact.bound]:.0%} of its critical path {_TELL[fact.bound](module, fact)}"
    others = sorted(set(Cause) - {fact.bound}, key=lambda cause: -shares[cause])
    if shares[others[0]] >= WORTH_TELLING:
        text += f"; {shares[others[0]]:.0%} {_also(others[0], fact)}"
    moves = shares[Cause.MEMORY] + shares[Cause.LATENCY]
    return text + (_held_back(fact) if moves >= WORTH_TELLING else "") + "."


def _held_back(fact: LayerFacts) -> str:
    """Return which other layer, if any, delays the first LOAD of the layer."""
    segment, index = fact.segment, fact.steps[0].step.instruction
    if fact.steps[0].unit is not Unit.LOAD:
        return ""
    timing = segment.timing
    for unit, giver in zip(Unit, timing.links.givers[index].tolist(), strict=True):
        given = timing.column("retired")[giver] + 1 + READY_CYCLES
        last = giver >= 0 and given == timing.column("ready")[index]
        if last and segment.layer[giver] != segment.layer[index]:
            name = segment.layer_name(giver)
            return f"; its first LOAD waits until {unit.name} is done with {name}"
    return ""


def _compute(module: Module, fact: LayerFacts) -> str:
    gemm = fact.path_of(Unit.GEMM, Wait.WORK, Wait.UNIT)
    vector = fact.path_of(Unit.VECTOR, Wait.WORK, Wait.UNIT)
    if vector > gemm:
        lanes = module.configuration.vector_lanes
        return f"is VECTOR's work, {lanes} channels a cycle"
    useful = fact.layer.macs / fact.gemm_multiplications if fact.gemm_multiplications else 1.0
    if useful >= FULL and gemm >= NEAR_PEAK * fact.path_cycles:
        return "is GEMM's work with every lane in use: the array is the limit"
    if useful >= FULL:
        return "is GEMM's work with every lane in use"
    return f"is GEMM's work, {useful:.0%} of it useful{empty_lanes(module, fact)}"


def empty_lanes(module: Module, fact: LayerFacts) -> str:
    """Return which lanes stay empty, after a colon; by convolution where there are several."""
    convolutions = [node for node in fact.nodes if isinstance(node.attributes, QConv)]
    reasons: dict[str, list[str]] = {}
    for node in convolutions:
        if found := " and ".join(_poor_lanes(module, fact, node)):
            reasons.setdefault(found, []).append(short_name(node.name))
    if not reasons:
        return ": the other rows only pad a tile"
    if len(convolutions) == 1:
        return f": {next(iter(reasons))}"
    return ": " + "; ".join(f"in {', '.join(names)} {text}" for text, names in reasons.items())


def _poor_lanes(module: Module, fact: LayerFacts, node: Node) -> list[str]:
    """Return the sides of the array that a convolution leaves partly empty."""
    conv, configuration = node.attributes, module.configuration
    assert isinstance(conv, QConv)
    height, width, channels, channels_out = module.graph.data(node.inputs[1]).shape
    lanes_in, lanes_out = configuration.lanes_in, configuration.lanes_out
    inner = channels, "input channel{s}", lanes_in
    outer = channels_out, "output channel{s}", lanes_out
    poor = []
    if conv.kind == "depthwise":
        taps = min(width, configuration.depthwise_taps) if conv.groups == channels_out else 0
        lanes = f"{max(1, taps)} of {lanes_in} input lanes"
        poor.append(f"no channel sums over another, so at most {lanes} work")
        inner = None
    elif WINDOWS in fact.purposes and node is fact.nodes[0]:
        name = node.inputs[0]
        image = find_images(module.graph, [node], [name], configuration)[name]
        values = width * channels
        what = {height: "a window", 1: "a window's row"}.get(
            image.rows, f"{image.rows} rows of a window"
        )
        inner = image.rows * values, "value{s} of " + what, lanes_in
    for count, what, lanes in filter(None, (inner, outer)):
        if count % lanes:
            poor.append(f"{count} {what.format(s='s' * (count != 1))} on {lanes} lanes")
    return poor


def _memory(module: Module, fact: LayerFacts) -> str:
    timing = fact.segment.timing
    most = timing.configuration.bus_bytes / timing.memory.beat_cycles
    store = fact.path_of(Unit.STORE, Wait.WORK, Wait.UNIT)
    if store > fact.path_of(Unit.LOAD, Wait.WORK, Wait.UNIT):
        return (
            f"moves data: STORE writes {size(fact.written_bytes)}, at most {most:g} bytes per cycle"
        )
    what = next(iter(fact.path_purposes), "data")
    if what == PADDING:
        return "is padding: LOAD fills the border of its input"
    rate = fact.read_bytes / fact.load_cycles if fact.load_cycles else 0.0
    share = fact.purposes.get(what, 0)
    runs = ""
    if what == WINDOWS:
        _, width, channels, _ = module.graph.data(fact.nodes[0].inputs[1]).shape
        runs = f", gathered in runs of {width * channels} bytes that start anywhere in a beat"
    return (
        f"moves data: most of it {size(share)} of {what}{runs}; a working LOAD reads {rate:.1f} of "
        f"at most {most:g} bytes per cycle"
    )


def _latency(module: Module, fact: LayerFacts) -> str:
    timing = fact.segment.timing
    late = [step for step in fact.steps if step.cause is Cause.LATENCY]
    memory = sum(step.cycles for step in late if step.step.wait in (Wait.MEMORY, Wait.FETCH))
    rest = fact.causes[Cause.LATENCY] - memory
    return (
        f"waits for latency: {memory:,} cycles for answers of main memory, each "
        f"{timing.memory.latency_cycles} or more, and {rest:,} for tokens and pipelines; the layer "
        "is too short to hide them"
    )


def _dispatch(module: Module, fact: LayerFacts) -> str:
    configuration = module.configuration
    beats = word_bytes(configuration) // configuration.bus_bytes
    own = fact.segment.timing.links.unit[fact.layer.places]
    gemms = int((own == Unit.GEMM).sum())
    each = f"; a GEMM lasts {fact.gemm_cycles / gemms:.0f}" if gemms else ""
    return (
        f"waits for instructions: {fact.instructions} of them, each {beats} cycles on the read "
        f"channel, which LOAD uses too{each}; larger tiles need fewer"
    )


_TELL = {
    Cause.COMPUTE: _compute,
    Cause.MEMORY: _memory,
    Cause.LATENCY: _latency,
    Cause.DISPATCH: _dispatch,
}


def _also(cause: Cause, fact: LayerFacts) -> str:
    """Return a second cause in few words."""
    what = next(iter(fact.path_purposes), "")
    if cause is Cause.MEMORY and what in fact.purposes:
        return f"moves data, mostly {size(fact.purposes[what])} of {what}"
    return {
        Cause.COMPUTE: "is GEMM's or VECTOR's work",
        Cause.MEMORY: "moves data",
        Cause.LATENCY: "waits for latency",
        Cause.DISPATCH: "waits for instructions",
    }[cause]


def size(count: int) -> str:
    """Return a number of bytes with its unit."""
    return f"{count} bytes" if count < 1000 else f"{count / 1000:.1f} kB"
