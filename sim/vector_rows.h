// Rows of a VECTOR: the elements below the bound, and the statistics that go to PARAM.
//
// `isa/row_statistics.py` compiled; `reciprocals.h` is generated from its tables.

#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "columns.h"
#include "constants.h"
#include "lanes.h"
#include "machine.h"
#include "reciprocals.h"
#include "vector_kind.h"

namespace tilewright {

// `isa.row_statistics.wide` of one total by the pattern of a scale.
inline std::int32_t wide(std::int32_t value, std::uint32_t scale) {
    const int shift = 150 - FRACTION_BITS - int(scale >> 23 & 0xFF);
    const std::uint32_t magnitude = value < 0 ? 0u - std::uint32_t(value) : std::uint32_t(value);
    std::uint64_t limited = WIDE_LIMIT;
    if (magnitude < std::uint32_t(EXACT_LIMIT) && (shift >= 0 || magnitude == 0)) {
        const std::uint64_t product = std::uint64_t(magnitude) * (1u << 23 | (scale & 0x7FFFFF));
        limited = std::min<std::uint64_t>(product >> std::clamp(shift, 0, 63), WIDE_LIMIT);
    }
    const auto odd = std::int32_t(2 * limited + 1);
    return (value < 0) != (scale >> 31 != 0) ? -odd : odd;
}

// The pattern of F / x or F / sqrt(x), for x of 1 to 2**bits - 1.
inline std::uint32_t inverse(std::int64_t x, int octaves, std::uint32_t factor) {
    const std::int32_t *table = octaves == 1 ? RECIPROCALS : INVERSE_ROOTS;
    const int leading = std::bit_width(std::uint64_t(x)) - 1;
    const int left = CELL_BITS + INTERPOLATION_BITS - leading;
    const std::int64_t aligned = left >= 0 ? x << left : x >> -left;
    const auto fraction = int(aligned & ((1 << (CELL_BITS + INTERPOLATION_BITS)) - 1));
    const int cell = (leading % octaves << CELL_BITS) + (fraction >> INTERPOLATION_BITS);
    const int rest = fraction & ((1 << INTERPOLATION_BITS) - 1);
    const int fall = (table[cell] - table[cell + 1]) * rest >> INTERPOLATION_BITS;
    constexpr std::int64_t one = 1 << (SIGNIFICANT_BITS - 1);
    constexpr int dropped = 24 - SIGNIFICANT_BITS;
    const std::int64_t product =
        (one + table[cell] - fall) * (one | (factor & 0x7FFFFF) >> dropped);
    const int twice = int(product >> (2 * SIGNIFICANT_BITS - 1));
    const std::int64_t kept = product >> (SIGNIFICANT_BITS - 1 + twice);
    const int exponent = int(factor >> 23 & 0xFF) - 1 - leading / octaves + twice;
    return std::uint32_t(exponent & 0xFF) << 23 | std::uint32_t(kept - one) << dropped;
}

class VectorRows {
    const VectorKind &kind;
    const std::uint8_t *const entries;
    const std::int64_t bound, bound_step;
    const std::int32_t centre;
    std::int32_t epsilon = 0;
    std::uint32_t factor = 0;
    std::int64_t outputs = 1, extent = 1;  // of a row, and of the loop outside it
    std::int64_t place = 0, row = 0;       // of the next output
    std::int64_t count = 0, sum = 0, entry_sum = 0, maximum = -128;

    std::int64_t limit() const { return bound + row % extent * bound_step; }

    void end(std::uint32_t *param) {
        std::int64_t bias = -maximum, scaled = 0;
        std::uint32_t scale = 0;
        if (kind.measured == Statistic::SUM) {
            scaled = std::clamp<std::int64_t>(entry_sum, 1, (std::int64_t(1) << SUM_BITS) - 1);
            scale = inverse(scaled, 1, factor);
        } else if (kind.measured > Statistic::SUM) {
            const bool about_mean = kind.measured == Statistic::VARIANCE;
            bias = about_mean ? -sum : -count * centre;
            scaled = count * entry_sum - (about_mean ? sum * sum : 0) + epsilon;
            scaled = std::clamp<std::int64_t>(scaled, 1, (std::int64_t(1) << SPREAD_BITS) - 1);
            scale = inverse(scaled, 2, factor);
        }
        for (int lane = 0; lane < VECTOR_LANES; ++lane, param += 2) {
            if (kind.measured != Statistic::SUM) param[0] = std::uint32_t(bias);
            if (kind.measured > Statistic::MAXIMUM) param[1] = scale;
        }
        count = sum = entry_sum = 0, maximum = -128;
    }

public:
    VectorRows(const Machine &machine, Row row, const VectorKind &of)
        : kind(of),
          entries(machine.memories[memory::LUT] + 256 * row[vector::table]),
          bound(row[vector::bound]),
          bound_step(row[vector::bound_step]),
          centre(std::int8_t(row[vector::b_multiplier])) {
        for (int level = LEVELS - 1; level >= 0; --level) {
            Row loop = row + vector::map_loops + 5 * level;
            if (loop[0] == 1) continue;
            if (loop[4]) {
                extent = loop[0];
                break;
            }
            outputs *= loop[0];
        }
        if (kind.measured > Statistic::MAXIMUM) {
            const std::uint32_t *constants = machine.as<const std::uint32_t>(memory::PARAM) +
                                             (row[vector::param] - 1) * 2 * VECTOR_LANES;
            epsilon = std::int32_t(constants[0]), factor = constants[1];
        }
    }

    std::int32_t entry(std::int32_t byte) const {
        const std::uint8_t *found = entries + 2 * (byte + 128);
        return found[0] | found[1] << 8;
    }

    // Entries of int8 values, 0 beyond the bound.
    void look_up(const std::int32_t *values, std::int32_t *target) const {
        for (int lane = 0; lane < VECTOR_LANES; ++lane) {
            const bool valid = place * VECTOR_LANES + lane < limit();
            target[lane] = valid ? entry(values[lane]) : 0;
        }
    }

    // Take the int8 values of an output, whose parameters are at `param`.
    void take(const std::int32_t *values, std::uint32_t *param) {
        if (kind.measured != Statistic::NONE) {
            const std::int64_t left = limit() - place * VECTOR_LANES;
            const int valid = int(std::clamp<std::int64_t>(left, 0, VECTOR_LANES));
            for (int lane = 0; lane < valid; ++lane) {
                maximum = std::max<std::int64_t>(maximum, values[lane]);
                sum += values[lane];
                if (kind.looks_up_entries) entry_sum += entry(values[lane]);
            }
            count += valid;
        }
        if (++place < outputs) return;
        if (kind.measured != Statistic::NONE) end(param);
        place = 0, ++row;
    }
};

}  // namespace tilewright
