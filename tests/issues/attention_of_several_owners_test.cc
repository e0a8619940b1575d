// SPDX-License-Identifier: Apache-2.0
// Attention refused keys or queries of which several ranks hold an index,
// though it computes on one owner of each.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/attention.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

using Values = std::vector<std::vector<double>>;

// The output and the gradients of q, k and v in these layouts.
Values attend(const Mesh& m, const std::vector<const char*>& layouts,
              const AttentionOptions& options) {
  std::vector<DistTensor> in;
  for (size_t i = 0; i < 3; ++i)
    in.push_back(randn({2, 5, 4, 2}, m, layouts[i], DType::kF64, {7, i})
                     .set_requires_grad());
  const DistTensor y = attention(in[0], in[1], in[2], options);
  Values all{y.full().to_doubles()};
  for (const DistTensor& g : grad(sum(y * y * y), in))
    all.push_back(g.full().to_doubles());
  return all;
}

TEST(Attention, OfSeveralOwners) {
  const std::vector<std::vector<const char*>> cases[] = {
      {{"S1", "[{},(1{a}|4),{},{}]", "R"},
       {"[{},(1{a}|4),{},{}]", "[{},(2{a}|3),{},{}]", "[{},(4|1{a}),{},{}]"},
       {"S1", "S1", "[{},{},(1|3{a}),{}]"},
       {"[{},(3|2{a}),{},{}]", "S1", "S1"}},
      {{"S1,R", "[{},(1{a,b}|4{b,a}),{},{}]", "R,R"},
       {"[{},(2{a,b}|3{b}),{},{}]", "[{},(2{a}|3{b,a}),{},{}]", "S1,S2"},
       {"S1,S2", "S1,R", "[{},{a},(1|3{b}),{}]"},
       {"[{},{a},(2{b}|2),{}]", "[{},{a},(3{b}|1),{}]", "S1,R"}}};
  for (const bool causal : {false, true})
    for (const auto context : {ContextParallel::kAuto, ContextParallel::kRing,
                               ContextParallel::kAllToAll}) {
      AttentionOptions options;
      options.causal = causal;
      options.context = context;
      Values want;
      run(1, [&](Runtime&) {
        want = attend(Mesh::parse("a=1"), {"R", "R", "R"}, options);
      });
      const auto check = [&](const char* mesh, const auto& list) {
        const Mesh m = Mesh::parse(mesh);
        run(m.num_ranks(), [&](Runtime&) {
          for (const auto& layouts : list) {
            const Values got = attend(m, layouts, options);
            for (size_t i = 0; i < want.size(); ++i)
              for (size_t k = 0; k < want[i].size(); ++k)
                ASSERT_NEAR(got[i][k], want[i][k], 1e-12)
                    << layouts[0] << " " << layouts[1] << " " << layouts[2];
          }
        });
      };
      check("a=2", cases[0]);
      check("a=2,b=2", cases[1]);
    }
}

}  // namespace
}  // namespace dtensor
