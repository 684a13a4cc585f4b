// Tokens of a program, by the rules of `isa/tokens.py`, which defines them.
//
// A row per instruction comes in: unit, banks and first bytes. Shapes of accesses are compared in
// Python, which has them in closed form; most pairs are decided by banks and bounds alone.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "constants.h"

namespace {

using tilewright::UNITS;
using Number = std::int64_t;
using Bits = std::uint64_t;
using Meet = int (*)(Number shape, Number other, Number offset, Number distance, Number row);

struct Access {
    Number memory, shape, looped, writes, reach, row;
};

struct Footprint {
    Number unit;
    Bits reads, writes;
    Number dram_low, dram_high, first, accesses;  // the last two: its rows of `lows` and `kinds`
};

struct Program {
    Number count, width;  // `width` accesses for each instruction, fewer are padded
    const Footprint* footprints;
    const Number* lows;
    const Access* kinds;
    Number token_limit;
    Meet meet;
};

struct Woven {
    Number* order;  // the index of an instruction, or -1 - unit for a SYNC
    Number* waits;
    Number* signals;
};

Number floor_div(Number value, Number by) {
    return value >= 0 ? value / by : -((by - 1 - value) / by);
}

class Weaver {
  public:
    Weaver(const Program& program, const Woven& out) : program_(program), out_(out) {}

    Number weave() {
        for (Number index = 0; index < program_.count; ++index) append(index);
        return placed_;
    }

  private:
    using Clock = std::array<Number, UNITS>;

    const Program& program_;
    const Woven& out_;
    Number placed_ = 0;
    std::array<std::vector<Number>, UNITS> passed_;  // places in the woven program
    std::array<std::vector<const Footprint*>, UNITS> footprints_;
    std::array<std::vector<Clock>, UNITS> clocks_;
    std::array<Clock, UNITS> known_{};
    std::array<std::array<std::vector<Number>, UNITS>, UNITS> takers_;

    void append(Number index) {
        const Footprint& used = program_.footprints[index];
        Number wait = 0;
        for (Number other = 0; other < UNITS; ++other) {
            if (other == used.unit) continue;
            const Number latest = last_conflict(other, known_[used.unit][other], used);
            if (latest < 0) continue;
            order(latest, other, used.unit);
            wait |= Number{1} << other;
        }
        place(index, used.unit, &used, wait);
    }

    void place(Number what, Number unit, const Footprint* used, Number wait) {
        out_.order[placed_] = what;
        out_.waits[placed_] = wait;
        out_.signals[placed_] = 0;
        passed_[unit].push_back(placed_);
        footprints_[unit].push_back(used);
        Clock clock = known_[unit];
        clock[unit] = static_cast<Number>(passed_[unit].size());
        clocks_[unit].push_back(clock);
        for (Number giver = 0; giver < UNITS; ++giver) {
            if (wait >> giver & 1) takers_[giver][unit].push_back(placed_);
        }
        ++placed_;
    }

    bool room(Number giver, Number source, Number target) const {
        const auto& takers = takers_[source][target];
        const auto taken = std::upper_bound(takers.begin(), takers.end(), passed_[source][giver]);
        return takers.end() - taken < program_.token_limit;
    }

    void order(Number giver, Number source, Number target) {
        while (!room(giver, source, target)) {
            if (++giver == static_cast<Number>(passed_[source].size())) {
                place(-1 - source, source, nullptr, 0);
                break;
            }
        }
        out_.signals[passed_[source][giver]] |= Number{1} << target;
        for (Number unit = 0; unit < UNITS; ++unit) {
            known_[target][unit] = std::max(known_[target][unit], clocks_[source][giver][unit]);
        }
    }

    Number last_conflict(Number other, Number first, const Footprint& later) const {
        const auto& passed = footprints_[other];
        const Bits touched = later.reads | later.writes;
        for (Number index = static_cast<Number>(passed.size()) - 1; index >= first; --index) {
            if (passed[index] == nullptr) continue;  // a SYNC
            const Footprint& one = *passed[index];
            if (((one.reads & later.reads) | (one.writes & later.writes)) > 1) return index;
            const Bits shared = (one.reads & later.writes) | (one.writes & touched);
            if (shared == 0) continue;
            if (shared == 1 &&
                (one.dram_high < later.dram_low || later.dram_high < one.dram_low)) {
                continue;
            }
            if (meeting(one, later)) return index;
        }
        return -1;
    }

    bool meeting(const Footprint& one, const Footprint& later) const {
        const Bits both = one.writes & later.writes;
        const Bits read_first = one.reads & later.writes, written_first = one.writes & later.reads;
        for (Number a = 0; a < program_.width; ++a) {
            const Access& ours = program_.kinds[one.accesses + a];
            for (Number b = 0; b < program_.width; ++b) {
                const Access& theirs = program_.kinds[later.accesses + b];
                const Bits share = ours.writes ? (theirs.writes ? both : written_first)
                                               : (theirs.writes ? read_first : 0);
                if (share == 0 || ours.memory < 0 || ours.memory != theirs.memory) continue;
                if (meet(ours, program_.lows[one.first + a], theirs,
                         program_.lows[later.first + b])) {
                    return true;
                }
            }
        }
        return false;
    }

    bool meet(const Access& ours, Number low, const Access& theirs, Number other) const {
        const Number row = ours.row;
        if (floor_div(low + ours.reach, row) < floor_div(other, row) ||
            floor_div(other + theirs.reach, row) < floor_div(low, row)) {
            return false;
        }
        if (!ours.looped && !theirs.looped) return true;
        const Number offset = low - floor_div(low, row) * row;
        return program_.meet(ours.shape, theirs.shape, offset, other - low, row) != 0;
    }
};

}  // namespace

extern "C" Number tilewright_weave(const Program* program, const Woven* out) {
    return Weaver(*program, *out).weave();
}
