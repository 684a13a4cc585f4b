// The timing model of `definition.py`, compiled: the same recurrences, a burst at a time.
//
// While main memory moves a beat in every cycle, the pieces of a burst follow each other without a
// gap once the first one is there, so a burst costs a few additions (`Rate::FULL`); otherwise every
// beat is placed alone. On a shared bus, `Bus` decides which burst comes next (`Rate::SHARED`).
// Names are those of the Python text, which explains them.

#pragma once

#include <type_traits>

#include "bus.h"
#include "vector_kind.h"

namespace tilewright {

template <Rate RATE>
class Engine {
    friend class Issuer<RATE>;
    friend class Bus<RATE>;
    struct NoBus {
        explicit NoBus(Engine &) {}
    };
    const Program &program;
    const Setting &setting;
    Times *times;
    std::int32_t started[UNITS] = {}, ended[UNITS] = {}, entered[UNITS] = {};
    Issuer<RATE> load{*this, true}, store{*this, false};

    // FETCH.
    Cycle fetch_left, requested = 0, fetches = 0;
    Cycle fetch_granted = FETCH_START_CYCLES, fetch_ready = NEVER;
    Ring fetch_ends;
    // Per beat, when it arrived and when it left the buffer for its word. At full rate both are a
    // beat a cycle within a burst: `arrived` then keeps its first beat, and `shifted` its last.
    Ring arrived, shifted;
    Cycle arrived_beats = 0, shifted_beats = 0, last_shift = -1;
    // The read channel; per burst of it, and per burst of LOAD, when it ended.
    ReadPort port;
    Ring read_ends, load_ends;
    Bandwidth read_bandwidth, write_bandwidth;
    // STORE's cutter, and the write channel.
    Cycle store_loaded = -1, store_taken = -1;
    Cycle addressed = -1, written = -1, committed = -1;
    Ring responses, returned;
    // GEMM and VECTOR.
    Cycle last_step = -GEMM_REVISIT_STEPS, last_tile = -1, vector_complete = 0;
    Ring gemms, vectors;
    std::conditional_t<RATE == Rate::SHARED, Bus<RATE>, NoBus> bus{*this};

public:
    Engine(const Program &p, const Setting &s, Times *t) : program(p), setting(s), times(t) {
        fetch_left = Cycle(program.operations.size()) * setting.word_beats;
        fetch_ends.reset(FETCH_BURSTS);
        arrived.reset(2 * setting.fetch_buffer_beats);
        shifted.reset(2 * setting.fetch_buffer_beats);
        read_ends.reset(std::max(setting.memory_outstanding, setting.buffered));
        load_ends.reset(setting.outstanding);
        responses.reset(
            std::max({setting.memory_outstanding, setting.outstanding, setting.buffered}));
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
            time = NO_TIMES;
            time.word = word(dispatched);
            dispatched = time.word;
            if (op.kind == HALTS) break;
            dispatched = time.entered = std::max(time.word, room(op.unit));
            ++entered[op.unit];
            if (op.kind == LOADS) load.commands.push_back(index);
            if (op.kind == STORES) store.commands.push_back(index);
            ++index;
        }
        std::fill(times + program.operations.size(), times + program.count, NO_TIMES);
        for (int unit = 0; unit < UNITS; ++unit)
            if (entered[unit]) done = std::max(done, retire(program.of_unit[unit].back()));
        return std::max(done, dispatched) + 1 - FETCH_START_CYCLES + 1;
    }

private:
    Cycle word(Cycle dispatched) {
        for (Cycle left = setting.word_beats; left;) {
            while (arrived_beats <= shifted_beats) fetch();
            Cycle beats = 1, arrives = 0, to_burst = 0;
            if constexpr (RATE == Rate::FULL) {
                const Cycle place = shifted_beats & (setting.fetch_burst_beats - 1);
                to_burst = setting.fetch_burst_beats - place;
                beats = std::min(left, to_burst);
                arrives = arrived[shifted.size] + place;
            } else {
                arrives = arrived[shifted_beats];
            }
            Cycle begin = std::max(arrives, last_shift) + 1;
            if (left == setting.word_beats) begin = std::max(begin, dispatched + 1);
            last_shift = begin + beats - 1;
            shifted_beats += beats, left -= beats;
            if (RATE != Rate::FULL || beats == to_burst) shifted.push(last_shift);
        }
        if (fetch_ready == NEVER) prepare_fetch();
        return last_shift + 1;
    }

