// The Verilated system on chip in a shared library: clock, bytes of the link, and a C interface.
//
// `tilewright_core.h` is generated beside this file's copy and includes the Verilated classes. The
// interface is bound by `sim/board.py`.

#include "tilewright_core.h"

#include <cstring>
#include <memory>
#include <string_view>

namespace tilewright {

constexpr uint64_t RESET_CYCLES = 4;
constexpr uint64_t BURST_END_CYCLES = 16;  // without a byte: what was sent is worth delivering

class Board {
    VerilatedContext context;
    std::unique_ptr<VCore> soc;

public:
    uint64_t cycle = 0;

    Board() : soc(std::make_unique<VCore>(&context, "board")) { reset(); }
    ~Board() { soc->final(); }

    void reset() {
        soc->received___05Fvalid = soc->sent___05Fready = 0;
        soc->rst = 1;
        for (uint64_t n = 0; n < RESET_CYCLES; ++n) step();
        soc->rst = 0;
    }

    // Write the beginning of the array whose name ends with `name`.
    void load(std::string_view name, const uint8_t* bytes, uint64_t count) {
        const auto named = [&](std::string_view label) {
            return label.size() >= name.size() && label.substr(label.size() - name.size()) == name;
        };
#define TILEWRIGHT_ARRAY(label, member, used_bits)                    \
    if (named(label) && count <= sizeof(soc->rootp->member)) \
        std::memcpy(&soc->rootp->member[0], bytes, count);
        TILEWRIGHT_ARRAYS
#undef TILEWRIGHT_ARRAY
    }

    bool busy() const { return soc->busy; }

    // The first rule of the SDRAM that was broken; 0 if none was, or there is no SDRAM.
    int violation() const { return violation_of(*soc, 0); }

    // Run until `budget` cycles have passed, `sent` is full, the board has sent bytes and pauses,
    // or it has nothing to do.
    void run(uint64_t budget, const uint8_t* bytes, uint64_t count, uint64_t* taken, uint8_t* sent,
             uint64_t capacity, uint64_t* produced) {
        uint64_t quiet = 0;
        *taken = *produced = 0;
        for (const uint64_t limit = cycle + budget; cycle < limit && *produced < capacity;) {
            const bool offers = *taken < count;
            soc->received___05Fvalid = offers;
            if (offers) soc->received___05Fpayload = bytes[*taken];
            soc->sent___05Fready = 1;
            soc->clk = 0;
            soc->eval();
            const bool takes = offers && soc->received___05Fready, gives = soc->sent___05Fvalid;
            if (takes) ++*taken;
            if (gives) sent[(*produced)++] = soc->sent___05Fpayload;
            soc->clk = 1;
            soc->eval();
            ++cycle;
            quiet = takes || gives ? 0 : quiet + 1;
            if (*produced && quiet >= BURST_END_CYCLES) return;
            if (!offers && !soc->busy) return;
        }
    }

private:
    // A board without a memory chip has no port `violation`.
    template <typename Top>
    static auto violation_of(const Top& top, int) -> decltype(int(top.violation)) {
        return top.violation;
    }
    template <typename Top>
    static int violation_of(const Top&, long) { return 0; }

    void step() {
        soc->clk = 0, soc->eval();
        soc->clk = 1, soc->eval();
        ++cycle;
    }
};

}  // namespace tilewright

// What Verilator calls after it has printed a failed assertion; boards are built without them.
void vl_stop(const char*, int, const char*) VL_MT_UNSAFE {}

using tilewright::Board;

extern "C" {

Board* tw_create() { return new Board(); }
void tw_destroy(Board* board) { delete board; }
void tw_reset(Board* board) { board->reset(); }
void tw_load(Board* board, const char* name, const uint8_t* bytes, uint64_t count) {
    board->load(name, bytes, count);
}
int tw_busy(Board* board) { return board->busy(); }
uint64_t tw_cycles(Board* board) { return board->cycle; }
int tw_violation(Board* board) { return board->violation(); }
void tw_run(Board* board, uint64_t budget, const uint8_t* bytes, uint64_t count, uint64_t* taken,
            uint8_t* sent, uint64_t capacity, uint64_t* produced) {
    board->run(budget, bytes, count, taken, sent, capacity, produced);
}
}
