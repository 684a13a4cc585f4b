// One data bus for reads and writes: `shared_bus.py` compiled, which explains the names.

#pragma once

#include <deque>

#include "issuer.h"

namespace tilewright {

struct Later {};

template <Rate RATE>
class Bus {
    struct Read {
        Cycle accepted, beats;
        bool fetches;
    };
    struct Load {
        Burst burst;
        Cycle sent;
    };
    struct Write {
        Burst burst;
        Cycle sent, complete, taken;  // `complete` is -1 while earlier bursts must be served first
    };

    Engine<RATE> &engine;
    const Setting &setting;
    const Cycle first_beat;
    Cycle horizon = NEVER;
    bool looks = false;  // whether no decision may be made
    std::deque<Read> waiting;
    std::deque<Load> loads;
    std::deque<Write> writes;
    Cycle free, due = 0, refreshes = 0;
    bool wrote = false;
    // What the next burst of LOAD and of STORE waits for, as far as it is known.
    std::int32_t load_waits = -1, store_waits = -1, waits = -1;

public:
    explicit Bus(Engine<RATE> &owner)
        : engine(owner),
          setting(owner.setting),
          first_beat(owner.setting.latency - 1),
          free(owner.setting.refresh_cycles) {}

    // Serve the next burst, or refresh.
    void decide() {
        not_before_decision();
        while (learn(next_decision())) {}
        const Cycle read = read_ready(), write = write_ready();
        const Cycle cycle = std::max(free, std::min(read, write));
        if (std::max(free, due) <= cycle) {
            free = std::max(free, due) + setting.refresh_cycles;
            due = 1 + ++refreshes * setting.refresh_interval;
        } else if (read <= cycle && (wrote || write > cycle)) {
            serve_read(cycle);
        } else {
            serve_write(cycle);
        }
    }

    // Go on until LOAD's next burst is delivered, or closer to it; fills need no decision.
    void read(std::int32_t index) {
        if (loads.empty() && engine.load.head()->fill) {
            send_load();
        } else {
            not_before_decision(index);
            decide();
        }
    }

    // Go on until STORE's next burst has its response, or closer to it.
    void write(std::int32_t index) {
        not_before_decision(index);
        if (writes.empty()) send_store();
        decide();
    }

    // Send LOAD's next burst, after all that FETCH requests no later.
    void send_load() {
        const std::int64_t number = engine.load.sent.size;
        engine.load.head();
        while (engine.load.sent.size == number) {
            const Burst &burst = *engine.load.head();
            const Cycle cycle = load_grant(burst);
            if (!burst.fill) {
                if (looks && cycle >= horizon) later(-1);
                if (fetch_grant() <= cycle) {
                    send_fetch();
                    continue;
                }
                if (!looks && !waiting.empty() && next_decision() < cycle) {
                    decide();
                    continue;
                }
                engine.port.grant(cycle, 0);
                waiting.push_back({engine.port.accepted, burst.shape.beats, false});
            }
            loads.push_back({burst, cycle});
            engine.load.sent.push(cycle);
        }
        deliver_fills();
    }

    // Send STORE's next burst; its data follow when fewer bursts wait.
    void send_store() {
        const Burst &burst = *engine.store.head();
        const std::int64_t number = engine.store.sent.size;
        const Cycle answered = response(number - setting.outstanding);
        const Cycle cycle = std::max({std::max(burst.queued, engine.store.sent.last()) + 1,
                                      engine.addressed, answered + 1});
        engine.addressed = cycle + 1;
        writes.push_back({burst, cycle, -1, -1});
        engine.store.sent.push(cycle);
    }

private:
    [[noreturn]] void later(std::int32_t index) {
        waits = index;
        throw Later{};
    }

    // Do not decide for the sake of something that is only looked at.
    void not_before_decision(std::int32_t index = -1) {
        if (looks) later(index);
    }

    Cycle next_decision() {
        return std::max(free, std::min({read_ready(), write_ready(), due}));
    }

    // Look for bursts that come before a cycle; returns whether there was one.
    bool learn(Cycle until) {
        looks = true, horizon = until;
        const bool found = learn_read() || learn_write();
        looks = false;
        return found;
    }

