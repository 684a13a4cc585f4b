// The machine in time: see `engine.h`. One `Engine` places a program under one setting.

#include "engine.h"

#include <atomic>
#include <memory>
#include <thread>

namespace tilewright {

enum class Rate { FULL, LIMITED };

template <Rate RATE>
class Engine;

// LOAD's or STORE's loop nest, the register that cuts a run, and the queue in front of the port.
template <Rate RATE>
class Issuer {
    Engine<RATE> &engine;
    const bool is_load;
    struct Level {
        Cycle extent, left, memory, local;
    };
    Level levels[LEVELS];
    int depth = 0;
    Cycle run_memory = 0, run_local = 0, length = 0;
    Cycle rest = 0, at_memory = 0, at_local = 0;  // of the run that is being cut
    Cycle row_log = 0, burst_bytes = 0, beat_log = 0;
    bool more_runs = false, fill = false;
    Cycle queued = -1, left_nest = -1;
    std::int32_t command = -1;
    Burst planned[QUEUED_BURSTS];
    std::int64_t plans = 0;

    Cuts known;  // and what follows from them, since most bursts are like the one before
    Cycle pieces = 0, beats = 0, last_beat = 0, beat_before = 0;

public:
    std::vector<std::int32_t> commands;  // that were dispatched
    Ring sent;

    Issuer(Engine<RATE> &owner, bool loads) : engine(owner), is_load(loads) { sent.reset(4); }

    Cycle free(std::int32_t index) {
        while (commands[command + 1] != index || more_runs) {
            if (rest) {
                while (sent.size <= plans - QUEUED_BURSTS) is_load ? engine.read() : engine.write();
                plan();
            } else {
                next_run(more_runs ? -1 : begin_command());
            }
        }
        return left_nest;
    }

    const Burst *head() {
        if (plans == sent.size) {
            if (!rest) {
                if (!more_runs && command + 1 == std::int32_t(commands.size())) return nullptr;
                next_run(more_runs ? -1 : begin_command());
            }
            plan();
        }
        return &planned[sent.size % QUEUED_BURSTS];
    }

private:
    Cycle begin_command();
    void next_run(Cycle started);
    void plan();
};

template <Rate RATE>
class Engine {
    friend class Issuer<RATE>;
    const Program &program;
    const Setting &setting;
    Times *times;
    std::int32_t started[UNITS] = {}, ended[UNITS] = {}, entered[UNITS] = {};
    Issuer<RATE> load{*this, true}, store{*this, false};

    // FETCH.
    Cycle fetch_left, requested = 0;
    Cycle fetch_granted = START_CYCLE, fetch_ready = NEVER;
    Ring fetch_ends, arrived, shifted;
    // The read channel.
    Cycle accepted = -1, read_handshake = -1, taken[2] = {-1, -1};
    Ring read_ends, load_ends;
    Bandwidth read_bandwidth, write_bandwidth;
    // The cutters: when the last piece entered the output register, and when it was taken.
    Cycle load_loaded = -1, load_taken = -1, store_loaded = -1, store_taken = -1;
    // The write channel.
    Cycle addressed = -1, written = -1, committed = -1;
    Ring responses, returned;
    // GEMM and VECTOR.
    Cycle last_step = -REVISIT_CYCLES, last_tile = -1, vector_complete = 0;
    Ring gemms, vectors;

public:
    Engine(const Program &p, const Setting &s, Times *t) : program(p), setting(s), times(t) {
        fetch_left = Cycle(program.operations.size()) * setting.word_beats;
        fetch_ends.reset(FETCH_BURSTS);
        arrived.reset(2 * setting.fetch_buffer_beats);
        shifted.reset(2 * setting.fetch_buffer_beats);
        read_ends.reset(setting.memory_outstanding);
        load_ends.reset(setting.outstanding);
        responses.reset(std::max(setting.memory_outstanding, setting.outstanding));
        returned.reset(QUEUED_BEATS);
        gemms.reset(GEMMS_IN_FLIGHT), vectors.reset(VECTORS_IN_FLIGHT);
        read_bandwidth.reset(setting), write_bandwidth.reset(setting);
        for (auto *issuer : {&load, &store}) issuer->commands.reserve(program.operations.size());
        prepare_fetch();
    }