    Cycle room(int unit) {
        const std::int32_t count = entered[unit];
        const auto depth = std::int32_t(setting.queue_depth);
        if (count < depth) return 0;
        const auto &order = program.of_unit[unit];
        if (depth == 1) return start(order[count - 1]) + LEAVING_CYCLES + 1;
        return moved(unit, count - depth + 1) + 1;
    }

    // When an instruction moves from the queue's memory to the register at its output.
    Cycle moved(int unit, std::int32_t place) {
        const auto &order = program.of_unit[unit];
        const Cycle before = place ? start(order[place - 1]) + LEAVING_CYCLES : 0;
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
        time.ready = time.start = ready += READY_CYCLES;
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
        time.first = std::max({time.start + 1, last_step + GEMM_REVISIT_STEPS, tile});
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
            time.last + vector_tail(VectorKind(op.row));
    }

    static Cycle vector_tail(const VectorKind &kind) {
        if (kind.stays_total) return VECTOR_TOTAL_CYCLES;
        const bool measured = kind.measured != Statistic::NONE;
        return VECTOR_RESULT_CYCLES + (measured ? VECTOR_ROW_CYCLES : 0);
    }

    void place_end(std::int32_t index) {
        const Operation &op = program.operations[index];
        Times &time = times[index];
        start(index);
        while (time.complete < 0) {
            if constexpr (RATE == Rate::SHARED) {
                op.unit == unit::LOAD ? bus.read(index) : bus.write(index);
                continue;
            }
            if constexpr (RATE == Rate::FULL) {
                op.unit == unit::LOAD ? read_train() : write_train();
                if (time.complete >= 0) break;
            }
            op.unit == unit::LOAD ? read() : write();
        }
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
        const Cycle ended = fetches - FETCH_BURSTS;
        if (!fetch_left || needed > shifted_beats || ended >= fetch_ends.size) return;
        Cycle ready = fetch_granted;
        if (ended >= 0) ready = std::max(ready, fetch_ends[ended]);
        if (needed > 0) {
            const Cycle per = RATE == Rate::FULL ? setting.fetch_burst_beats : 1;
            ready = std::max(ready, shifted[needed / per - 1]);
        }
        fetch_ready = ready + FETCH_REQUEST_CYCLES;
    }

    Cycle load_ready(const Burst &burst) const {
        return std::max(std::max(burst.queued, load.sent.last()) + 1,
                        load_ends.after(setting.outstanding));
    }

    // Grant a burst; the first cycle in which its data may be offered.
    Cycle grant(Cycle cycle) {
        port.grant(cycle, read_ends.after(setting.memory_outstanding));
        return port.accepted + setting.latency;
    }

    Cycle deliver(Cycle ready) {
        ready = std::max(ready, port.handshake + 1);
        if constexpr (RATE == Rate::LIMITED) ready = read_bandwidth.take(ready);
        return port.deliver(ready);
    }

    // Grant FETCH's next burst, and before it all that LOAD requests earlier.
    void fetch() {
        if constexpr (RATE == Rate::SHARED) {
            bus.decide();
            return;
        }
        for (;;) {
            if constexpr (RATE == Rate::FULL) read_train();
            const Burst *burst = load.head();
            if (!burst) break;
            const Cycle ready = load_ready(*burst), cycle = std::max(fetch_ready, port.room);
            if ((burst->fill ? ready : std::max(ready, port.room)) >= cycle) break;
            read();
        }
        const Cycle cycle = std::max(fetch_ready, port.room);
        const Cycle beats = grant_fetch(cycle);
        deliver_fetch(grant(cycle), beats);
        read_ends.push(port.handshake);
    }

    // Take FETCH's request; its number of beats.
    Cycle grant_fetch(Cycle cycle) {
        const Cycle beats = std::min(fetch_left, setting.fetch_burst_beats);
        fetch_left -= beats, requested += beats, fetch_granted = cycle, ++fetches;
        prepare_fetch();
        return beats;
    }

    void deliver_fetch(Cycle ready, Cycle beats) {
        if constexpr (RATE == Rate::FULL) {
            arrived.push(port.take_beats(beats, ready));
        } else {
            for (Cycle beat = 0; beat < beats; ++beat) {
                const Cycle arrives = deliver(ready + beat * beat_step());
                port.take_beat(arrives);
                arrived.push(arrives);
            }
        }
        arrived_beats += beats;
        fetch_ends.push(port.last_beat);
        prepare_fetch();
    }

