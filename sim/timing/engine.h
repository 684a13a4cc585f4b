// The timing model of `definition.py`, compiled: the same recurrences, a burst at a time.
//
// While main memory moves a beat in every cycle, the pieces of a burst follow each other without a
// gap once the first one is there, so a burst costs a few additions (`Rate::FULL`); otherwise every
// beat is placed alone. Names are those of the Python text, which explains them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "decode.h"

namespace tilewright {

using Cycle = std::int64_t;
constexpr Cycle NEVER = Cycle(1) << 62;
constexpr int UNITS = 4, QUEUED_BURSTS = 2, QUEUED_BEATS = 8, PACKING_CYCLES = 5;
constexpr int FETCH_BURSTS = 4, GEMMS_IN_FLIGHT = 4, VECTORS_IN_FLIGHT = 2;
constexpr Cycle START_CYCLE = 2, REVISIT_CYCLES = 4;

// One setting of machine and memory; filled in `native.py`, in this order.
struct Setting {
    Cycle word_beats, fetch_burst_beats, fetch_buffer_beats, bus_bits_log, burst_bytes;
    Cycle fill_beat_log, destination_row_log[4], source_row_log[2];
    Cycle queue_depth, remembered, outstanding;
    Cycle tile_cycles, gemm_cycles, vector_total_cycles, vector_result_cycles;
    Cycle latency, beats, cycles, memory_outstanding;
};

// What is known of an instruction; `native.py` names the columns.
struct Times {
    Cycle word, entered, valid, ready, start, first, last, complete, retired, starved;
};

constexpr Times NO_TIMES{-1, -1, -1, -1, -1, -1, -1, -1, -1, 0};

enum Kind : std::uint8_t { HALTS, SYNCS, LOADS, GEMMS, VECTORS, STORES };

struct Operation {
    Kind kind;
    std::int8_t unit;
    std::int32_t place, giver[3], taker[3];  // -1 where none
    Cycle steps, rows;                       // of VECTOR; of GEMM with its tiles in `steps`
    Row row;
};

// A program, its tokens matched: who waits for whom is the same in every setting.
class Program {
public:
    std::vector<Operation> operations;
    std::vector<std::int32_t> of_unit[UNITS];
    const std::int64_t count;  // of instructions, those after a HALT too

    Program(const std::int64_t *rows, std::int64_t instructions, std::int64_t token_limit)
        : count(instructions) {
        std::vector<std::int32_t> given[UNITS][UNITS], taken[UNITS][UNITS];
        operations.reserve(count);
        for (std::int64_t index = 0; index < count; ++index) {
            Row row = rows + index * COLUMNS;
            Operation op = describe(row);
            if (op.kind != HALTS) match(op, std::int32_t(index), token_limit, given, taken);
            operations.push_back(op);
            if (op.kind == HALTS) break;
        }
    }

private:
    static Cycle product(Row nest, int stride) {
        Cycle total = 1;
        for (int level = 0; level < LEVELS; ++level) total *= nest[level * stride];
        return total;
    }

    static Operation describe(Row row) {
        Operation op{HALTS, -1, 0, {-1, -1, -1}, {-1, -1, -1}, 1, 1, row};
        switch (row[OPCODE]) {
            case load::code: op.kind = LOADS, op.unit = unit::LOAD; break;
            case store::code: op.kind = STORES, op.unit = unit::STORE; break;
            case gemm::code:
                op.kind = GEMMS, op.unit = unit::GEMM;
                op.steps = product(row + gemm::tile_loops, 4);
                op.rows = product(row + gemm::row_loops, 3);
                break;
            case vector::code:
                op.kind = VECTORS, op.unit = unit::VECTOR;
                op.steps = product(row + vector::map_loops, 5) *
                           product(row + vector::reduce_loops, 3);
                break;
            case sync::code: op.kind = SYNCS, op.unit = std::int8_t(row[sync::target]); break;
        }
        return op;
    }

    template <typename Lists>
    void match(Operation &op, std::int32_t index, std::int64_t limit, Lists &given, Lists &taken) {
        op.place = std::int32_t(of_unit[op.unit].size());
        of_unit[op.unit].push_back(index);
        for (int bit = 0; bit < 3; ++bit) {
            const int other = bit + (bit >= op.unit);
            if (op.row[WAIT] >> bit & 1) {
                auto &takers = taken[other][op.unit];
                const auto &givers = given[other][op.unit];
                if (takers.size() < givers.size()) op.giver[bit] = givers[takers.size()];
                takers.push_back(index);
            }
            if (op.row[SIGNAL] >> bit & 1) {
                auto &givers = given[op.unit][other];
                const auto &takers = taken[op.unit][other];
                const std::int64_t earlier = std::int64_t(givers.size()) - limit;
                if (earlier >= 0 && earlier < std::int64_t(takers.size()))
                    op.taker[bit] = takers[earlier];
                givers.push_back(index);
            }
        }
    }
};

// The last values of a series, by their number; `depth` is a power of two.
class Ring {
    std::vector<Cycle> values;
    std::size_t mask = 0;

public:
    std::int64_t size = 0;

