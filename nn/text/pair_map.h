// SPDX-License-Identifier: Apache-2.0
// A hash table from 64-bit keys to 64-bit values, for the tables in which a
// tokenizer looks something up for each byte: merges of two tokens, and the
// edges of a trie.
#pragma once
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace dtensor::nn::text {

class PairMap {
 public:
  // The value of a key other than ~0; null if there is none.
  const uint64_t* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].first == key) return &slots_[i].second;
      if (slots_[i].first == kNone) return nullptr;
    }
  }

  // Sets the value of a key other than ~0.
  void set(uint64_t key, uint64_t value) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    size_t i = home(key);
    while (slots_[i].first != kNone && slots_[i].first != key)
      i = (i + 1) & (slots_.size() - 1);
    count_ += slots_[i].first == kNone;
    slots_[i] = {key, value};
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  size_t home(uint64_t key) const {
    // Fibonacci hashing: the high bits of the product depend on all of the key.
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >>
                               (64 - std::countr_zero(slots_.size())));
  }
  void grow() {
    const size_t size = slots_.empty() ? 16 : 2 * slots_.size();
    const auto old =
        std::exchange(slots_, std::vector(size, std::pair(kNone, uint64_t{0})));
    count_ = 0;
    for (const auto& [key, value] : old)
      if (key != kNone) set(key, value);
  }

  std::vector<std::pair<uint64_t, uint64_t>> slots_;  // size: a power of two
  size_t count_ = 0;
};

}  // namespace dtensor::nn::text