    // Cycles from a beat to the next one of its burst, as the bus moves them.
    Cycle beat_step() const { return RATE == Rate::SHARED ? setting.cycles : 0; }

    // Send LOAD's next burst, and before it all that FETCH requests earlier or as early.
    void read() {
        const Burst &burst = *load.head();
        Cycle cycle = load_ready(burst);
        if (!burst.fill) {
            while (fetch_ready <= std::max(cycle, port.room)) fetch();
            cycle = std::max(cycle, port.room);
        }
        load.sent.push(cycle);
        deliver_load(burst, burst.fill ? 0 : grant(cycle), cycle);
        if (!burst.fill) read_ends.push(port.handshake);
    }

    // Deliver a burst of LOAD, whose data may be offered from `ready` on.
    void deliver_load(const Burst &burst, Cycle ready, Cycle sent) {
        Times &time = times[burst.command];
        Cycle entered = port.next_loaded(sent), first = entered + 1;
        if (burst.fill) {
            port.take_fill(burst.shape, entered);
        } else if constexpr (RATE == Rate::FULL) {
            first = port.take_burst(burst.shape, ready, entered);
            time.starved += first - (entered + 1);
        } else {
            first = read_beats(burst.shape, ready, entered, time);
        }
        if (time.first < 0) time.first = first;
        load_ends.push(port.taken);
        if (burst.last) time.last = port.taken, time.complete = port.taken + PLACING_CYCLES;
    }

    Cycle read_beats(const Shape &shape, Cycle ready, Cycle entered, Times &time) {
        Cycle begin = 0;
        for (Cycle beat = 0; beat < shape.beats; ++beat) {
            const Cycle pieces = shape.cuts.pieces_of(beat);
            const Cycle first = std::max(entered + 1, deliver(ready + beat * beat_step()));
            time.starved += first - (entered + 1);
            if (!beat) begin = first;
            port.taken = first + pieces - 1;
            port.loaded = pieces == 1 ? entered : port.taken - 1;
            entered = port.taken;
            port.take_beat(port.taken);
        }
        return begin;
    }

    // Send what is left of LOAD's command as `read` would, until FETCH comes between: the same
    // recurrences on copies, which a compiler keeps in registers. Returns whether it sent any.
    bool read_train(Cycle last_runs = 0) {
        if (load.plans != load.sent.size || !load.cursor.more()) return false;
        Times &time = times[load.commands[load.command]];
        Cursor cursor = load.cursor;
        Shape shape = load.shape;
        ReadPort reads = port;
        Cycle queued = load.queued, left_nest = load.left_nest, starved = 0, first = time.first;
        std::int64_t sent = load.sent.size;
        Cycle last = load.sent.last(), older = sent > 1 ? load.sent[sent - 2] : -1;
        const Cycle fetches = fetch_ready, latency = setting.latency;
        const Cycle outstanding = setting.outstanding, most = setting.memory_outstanding;
        Series ends = load_ends, ended = read_ends;
        const bool fill = cursor.fill;
        const std::int64_t before = sent;
        while (cursor.more() && cursor.runs >= last_runs + !cursor.rest) {
            if (!cursor.rest) cursor.next_run(), left_nest = queued;
            const Cycle enters = std::max(std::max(queued, left_nest), older) + 1;
            Cycle cycle = std::max(std::max(enters, last) + 1, ends.after(outstanding));
            if (!fill) cycle = std::max(cycle, reads.room);
            if (!fill && fetches <= cycle) break;
            queued = enters, older = last, last = cycle, ++sent;
            shape.see(cursor.cut());
            const Cycle entered = reads.next_loaded(cycle);
            Cycle begins = entered + 1;
            if (fill) {
                reads.take_fill(shape, entered);
            } else {
                reads.grant(cycle, ended.after(most));
                begins = reads.take_burst(shape, reads.accepted + latency, entered);
                starved += begins - (entered + 1);
                ended.push(reads.handshake);
            }
            if (first < 0) first = begins;
            ends.push(reads.taken);
        }
        load_ends.size = ends.size, read_ends.size = ended.size;
        load.cursor = cursor, load.shape = shape, port = reads;
        load.queued = queued, load.left_nest = left_nest, load.plans = sent;
        load.sent.resume(sent, older, last);
        time.first = first, time.starved += starved;
        if (!cursor.more()) time.last = port.taken, time.complete = port.taken + PLACING_CYCLES;
        return sent > before;
    }

