// The steps that turn one layout of a tensor into another.
//
// A pure function of the two specs and the prices: equal on all ranks,
// independent of what was planned before. Partials are resolved first (a
// reduce-scatter where the destination wants that axis last on a dimension,
// else one all-reduce), then everything that remains is slices (free), one
// all-gather, or one exchange of exactly the ranges that a rank needs and does
// not have. The candidates are priced and the cheapest is returned.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/cost.h"
#include "placement/spec.h"

namespace dtensor {

enum class StepKind : uint8_t {
  kSlice,          // keep a part of what is here; nothing is sent
  kFill,           // partial-fill: coordinate 0 keeps the value, the others
                   // take the identity; nothing is sent
  kAllGather,      // pop the last axes of splits
  kAllReduce,      // partial -> whole
  kReduceScatter,  // partial -> split
  kAllToAll        // anything else between splits
};
std::string_view name(StepKind);  // "slice", "all-gather", ...

struct Step {
  StepKind kind;
  AxisMask axes;  // the group: ranks that differ in these
  const Spec *from, *to;
  ReduceOp op = ReduceOp::kSum;  // of a reduction
  // The most that any one rank receives. An all-reduce counts as the
  // reduce-scatter plus the all-gather that it equals.
  int64_t bytes = 0;
};

struct Plan {
  std::vector<Step> steps;
  int64_t bytes = 0;    // the sum over the steps
  int64_t time_ps = 0;  // under the cost table
  bool communicates() const { return bytes > 0 || sends_; }
  bool sends_ = false;  // some step is a collective, if only of empty parts
};

// Throws Error when there is no way (a partial of one kind to another, or
// specs that differ in more than their layout).
Plan plan(const Spec* from, const Spec* to, const CostTable&);

// What a collective over n local elements moves at most to one rank (elements):
// member i of p receives (p-1)*c(i) + n - c(i), c(i) its chunk of n.
int64_t all_reduce_elements(int64_t n, int64_t p);

// "all-reduce on tp: f32[8](P) -> f32[8](R), 64 bytes".
std::string to_string(const Step&);

}  // namespace dtensor
