// The way of a VECTOR's result through the stages: properties of `isa.instructions.Vector`.

#pragma once

#include <cstdint>

#include "columns.h"

namespace tilewright {

struct VectorKind {
    const ResultKind result;
    const bool to_acc, gives_entries, stays_total, becomes_byte;
    const Statistic measured;
    const bool looks_up_entries, looks_up_bytes, has_rows;

    explicit VectorKind(const std::int64_t *row)
        : result(ResultKind(row[vector::result])),
          to_acc(row[vector::to_acc]),
          gives_entries(to_acc && result == ResultKind::ENTRY),
          stays_total(to_acc && result == ResultKind::USUAL),
          becomes_byte(!to_acc || gives_entries || result == ResultKind::NONE),
          measured(becomes_byte ? Statistic(row[vector::statistic]) : Statistic::NONE),
          looks_up_entries(gives_entries || measured > Statistic::MAXIMUM),
          looks_up_bytes(row[vector::lookup] && !looks_up_entries),
          has_rows(gives_entries || measured != Statistic::NONE) {}
};

}  // namespace tilewright