    Cycle run() {
        Cycle dispatched = 0, done = 0;
        std::int32_t index = 0;
        for (const Operation &op : program.operations) {
            Times &time = times[index];
            time = {-1, -1, -1, -1, -1, -1, -1, -1, -1, 0};
            time.word = word(dispatched);
            dispatched = time.word;
            if (op.kind == HALTS) break;
            dispatched = time.entered = std::max(time.word, room(op.unit));
            ++entered[op.unit];
            if (op.kind == LOADS) load.commands.push_back(index);
            if (op.kind == STORES) store.commands.push_back(index);
            ++index;
        }
        for (int unit = 0; unit < UNITS; ++unit)
            if (entered[unit]) done = std::max(done, retire(program.of_unit[unit].back()));
        return std::max(done, dispatched) + 1 - START_CYCLE + 1;
    }

private:
    Cycle word(Cycle dispatched) {
        for (Cycle beat = 0; beat < setting.word_beats; ++beat) {
            while (arrived.size <= shifted.size) fetch();
            Cycle cycle = std::max(arrived[shifted.size], shifted.last()) + 1;
            if (!beat) cycle = std::max(cycle, dispatched);
            shifted.push(cycle);
        }
        if (fetch_ready == NEVER) prepare_fetch();
        return shifted.last() + 1;
    }

    Cycle room(int unit) {
        const std::int32_t count = entered[unit];
        const auto depth = std::int32_t(setting.queue_depth);
        if (count < depth) return 0;
        const auto &order = program.of_unit[unit];
        if (depth == 1) return start(order[count - 1]) + 1;
        return moved(unit, count - depth + 1) + 1;
    }

    // When an instruction moves from the queue's memory to the register at its output.
    Cycle moved(int unit, std::int32_t place) {
        const auto &order = program.of_unit[unit];
        const Cycle before = place ? start(order[place - 1]) : 0;
        return std::max(times[order[place]].entered + 1, before);
    }

    Cycle start(std::int32_t index) {
        const Operation &op = program.operations[index];
        const auto &order = program.of_unit[op.unit];
        while (started[op.unit] <= op.place) {
            place_start(order[started[op.unit]]);
            ++started[op.unit];
        }
        return times[index].start;
    }

    Cycle retire(std::int32_t index) {
        const Operation &op = program.operations[index];
        const auto &order = program.of_unit[op.unit];
        while (ended[op.unit] <= op.place) {
            place_end(order[ended[op.unit]]);
            ++ended[op.unit];
        }
        return times[index].retired;
    }

    void place_start(std::int32_t index) {
        const Operation &op = program.operations[index];
        const auto &order = program.of_unit[op.unit];
        Times &time = times[index];
        time.valid = 1 + (setting.queue_depth == 1 ? time.entered : moved(op.unit, op.place));
        Cycle ready = time.valid;
        if (op.place >= setting.remembered)
            ready = std::max(ready, retire(order[op.place - setting.remembered]) + 1);
        for (std::int32_t giver : op.giver)
            if (giver >= 0) ready = std::max(ready, retire(giver) + 1);
        time.ready = time.start = ready;
        switch (op.kind) {
            case LOADS: time.start = std::max(ready, load.free(index)); break;
            case STORES: time.start = std::max(ready, store.free(index)); break;
            case GEMMS: place_gemm(op, time, index); break;
            case VECTORS: place_vector(op, time, index); break;
            default: time.first = time.last = ready, time.complete = ready + 1;
        }
    }

    void place_gemm(const Operation &op, Times &time, std::int32_t index) {
        time.start = std::max(time.ready, last_step + 1);
        if (gemms.size >= GEMMS_IN_FLIGHT)
            time.start = std::max(time.start,
                                  retire(std::int32_t(gemms[gemms.size - GEMMS_IN_FLIGHT])) + 1);
        gemms.push(index);
        const Cycle tile = std::max(time.ready, last_tile + 1) + setting.tile_cycles;
        time.first = std::max({time.start + 1, last_step + REVISIT_CYCLES, tile});
        last_tile = time.first + (op.steps - 1) * std::max(op.rows, setting.tile_cycles);
        time.last = last_step = last_tile + op.rows - 1;
        time.complete = last_step + setting.gemm_cycles;
    }

