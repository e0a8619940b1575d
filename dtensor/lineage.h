// SPDX-License-Identifier: Apache-2.0
// The lineage of a value: how it was made. Values with the same layout, type
// and size look alike to a collective. So a collective within a mesh compares
// lineages: ranks that reduce or gather different values get an Error there.
//
// The hash combines the operator, its arguments, and the lineages of its
// inputs. It does not count calls, since a rank may compute something alone and
// drop it. Values that no operator made (from_local(), a checkpoint) have the
// hash of their spec, and so do values from another mesh, since their operators
// ran on other ranks. Two such values with one spec have the same hash, and so
// do results that the same operators compute from them. By default, the hash of
// from_global() includes a sample of the values, which are the same on all
// ranks.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

struct Lineage {
  uint64_t hash = 0;  // the same in every process
  // The operator that made the value; "" if none did. Valid until the process
  // ends.
  std::string_view op = {};
  // The module that called the operator. Valid until the run ends.
  std::string_view path = {};
  int64_t ordinal = 0;  // how many operators the module had called before

  // "mean, operator 4 of gpt.loss"; "" if no operator made the value.
  std::string to_string() const;
};

// Folds `x` into the hash of a lineage. Faster than hash_mix(), which a
// collective applies once, when it compares the hashes.
constexpr uint64_t fold_lineage(uint64_t h, uint64_t x) {
  return (h ^ (h >> 29)) * 0x9e3779b97f4a7c15ull + x;
}

}  // namespace dtensor
