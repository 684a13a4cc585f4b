// LOAD's and STORE's issue side: commands into runs, runs into bursts in front of the port.

#pragma once

#include <vector>

#include "ports.h"

namespace tilewright {

enum class Rate { FULL, LIMITED, SHARED };

template <Rate RATE>
class Engine;

template <Rate RATE>
class Bus;

// The last run of a command leaves the nest when no burst of the last runs, at most so many, has to
// be sent: the cut is as far ahead of the port.
constexpr Cycle LAST_RUNS = QUEUED_BURSTS + 1;

// LOAD's or STORE's loop nest, the register that cuts a run, and the queue in front of the port.
template <Rate RATE>
class Issuer {
    friend class Engine<RATE>;
    Engine<RATE> &engine;
    const bool is_load;
    Level levels[LEVELS];
    Cursor cursor{levels};
    Shape shape;
    Cycle queued = -1, left_nest = -1;  // when the last burst, and the last run, went on
    std::int32_t command = -1;
    Burst planned[QUEUED_BURSTS];
    std::int64_t plans = 0;

public:
    std::vector<std::int32_t> commands;  // that were dispatched
    Ring sent;

    Issuer(Engine<RATE> &owner, bool loads) : engine(owner), is_load(loads) { sent.reset(4); }

    Cycle free(std::int32_t index) {
        while (commands[command + 1] != index || cursor.runs) {
            if (RATE == Rate::FULL && cursor.runs > LAST_RUNS) {
                while (sent.size < plans) is_load ? engine.read() : engine.write();
                if (!(is_load ? engine.read_train(LAST_RUNS) : engine.write_train(LAST_RUNS)))
                    is_load ? engine.read() : engine.write();
            } else if (cursor.rest) {
                while (sent.size <= plans - QUEUED_BURSTS) send();
                plan();
            } else {
                next_run();
            }
        }
        return left_nest + 1;
    }

    bool is_planned() const { return plans != sent.size; }

    const Burst *head() {
        if (plans == sent.size) {
            if (!cursor.more() && command + 1 == std::int32_t(commands.size())) return nullptr;
            if (!cursor.rest) next_run();
            plan();
        }
        return &planned[sent.size % QUEUED_BURSTS];
    }

private:
    // Send the next burst; without a shared bus, its data move at once.
    void send() {
        if constexpr (RATE == Rate::SHARED)
            is_load ? engine.bus.send_load() : engine.bus.send_store();
        else
            is_load ? engine.read() : engine.write();
    }

    // Let the next run leave the nest.
    void next_run() {
        Cycle started = -1;
        if (!cursor.runs) {
            const std::int32_t index = commands[command + 1];
            started = engine.start(index);
            ++command;
            cursor.begin(engine.program.operations[index].row, engine.setting, is_load);
        }
        cursor.next_run();
        left_nest = std::max(started + 1, queued);
    }

    // Let the next burst of the run into the queue; the one two before it has been sent.
    void plan() {
        const Cycle room = plans >= QUEUED_BURSTS ? sent[plans - QUEUED_BURSTS] : -1;
        queued = std::max(std::max(queued, left_nest), room) + 1;
        shape.see(cursor.cut());
        planned[plans++ % QUEUED_BURSTS] = {commands[command], cursor.fill, !cursor.more(), queued,
                                            shape};
    }
};

}  // namespace tilewright