    void place_vector(const Operation &op, Times &time, std::int32_t index) {
        time.start = std::max(time.ready, vector_complete);
        if (vectors.size >= VECTORS_IN_FLIGHT)
            time.start = std::max(
                time.start, retire(std::int32_t(vectors[vectors.size - VECTORS_IN_FLIGHT])) + 1);
        vectors.push(index);
        time.first = time.start + 1;
        time.last = time.start + op.steps;
        vector_complete = time.complete =
            time.last +
            (op.row[vector::to_acc] ? setting.vector_total_cycles : setting.vector_result_cycles);
    }

    void place_end(std::int32_t index) {
        const Operation &op = program.operations[index];
        Times &time = times[index];
        start(index);
        while (time.complete < 0) op.unit == unit::LOAD ? read() : write();
        Cycle retired = std::max(time.complete, time.start + 1);
        if (op.place)
            retired = std::max(retired, times[program.of_unit[op.unit][op.place - 1]].retired + 1);
        for (std::int32_t taker : op.taker)
            if (taker >= 0) retired = std::max(retired, start(taker) + 1);
        time.retired = retired;
    }

    // The memory port ---------------------------------------------------------------------------

    // Note when FETCH's next request stands at the arbiter; NEVER while something misses for it.
    void prepare_fetch() {
        const Cycle needed = requested - (setting.fetch_buffer_beats - setting.fetch_burst_beats);
        fetch_ready = NEVER;
        if (!fetch_left || needed > shifted.size) return;
        Cycle ready = std::max(fetch_granted + 1, fetch_ends.after(FETCH_BURSTS));
        if (needed > 0) ready = std::max(ready, shifted[needed - 1] + 1);
        fetch_ready = ready + 1;
    }

    Cycle load_ready(const Burst &burst) const {
        return std::max(std::max(burst.queued, load.sent.last()) + 1,
                        load_ends.after(setting.outstanding));
    }

    Cycle grant(Cycle cycle) {
        accepted = std::max({cycle + 1, accepted + 1, read_ends.after(setting.memory_outstanding)});
        return accepted + setting.latency;
    }

    // Move the next beat on R; the first cycle in which the core can take it.
    Cycle deliver(Cycle ready) {
        Cycle offered = std::max(ready, read_handshake + 1);
        if constexpr (RATE == Rate::LIMITED) offered = read_bandwidth.take(offered);
        read_handshake = std::max(offered, taken[0] + 1);
        return std::max(read_handshake, taken[1]) + 1;
    }

    void take(Cycle cycle) { taken[0] = taken[1], taken[1] = cycle; }

    void fetch() {
        for (const Burst *burst; (burst = load.head());) {
            const Cycle ready = load_ready(*burst), cycle = std::max(fetch_ready, accepted);
            if ((burst->fill ? ready : std::max(ready, accepted)) >= cycle) break;
            read();
        }
        const Cycle cycle = std::max(fetch_ready, accepted);
        const Cycle beats = std::min(fetch_left, setting.fetch_burst_beats);
        fetch_left -= beats, requested += beats, fetch_granted = cycle;
        const Cycle ready = grant(cycle);
        for (Cycle beat = 0; beat < beats; ++beat) {
            const Cycle arrives = deliver(ready);
            take(arrives);
            arrived.push(arrives);
        }
        fetch_ends.push(arrived.last());
        read_ends.push(read_handshake);
        prepare_fetch();
    }

