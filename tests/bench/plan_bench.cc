// SPDX-License-Identifier: Apache-2.0
// Measures how long plan() takes over all pairs of placements {R, S0, S1, S2,
// P} on some meshes, without a cache and with a rank's cache. Then measures how
// long choose() takes for an operator if nothing is planned yet.
//
//   bazel run -c opt //tests/bench:plan_bench
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <string>
#include <vector>

#include "dtensor/placement/choose.h"
#include "dtensor/placement/plan.h"
#include "tests/command_line.h"

namespace dtensor {
namespace {

// All combinations of the axes' placements. Axes that share a dimension are in
// mesh order.
std::vector<SpecRef> layouts(const Mesh& mesh, const Shape& shape) {
  std::vector<std::string> texts{""};
  for (int a = 0; a < mesh.num_axes(); ++a) {
    std::vector<std::string> longer;
    for (const std::string& t : texts)
      for (const char* p : {"R", "S0", "S1", "S2", "P"})
        longer.push_back(t + (t.empty() ? "" : ",") + p);
    texts = std::move(longer);
  }
  std::vector<SpecRef> specs;
  for (const std::string& t : texts)
    specs.push_back(
        Spec::get(mesh, shape, parse_layout(t, mesh, shape), DType::kF32));
  return specs;
}

// The default prices; prices of bytes without latency; or prices with which
// each axis is four times as fast as the one before it.
CostTable prices(const std::string& kind, int axes) {
  CostTable t;
  t.axes.resize(static_cast<size_t>(axes));
  for (size_t a = 0; a < t.axes.size(); ++a) {
    if (kind == "bytes alone") t.axes[a].alpha_ps = 0;
    if (kind == "axes differ") {
      t.axes[a].alpha_ps /= static_cast<int64_t>(a) + 1;
      t.axes[a].ps_per_byte = 400 >> 2 * a;
    }
  }
  return t;
}

double microseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

void measure(const std::string& mesh_text, const Shape& shape,
             const std::string& kind, int64_t rounds, size_t most_pairs) {
  Mesh mesh = Mesh::parse(mesh_text);
  CostTable cost = prices(kind, mesh.num_axes());
  Planner planner(cost);
  std::vector<SpecRef> specs = layouts(mesh, shape);
  size_t pairs = specs.size() * specs.size();
  size_t step = pairs / most_pairs + 1;
  std::vector<double> fresh, cached;
  for (size_t i = 0; i < pairs; i += step) {
    const Spec *from = specs[i / specs.size()], *to = specs[i % specs.size()];
    if (from == to) continue;
    planner.plan(from, to);
    double least = 1e9, again = 1e9;
    for (int64_t r = 0; r < rounds; ++r) {
      auto start = std::chrono::steady_clock::now();
      Plan p = plan(from, to, cost);
      auto end = std::chrono::steady_clock::now();
      least = std::min(least, microseconds(end - start));
      constexpr int kCalls = 16;
      start = std::chrono::steady_clock::now();
      for (int k = 0; k < kCalls; ++k) planner.plan(from, to);
      end = std::chrono::steady_clock::now();
      again = std::min(again, microseconds(end - start) / kCalls);
    }
    fresh.push_back(least);
    cached.push_back(again);
  }
  std::sort(fresh.begin(), fresh.end());
  std::sort(cached.begin(), cached.end());
  fmt::print("{:10} {:15} {:12} {:6} {:10.2f} {:10.2f} {:10.2f} {:10.3f}\n",
             mesh_text, to_string(shape), kind, fresh.size(),
             fresh[fresh.size() / 2], fresh[fresh.size() * 9 / 10],
             fresh.back(), cached[cached.size() / 2]);
}

void measure_choose(const char* rule_text, const std::string& mesh_text,
                    const std::string& a, const std::string& b,
                    int64_t rounds) {
  const Mesh mesh = Mesh::parse(mesh_text);
  auto input = [&](const std::string& text) {
    const size_t colon = text.find(':');
    const Shape shape = parse_shape(text.substr(0, colon), "bench");
    return OpInput{Spec::get(mesh, shape,
                             parse_layout(text.substr(colon + 1), mesh, shape),
                             DType::kF32)};
  };
  const std::vector<OpInput> in{input(a), input(b)};
  const BoundRule rule(Rule(rule_text),
                       {in[0].spec->shape(), in[1].spec->shape()}, "bench");
  const DType type = DType::kF32;
  double least = 1e9;
  for (int64_t r = 0; r < rounds; ++r) {
    Planner planner;
    const auto start = std::chrono::steady_clock::now();
    choose(rule, in, {&type, 1}, {2}, planner, "bench");
    least =
        std::min(least, microseconds(std::chrono::steady_clock::now() - start));
  }
  fmt::print("{:10} {:34} {:30} {:34} {:10.2f}\n", mesh_text, rule_text, a, b,
             least);
}

void measure_all(int64_t rounds) {
  fmt::print("{:10} {:15} {:12} {:>6} {:>10} {:>10} {:>10} {:>10}\n", "mesh",
             "shape", "prices", "pairs", "median us", "90 % us", "most us",
             "cached us");
  for (const char* kind : {"default", "bytes alone", "axes differ"}) {
    for (const char* mesh : {"2x4", "4x4", "2x3", "2x2x2"})
      for (const Shape& shape : {Shape{64, 64, 64}, Shape{5, 7, 3}})
        measure(mesh, shape, kind, rounds, 4000);
    for (const char* mesh : {"128x128", "16x32x32"})
      measure(mesh, {1024, 1000, 64}, kind, 1, 300);
  }
  const char* matmul = "mk,kn->mn | linear 0; linear 1";
  const char* mul = "...,...->... | linear 0; linear 1";
  const int64_t times = 20 * rounds;
  fmt::print("{:10} {:34} {:30} {:34} {:>10}\n", "mesh", "choose", "", "",
             "us");
  measure_choose(matmul, "2", "64x64:S0", "64x64:R", times);
  measure_choose(matmul, "2x4", "64x64:S0,S1", "64x64:S0,R", times);
  measure_choose(matmul, "2x2x2x2", "64x64:S0,S1,P,S1", "64x64:S1,S0,P,S0",
                 times);
  measure_choose(mul, "2x2x2x2", "8x8x8x8:P,R,R,P", "8x8x8x8:S3,P(min),S0,S0",
                 rounds);
  measure_choose(mul, "2x2x2x2", "1x1x1x1:P,R,R,P", "1x1x1x1:S3,P(min),S0,S0",
                 rounds);
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 5;
  flags.add("--rounds", &rounds,
            "times that each pair is planned; the least counts", 1, INT_MAX);
  return parse_and_run(flags, "Times plan() over pairs of layouts.", argc, argv,
                       [&] {
                         dtensor::measure_all(rounds);
                         return 0;
                       });
}
