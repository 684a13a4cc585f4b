"""Main memory as a bench sees it: any data, any delay, the protocol kept."""

from amaranth.hdl import Module, Mux, Signal, Value

from .bench import ProofBench


class Reads:
    """Beats of requested bursts after any delay, without looking at which burst is how long.

    It allows at least the behaviour of real memory: as many beats in total as were requested, and
    as many last beats as there were requests, in any distribution.

    Parameters
    ----------
    bench, m
        Receive the model.
    requested : Value
        A request passes in this cycle.
    beats : Value
        Its length.
    taken : Value
        The beat offered passes in this cycle.
    most_beats : int
        Beats that are outstanding at a time, at most.

    Attributes
    ----------
    valid, last : Signal
        A beat is offered; it is the last one of its burst. It stays until it is taken.
    flying : Signal
        Beats requested and not taken.
    bursts : Signal
        Requests that lack their last beat.
    """

    def __init__(
        self,
        bench: ProofBench,
        m: Module,
        requested: Value,
        beats: Value,
        taken: Value,
        most_beats: int,
    ) -> None:
        self.valid, self.last = Signal(name="beat_valid"), Signal(name="beat_last")
        self.flying = Signal(range(2 * most_beats), name="flying_beats")
        self.bursts = Signal(range(2 * most_beats), name="open_bursts")
        offered, was_last = Signal(name="beat_offered"), Signal(name="beat_was_last")
        # A burst has a beat at least, so that the last beat of all ends the last burst.
        may_end = (self.flying == 1) | (self.bursts > 1)
        must_end = self.flying == self.bursts
        ends = (bench.any(m, "memory_ends") & may_end) | must_end
        m.d.comb += [
            self.valid.eq((self.flying != 0) & (offered | bench.any(m, "memory_answers"))),
            self.last.eq((was_last & offered) | (~offered & ends)),
        ]
        m.d.sync += [
            offered.eq(self.valid & ~taken),
            was_last.eq(self.last),
            self.flying.eq(self.flying + Mux(requested, beats, 0) - taken),
            self.bursts.eq(self.bursts + requested - (taken & self.last)),
        ]
        bench.claim(m, self.bursts <= self.flying, "no burst is empty")
        some = (self.bursts != 0) == (self.flying != 0)
        bench.claim(m, some, "beats belong to bursts")
        bench.claim(m, ~offered | (self.flying != 0), "an offered beat is outstanding")
