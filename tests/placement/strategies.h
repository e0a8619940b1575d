// SPDX-License-Identifier: Apache-2.0
// The strategies of a rule, for golden texts.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// One line per strategy of a single mesh axis of size 2, as in the example of
// rule.h.
inline std::string strategies(const Rule& rule) {
  Mesh mesh({{"x", 2}});
  std::vector<Shape> shapes;
  std::vector<std::pair<char, int64_t>> sizes;
  for (const Factor& f : rule.factors()) sizes.push_back({f.letter, 4});
  for (const Rule::Term& t : rule.inputs()) {
    Shape s;
    for (const auto& d : t) {
      int64_t n = 1;
      for (size_t k = 0; k < d.size(); ++k) n *= 4;
      s.push_back(n);
    }
    shapes.push_back(s);
  }
  BoundRule bound(rule, shapes, "rule", sizes);
  std::string text;
  auto line = [&](std::string_view label, const Assignment& a) {
    text += label;
    for (size_t i = 0; i < rule.inputs().size(); ++i)
      text += (i ? "," : "") +
              bound.input_layout(a, mesh, static_cast<int>(i)).to_string(mesh);
    text += "->";
    for (size_t i = 0; i < rule.outputs().size(); ++i)
      text += (i ? "," : "") +
              bound.output_layout(a, mesh, static_cast<int>(i)).to_string(mesh);
    text += "\n";
  };
  Assignment none{std::vector<Dim>(rule.factors().size(), Dim(4)), {}};
  line("", none);
  for (const auto& factors : bound.choices()) {
    Assignment a = none;
    std::string label;
    for (int f : factors) {
      a.dims[static_cast<size_t>(f)] = Dim(4, Split::over({0}));
      label += rule.factors()[static_cast<size_t>(f)].letter;
    }
    line(label + ": ", a);
  }
  for (size_t n = 0; n < rule.notes().size(); ++n)
    for (ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      if (!rule.notes()[n].pass(op)) continue;
      Assignment a = none;
      a.passes.push_back({0, static_cast<int>(n), op});
      line("", a);
    }
  return text;
}

}  // namespace dtensor
