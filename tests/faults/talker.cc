// SPDX-License-Identifier: Apache-2.0
// A program whose processes do all that processes of a run do together: they
// meet, compare their flags, run twice, send short and long messages, agree on
// how the run ends, collect their traces, and leave. meddle.cc is linked into
// it.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor::testing {
namespace {

// Sums i + rank over the ranks, for each i below n, and checks the sums.
void sum(Communicator& all, int64_t n) {
  std::vector<double> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    x[static_cast<size_t>(i)] = static_cast<double>(i + all.rank());
  all.all_reduce({StepKind::kAllReduce, "sum", 1}, {}, ReduceOp::kSum,
                 DType::kF64, x.data(), n);
  const int64_t p = all.size();
  for (int64_t i = 0; i < n; ++i)
    DT_CHECK(x[static_cast<size_t>(i)] ==
                 static_cast<double>(p * i + p * (p - 1) / 2),
             "talker", "element {} of {} is {}: a wrong value", i, n,
             x[static_cast<size_t>(i)]);
}

void talk(Runtime& rt) {
  std::vector<int64_t> ranks(static_cast<size_t>(rt.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  Communicator& all = rt.context().communicator(ranks);
  all.barrier({StepKind::kBarrier, "start", 1});
  for (int64_t n : {8, 5000}) sum(all, n);
  std::vector<int64_t> came(ranks.size());
  const int64_t mine = rt.rank();
  all.all_gather_bytes({StepKind::kAllGatherBytes, "ranks", 1}, &mine,
                       sizeof(mine), came.data());
  DT_CHECK(came == ranks, "talker", "the ranks are {}: a wrong value",
           fmt::join(came, ","));
}

int main(int argc, char** argv) {
  Program program({.about = "Processes that talk to each other."});
  return program.main(argc, argv, nullptr, [&] {
    for (int i = 0; i < 2; ++i) run(program.run_options(), talk);
    program.write_json(nlohmann::ordered_json{{"talked", 2}});
    fmt::print("ok\n");
  });
}

}  // namespace
}  // namespace dtensor::testing

int main(int argc, char** argv) { return dtensor::testing::main(argc, argv); }
