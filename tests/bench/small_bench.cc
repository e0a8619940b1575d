// SPDX-License-Identifier: Apache-2.0
// Times collectives of a few bytes: an all-reduce alone, one behind an
// operator, and the operator alone.
//
//   bazel run //tests/bench:small_bench -- --backend threads --mesh ranks=2
//
// Prints nanoseconds: the median of all batches, and the fastest batch, during
// which probably nobody else had the cores. To compare two versions, run their
// programs in turn: the speed of a run depends on the cores that its threads
// are on.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/pointwise.h"
#include "dtensor/program/program.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

// Nanoseconds of one call, by batch, ascending.
std::vector<double> nanoseconds(int64_t batches, int64_t repeats,
                                const std::function<void()>& fn) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> all;
  for (int64_t b = 0; b < batches; ++b) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < repeats; ++i) fn();
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    all.push_back(took.count() / static_cast<double>(repeats));
  }
  std::sort(all.begin(), all.end());
  return all;
}

void measure(Runtime& rt, int64_t batches, int64_t repeats) {
  const Mesh mesh = rt.mesh();
  rt.context().grad_enabled = false;
  for (const int64_t n : {1, 256}) {
    const Tensor part = Tensor::full({n}, DType::kF32, 1);
    // (A tensor keeps its all-reduced copy, so each call needs a new tensor.)
    const auto fresh = [&] {
      return DistTensor::from_local(part, mesh, "P", {n});
    };
    const DistTensor x = fresh(), whole = x.redistribute("R");
    const std::pair<const char*, std::function<void()>> cases[] = {
        {"all-reduce", [&] { fresh().redistribute("R"); }},
        {"add, all-reduce", [&] { add(x, x).redistribute("R"); }},
        {"add", [&] { add(whole, whole); }},
    };
    for (const auto& [name, fn] : cases) {
      nanoseconds(1, repeats, fn);
      const std::vector<double> ns = nanoseconds(batches, repeats, fn);
      if (rt.rank() == 0)
        std::printf("%lld bytes, %s: %.1f, fastest %.1f\n",
                    static_cast<long long>(4 * n), name, ns[ns.size() / 2],
                    ns[0]);
    }
  }
}

int main(int argc, char** argv) {
  Program program({.about = "Times values of few bytes.", .mesh = "ranks=2"});
  int64_t batches = 21, repeats = 500;
  program.add("--batches", &batches, "batches of each case", 1);
  program.add("--repeats", &repeats, "how often a batch does it", 1);
  return program.main(argc, argv, nullptr, [&] {
    run(program.run_options(),
        [&](Runtime& rt) { measure(rt, batches, repeats); });
  });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::main(argc, argv); }
