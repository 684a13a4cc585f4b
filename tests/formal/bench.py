"""Benches for proofs: a block, what may happen around it, and what must hold.

Registers without reset, and memories, begin with any contents, as after a reset during a run.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator

from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    ClockDomain,
    Elaboratable,
    Fragment,
    Instance,
    Module,
    Shape,
    ShapeLike,
    Signal,
    Value,
)

from tilewright.hardware.technology import Technology


class ProofError(AssertionError):
    """A claim does not have the verdict that a test expects."""


class ProofBench(Elaboratable, ABC):
    """A closed world: a block, what its surroundings may do, and what must hold.

    Subclasses describe it in `world`. A bench with `reaching` set claims only that its goals cannot
    be reached; a trace that reaches one refutes it. Models of the cells of `technology` are added.
    """

    technology: Technology | None = None

    def __init__(self) -> None:
        self.domain = ClockDomain("sync", reset_less=True)
        self.reaching = False

    @abstractmethod
    def world(self, m: Module) -> None:
        """Add the block, assumptions, claims and goals."""

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains += self.domain
        self.world(m)
        return m

    def any(self, m: Module, name: str, shape: ShapeLike = 1) -> Signal:
        """Return a signal with an arbitrary value in every cycle."""
        return self._free(m, "$anyseq", name, shape)

    def some(self, m: Module, name: str, shape: ShapeLike = 1) -> Signal:
        """Return a signal with an arbitrary value that never changes."""
        return self._free(m, "$anyconst", name, shape)

    def _free(self, m: Module, kind: str, name: str, shape: ShapeLike) -> Signal:
        signal = Signal(shape, name=name)
        width = Shape.cast(shape).width
        if width:
            m.submodules += Instance(kind, p_WIDTH=width, o_Y=Value.cast(signal))
        return signal

    def assume(self, m: Module, condition: Value) -> None:
        """Restrict the behaviour of the surroundings."""
        m.d.comb += Assume(single_bit(condition))

    def claim(self, m: Module, condition: Value, words: str) -> None:
        """Require that a condition holds in every cycle."""
        if not self.reaching:
            m.d.comb += Assert(single_bit(condition), words, src_loc_at=1)

    def goal(self, m: Module, condition: Value, words: str) -> None:
        """Name a state that must be reachable, so that the assumptions cannot exclude all."""
        if self.reaching:
            m.d.comb += Assert(~single_bit(condition), words, src_loc_at=1)


def single_bit(condition) -> Value:
    """Return the condition if it has one bit; `~` of a wider value is hardly ever false."""
    value = Value.cast(condition)
    if value.shape() != Shape(1):
        raise ProofError(f"a condition is a single bit, not {value.shape()}: {value!r}")
    return value


def probe(m: Module, name: str, block: Elaboratable) -> dict[str, Signal]:
    """Add a block as a submodule and return its driven signals by name, for claims about them.

    A signal of a submodule has the name `submodule.signal`.
    """
    fragment = Fragment.get(block, None)
    setattr(m.submodules, name, fragment)
    return {name: signal for name, _, signal in _driven(fragment, "")}


def _driven(fragment: Fragment, prefix: str) -> Iterator[tuple[str, str, Signal]]:
    """Yield name, domain and signal of each assignment in a fragment and its parts."""
    for domain, statements in fragment.statements.items():
        for statement in statements:
            yield from ((prefix + s.name, domain, s) for s in statement._lhs_signals())
    for part, name, _ in fragment.subfragments:
        yield from _driven(part, f"{prefix}{name}.")


def to_rtlil(bench: ProofBench) -> str:
    """Write a bench as RTLIL whose only input is the clock."""
    fragment = Fragment.get(bench, None)
    for _, domain, register in _driven(fragment, ""):
        if domain != "comb" and register.reset_less:
            register.attrs["without_reset"] = "1"
    text = rtlil.convert(fragment, ports=[bench.domain.clk], name="top")
    # Amaranth escapes the names of all cells, but these two are Yosys's own.
    return re.sub(r"cell \\\$(anyseq|anyconst) ", r"cell $\1 ", text)
