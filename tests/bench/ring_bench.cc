// SPDX-License-Identifier: Apache-2.0
// Compares causal attention in a ring with attention on one rank, in turns, by
// the time per score that a rank computes. Also measures how much of the
// communication is not hidden by work.
//
//   bazel run -c opt //tests/bench:ring_bench -- --help
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "dtensor/ops/attention.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scoped.h"
#include "dtensor/text_table.h"
#include "tests/bench/rounds.h"
#include "tests/command_line.h"

namespace dtensor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kHeads = 4, kHeadSize = 64;

// q, k, v and a cotangent of one sequence on a mesh.
struct Sequence {
  std::vector<DistTensor> in;
  DistTensor seed;
  double spent = 0, exposed = 0;  // seconds, of all passes

  Sequence(const Mesh& mesh, int64_t tokens) {
    const Shape shape{1, tokens, kHeads, kHeadSize};
    Layout layout = Layout::replicated(shape);
    layout.dims[1] = zigzag(tokens, mesh, 0);
    for (uint64_t i = 0; i < 3; ++i)
      in.push_back(
          randn(shape, mesh, layout, DType::kF32, {3, i}).set_requires_grad());
    seed = randn(shape, mesh, layout, DType::kF32, {3, 9});
  }

  // Returns the seconds of a forward and a backward pass.
  double time() {
    RankContext& context = RankContext::current();
    const Scoped<bool> record(context.record, true);
    const auto start = Clock::now();
    const int64_t before = context.exposed_ns;
    const DistTensor y =
        attention(in[0], in[1], in[2],
                  {.causal = true, .context = ContextParallel::kRing});
    grad(y, in, {.cotangent = seed});
    const std::chrono::duration<double> took = Clock::now() - start;
    spent += took.count();
    exposed += static_cast<double>(context.exposed_ns - before) / 1e9;
    context.events.clear();
    return took.count();
  }
};

void compare(int64_t ranks, int64_t rounds, int64_t tokens) {
  run(ranks, [&](Runtime& rt) {
    const Mesh all = rt.mesh({{"cp", ranks}});
    // A sequence on one rank with as many scores as a rank of the ring
    // computes. Every rank has its own.
    const auto alone = static_cast<int64_t>(
        std::sqrt(static_cast<double>(tokens) * static_cast<double>(tokens) /
                  static_cast<double>(ranks)));
    const Mesh own = Mesh({{"cp", 1}}, {rt.rank()});
    Sequence ring(all, tokens), one(own, alone);
    const auto times =
        take_rounds(rt.context().communicator(all, all.all_axes()),
                    {{"one rank", [&] { return one.time(); }},
                     {"ring", [&] { return ring.time(); }}},
                    rounds)
            .times;
    if (rt.rank() != 0) return;
    const auto scores = [&](const Mesh& mesh, int64_t n) {
      return static_cast<double>(
          score_pairs(parts_of(zigzag(n, mesh, 0), mesh)[0], {{0, n}}, true));
    };
    const double pairs[] = {scores(own, alone), scores(all, tokens)};
    TextTable table("lrrr", {"", "tokens", "median ms", "ns per score"});
    const int64_t lengths[] = {alone, tokens};
    for (size_t i = 0; i < 2; ++i) {
      std::vector<double> sorted = times[i];
      std::sort(sorted.begin(), sorted.end());
      table.add({i ? fmt::format("ring of {}", ranks) : "one rank",
                 std::to_string(lengths[i]),
                 fmt::format("{:.2f}", 1e3 * median(sorted)),
                 fmt::format("{:.4f}", 1e9 * median(sorted) / pairs[i])});
    }
    std::fputs(table.to_string().c_str(), stdout);
    const Ratio r = ratio(times[1], times[0]);
    const double scale = pairs[0] / pairs[1];
    fmt::print("per score, ring / one rank: {:.3f} ({:.3f} to {:.3f})\n",
               r.median * scale, r.low * scale, r.high * scale);
    fmt::print(
        "communication that nothing hides: {:.2f} % of the ring's time\n",
        100 * ring.exposed / ring.spent);
  });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 15, ranks = 2, tokens = 4096;
  flags.add("--rounds", &rounds, "how often each runs", 1, 100000);
  flags.add("--ranks", &ranks, "of the ring", 1, 64);
  // With 128 tokens, every chunk of every rank has some.
  flags.add("--tokens", &tokens, "of the ring's sequence", 128, 1 << 20);
  return parse_and_run(flags, "Causal attention in a ring against one rank's.",
                       argc, argv, [&] {
                         dtensor::compare(ranks, rounds, tokens);
                         return 0;
                       });
}
