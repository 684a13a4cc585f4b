"""Leases as a state machine, by rules that Hypothesis draws and in a simulation of a busy week."""

import heapq
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tilewright.flows.agent.leases import (
    ABSENT_S,
    ANY,
    MAX_FAULTS,
    MAX_IN_A_ROW,
    QUARANTINE_S,
    Lease,
    LeaseState,
    LeaseTable,
    LentDevice,
    StaleLeaseError,
)

A, B = 0xA, 0xB
TERM_S = 10.0


def boards(count=3, bitstreams=frozenset({A, B})):
    return [
        LentDevice(f"board{i}", "board", bitstreams, loaded=A, checked=True) for i in range(count)
    ]


def test_a_lease_is_one_clients_until_it_is_released():
    table = LeaseTable.of(boards(1), TERM_S)
    first = table.request("ann", "board", A, 0.0)
    second = table.request("bob", "board0", A, 1.0)
    (lease,) = table.advance(2.0)
    assert (lease.ticket, lease.waited_s) == (first, 2.0)
    assert (table.position(second), table.advance(3.0)) == (1, [])
    table.release(lease.token, 4.0)
    (later,) = table.advance(4.0)
    assert (later.ticket, later.token) == (second, lease.token + 1)


def test_a_client_that_comes_late_is_refused():
    table = LeaseTable.of(boards(1), TERM_S)
    table.request("ann", "board", A, 0.0)
    (lease,) = table.advance(0.0)
    table.renew(lease.token, 9.9)
    table.request("bob", "board", A, 9.9)
    assert table.advance(19.8) == []
    (other,) = table.advance(19.9)
    for late in (table.renew, table.begin, table.end, table.release):
        with pytest.raises(StaleLeaseError, match="the lease is over"):
            late(lease.token, 19.9)
    assert table.begin(other.token, 19.9).client == "bob"
    with pytest.raises(StaleLeaseError, match="runs a job"):
        table.begin(other.token, 19.9)


def test_an_expired_token_is_refused_even_before_anybody_looked():
    table = LeaseTable.of(boards(1), TERM_S)
    table.request("ann", "board", A, 0.0)
    (lease,) = table.advance(0.0)
    with pytest.raises(StaleLeaseError):
        table.begin(lease.token, TERM_S)


def test_a_board_is_checked_after_a_fault_and_set_aside_after_repeated_ones():
    table = LeaseTable.of(boards(1), TERM_S)
    now = 0.0
    for fault in range(1, MAX_FAULTS + 1):
        ticket = table.request("ann", "board", A, now)
        (lease,) = table.advance(now)
        table.begin(lease.token, now)
        state = table.fail(lease.token, f"fault {fault}", now)
        table.request("bob", "board", A, now)
        assert table.advance(now) == [], "not before it was checked"
        table.withdraw(table.waiting[0])
        if fault < MAX_FAULTS:
            assert state is LeaseState.CHECKING
            assert table.checked("board0", "", now) is LeaseState.READY
    assert table.units["board0"].state is LeaseState.QUARANTINED
    ticket = table.request("bob", "board", A, now)
    assert table.hopeless(ticket) == ("`board0` is set aside after 3 faults, the last one: fault 3")
    table.advance(now + QUARANTINE_S)
    assert table.units["board0"].state is LeaseState.CHECKING
    assert table.checked("board0", "still wrong", now) is LeaseState.QUARANTINED
    table.advance(now + 2 * QUARANTINE_S)
    assert table.checked("board0", "", now) is LeaseState.READY


def test_a_board_that_never_answered_is_looked_for_again_soon():
    """It may just be starting; a virtual one takes a minute."""
    table = LeaseTable.of(boards(1, frozenset()), TERM_S)
    for _ in range(MAX_FAULTS):
        state = table.fault("board0", "cannot connect", 0.0)
    assert state is LeaseState.QUARANTINED
    table.advance(ABSENT_S)
    assert table.units["board0"].state is LeaseState.CHECKING


def test_a_success_forgives_faults_and_a_refused_job_does_not():
    table = LeaseTable.of(boards(1), TERM_S)
    table.fault("board0", "first", 0.0)
    table.checked("board0", "", 0.0)
    table.request("ann", "board", A, 0.0)
    (lease,) = table.advance(0.0)
    for succeeded, faults in ((False, 1), (True, 0)):
        table.begin(lease.token, 0.0)
        table.end(lease.token, 0.0, succeeded=succeeded)
        assert table.units["board0"].faults == faults


