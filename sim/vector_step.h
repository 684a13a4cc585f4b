// VECTOR on one slice: combine, reduce, and all that follows the reduction.
//
// Requantisation is `isa.numbers.requantise`, for every accumulator and every pattern of a scale.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "columns.h"
#include "constants.h"
#include "lanes.h"
#include "machine.h"
#include "operations.h"
#include "vector_kind.h"
#include "vector_rows.h"

namespace tilewright {

inline std::int32_t limit(std::int32_t value, std::int32_t low, std::int32_t high) {
    return std::min(std::max(value, low), high);
}

// `isa.numbers.requantise` of one value by the pattern of a scale.
inline std::int32_t requantise(std::int32_t value, std::uint32_t scale) {
    const bool finite = (scale & 0x7F800000u) != 0x7F800000u;
    const std::uint32_t factor = finite ? scale : (scale & 0x80000000u) | 0x7F000000u;
    const float product = std::rint(float(value) * std::bit_cast<float>(factor));
    const float limited = std::min(std::max(product, float(-SATURATED)), float(SATURATED));
    const bool negative = (value < 0) != (factor >> 31 != 0);
    const bool inexact = value >= EXACT_LIMIT || value <= -EXACT_LIMIT;
    return inexact ? (negative ? -SATURATED : SATURATED) : std::int32_t(limited);
}

struct VectorStep {
    static constexpr int LANES = VECTOR_LANES;
    using Slice = std::int32_t[LANES];

    const Machine &machine;
    const VectorKind kind;
    const int64_t combine;
    const ReduceMode reduce;
    const bool a_from_acc, bias, scale;
    const std::int32_t a_multiplier, b_multiplier;
    const std::int32_t zero_point, low, high;
    const std::int8_t *table;

    VectorStep(const Machine &owner, Row row)
        : machine(owner),
          kind(row),
          combine(row[vector::combine]),
          reduce(ReduceMode(row[vector::reduce])),
          a_from_acc(row[vector::a_from_acc]),
          bias(row[vector::bias]),
          scale(row[vector::scale]),
          a_multiplier(a_from_acc ? 1 : std::int32_t(row[vector::a_multiplier])),
          b_multiplier(std::int32_t(row[vector::b_multiplier])),
          zero_point(std::int32_t(row[vector::zero_point])),
          low(std::int32_t(row[vector::low])),
          high(std::int32_t(row[vector::high])),
          table(owner.as<const std::int8_t>(memory::LUT) + 256 * row[vector::table]) {}

    std::int8_t *act(int64_t slice) const {
        return machine.as<std::int8_t>(memory::ACT) + slice * LANES;
    }

    std::int32_t *acc(int64_t slice) const {
        return machine.as<std::int32_t>(memory::ACC) + slice * LANES;
    }

    // x = combine(a, b)
    void combined(int64_t a_slice, int64_t b_slice, Slice &x) const {
        if (a_from_acc) {
            std::copy_n(acc(a_slice), LANES, x);
        } else {
            std::copy_n(act(a_slice), LANES, x);
        }
        if (is_a(combine)) return;
        Slice b;
        std::copy_n(act(reads_b(combine) ? b_slice : 0), LANES, b);
        with_operation(combine, a_multiplier, b_multiplier, [&](auto law) {
            for (int i = 0; i < LANES; ++i) x[i] = law(x[i], b[i]);
        });
    }

    void reduced(const Slice &x, Slice &total) const {
        for (int i = 0; i < LANES; ++i) {
            total[i] = reduce == ReduceMode::MAX
                           ? std::max(total[i], x[i])
                           : std::int32_t(std::uint32_t(total[i]) + std::uint32_t(x[i]));
        }
    }

    // Everything after the reduction; `param` holds pairs of a bias and a scale.
    void finish(Slice &t, std::uint32_t *param, int64_t dst, VectorRows *rows) const {
        if (bias) {
            for (int i = 0; i < LANES; ++i) {
                t[i] = std::int32_t(std::uint32_t(t[i]) + param[2 * i]);
            }
        }
        if (!kind.becomes_byte) {
            if (!kind.stays_total) {
                constexpr std::uint32_t one = 0x3F800000;
                for (int i = 0; i < LANES; ++i) t[i] = wide(t[i], scale ? param[2 * i + 1] : one);
            }
            std::copy_n(t, LANES, acc(dst));
            return;
        }
        for (int i = 0; i < LANES; ++i) {
            t[i] = scale ? requantise(t[i], param[2 * i + 1]) : limit(t[i], -SATURATED, SATURATED);
        }
        for (int i = 0; i < LANES; ++i) {
            const std::int32_t saturated = limit(t[i] + zero_point, -128, 127);
            t[i] = std::min(std::max(saturated, low), high);
        }
        if (kind.gives_entries) {
            rows->look_up(t, acc(dst));
        } else if (kind.result != ResultKind::NONE) {
            std::int8_t *target = act(dst);
            for (int i = 0; i < LANES; ++i) {
                target[i] = kind.looks_up_bytes ? table[t[i] + 128] : std::int8_t(t[i]);
            }
        }
        if (rows) rows->take(t, param);
    }
};

}  // namespace tilewright