    void read() {
        const Burst &burst = *load.head();
        Times &time = times[burst.command];
        Cycle cycle = load_ready(burst);
        if (!burst.fill) {
            while (fetch_ready <= std::max(cycle, accepted)) fetch();
            cycle = std::max(cycle, accepted);
        }
        load.sent.push(cycle);
        const Cycle loaded = std::max(std::max(cycle + 1, load_loaded) + 1, load_taken);
        if (burst.fill) {
            if (time.first < 0) time.first = loaded + 1;
            load_taken = loaded + burst.pieces;
            load_loaded = load_taken - 1;
        } else {
            const Cycle ready = grant(cycle);
            if constexpr (RATE == Rate::FULL) {
                read_run(burst, ready, loaded, time);
            } else {
                read_beats(burst, ready, loaded, time);
            }
            read_ends.push(read_handshake);
        }
        load_ends.push(load_taken);
        if (burst.last) time.last = load_taken, time.complete = load_taken + 1;
    }

    // The first piece waits for its beat; then a piece a cycle, and no beat is late.
    void read_run(const Burst &burst, Cycle ready, Cycle loaded, Times &time) {
        const Cycle before = taken[1], first = std::max(loaded + 1, deliver(ready));
        time.starved += first - (loaded + 1);
        if (time.first < 0) time.first = first;
        load_taken = first + burst.pieces - 1;
        load_loaded = burst.pieces == 1 ? loaded : load_taken - 1;
        if (burst.beats == 1) {
            take(load_taken);
            return;
        }
        const Cycle second = load_taken - burst.last_beat;
        if (burst.beats == 2) {
            read_handshake = std::max(read_handshake, before) + 1;
        } else {
            read_handshake =
                std::max(read_handshake + burst.beats - 1, second - burst.beat_before + 1);
        }
        taken[0] = second, taken[1] = load_taken;
    }

    void read_beats(const Burst &burst, Cycle ready, Cycle loaded, Times &time) {
        for (Cycle beat = 0; beat < burst.beats; ++beat) {
            const Cycle pieces = burst.cuts.pieces_of(beat);
            const Cycle first = std::max(loaded + 1, deliver(ready));
            time.starved += first - (loaded + 1);
            if (time.first < 0) time.first = first;
            load_taken = first + pieces - 1;
            load_loaded = pieces == 1 ? loaded : load_taken - 1;
            loaded = load_taken;
            take(load_taken);
        }
    }

