// `decode` for Python.

#include "decode.h"

extern "C" std::int64_t tilewright_decode(const std::uint8_t *words, std::int64_t count,
                                          std::int64_t word_bytes, const tilewright::Field *fields,
                                          const tilewright::Move *moves,
                                          const tilewright::Family *families,
                                          const std::int64_t *idle, std::int64_t *rows) {
    return tilewright::decode(words, count, word_bytes, fields, moves, families, idle, rows);
}
