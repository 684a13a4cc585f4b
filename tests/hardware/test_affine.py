"""The address generator against the contract's definition of an affine nest."""

import itertools

from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.hardware.affine import AffineNest
from tilewright.isa.instructions.loops import nest_addresses, nest_jumps

EXTENT_BITS = 3
WIDTHS = {"a": 7, "b": 10, "c": 4}
LEVELS = 4


def nests():
    loop = st.fixed_dictionaries(
        {
            "extent": st.integers(1, 4),
            **{name: st.integers(-(1 << bits), (1 << bits) - 1) for name, bits in WIDTHS.items()},
        }
    )
    bases = {name: st.integers(0, (1 << bits) - 1) for name, bits in WIDTHS.items()}
    return st.fixed_dictionaries(
        {"base": st.fixed_dictionaries(bases), "loops": st.tuples(*[loop] * LEVELS)}
    )


def iterations(nest):
    """Yield every iteration as (addresses, ends, zeros), from the definition."""
    extents = [loop["extent"] for loop in nest["loops"]]
    streams = {
        name: nest_addresses(
            nest["base"][name], tuple((loop["extent"], loop[name]) for loop in nest["loops"])
        )
        % (1 << bits)
        for name, bits in WIDTHS.items()
    }
    for step, index in enumerate(itertools.product(*map(range, extents))):
        at_end = [i == extent - 1 for i, extent in zip(index, extents, strict=True)]
        ends = sum(all(at_end[level:]) << level for level in range(LEVELS))
        zeros = sum((i == 0) << level for level, i in enumerate(index))
        yield {name: int(stream[step]) for name, stream in streams.items()}, ends, zeros


def drive(given_nests, gaps):
    """Run nests one after the other; return all outputs seen and the cycles taken."""
    nest = AffineNest(EXTENT_BITS, WIDTHS, LEVELS)
    gap = itertools.cycle(gaps)
    seen = []
    cycles = 0

    async def bench(ctx):
        nonlocal cycles
        waiting = list(given_nests)
        while waiting or ctx.get(nest.active):
            advance = ctx.get(nest.active) and not next(gap)
            if advance:
                addresses = {name: ctx.get(nest.addresses[name]) for name in WIDTHS}
                seen.append((addresses, ctx.get(nest.ends), ctx.get(nest.zeros)))
            ctx.set(nest.advance, advance)
            free = not ctx.get(nest.active)
            ctx.set(nest.load, bool(waiting and free))
            if waiting and free:
                following = waiting.pop(0)
                loops = following["loops"]
                for level, loop in enumerate(loops):
                    ctx.set(nest.parameters.loops[level].extent_minus_one, loop["extent"] - 1)
                for name, bits in WIDTHS.items():
                    ctx.set(nest.parameters.base[name], following["base"][name])
                    jumps = nest_jumps([(loop["extent"], loop[name]) for loop in loops])
                    for level, jump in enumerate(jumps):
                        target = nest.parameters.loops[level].jumps[name]
                        ctx.set(target, jump % (1 << bits))
            await ctx.tick()
            cycles += 1

    simulator = Simulator(nest)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen, cycles


@settings(max_examples=15, deadline=None)
@given(st.lists(nests(), min_size=1, max_size=3), st.lists(st.booleans(), min_size=1, max_size=7))
def test_addresses_equal_the_definition_with_any_pauses(given_nests, gaps):
    seen, _ = drive(given_nests, [*gaps, False])
    assert seen == [step for nest in given_nests for step in iterations(nest)]


@settings(max_examples=5, deadline=None)
@given(st.lists(nests(), min_size=2, max_size=4))
def test_every_nest_takes_a_cycle_to_load(given_nests):
    seen, cycles = drive(given_nests, [False])
    assert cycles == len(given_nests) + len(seen)
