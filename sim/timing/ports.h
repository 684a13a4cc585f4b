// LOAD's and STORE's loop nests, what bursts are cut into, and the read channel behind them.

#pragma once

#include <algorithm>
#include <vector>

#include "program.h"

namespace tilewright {

// The last values of a series, by their number. It can be copied cheaply: the values are not.
struct Series {
    Cycle *values = nullptr;
    std::size_t mask = 0;
    std::int64_t size = 0;

    void push(Cycle value) { values[size++ & mask] = value; }
    Cycle operator[](std::int64_t number) const { return values[number & mask]; }
    Cycle last() const { return size ? (*this)[size - 1] : -1; }
    // Some cycles after the value `distance` back; 0 before there is one.
    Cycle after(std::int64_t distance, Cycle cycles = 1) const {
        return size >= distance ? (*this)[size - distance] + cycles : 0;
    }
};

// A series with its values, whose number is a power of two.
class Ring : public Series {
    std::vector<Cycle> storage;

public:
    void reset(std::int64_t least) {
        std::size_t depth = 1;
        while (depth < std::size_t(least)) depth *= 2;
        storage.assign(depth, -1);
        values = storage.data(), mask = depth - 1, size = 0;
    }
    // Go on as after `count` values, of which the last two are these.
    void resume(std::int64_t count, Cycle before, Cycle value) {
        size = count;
        if (count > 1) values[(count - 2) & mask] = before;
        if (count) values[(count - 1) & mask] = value;
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

    // Compared by hand: a compiler makes vectors of this, which then wait for single stores.
    bool operator==(const Cuts &other) const {
        return !((count ^ other.count) | (row_phase ^ other.row_phase) |
                 (row_log ^ other.row_log) | (beat_phase ^ other.beat_phase) |
                 (beat_log ^ other.beat_log));
    }

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
        if (is_load && row[load::unpack]) --row_log;  // a packed row has half the bytes
        if (is_load && row[load::transpose]) row_log = 0;
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
    Cycle room = 0, accepted = -1;   // when AR's registers have room; the last handshake on AR
    Cycle handshake = -1;            // the last one on R
    Cycle beat_before = -1, last_beat = -1;  // when the last beats left the read buffer
    Cycle loaded = -1, taken = -1;  // when a piece entered the cutter's output, and was taken

    // When the next burst's first piece can enter the cutter's output register.
    Cycle next_loaded(Cycle sent) const { return std::max(std::max(sent + 1, loaded) + 1, taken); }

    static_assert(REQUEST_REGISTERS == 2, "`room` follows the last burst but one");

    // Grant a burst; AR takes it in the first cycle from `after` on in which it can.
    void grant(Cycle cycle, Cycle after) {
        room = std::max(accepted, cycle) + 1;
        accepted = std::max(room, after);
    }

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
