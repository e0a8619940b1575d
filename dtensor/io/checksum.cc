// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/checksum.h"

#include <fmt/format.h>

// Header-only, so that users of this library need not link xxHash.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dtensor {

struct Checksum::State {
  XXH3_state_t xxh3;
};

uint64_t checksum(const void* data, int64_t bytes) {
  return XXH3_64bits(data, static_cast<size_t>(bytes));
}

Checksum::Checksum() : state_(std::make_unique<State>()) { reset(); }

Checksum::~Checksum() = default;

void Checksum::add(const void* data, int64_t bytes) {
  XXH3_64bits_update(&state_->xxh3, data, static_cast<size_t>(bytes));
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh3); }

void Checksum::reset() { XXH3_64bits_reset(&state_->xxh3); }

std::string checksum_text(uint64_t sum) { return fmt::format("{:016x}", sum); }

}  // namespace dtensor
