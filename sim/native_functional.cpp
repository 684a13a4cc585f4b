// The effects of a program on the memories, in program order: `isa/semantics.py` compiled.
//
// Each instruction's extreme addresses are checked before the first one runs, so that nothing is
// read or written outside the arrays whatever the program. Sums wrap, hence unsigned arithmetic.
// Generated for a machine (`native_functional.py`): `columns.h`, `lanes.h`, `operations.h`,
// `reciprocals.h`.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "columns.h"
#include "lanes.h"
#include "machine.h"
#include "multiply_tile.h"
#include "operations.h"
#include "vector_kind.h"
#include "vector_rows.h"
#include "vector_step.h"

namespace tilewright {

// LOAD and STORE --------------------------------------------------------------------------------

// Runs of `length` bytes; where an inner loop continues a run on both sides, it is one run.
void copy(std::uint8_t *target, const std::uint8_t *source, int64_t length, Nest<2> nest,
          int64_t from, int64_t to) {
    while (nest.levels) {
        const int inner = nest.levels - 1;
        if (nest.stride[inner][0] != length || nest.stride[inner][1] != length) break;
        length *= nest.extent[inner];
        --nest.levels;
    }
    nest.steps({from, to}, [=](const int64_t *address) {
        std::memcpy(target + address[1], source + address[0], length);
    });
}

// Tiles of 4 bits, each behind the factors of its columns; returns the bytes of WGT.
constexpr int64_t unpacked(int64_t length) {
    return length / ((LANES_IN + 1) * PACKED_ROW_BYTES) * LANES_IN * LANES_OUT;
}

void unpack(std::uint8_t *target, const std::uint8_t *source, int64_t length) {
    for (int64_t tiles = length / ((LANES_IN + 1) * PACKED_ROW_BYTES); tiles; --tiles) {
        const std::uint8_t *const factors = source;
        source += PACKED_ROW_BYTES;
        for (int row = 0; row < LANES_IN; ++row, source += PACKED_ROW_BYTES) {
            for (int byte = 0; byte < PACKED_ROW_BYTES; ++byte) {
                const auto pair = std::int8_t(source[byte]);
                const int low = std::int8_t(pair * 16) >> 4, high = pair >> 4;
                *target++ = std::uint8_t(low * (factors[byte] & 15));
                *target++ = std::uint8_t(high * (factors[byte] >> 4));
            }
        }
    }
}

// Bytes of the scratchpad from the first to the last byte of a run.
int64_t placed(Row row) {
    const int64_t length = row[load::length];
    if (row[load::transpose]) return (length - 1) * LANES_OUT + 1;
    return row[load::unpack] ? unpacked(length) : length;
}

bool load_fits(const Machine &machine, Row row) {
    const int64_t length = row[load::length];
    Row loops = row + load::loops;
    const bool reads =
        row[load::fill] || Extremes(row[load::memory])
                               .over(loops, 2, 0)
                               .within(machine.bytes[memory::DRAM], length);
    return reads && Extremes(row[load::local])
                        .over(loops, 2, 1)
                        .within(machine.bytes[row[load::destination]], placed(row));
}

void run_load(const Machine &machine, Row row) {
    std::uint8_t *target = machine.memories[row[load::destination]];
    const Nest<2> nest(row + load::loops);
    const int64_t length = row[load::length];
    if (row[load::unpack]) {
        const std::uint8_t *source = machine.memories[memory::DRAM];
        return nest.steps({row[load::memory], row[load::local]}, [=](const int64_t *address) {
            unpack(target + address[1], source + address[0], length);
        });
    }
    if (row[load::transpose]) {
        const std::uint8_t *source = machine.memories[memory::DRAM];
        return nest.steps({row[load::memory], row[load::local]}, [=](const int64_t *address) {
            for (int64_t byte = 0; byte < length; ++byte) {
                target[address[1] + byte * LANES_OUT] = source[address[0] + byte];
            }
        });
    }
    if (!row[load::fill]) {
        return copy(target, machine.memories[memory::DRAM], length, nest, row[load::memory],
                    row[load::local]);
    }
    nest.steps({0, row[load::local]}, [=](const int64_t *address) {
        std::memset(target + address[1], int(row[load::value]), length);
    });
}

int store_source(Row row) { return row[store::source] ? memory::ACC : memory::ACT; }

bool store_fits(const Machine &machine, Row row) {
    const int64_t length = row[store::length];
    Row loops = row + store::loops;
    return Extremes(row[store::local])
               .over(loops, 2, 0)
               .within(machine.bytes[store_source(row)], length) &&
           Extremes(row[store::memory])
               .over(loops, 2, 1)
               .within(machine.bytes[memory::DRAM], length);
}

void run_store(const Machine &machine, Row row) {
    copy(machine.memories[memory::DRAM], machine.memories[store_source(row)], row[store::length],
         Nest<2>(row + store::loops), row[store::local], row[store::memory]);
}

// GEMM ------------------------------------------------------------------------------------------

bool gemm_fits(const Machine &machine, Row row) {
    Row tiles = row + gemm::tile_loops, rows = row + gemm::row_loops;
    const int64_t act_rows = machine.rows(memory::ACT, LANES_IN);
    const int64_t wgt_tiles = machine.rows(memory::WGT, LANES_IN * LANES_OUT);
    const int64_t acc_rows = machine.rows(memory::ACC, 4 * LANES_OUT);
    return Extremes(row[gemm::act]).over(tiles, 3, 0).over(rows, 2, 0).within(act_rows) &&
           Extremes(row[gemm::wgt]).over(tiles, 3, 1).within(wgt_tiles) &&
           Extremes(row[gemm::acc]).over(tiles, 3, 2).over(rows, 2, 1).within(acc_rows);
}

void run_gemm(const Machine &machine, Row row) {
    const auto *act = machine.as<const std::int8_t>(memory::ACT);
    const auto *wgt = machine.as<const std::int8_t>(memory::WGT);
    auto *acc = machine.as<std::int32_t>(memory::ACC);
    const Nest<2> rows(row + gemm::row_loops);

    // A fourth address counts, for each tile, the reductions that are past their first iteration.
    int64_t widened[LEVELS][5];
    for (int level = 0; level < LEVELS; ++level) {
        std::copy_n(row + gemm::tile_loops + 4 * level, 4, widened[level]);
        widened[level][4] = widened[level][3] == 0;
    }
    const Nest<4> tiles(widened[0]);
    const int64_t base[4] = {row[gemm::act], row[gemm::wgt], row[gemm::acc], row[gemm::accumulate]};
    const auto run = [&](auto tile) {
        tiles.steps(base, [&](const int64_t *at) {
            tile.take(wgt + at[1] * LANES_IN * LANES_OUT);
            const bool first = at[3] == 0;
            const auto line = [&](const int64_t *from, int64_t count, const int64_t *stride) {
                tile.multiply(act + from[0] * LANES_IN, stride[0] * LANES_IN,
                              acc + from[1] * LANES_OUT, stride[1] * LANES_OUT, count, first);
            };
            rows.lines({at[0], at[2]}, line);
        });
    };
    if constexpr (DEPTHWISE_TAPS > 0) {
        if (row[gemm::depthwise]) {
            const int inner = rows.levels - 1;
            const bool keeps = inner > 0 && rows.extent[inner] <= LINE_STEPS;
            const bool combines = WINDOW_LINES > 1 && keeps;
            return run(Taps<LANES_IN, LANES_OUT, DEPTHWISE_TAPS, WINDOW_LINES>(
                int(row[gemm::part]), combines ? rows.extent[inner - 1] : 1,
                combines ? rows.stride[inner - 1][0] * LANES_IN : 0));
        }
    }
    run(Tile<LANES_IN, LANES_OUT>());
}

// VECTOR ----------------------------------------------------------------------------------------

bool vector_fits(const Machine &machine, Row row) {
    Row maps = row + vector::map_loops, reduces = row + vector::reduce_loops;
    const int64_t act = machine.rows(memory::ACT, VECTOR_LANES);
    const int64_t acc = machine.rows(memory::ACC, 4 * VECTOR_LANES);
    const int64_t combine = row[vector::combine];
    const VectorKind kind(row);
    const bool writes_param = kind.measured != Statistic::NONE;
    const bool takes_param = row[vector::bias] || row[vector::scale] || writes_param;
    const int64_t constants = kind.measured > Statistic::MAXIMUM, tables = 1 + kind.looks_up_entries;
    return (kind.result == ResultKind::NONE ||
            Extremes(row[vector::dst]).over(maps, 4, 0).within(kind.to_acc ? acc : act)) &&
           Extremes(row[vector::a])
               .over(maps, 4, 1)
               .over(reduces, 2, 0)
               .within(row[vector::a_from_acc] ? acc : act) &&
           (!reads_b(combine) ||
            Extremes(row[vector::b]).over(maps, 4, 2).over(reduces, 2, 1).within(act)) &&
           (!takes_param || Extremes(row[vector::param])
                                .over(maps, 4, 3)
                                .within(machine.rows(memory::PARAM, 8 * VECTOR_LANES))) &&
           row[vector::param] >= constants &&
           row[vector::table] + tables <= machine.rows(memory::LUT, 256) && combine < OPERATIONS;
}

void run_vector(const Machine &machine, Row row) {
    const VectorStep step(machine, row);
    const Nest<4> maps(row + vector::map_loops);
    const Nest<2> reduces(row + vector::reduce_loops);
    VectorRows rows(machine, row, step.kind);
    VectorRows *const taking = step.kind.has_rows ? &rows : nullptr;
    auto *params = machine.as<std::uint32_t>(memory::PARAM);
    const int64_t base[4] = {row[vector::dst], row[vector::a], row[vector::b], row[vector::param]};
    maps.steps(base, [&](const int64_t *at) {
        VectorStep::Slice total, x;
        bool begun = false;
        reduces.steps({at[1], at[2]}, [&](const int64_t *operands) {
            if (!begun) {
                step.combined(operands[0], operands[1], total);
            } else {
                step.combined(operands[0], operands[1], x);
                step.reduced(x, total);
            }
            begun = true;
        });
        step.finish(total, params + at[3] * 2 * VECTOR_LANES, at[0], taking);
    });
}

// Programs --------------------------------------------------------------------------------------

bool fits(const Machine &machine, Row row) {
    switch (row[OPCODE]) {
        case load::code:
            return load_fits(machine, row);
        case gemm::code:
            return gemm_fits(machine, row);
        case vector::code:
            return vector_fits(machine, row);
        case store::code:
            return store_fits(machine, row);
        default:
            return row[OPCODE] == sync::code;
    }
}

}  // namespace tilewright

// Run int64[count, COLUMNS] up to HALT. Returns -1, or, with nothing executed, the index of the
// first instruction that leaves a memory or means nothing.
extern "C" int64_t tilewright_run(const tilewright::Machine *machine, const int64_t *rows,
                                  int64_t count) {
    using namespace tilewright;
    for (int64_t index = 0; index < count; ++index) {
        Row row = rows + index * COLUMNS;
        if (row[OPCODE] == halt::code) {
            count = index;
        } else if (!fits(*machine, row)) {
            return index;
        }
    }
    for (int64_t index = 0; index < count; ++index) {
        Row row = rows + index * COLUMNS;
        switch (row[OPCODE]) {
            case load::code:
                run_load(*machine, row);
                break;
            case gemm::code:
                run_gemm(*machine, row);
                break;
            case vector::code:
                run_vector(*machine, row);
                break;
            case store::code:
                run_store(*machine, row);
                break;
        }
    }
    return -1;
}