    // The same for STORE, whose channel is its own.
    bool write_train(Cycle last_runs = 0) {
        if (store.plans != store.sent.size || !store.cursor.more()) return false;
        Times &time = times[store.commands[store.command]];
        Cursor cursor = store.cursor;
        Shape shape = store.shape;
        Cycle queued = store.queued, left_nest = store.left_nest, starved = 0, first = time.first;
        const std::int64_t before = store.sent.size;
        std::int64_t sent = before;
        Cycle last = store.sent.last(), older = sent > 1 ? store.sent[sent - 2] : -1;
        Cycle address = addressed, loaded = store_loaded, taken = store_taken, commit = committed;
        const Cycle outstanding = setting.outstanding, most = setting.memory_outstanding;
        const Cycle latency = setting.latency;
        Series answers = responses;
        Cycle answered = answers.last();
        while (cursor.more() && cursor.runs >= last_runs + !cursor.rest) {
            if (!cursor.rest) cursor.next_run(), left_nest = queued;
            queued = std::max(std::max(queued, left_nest), older) + 1;
            const Cycle cycle = std::max(std::max(std::max(queued, last) + 1, address),
                                         answers.after(outstanding));
            older = last, last = cycle, ++sent;
            shape.see(cursor.cut());
            address = std::max(cycle + 1, answers.after(most));
            const Cycle entered = std::max(std::max(cycle + 1, loaded) + 1, taken);
            if (first < 0) first = entered + 1;
            taken = entered + shape.pieces, loaded = taken - 1;
            commit = std::max(std::max(taken + PACKING_CYCLES + 1, address), commit);
            const Cycle earlier = answered;
            answered = std::max(commit + latency, earlier + 1);
            answers.push(answered);
            starved += answered - std::max(cycle, earlier) - shape.pieces;
        }
        responses.size = answers.size;
        store.cursor = cursor, store.shape = shape;
        store.queued = queued, store.left_nest = left_nest, store.plans = sent;
        store.sent.resume(sent, older, last);
        addressed = address, store_loaded = loaded, store_taken = taken, committed = commit;
        written = taken + PACKING_CYCLES + 1;
        time.first = first, time.starved += starved;
        if (!cursor.more()) time.last = taken, time.complete = answered + 1;
        return sent > before;
    }

    void write() {
        const Burst &burst = *store.head();
        const Cycle cycle = std::max({std::max(burst.queued, store.sent.last()) + 1, addressed,
                                      responses.after(setting.outstanding)});
        store.sent.push(cycle);
        addressed = std::max(cycle + 1, responses.after(setting.memory_outstanding));
        take_beats(burst, cycle, 0);
        Times &time = times[burst.command];
        committed = std::max({written, addressed, committed});
        const Cycle before = responses.last();
        const Cycle answered = std::max(committed + setting.latency, before + 1);
        responses.push(answered);
        time.starved += answered - std::max(cycle, before) - burst.shape.pieces;
        if (burst.last) time.last = store_taken, time.complete = answered + 1;
    }

    // Take the pieces of a burst of STORE; its beats are written from `room` on.
    void take_beats(const Burst &burst, Cycle cycle, Cycle room) {
        Cycle loaded = std::max(std::max(cycle + 1, store_loaded) + 1, store_taken);
        Times &time = times[burst.command];
        const Cycle pieces = burst.shape.pieces;
        if constexpr (RATE == Rate::FULL) {
            if (time.first < 0) time.first = loaded + 1;
            store_taken = loaded + pieces;
            store_loaded = store_taken - 1;
            written = store_taken + PACKING_CYCLES + 1;
        } else {
            for (Cycle beat = 0; beat < burst.shape.beats; ++beat) {
                const Cycle end = loaded + burst.shape.cuts.pieces_of(beat);
                store_loaded = end - 1;
                store_taken = std::max(end, returned.after(QUEUED_BEATS, FREEING_CYCLES));
                if (time.first < 0) time.first = end == loaded + 1 ? store_taken : loaded + 1;
                loaded = store_taken;
                const Cycle leaves = std::max(store_taken + PACKING_CYCLES, written);
                returned.push(leaves);
                written = std::max(leaves + 1, room);
                if constexpr (RATE == Rate::LIMITED) written = write_bandwidth.take(written);
            }
        }
    }
};

}  // namespace tilewright
