// SPDX-License-Identifier: Apache-2.0
// A program of a project that depends on dtensor. Runs two layers on a mesh,
// whose sum and gradient one can work out by hand, and a chat template.
#include <nlohmann/json.hpp>

#include "dtensor/dtensor.h"
#include "dtensor/nn/text/chat_template.h"
#include "dtensor/nn/text/text_pieces.h"
#include "nn/nn.h"
#include "ops/norm.h"
#include "placement/split.h"

using namespace dtensor;

int main(int argc, char** argv) {
  const ProgramOptions options{.about = "A program that uses dtensor.",
                               .mesh = "dp=2,tp=2"};
  return run(
      argc, argv,
      [](Runtime& rt) {
        const Mesh mesh = rt.mesh();
        const auto x = ones({consumer::kRows, 8}, mesh, {{"dp", Shard(0)}});
        const auto w1 = ones({8, 5}, mesh, {{"tp", Shard(1)}}).as_parameter();
        const auto w2 = ones({5, 3}, mesh, {{"tp", Shard(0)}}).as_parameter();
        static_assert(consumer::kLayers == 2);
        const auto loss = sum(matmul(matmul(x, w1), w2));
        const auto g = grad(loss, {w1, w2});
        if (rt.dry_run()) return;
        // 6 rows of 3 numbers of 8 * 5; and 6 * 8 per element of w2.
        const double error = consumer::norm(loss.item() - 720) +
                             consumer::norm(sum(g[1]).item() - 48 * 15);
        DT_CHECK(error == 0, "consumer", "the sums are off by {}", error);
        // Text needs libraries that tensors do not.
        const nn::ChatTemplate words("{{ messages | length }} messages");
        DT_CHECK(words.apply({1, 2}) == "2 messages", "consumer",
                 "the template counts wrongly");
        if (rt.rank() == 0)
          fmt::print("dtensor {} on {}: 720\n", version(), mesh.to_string());
      },
      options);
}
