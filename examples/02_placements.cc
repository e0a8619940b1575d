// SPDX-License-Identifier: Apache-2.0
// Shows one tensor in several layouts: the part that each rank holds, and the
// steps from one layout to another.
//
//   bazel run //examples:02_placements -- --mesh a=2,b=2
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

std::string ranges(const Region& region) {
  std::string text;
  for (const IntervalList& list : region)
    for (const Interval& r : list) text += fmt::format(" [{},{})", r.lo, r.hi);
  return text;
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const bool is_rank_0 = rt.rank() == 0;
  // 5 rows cannot be split evenly in 2: part i of p has the rows in [floor(5 *
  // i / p), floor(5 * (i + 1) / p)).
  const DistTensor whole = view(arange(10, mesh, {}, DType::kF32), {5, 2});
  for (const char* text : {"R,R", "S0,R", "S0,S1", "S0,S0"}) {
    const DistTensor x =
        whole.redistribute(text);  // slices only; nothing is sent
    if (is_rank_0) {
      fmt::print("{}\n", x.spec()->to_string());
      for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank)
        fmt::print("  rank {} holds{}\n", rank,
                   ranges(x.spec()->region(mesh.coordinate(rank))));
    }
    if (!rt.dry_run())
      for (int64_t i = 0; i < 10; ++i)
        DT_CHECK(x.full().at(i) == static_cast<double>(i), "02_placements",
                 "element {} in layout {} is {}; expected {}", i, text,
                 x.full().at(i), i);
  }
  // The sum over rows that are split along axis a is a partial value: every
  // rank along the axis holds a summand.
  const DistTensor rows = whole.redistribute("S0,R");
  const DistTensor columns_of_sums = sum(rows, {0});
  if (is_rank_0) {
    fmt::print("sum over split rows: {}\n",
               columns_of_sums.spec()->to_string());
    for (const auto& [from, to] :
         {std::pair{"P,R", "R,R"}, {"P,R", "S0,R"}, {"S0,R", "R,S0"}}) {
      const Spec* a =
          Spec::get(mesh, {8}, parse_layout(from, mesh, {8}), DType::kF32);
      const Spec* b = a->with(parse_layout(to, mesh, {8}));
      fmt::print("{} -> {}:\n", from, to);
      for (const Step& step : plan(a, b, CostTable{}).steps)
        fmt::print("  {}\n", to_string(step));
    }
  }
  if (rt.dry_run()) return;
  const Tensor sums = columns_of_sums.full();
  DT_CHECK(sums.at(0) == 20 && sums.at(1) == 25, "02_placements",
           "the sums are {} and {}; expected 20 and 25", sums.at(0),
           sums.at(1));
  if (is_rank_0) fmt::print("its value: {} {}\n", sums.at(0), sums.at(1));
}

}  // namespace

int main(int argc, char** argv) {
  return run(
      argc, argv, example,
      {.about = "Shows the parts that ranks hold, and how layouts change.",
       .mesh = "a=2,b=2",
       .axes = {"a", "b"}});
}
