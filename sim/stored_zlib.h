// Stands in for <zlib.h> where Verilator's waveform writer asks for it, so that no package is needed.
//
// The streams are valid zlib with stored blocks: any reader takes them, they are only larger.
// Format: RFC 1950 (zlib) and RFC 1951 section 3.2.4 (stored blocks).

#pragma once

#include <cstdint>
#include <cstring>

using Bytef = unsigned char;
using uLong = unsigned long;
using uLongf = uLong;
constexpr int Z_OK = 0, Z_BUF_ERROR = -5;
constexpr uLong ZLIB_STORED_BYTES = 65535;
constexpr uint32_t ZLIB_ADLER_MODULUS = 65521;

inline uLong compressBound(uLong size) { return size + 5 * (size / ZLIB_STORED_BYTES + 1) + 6; }

inline int compress2(Bytef* target, uLongf* capacity, const Bytef* source, uLong size, int) {
    if (*capacity < compressBound(size)) return Z_BUF_ERROR;
    Bytef* out = target;
    *out++ = 0x78, *out++ = 0x01;
    uLong done = 0;
    do {
        const uLong rest = size - done;
        const uLong part = rest < ZLIB_STORED_BYTES ? rest : ZLIB_STORED_BYTES;
        *out++ = part == rest;
        *out++ = part & 255, *out++ = part >> 8 & 255;
        *out++ = ~part & 255, *out++ = ~part >> 8 & 255;
        std::memcpy(out, source + done, part);
        out += part, done += part;
    } while (done < size);
    uint32_t low = 1, high = 0;
    for (uLong index = 0; index < size; ++index) {
        low = (low + source[index]) % ZLIB_ADLER_MODULUS;
        high = (high + low) % ZLIB_ADLER_MODULUS;
    }
    for (int shift : {8, 0}) *out++ = high >> shift & 255;
    for (int shift : {8, 0}) *out++ = low >> shift & 255;
    *capacity = static_cast<uLongf>(out - target);
    return Z_OK;
}
