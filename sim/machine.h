// Shared parts of all instructions: the memories, nests of loops, and the reach of a nest.

#pragma once

#include <algorithm>
#include <cstdint>

#include "columns.h"

namespace tilewright {

using std::int64_t;
using Row = const int64_t *;  // one decoded instruction

constexpr int MEMORIES = memory::DRAM + 1;

struct Machine {
    std::uint8_t *memories[MEMORIES];
    int64_t bytes[MEMORIES];

    int64_t rows(int memory, int64_t row_bytes) const { return bytes[memory] / row_bytes; }

    template <class Element>
    Element *as(int memory) const {
        return reinterpret_cast<Element *>(memories[memory]);
    }
};

// A nest of loops that move OPERANDS addresses; levels of extent 1 are left out.
template <int OPERANDS>
struct Nest {
    int levels = 0;
    int64_t extent[LEVELS];
    int64_t stride[LEVELS][OPERANDS];

    explicit Nest(Row first) {
        for (int level = 0; level < LEVELS; ++level, first += 1 + OPERANDS) {
            if (first[0] == 1) continue;
            extent[levels] = first[0];
            std::copy_n(first + 1, OPERANDS, stride[levels++]);
        }
    }

    // Call `line(addresses, extent, strides)` for each pass of the innermost loop, in order.
    template <class Line>
    void lines(const int64_t (&base)[OPERANDS], Line line) const {
        static constexpr int64_t still[OPERANDS] = {};
        int64_t address[OPERANDS], at[LEVELS] = {};
        std::copy_n(base, OPERANDS, address);
        if (!levels) return line(address, int64_t(1), still);
        const int inner = levels - 1;
        while (true) {
            line(address, extent[inner], stride[inner]);
            int level = inner - 1;
            for (; level >= 0; --level) {
                const bool wraps = ++at[level] == extent[level];
                const int64_t step = wraps ? 1 - extent[level] : 1;
                for (int o = 0; o < OPERANDS; ++o) address[o] += step * stride[level][o];
                if (!wraps) break;
                at[level] = 0;
            }
            if (level < 0) return;
        }
    }

    // Call `step(addresses)` for each iteration, in order.
    template <class Step>
    void steps(const int64_t (&base)[OPERANDS], Step step) const {
        lines(base, [&](const int64_t *from, int64_t count, const int64_t *stride) {
            int64_t address[OPERANDS];
            std::copy_n(from, OPERANDS, address);
            for (int64_t i = 0; i < count; ++i) {
                step(address);
                for (int o = 0; o < OPERANDS; ++o) address[o] += stride[o];
            }
        });
    }
};

// Whether an operand stays in a memory of `size` granules, `run` of them per address. It moves
// with number `index` of the strides of a nest of `moved` operands.
struct Extremes {
    int64_t low, high;

    explicit Extremes(int64_t base) : low(base), high(base) {}

    Extremes &over(Row nest, int moved, int index) {
        for (int level = 0; level < LEVELS; ++level, nest += 1 + moved) {
            const int64_t reach = (nest[0] - 1) * nest[1 + index];
            (reach < 0 ? low : high) += reach;
        }
        return *this;
    }

    bool within(int64_t size, int64_t run = 1) const { return low >= 0 && high + run <= size; }
};

}  // namespace tilewright
