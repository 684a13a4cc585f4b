// Inputs and results of the timing model, and a program with its tokens matched.

#pragma once

#include <cstdint>
#include <vector>

#include "constants.h"
#include "decode.h"

namespace tilewright {

using Cycle = std::int64_t;
constexpr Cycle NEVER = Cycle(1) << 62;

// One setting of machine and memory; filled in `native.py`, in this order.
struct Setting {
    Cycle word_beats, fetch_burst_beats, fetch_buffer_beats, bus_bits_log, burst_bytes;
    Cycle fill_beat_log, destination_row_log[DESTINATIONS], source_row_log[SOURCES];
    Cycle queue_depth, remembered, outstanding;
    Cycle tile_cycles, gemm_cycles;
    Cycle latency, beats, cycles, memory_outstanding;
    // Of a shared bus; `buffered` is 0 without one.
    Cycle buffered, read_gap, write_gap, refresh_cycles, refresh_interval;
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

}  // namespace tilewright