    // Whether an instruction waits for the bus still, as far as that is known without looking.
    bool still_waits(std::int32_t index) {
        if (index < 0 || engine.times[index].complete >= 0) return false;
        return !loads.empty() || (engine.load.is_planned() && !engine.load.head()->fill);
    }

    bool learn_read() {
        if (!waiting.empty() || (engine.load.is_planned() && !engine.load.head()->fill))
            return false;
        if (still_waits(load_waits)) return false;
        load_waits = -1;
        try {
            const Burst *burst = engine.load.head();
            if (!burst) return false;
            if (burst->fill) send_load();
        } catch (Later) {
            load_waits = waits;
            return false;
        }
        return true;
    }

    bool learn_write() {
        if (writes.empty()) {
            if (still_waits(store_waits)) return false;
            store_waits = -1;
            try {
                if (!engine.store.head()) return false;
                send_store();
            } catch (Later) {
                store_waits = waits;
                return false;
            }
        } else if (writes.front().complete >= 0) {
            return false;
        }
        take_store(writes.front());
        return true;
    }

    // Write the data of a burst, when all those before were served.
    void take_store(Write &write) {
        engine.take_beats(write.burst, write.sent, engine.responses.after(setting.buffered) - 1);
        write.complete = std::max(engine.written, write.sent + 1);
        write.taken = engine.store_taken;
    }

    Cycle fetch_grant() const { return std::max(engine.fetch_ready, engine.port.room); }

    Cycle planned_grant() {
        if (!engine.load.is_planned()) return NEVER;
        const Burst &burst = *engine.load.head();
        return burst.fill ? NEVER : load_grant(burst);
    }

    Cycle read_ready() {
        const Cycle room = engine.read_ends.after(setting.buffered);
        if (!waiting.empty()) return std::max(waiting.front().accepted + 1, room);
        const Cycle granted = std::min(fetch_grant(), planned_grant());
        if (granted >= NEVER) return NEVER;
        return std::max({granted + 2, engine.port.accepted + 2, room});
    }

    Cycle write_ready() const {
        if (writes.empty() || writes.front().complete < 0) return NEVER;
        return writes.front().complete + 1;
    }

    void serve_read(Cycle cycle) {
        if (waiting.empty()) {
            if (fetch_grant() <= planned_grant())
                send_fetch();
            else
                send_load();
        }
        const Read read = waiting.front();
        waiting.pop_front();
        if (read.fetches)
            engine.deliver_fetch(cycle + first_beat, read.beats);
        else
            deliver_load(cycle + first_beat);
        engine.read_ends.push(engine.port.handshake);
        deliver_fills();
        free = cycle + read.beats * setting.cycles + setting.read_gap;
        wrote = false;
    }

    void serve_write(Cycle cycle) {
        const Write write = writes.front();
        writes.pop_front();
        const Cycle beats = write.burst.shape.beats, before = engine.responses.last();
        const Cycle answered = cycle + first_beat + (beats - 1) * setting.cycles;
        engine.responses.push(answered);
        Times &time = engine.times[write.burst.command];
        time.starved += answered - std::max(write.sent, before) - write.burst.shape.pieces;
        if (write.burst.last) time.last = write.taken, time.complete = answered + 1;
        free = cycle + beats * setting.cycles + setting.write_gap;
        wrote = true;
    }

    void send_fetch() {
        const Cycle beats = engine.grant_fetch(fetch_grant());
        engine.port.grant(engine.fetch_granted, 0);
        waiting.push_back({engine.port.accepted, beats, true});
    }

    Cycle load_grant(const Burst &burst) {
        const std::int64_t ended = engine.load.sent.size - setting.outstanding;
        while (ended >= engine.load_ends.size) decide();
        Cycle ready = std::max(burst.queued, engine.load.sent.last()) + 1;
        if (ended >= 0) ready = std::max(ready, engine.load_ends[ended] + 1);
        return burst.fill ? ready : std::max(ready, engine.port.room);
    }

    void deliver_fills() {
        while (!loads.empty() && loads.front().burst.fill) deliver_load(0);
    }

    void deliver_load(Cycle ready) {
        const Load load = loads.front();
        loads.pop_front();
        engine.deliver_load(load.burst, ready, load.sent);
    }

    Cycle response(std::int64_t number) {
        while (number >= engine.responses.size) decide();
        return number >= 0 ? engine.responses[number] : -1;
    }
};

}  // namespace tilewright