def test_a_simulator_needs_no_check():
    table = LeaseTable.of([LentDevice("rtl", "rtl")], TERM_S)
    table.request("ann", "rtl", ANY, 0.0)
    (lease,) = table.advance(0.0)
    assert table.fail(lease.token, "crashed", 0.0) is LeaseState.READY


def test_jobs_are_grouped_by_bitstream_and_nobody_starves():
    table = LeaseTable.of(boards(1), TERM_S)
    rare = table.request("bob", "board", B, 0.0)
    served, switches = [], 0
    for _ in range(2 * MAX_IN_A_ROW):
        table.request("ann", "board", A, 0.0)
    while table.waiting:
        (lease,) = table.advance(0.0)
        served.append(lease.ticket)
        switches += lease.switches
        table.release(lease.token, 0.0)
    assert served.index(rare) == MAX_IN_A_ROW
    assert switches == 2
    assert [ticket for ticket in served if ticket is not rare] == sorted(
        (ticket for ticket in served if ticket is not rare), key=lambda one: one.number
    )


def test_hopeless_requests_are_told_why():
    table = LeaseTable.of([*boards(1, frozenset({A})), LentDevice("rtl", "rtl")])
    assert table.hopeless(table.request("ann", "gpu", ANY, 0.0)) == (
        "there is no device `gpu`; expected one of board, board0, rtl"
    )
    assert table.hopeless(table.request("ann", "board", B, 0.0)) == (
        "`board` is no machine with the configuration 0x0000000b, only 0x0000000a; choose that "
        "with `--config`, or load another bitstream"
    )


class Leases(RuleBasedStateMachine):
    """Any order of calls: one lease at a time, larger tokens, and old ones refused."""

    def __init__(self):
        super().__init__()
        self.table = LeaseTable.of([*boards(2), LentDevice("rtl", "rtl")], TERM_S)
        self.now = 0.0
        self.ends: dict[int, tuple[str, float]] = {}
        self.running: set[int] = set()
        self.tokens: list[int] = []

    def note(self, leases: list[Lease]) -> None:
        for lease in leases:
            assert not self.tokens or lease.token > self.tokens[-1]
            assert lease.unit not in {unit for unit, end in self.ends.values() if end > self.now}
            self.tokens.append(lease.token)
            self.ends[lease.token] = lease.unit, self.now + TERM_S

    @rule(device=st.sampled_from(["board", "board1", "rtl"]), bits=st.sampled_from([A, B]))
    def ask(self, device, bits):
        self.table.request("ann", device, bits if device != "rtl" else ANY, self.now)

    @precondition(lambda self: self.table.waiting)
    @rule(data=st.data())
    def withdraw(self, data):
        self.table.withdraw(data.draw(st.sampled_from(list(self.table.waiting))))

    @rule(seconds=st.sampled_from([0.0, 1.0, TERM_S / 2, TERM_S, QUARANTINE_S]))
    def advance(self, seconds):
        self.now += seconds
        self.note(self.table.advance(self.now))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), call=st.sampled_from(["renew", "begin", "end", "fail", "release"]))
    def use(self, data, call):
        token = data.draw(st.sampled_from(self.tokens))
        unit, end = self.ends.get(token, ("", -1.0))
        more = ("broken", self.now) if call == "fail" else (self.now,)
        allowed = end > self.now and not (call == "begin" and token in self.running)
        try:
            getattr(self.table, call)(token, *more)
        except StaleLeaseError:
            assert not allowed
            if end <= self.now:
                self.ends.pop(token, None)
            return
        assert allowed
        if call in ("fail", "release"):
            del self.ends[token]
            self.running.discard(token)
        else:
            self.ends[token] = unit, self.now + TERM_S
            (self.running.add if call == "begin" else self.running.discard)(token) if (
                call != "renew"
            ) else None

    @rule(name=st.sampled_from(["board0", "board1"]), problem=st.sampled_from(["", "wrong"]))
    def check(self, name, problem):
        self.table.checked(name, problem, self.now)

    @invariant()
    def states_fit(self):
        for unit in self.table.units.values():
            assert (unit.state is LeaseState.LEASED) == bool(unit.token)
        held = [unit.token for unit in self.table.units.values() if unit.token]
        assert len(held) == len(set(held))


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=60, stateful_step_count=60)