    void write() {
        const Burst &burst = *store.head();
        const Cycle cycle = std::max({std::max(burst.queued, store.sent.last()) + 1, addressed,
                                      responses.after(setting.outstanding)});
        store.sent.push(cycle);
        addressed = std::max(cycle + 1, responses.after(setting.memory_outstanding));
        Cycle loaded = std::max(std::max(cycle + 1, store_loaded) + 1, store_taken);
        Times &time = times[burst.command];
        const Cycle pieces = burst.pieces;
        if constexpr (RATE == Rate::FULL) {
            if (time.first < 0) time.first = loaded + 1;
            store_taken = loaded + pieces;
            store_loaded = store_taken - 1;
            written = store_taken + PACKING_CYCLES + 1;
        } else {
            for (Cycle beat = 0; beat < burst.beats; ++beat) {
                const Cycle end = loaded + burst.cuts.pieces_of(beat);
                store_loaded = end - 1;
                store_taken = std::max(end, returned.after(QUEUED_BEATS));
                if (time.first < 0) time.first = end == loaded + 1 ? store_taken : loaded + 1;
                loaded = store_taken;
                const Cycle leaves = std::max(store_taken + PACKING_CYCLES, written);
                returned.push(leaves);
                written = write_bandwidth.take(leaves + 1);
            }
        }
        committed = std::max({written, addressed, committed});
        const Cycle before = responses.last();
        const Cycle answered = std::max(committed + setting.latency, before + 1);
        responses.push(answered);
        time.starved += answered - std::max(cycle, before) - pieces;
        if (burst.last) time.last = store_taken, time.complete = answered + 1;
    }
};

// Begin the command that follows; return when it starts.
template <Rate RATE>
Cycle Issuer<RATE>::begin_command() {
    const std::int32_t index = commands[command + 1];
    const Cycle started = engine.start(index);
    ++command;
    const Row row = engine.program.operations[index].row;
    const Setting &setting = engine.setting;
    const int nest = is_load ? int(load::loops) : int(store::loops);
    fill = is_load && row[load::fill];
    length = row[is_load ? int(load::length) : int(store::length)];
    run_local = row[is_load ? int(load::local) : int(store::local)];
    run_memory = fill ? 0 : row[is_load ? int(load::memory) : int(store::memory)];
    row_log = is_load ? setting.destination_row_log[row[load::destination]]
                      : setting.source_row_log[row[store::source]];
    beat_log = fill ? setting.fill_beat_log : setting.bus_bits_log;
    burst_bytes = fill ? NEVER : setting.burst_bytes;
    depth = 0;
    // LOAD's loops move memory and local address, STORE's the other way round.
    for (int level = 0; level < LEVELS; ++level) {
        const Row loop = row + nest + 3 * level;
        const Cycle memory = is_load ? loop[1] : loop[2], local = is_load ? loop[2] : loop[1];
        if (loop[0] > 1) levels[depth++] = {loop[0], loop[0], fill ? 0 : memory, local};
    }
    more_runs = true;
    return started;
}

// Begin the run that the nest stands at, and let the nest go on.
template <Rate RATE>
inline void Issuer<RATE>::next_run(Cycle started) {
    left_nest = std::max(started + 1, queued);
    rest = length, at_memory = run_memory, at_local = run_local;
    for (int level = depth - 1; level >= 0; --level) {
        Level &loop = levels[level];
        if (--loop.left) {
            run_memory += loop.memory, run_local += loop.local;
            return;
        }
        loop.left = loop.extent;
        run_memory -= (loop.extent - 1) * loop.memory, run_local -= (loop.extent - 1) * loop.local;
    }
    more_runs = false;
}

// Let the next burst of the run into the queue; the one two before it has been sent.
template <Rate RATE>
inline void Issuer<RATE>::plan() {
    const Cycle room = plans >= QUEUED_BURSTS ? sent[plans - QUEUED_BURSTS] : -1;
    queued = std::max(std::max(queued, left_nest), room) + 1;
    const Cycle count = std::min(rest, burst_bytes - (at_memory & (burst_bytes - 1)));
    const Cycle row_mask = (Cycle(1) << row_log) - 1, beat_mask = (Cycle(1) << beat_log) - 1;
    const Cuts cuts{count, at_local & row_mask, row_log, at_memory & beat_mask, beat_log};
    if (!(cuts == known)) {
        known = cuts, pieces = cuts.pieces(), beats = cuts.beats();
        last_beat = cuts.pieces_of(beats - 1);
        beat_before = beats > 1 ? cuts.pieces_of(beats - 2) : 0;
    }
    rest -= count, at_memory += count, at_local += count;
    planned[plans++ % QUEUED_BURSTS] = {commands[command], fill,   !rest && !more_runs, queued, cuts,
                                        pieces,            beats, last_beat,           beat_before};
}

Cycle place(const Program &program, const Setting &setting, Times *times) {
    if (setting.beats == setting.cycles) return Engine<Rate::FULL>(program, setting, times).run();
    return Engine<Rate::LIMITED>(program, setting, times).run();
}

}  // namespace tilewright

using tilewright::Program, tilewright::Setting, tilewright::Times, tilewright::Cycle;

extern "C" {

Program *tilewright_timing_open(const std::int64_t *rows, std::int64_t count,
                                std::int64_t token_limit) {
    return new Program(rows, count, token_limit);
}
void tilewright_timing_close(Program *program) { delete program; }

// Cycles under one setting; `times` has a row per instruction.
Cycle tilewright_timing_run(const Program *program, const Setting *setting, Times *times) {
    return tilewright::place(*program, *setting, times);
}

// Cycles under many settings, on `threads` threads.
void tilewright_timing_sweep(const Program *program, const Setting *settings, std::int64_t count,
                             Cycle *cycles, std::int64_t threads) {
    std::atomic<std::int64_t> next{0};
    auto work = [&] {
        std::vector<Times> times(program->operations.size());
        for (std::int64_t index; (index = next++) < count;)
            cycles[index] = tilewright::place(*program, settings[index], times.data());
    };
    std::vector<std::thread> others;
    for (std::int64_t thread = 1; thread < std::min(threads, count); ++thread)
        others.emplace_back(work);
    work();
    for (auto &other : others) other.join();
}
}
