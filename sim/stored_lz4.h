// Stands in for <lz4.h> where Verilator's waveform writer asks for it, so that no package is needed.
//
// The blocks are valid LZ4 with nothing but literals: any reader takes them, they are only larger.
// Format: LZ4 Block Format Description (lz4.org), "the last sequence is incomplete".

#pragma once

#include <cstring>

constexpr int LZ4_SHORT_LITERALS = 15, LZ4_LENGTH_STEP = 255;

inline int LZ4_compressBound(int size) { return size + size / LZ4_LENGTH_STEP + 16; }

inline int LZ4_compress_default(const char* source, char* target, int size, int capacity) {
    if (capacity < LZ4_compressBound(size)) return 0;
    char* out = target;
    if (size < LZ4_SHORT_LITERALS) {
        *out++ = static_cast<char>(size << 4);
    } else {
        *out++ = static_cast<char>(LZ4_SHORT_LITERALS << 4);
        int rest = size - LZ4_SHORT_LITERALS;
        for (; rest >= LZ4_LENGTH_STEP; rest -= LZ4_LENGTH_STEP)
            *out++ = static_cast<char>(LZ4_LENGTH_STEP);
        *out++ = static_cast<char>(rest);
    }
    std::memcpy(out, source, size);
    return static_cast<int>(out - target) + size;
}