    void reset(std::int64_t least) {
        std::size_t depth = 1;
        while (depth < std::size_t(least)) depth *= 2;
        values.assign(depth, -1);
        mask = depth - 1, size = 0;
    }
    void push(Cycle value) { values[size++ & mask] = value; }
    Cycle operator[](std::int64_t number) const { return values[number & mask]; }
    Cycle last() const { return size ? (*this)[size - 1] : -1; }
    // Go on as after `count` values, of which the last two are these.
    void resume(std::int64_t count, Cycle before, Cycle value) {
        size = count;
        if (count > 1) values[(count - 2) & mask] = before;
        if (count) values[(count - 1) & mask] = value;
    }
    // The cycle after the value `distance` back; 0 before there is one.
    Cycle after(std::int64_t distance) const {
        return size >= distance ? (*this)[size - distance] + 1 : 0;
    }
};

// At most `beats` beats every `cycles` cycles, without saving up.
class Bandwidth {
    Cycle beats = 1, cycles = 1, most = 1, credit = 1, seen = 0;

    Cycle at(Cycle cycle) const { return std::min(most, credit + beats * (cycle - seen)); }

public:
    void reset(const Setting &setting) {
        beats = setting.beats, cycles = setting.cycles;
        most = credit = cycles + beats - 1, seen = 0;
    }
    // Move a beat in the first cycle from `cycle` on that allows it.
    Cycle take(Cycle cycle) {
        const Cycle missing = cycles - at(cycle);
        if (missing > 0) cycle += (missing + beats - 1) / beats;
        credit = at(cycle) - cycles, seen = cycle;
        return cycle;
    }
};

// A burst's bytes against rows and beats: how many pieces, and in which beat.
struct Cuts {
    Cycle count = 0, row_phase = 0, row_log = 0, beat_phase = 0, beat_log = 0;

    bool operator==(const Cuts &) const = default;

    Cycle rows_to(Cycle position) const { return (row_phase + position) >> row_log; }
    Cycle beat_cuts() const { return (beat_phase + count - 1) >> beat_log; }
    Cycle beats() const { return beat_cuts() + 1; }
    Cycle pieces() const {
        const Cycle rows = rows_to(count - 1), beats = beat_cuts();
        const Cycle finer = std::min(row_log, beat_log);
        const bool together = ((row_phase - beat_phase) & ((Cycle(1) << finer) - 1)) == 0;
        return 1 + (together ? std::max(rows, beats) : rows + beats);
    }
    // Pieces of a beat, counted from 0.
    Cycle pieces_of(Cycle beat) const {
        const Cycle begin = std::max<Cycle>(0, (beat << beat_log) - beat_phase);
        const Cycle end = std::min(count, ((beat + 1) << beat_log) - beat_phase);
        return 1 + rows_to(end - 1) - rows_to(begin);
    }
};

// What follows from a burst's cuts, kept since most bursts are like the one before.
struct Shape {
    Cuts cuts;
    Cycle pieces = 0, beats = 0, last_beat = 0, beat_before = 0;  // the latter two in pieces

    void see(const Cuts &seen) {
        if (seen == cuts) return;
        cuts = seen, pieces = cuts.pieces(), beats = cuts.beats();
        last_beat = cuts.pieces_of(beats - 1);
        beat_before = beats > 1 ? cuts.pieces_of(beats - 2) : 0;
    }
};

struct Level {
    Cycle extent, left, memory, local;
};

// The loop nest of a LOAD or STORE, whose levels lie elsewhere, and the run that is being cut.
struct Cursor {
    Level *levels;
    int depth = 0;
    bool fill = false;
    Cycle runs = 0;  // that have not begun
    Cycle run_memory = 0, run_local = 0, length = 0;
    Cycle rest = 0, at_memory = 0, at_local = 0;
    Cycle row_log = 0, burst_bytes = 1, beat_log = 0;

    bool more() const { return rest || runs; }

