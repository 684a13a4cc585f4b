// The timing model for Python: a program is opened once, and placed under one setting or many.

#include <atomic>
#include <thread>

#include "engine.h"

namespace tilewright {

Cycle place(const Program &program, const Setting &setting, Times *times) {
    if (setting.buffered) return Engine<Rate::SHARED>(program, setting, times).run();
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
        std::vector<Times> times(program->count);
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
