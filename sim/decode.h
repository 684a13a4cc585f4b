// Instruction words to rows of fields, one int64 each, driven by tables that Python derives from
// the contract: nothing here knows a field's place or width. Rows have strides instead of jumps.
//
// `columns.h` is generated beside this file (`sim/decode.py`): which column of a row a field has.

#pragma once

#include <cstdint>
#include <cstring>

#include "columns.h"

namespace tilewright {

using Row = const std::int64_t *;

struct Field {
    std::int64_t column, bit, bits, is_signed, offset;
};

// How a loop level moves an operand: columns of its extent and of its jump, which becomes a stride.
struct Move {
    std::int64_t extent, column, bits, is_innermost;
};

struct Family {
    std::int64_t first, end;  // of its fields; equal where no family has the opcode
    std::int64_t first_move, end_move;
};

// Decode `count` words into int64[count, COLUMNS]; loop levels that a configuration does not have
// get extent 1. Returns the index of the first word whose opcode means nothing, or `count`.
inline std::int64_t decode(const std::uint8_t *words, std::int64_t count, std::int64_t word_bytes,
                           const Field *fields, const Move *moves, const Family *families,
                           const std::int64_t *idle, std::int64_t *rows) {
    for (std::int64_t index = 0; index < count; ++index) {
        const std::uint8_t *word = words + index * word_bytes;
        const std::int64_t opcode = word[0] & 15;
        const Family family = families[opcode];
        if (family.first == family.end) return index;
        std::int64_t *row = rows + index * COLUMNS;
        std::memcpy(row, idle + opcode * COLUMNS, sizeof(std::int64_t) * COLUMNS);
        for (const Field *field = fields + family.first; field != fields + family.end; ++field) {
            std::int64_t byte = field->bit >> 3;
            if (byte > word_bytes - 8) byte = word_bytes - 8;
            std::uint64_t bits;
            std::memcpy(&bits, word + byte, 8);
            const int above = int(64 - field->bits - (field->bit - 8 * byte));
            const int drop = int(64 - field->bits);
            bits <<= above;
            row[field->column] =
                (field->is_signed ? std::int64_t(bits) >> drop : std::int64_t(bits >> drop)) +
                field->offset;
        }
        std::int64_t inside = 0;  // the way that an operand moves in the levels inside
        for (const Move *move = moves + family.first_move; move != moves + family.end_move; ++move) {
            if (move->is_innermost) inside = 0;
            const std::int64_t extent = row[move->extent];
            if (extent == 1) continue;
            const int drop = int(64 - move->bits);
            std::int64_t &stride = row[move->column];
            stride = std::int64_t(std::uint64_t(stride + inside) << drop) >> drop;
            inside += (extent - 1) * stride;
        }
    }
    return count;
}

}  // namespace tilewright
