// How a value was made. Two values of one layout, type and size look alike to a
// collective; their lineages tell them apart, so that ranks which reduce, or
// gather, different values are told so at that call.
//
// The hash folds in the operator, its arguments, and the lineages of its
// inputs. It does not count calls: a rank may compute something alone, and drop
// it. Values that no operator made (from_local(), from_global(), a checkpoint)
// have the hash of their spec, and so does a value that came from another mesh,
// whose operators ran on other ranks. Two such values of one spec, and what the
// same operators make of them, have the same lineage.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

struct Lineage {
  uint64_t hash = 0;  // the same in every process
  // The operator that made the value (it lives as long as the process; empty:
  // none did), the module that called it (kept by the rank until the run ends),
  // and how many operators that module had called before.
  std::string_view op = {};
  std::string_view path = {};
  int64_t ordinal = 0;

  // "mean, operator 4 of gpt.loss"; "" when no operator made the value.
  std::string to_string() const;
};

// Folds `x` into the hash of a lineage: quicker than hash_mix(), for all but
// the last step.
constexpr uint64_t fold_lineage(uint64_t h, uint64_t x) {
  return (h ^ (h >> 29)) * 0x9e3779b97f4a7c15ull + x;
}

}  // namespace dtensor
