// SPDX-License-Identifier: Apache-2.0
// Compares redistribution among thread ranks with the least that it could cost.
//
//   bazel run -c opt //tests/bench:redistribute_bench -- --help
//
// Contenders take turns in one run. The table has medians, and their ratios to
// the memcpy. On a busy machine read the ratios, and "fastest", which compares
// the fastest round of each.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <tuple>
#include <vector>

#include "dtensor/placement/step_schedule.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/text_table.h"
#include "tests/bench/redistribute_cases.h"
#include "tests/command_line.h"

namespace dtensor {
namespace {

void run_cases(int64_t n, int64_t rounds) {
  TextTable table("lrlrrr", {"case", "passes", "contender", "median us",
                             "/ memcpy", "fastest"});
  for (const RedistributeCase& c : redistribute_cases(n))
    run(c.ranks, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
      const auto contenders = redistribute_contenders(c, comm);
      const auto times = take_turns(comm, contenders, rounds);
      if (rt.rank() != 0) return;
      for (size_t i = 0; i < contenders.size(); ++i)
        table.add({i == 0 ? c.name : "", i == 0 ? std::to_string(c.passes) : "",
                   contenders[i].name,
                   fmt::format("{:.2f}", median(times[i]) * 1e6 / c.repeats),
                   fmt::format("{:.2f}", median(times[i]) / median(times[0])),
                   fmt::format("{:.2f}", times[i][0] / times[0][0])});
    });
  std::fputs(table.to_string().c_str(), stdout);
}

// Times the schedule that one rank of a large mesh makes.
void schedules() {
  const Mesh mesh = Mesh::parse("128x128");
  const Shape shape{32768, 32768};
  auto spec = [&](std::vector<int> rows, std::vector<int> columns) {
    const Layout l{
        {Dim(shape[0], Split::over(rows)), Dim(shape[1], Split::over(columns))},
        {}};
    return Spec::get(mesh, shape, l, DType::kF32);
  };
  const std::tuple<const char*, const Spec*, const Spec*> moves[] = {
      {"S0,S1 -> S1,S0", spec({0}, {1}), spec({1}, {0})},
      {"S0,S0 -> S1,S1", spec({0, 1}, {}), spec({}, {0, 1})},
      {"S0,S1 -> R,R", spec({0}, {1}), spec({}, {})}};
  TextTable table("lrr", {"schedule of one of 16,384 ranks", "pieces", "ms"});
  for (const auto& [name, from, to] : moves) {
    std::vector<double> ms;
    size_t pieces = 0;
    for (int i = 0; i < 11; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Schedule s = schedule({.kind = StepKind::kExchange,
                                   .axes = mesh.all_axes(),
                                   .from = from,
                                   .to = to},
                                  5000);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      ms.push_back(took.count());
      pieces = s.pieces.size();
    }
    std::sort(ms.begin(), ms.end());
    table.add(
        {name, std::to_string(pieces), fmt::format("{:.3f}", median(ms))});
  }
  std::fputs(table.to_string().c_str(), stdout);
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 41, n = 2048;
  flags.add("--rounds", &rounds, "how often each contender runs", 1, INT_MAX);
  flags.add("--size", &n, "rows and columns, a multiple of 128", 128, INT_MAX);
  const char* about =
      "Redistribution among thread ranks against a memcpy of the local bytes "
      "and a direct read.";
  return parse_and_run(flags, about, argc, argv, [&] {
    dtensor::run_cases(n, rounds);
    std::puts("");
    dtensor::schedules();
    return 0;
  });
}