    void begin(Row row, const Setting &setting, bool is_load) {
        const int nest = is_load ? int(load::loops) : int(store::loops);
        fill = is_load && row[load::fill];
        length = row[is_load ? int(load::length) : int(store::length)];
        run_local = row[is_load ? int(load::local) : int(store::local)];
        run_memory = fill ? 0 : row[is_load ? int(load::memory) : int(store::memory)];
        row_log = is_load ? setting.destination_row_log[row[load::destination]]
                          : setting.source_row_log[row[store::source]];
        beat_log = fill ? setting.fill_beat_log : setting.bus_bits_log;
        burst_bytes = fill ? NEVER : setting.burst_bytes;
        depth = 0, runs = 1;
        // LOAD's loops move memory and local address, STORE's the other way round.
        for (int level = 0; level < LEVELS; ++level) {
            const Row loop = row + nest + 3 * level;
            const Cycle memory = is_load ? loop[1] : loop[2], local = is_load ? loop[2] : loop[1];
            if (loop[0] > 1) levels[depth++] = {loop[0], loop[0], fill ? 0 : memory, local};
            runs *= loop[0];
        }
    }

    // Begin the run that the nest stands at, and let the nest go on.
    void next_run() {
        rest = length, at_memory = run_memory, at_local = run_local;
        --runs;
        for (int level = depth - 1; level >= 0; --level) {
            Level &loop = levels[level];
            if (--loop.left) {
                run_memory += loop.memory, run_local += loop.local;
                return;
            }
            loop.left = loop.extent;
            run_memory -= (loop.extent - 1) * loop.memory;
            run_local -= (loop.extent - 1) * loop.local;
        }
    }

    // Cut the next burst off the run.
    Cuts cut() {
        const Cycle row_mask = (Cycle(1) << row_log) - 1, beat_mask = (Cycle(1) << beat_log) - 1;
        const Cycle count = std::min(rest, burst_bytes - (at_memory & (burst_bytes - 1)));
        const Cuts cuts{count, at_local & row_mask, row_log, at_memory & beat_mask, beat_log};
        rest -= count, at_memory += count, at_local += count;
        return cuts;
    }
};

// A burst behind the cut, and when it entered the queue in front of the port.
struct Burst {
    std::int32_t command;
    bool fill, last;
    Cycle queued;
    Shape shape;
};

// The read channel and LOAD's cutter behind it.
struct ReadPort {
    Cycle accepted = -1, handshake = -1;    // the last ones on AR and on R
    Cycle beat_before = -1, last_beat = -1;  // when the last beats left the read buffer
    Cycle loaded = -1, taken = -1;  // when a piece entered the cutter's output, and was taken

    // When the next burst's first piece can enter the cutter's output register.
    Cycle next_loaded(Cycle sent) const { return std::max(std::max(sent + 1, loaded) + 1, taken); }

    void take_beat(Cycle cycle) { beat_before = last_beat, last_beat = cycle; }

    // Move a beat that may be offered from `ready` on; the first cycle in which it can be taken.
    Cycle deliver(Cycle ready) {
        handshake = std::max(ready, beat_before + 1);
        return std::max(handshake, last_beat) + 1;
    }

    // Take all beats of a burst as they come while memory moves one a cycle; when the first is taken.
    Cycle take_beats(Cycle beats, Cycle ready) {
        const Cycle before = last_beat, first = deliver(std::max(ready, handshake + 1));
        const Cycle end = first + beats - 1;
        if (beats == 1) {
            take_beat(first);
            return first;
        }
        handshake = beats == 2 ? std::max(handshake, before) + 1
                               : std::max(handshake + beats - 1, end - 1);
        beat_before = end - 1, last_beat = end;
        return first;
    }

    void take_fill(const Shape &shape, Cycle entered) {
        taken = entered + shape.pieces, loaded = taken - 1;
    }

    // Take a whole burst while memory moves a beat a cycle: the first piece waits for its beat, then
    // follows a piece a cycle, and no beat is late. Returns when the first one is taken.
    Cycle take_burst(const Shape &shape, Cycle ready, Cycle entered) {
        const Cycle before = last_beat;
        const Cycle first = std::max(entered + 1, deliver(std::max(ready, handshake + 1)));
        taken = first + shape.pieces - 1;
        loaded = shape.pieces == 1 ? entered : taken - 1;
        if (shape.beats == 1) {
            take_beat(taken);
            return first;
        }
        beat_before = taken - shape.last_beat, last_beat = taken;
        if (shape.beats == 2) {
            handshake = std::max(handshake, before) + 1;
        } else {
            const Cycle third = beat_before - shape.beat_before;
            handshake = std::max(handshake + shape.beats - 1, third + 1);
        }
        return first;
    }
};

}  // namespace tilewright
