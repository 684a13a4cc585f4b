// A weight tile, held so that many activation rows can be multiplied by it quickly: as a matrix, or
// channel by channel.
//
// With AVX-512 VNNI, four int8 products are summed in one step; it wants one factor unsigned, so
// 128 is added to every activation and taken from the sums again, 128 times the tile's column sums.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512VNNI__) && !defined(TILEWRIGHT_PORTABLE)
#include <immintrin.h>
#endif

namespace tilewright {

// acc[OUT] = (first ? 0 : acc[OUT]) + act[IN] * tile[IN][OUT] for one row after the other.
template <int IN, int OUT>
struct Tile {
    std::uint32_t weights[IN][OUT];

    void take(const std::int8_t *tile) {
        for (int i = 0; i < IN; ++i) {
            for (int o = 0; o < OUT; ++o) weights[i][o] = std::uint32_t(tile[i * OUT + o]);
        }
    }

    void multiply(const std::int8_t *act, std::int64_t act_stride, std::int32_t *acc,
                  std::int64_t acc_stride, std::int64_t rows, bool first) const {
        for (; rows; --rows, act += act_stride, acc += acc_stride) {
            std::uint32_t sums[OUT] = {};
            if (!first) std::memcpy(sums, acc, sizeof sums);
            for (int i = 0; i < IN; ++i) {
                const auto value = std::uint32_t(act[i]);
                for (int o = 0; o < OUT; ++o) sums[o] += value * weights[i][o];
            }
            std::memcpy(acc, sums, sizeof sums);
        }
    }
};

#if defined(__AVX512VNNI__) && !defined(TILEWRIGHT_PORTABLE)

template <int IN, int OUT>
    requires(IN % 4 == 0 && OUT % 16 == 0)
struct Tile<IN, OUT> {
    static constexpr int GROUPS = IN / 4, PARTS = OUT / 16;
    __m512i weights[GROUPS][PARTS];  // bytes [16 outputs][4 inputs]
    __m512i offsets[PARTS];

    void take(const std::int8_t *tile) {
        for (int part = 0; part < PARTS; ++part) {
            offsets[part] = _mm512_setzero_si512();
            for (int group = 0; group < GROUPS; ++group) {
                const std::int8_t *from = tile + 4 * group * OUT + 16 * part;
                const auto input = [&](int i) {
                    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i * OUT));
                };
                const __m128i low01 = _mm_unpacklo_epi8(input(0), input(1));
                const __m128i low23 = _mm_unpacklo_epi8(input(2), input(3));
                const __m128i high01 = _mm_unpackhi_epi8(input(0), input(1));
                const __m128i high23 = _mm_unpackhi_epi8(input(2), input(3));
                const __m128i quarters[] = {
                    _mm_unpacklo_epi16(low01, low23), _mm_unpackhi_epi16(low01, low23),
                    _mm_unpacklo_epi16(high01, high23), _mm_unpackhi_epi16(high01, high23)};
                __m512i packed;
                std::memcpy(&packed, quarters, sizeof packed);
                weights[group][part] = packed;
                const __m512i all_128 = _mm512_set1_epi8(char(0x80));
                offsets[part] = _mm512_dpbusd_epi32(offsets[part], all_128, packed);
            }
        }
    }

    void multiply(const std::int8_t *act, std::int64_t act_stride, std::int32_t *acc,
                  std::int64_t acc_stride, std::int64_t rows, bool first) const {
        const Tile held = *this;
        for (; rows; --rows, act += act_stride, acc += acc_stride) {
            __m512i sums[PARTS];
            for (int part = 0; part < PARTS; ++part) {
                const __m512i before =
                    first ? _mm512_setzero_si512() : _mm512_loadu_si512(acc + 16 * part);
                sums[part] = _mm512_sub_epi32(before, held.offsets[part]);
            }
            for (int group = 0; group < GROUPS; ++group) {
                std::uint32_t four;
                std::memcpy(&four, act + 4 * group, 4);
                const __m512i values = _mm512_set1_epi32(int(four ^ 0x80808080u));
                for (int part = 0; part < PARTS; ++part) {
                    sums[part] =
                        _mm512_dpbusd_epi32(sums[part], values, held.weights[group][part]);
                }
            }
            for (int part = 0; part < PARTS; ++part) {
                _mm512_storeu_si512(acc + 16 * part, sums[part]);
            }
        }
    }
};

#endif

template <int COUNT>
using Lanes [[gnu::vector_size(4 * COUNT)]] = std::uint32_t;

// The same for a depthwise GEMM: acc[o] += act[k lines and j rows before][channel of o] *
// tile[k * TAPS + j][o] for each tap j of the LINES last lines. A line is a call; rows before it and
// lines before the first of `lines` are zero.
template <int IN, int OUT, int TAPS, int LINES>
struct Taps {
    static constexpr int CHANNELS = IN < OUT ? IN : OUT, GROUPS = OUT / CHANNELS;
    using Words = Lanes<CHANNELS>;
    Words weights[LINES * TAPS][GROUPS];
    int first_channel;
    std::int64_t lines, line_stride, line = 0;

    Taps(int part, std::int64_t lines, std::int64_t line_stride)
        : first_channel(part * OUT), lines(lines), line_stride(line_stride) {}

    static void widen(const std::int8_t *from, Words &to) {
        for (int i = 0; i < CHANNELS; ++i) to[i] = std::uint32_t(from[i]);
    }

    void take(const std::int8_t *tile) {
        line = 0;
        for (int j = 0; j < LINES * TAPS; ++j) {
            for (int g = 0; g < GROUPS; ++g) widen(tile + j * OUT + g * CHANNELS, weights[j][g]);
        }
    }

    void multiply(const std::int8_t *act, std::int64_t act_stride, std::int32_t *acc,
                  std::int64_t acc_stride, std::int64_t rows, bool first) {
        const Taps held = *this;
        const int reached_lines = int(line < LINES ? line + 1 : LINES);
        if (++line == lines) line = 0;
        act += first_channel;
        const auto step = [&](int reached) {
            Words sums[GROUPS] = {}, values;
            if (!first) std::memcpy(sums, acc, sizeof sums);
            for (int k = 0; k < reached_lines; ++k) {
                for (int j = 0; j < reached; ++j) {
                    widen(act - k * held.line_stride - j * act_stride, values);
                    for (int g = 0; g < GROUPS; ++g) {
                        sums[g] += values * held.weights[k * TAPS + j][g];
                    }
                }
            }
            std::memcpy(acc, sums, sizeof sums);
            act += act_stride;
            acc += acc_stride;
        };
        std::int64_t row = 0;
        for (; row < rows && row < TAPS - 1; ++row) step(int(row) + 1);
        for (; row < rows; ++row) step(TAPS);  // a constant, so that the loop over taps unrolls
    }
};

}  // namespace tilewright