@dataclass
class Board:
    """A board as it sees itself: it takes a token unless it has seen a larger one."""

    fence: int = 0
    busy_until: float = 0.0
    busy_s: float = 0.0
    doubled: int = 0

    def work(self, token: int, now: float, seconds: float) -> None:
        self.doubled += token < self.fence or now < self.busy_until
        self.fence, self.busy_until = token, now + seconds
        self.busy_s += seconds


@dataclass
class Week:
    """Clients that come, work, die, sleep too long and leave; boards that fail and are checked."""

    seed: int
    leases: int
    clients: int = 20
    now: float = 0.0
    granted: int = 0
    refused: int = 0
    died: int = 0
    faults: int = 0
    switches: int = 0
    events: list = field(default_factory=list)
    count: int = 0

    def __post_init__(self):
        self.draw = random.Random(self.seed)
        self.table = LeaseTable.of(boards(), TERM_S)
        self.boards = {name: Board() for name in self.table.units}
        self.checking: set[str] = set()

    def at(self, seconds, call, *arguments):
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, call, arguments))

    def ask(self, client):
        bits = A if self.draw.random() < 0.7 else B
        self.table.request(client, "board", bits, self.now)

    def start(self, lease):
        self.granted += 1
        self.switches += lease.switches
        token, fate = lease.token, self.draw.random()
        client = lease.ticket.client
        if fate < 0.001:  # its machine is gone
            self.died += 1
            self.at(30.0, self.ask, client)
        elif fate < 0.002:  # it wakes up too late, and comes with the old token
            self.at(TERM_S + 1.0 + self.draw.random(), self.late, token, client)
        else:
            self.job(token, lease.unit, client, self.draw.randrange(1, 4))

    def job(self, token, unit, client, left):
        try:
            self.table.begin(token, self.now)
        except StaleLeaseError:
            self.refused += 1
            self.ask(client)
            return
        seconds = self.draw.expovariate(2.0)
        seconds = min(seconds, TERM_S / 2)
        self.boards[unit].work(token, self.now, seconds)
        self.at(seconds, self.done, token, unit, client, left - 1)

    def done(self, token, unit, client, left):
        if self.draw.random() < 0.002:
            self.faults += 1
            self.table.fail(token, "no answer", self.now)
            self.at(self.draw.random(), self.ask, client)
            return
        self.table.end(token, self.now)
        if left:
            self.job(token, unit, client, left)
        else:
            self.table.release(token, self.now)
            self.at(self.draw.random(), self.ask, client)

    def late(self, token, client):
        with pytest.raises(StaleLeaseError):
            self.table.begin(token, self.now)
        self.refused += 1
        self.ask(client)

    def checked(self, name):
        self.checking.discard(name)
        self.table.checked(name, "wrong" if self.draw.random() < 0.05 else "", self.now)

    def run(self):
        for client in range(self.clients):
            self.at(self.draw.random(), self.ask, f"client{client}")
        tick = 0.0
        while self.granted < self.leases:
            if self.events and self.events[0][0] <= tick:
                self.now, _, call, arguments = heapq.heappop(self.events)
                call(*arguments)
            else:
                self.now = tick
                tick += 1.0
            for lease in self.table.advance(self.now):
                self.start(lease)
            for name, unit in self.table.units.items():
                if unit.state is LeaseState.CHECKING and name not in self.checking:
                    self.checking.add(name)
                    self.at(0.5, self.checked, name)


def test_100_000_leases_none_double_and_the_boards_are_busy():
    week = Week(seed=1, leases=100_000)
    week.run()
    busy = sum(board.busy_s for board in week.boards.values()) / (3 * week.now)
    assert sum(board.doubled for board in week.boards.values()) == 0
    assert busy >= 0.90, f"busy {busy:.1%}"
    assert min(week.died, week.faults, week.refused) > 50, "each mishap came to pass"
    assert week.switches < 0.25 * week.granted, "jobs are grouped by bitstream"


def test_the_same_seed_gives_the_same_week():
    first, second = Week(seed=7, leases=2_000), Week(seed=7, leases=2_000)
    first.run()
    second.run()
    assert (first.now, first.switches, first.died) == (second.now, second.switches, second.died)
