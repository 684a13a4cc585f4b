"""Monitors that benches share: items leave once, unchanged and in the order they entered."""

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
    """Claim that items leave in the order they entered, none lost and none duplicated.

    The monitor follows one arbitrary item. Since it can be any item, the claim covers all of them:
    the n-th item that leaves is the n-th that entered.

    Parameters
    ----------
    bench, m
        Receive the claims.
    name : str
        Name of the items, for the text of the claims.
    enters, leaves : Value
        High in a cycle in which an item passes.
    entering, leaving : Value
        The items, of the same width.
    capacity : int
        Most items inside.

    Returns
    -------
    Signal
        Number of items inside, before this cycle's transfers.
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
    """Claim that an offer does not change until it is taken, as AXI requires.

    Source: AMBA AXI protocol specification, ARM IHI 0022, issue H, section A3.2.1.
    """
    waiting = Signal(name=_identifier(name, "waiting"))
    before = Signal(len(payload), name=_identifier(name, "before"))
    m.d.sync += [waiting.eq(valid & ~ready), before.eq(payload)]
    bench.claim(m, ~waiting | valid, f"{name}: an offer is not withdrawn")
    bench.claim(m, ~waiting | (payload == before), f"{name}: what is offered does not change")


def _identifier(name: str, part: str) -> str:
    return f"{name}_{part}".replace(" ", "_")


def flags_follow_level(
    bench: ProofBench, m: Module, inside: dict[str, Signal], queue: str, depth: int
) -> None:
    """Claim what `Queue` keeps in registers beside its level: an invariant that induction needs.

    Parameters
    ----------
    inside
        Signals of the block, from `probe`.
    queue
        The instance of the queue.
    depth
        Its depth, other than 2.
    """
    level = inside[f"{queue}.level"]
    some, room = inside[f"{queue}.output__valid"], inside[f"{queue}.input__ready"]
    right = (some == (level != 0)) & (room == (level != depth)) & (level <= depth)
    right &= inside[f"{queue}.several"] == (level > 1)
    bench.claim(m, right, f"{queue}: what is beside the level follows it")
