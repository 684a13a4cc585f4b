"""Monitors that benches share: what entered leaves, once, unchanged and in order."""

from amaranth.hdl import Module, Signal, Value

from .bench import ProofBench


def watch_order(
    bench: ProofBench,
    m: Module,
    name: str,
    enters: Value,
    entering: Value,
    leaves: Value,
    leaving: Value,
    capacity: int,
) -> Signal:
    """Claim that what leaves is what entered, in order, none lost and none twice.

    One arbitrary item is watched on its way. Since it can be any, the claim is for all of them:
    the n-th item that leaves is the n-th that entered.

    Parameters
    ----------
    bench, m
        Where the claims go.
    name : str
        Of what flows, for the words of the claims.
    enters, leaves : Value
        High in a cycle in which an item passes.
    entering, leaving : Value
        The items, of the same width.
    capacity : int
        Most items inside.

    Returns
    -------
    Signal
        Items inside, before this cycle's transfers.
    """
    inside = Signal(range(capacity + 2), name=_identifier(name, "inside"))
    ahead = Signal(range(capacity + 2), name=_identifier(name, "ahead"))
    watching = Signal(name=_identifier(name, "watching"))
    watched = Signal(len(entering), name=_identifier(name, "watched"))
    picks = bench.any(m, _identifier(name, "picks"))
    m.d.sync += inside.eq(inside + enters - leaves)
    with m.If(~watching & picks & enters):
        m.d.sync += [watching.eq(1), watched.eq(entering), ahead.eq(inside - leaves)]
    with m.Elif(watching & leaves & (ahead != 0)):
        m.d.sync += ahead.eq(ahead - 1)
    with m.Elif(watching & leaves):
        m.d.sync += watching.eq(0)
    full = inside - leaves >= capacity
    bench.claim(m, ~enters | ~full, f"{name}: no more inside than there is room for")
    bench.claim(m, ~leaves | (inside != 0), f"{name}: nothing leaves that did not enter")
    at_exit = watching & leaves & (ahead == 0)
    bench.claim(
        m, ~at_exit | (leaving == watched), f"{name}: what leaves is what entered, in order"
    )
    return inside


def stays(
    bench: ProofBench, m: Module, name: str, valid: Value, ready: Value, payload: Value
) -> None:
    """Claim that what is offered stays as it is until it is taken, as AXI asks for.

    Source: AMBA AXI protocol specification, ARM IHI 0022, issue H, section A3.2.1.
    """
    waiting = Signal(name=_identifier(name, "waiting"))
    before = Signal(len(payload), name=_identifier(name, "before"))
    m.d.sync += [waiting.eq(valid & ~ready), before.eq(payload)]
    bench.claim(m, ~waiting | valid, f"{name}: an offer is not withdrawn")
    bench.claim(m, ~waiting | (payload == before), f"{name}: what is offered does not change")


def _identifier(name: str, part: str) -> str:
    return f"{name}_{part}".replace(" ", "_")
