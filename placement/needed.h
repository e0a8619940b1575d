// Where an operator needs its inputs under an assignment, where it leaves its
// outputs, and what each of that costs. Of choose.cc alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/cost.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// A tensor's spec under an assignment, and the move that it costs: to where an
// input is needed, or to where an output would be settled.
struct Needed {
  const Spec *spec, *from, *to;
};

Needed needed_input(const BoundRule&, std::span<const OpInput>,
                    const Assignment& legal, size_t i);

// What is put off: combining partials, and gathering what is split where no
// input was.
Needed needed_output(const BoundRule&, std::span<const OpInput>,
                     const Assignment& legal, size_t o, DType);

// The local work of the rank that has this share of the points, and the bytes.
int64_t work_ps(const BoundRule&, const OpWork&, double share, double bytes,
                const CostTable&);

// What compute() itself sends.
int64_t exchange_ps(const BoundRule&, std::span<const OpInput>, const OpWork&,
                    const Assignment& legal, const CostTable&);

}  // namespace dtensor
