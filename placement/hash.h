// SPDX-License-Identifier: Apache-2.0
// Hashes that are the same in every process and on every machine.
#pragma once
#include <cstdint>
#include <string_view>

namespace dtensor {

// Folds `x` into `h`: Boost's hash_combine, then the finaliser of splitmix64.
constexpr uint64_t hash_mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9ull;
  h ^= h >> 27;
  h *= 0x94d049bb133111ebull;
  return h ^ (h >> 31);
}

constexpr uint64_t hash_text(std::string_view s, uint64_t h = 0) {
  for (char c : s) h = hash_mix(h, static_cast<unsigned char>(c));
  return hash_mix(h, s.size());
}

}  // namespace dtensor
