// SPDX-License-Identifier: Apache-2.0
#include "programs/product_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/runtime.h"
#include "dtensor/text_table.h"

namespace dtensor::examples {
namespace {

struct Sizes3 {
  double m, k, n;
};

// The elements that a rank receives if it needs `elements` elements, which are
// split evenly over `ranks` ranks, itself included.
double others(double elements, int64_t ranks) {
  return elements * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

// The elements that a rank of an x by y by z grid receives in summa(). Each of
// the z layers has a copy of a and b.
double summa_elements(const Sizes3& s, int64_t x, int64_t y, int64_t z) {
  const auto [p, q, c] = std::array{
      static_cast<double>(x), static_cast<double>(y), static_cast<double>(z)};
  return (others(s.m * s.k / p, y) + others(s.k * s.n / q, x)) / c +
         others(s.m * s.n / p / q, z);
}

// The grid of two axes (of three, with `copies`) on which a rank receives
// least; among equal ones, the one closest to a square. x is 0 if there is no
// grid.
struct GridOfRanks {
  int64_t x = 0, y = 0, z = 1;
};
GridOfRanks best_grid(const Sizes3& s, int64_t ranks, bool copies) {
  GridOfRanks best;
  double least = 0;
  for (int64_t x = 2; x <= ranks; ++x)
    for (int64_t y = 2; x * y <= ranks; ++y) {
      if (ranks % (x * y) != 0) continue;
      const int64_t z = ranks / (x * y);
      if ((z > 1) != copies) continue;
      const double elements = summa_elements(s, x, y, z);
      const bool less = best.x == 0 || elements < least * (1 - 1e-9),
                 squarer = elements < least * (1 + 1e-9) &&
                           std::abs(x - y) < std::abs(best.x - best.y);
      if (!less && !squarer) continue;
      best = {x, y, z};
      least = elements;
    }
  return best;
}

int64_t dry_bytes(const ProductWay& way, int64_t m, int64_t k, int64_t n,
                  DType dtype) {
  RunOptions options;
  options.dry_run = true;
  options.mesh = way.mesh;
  const Mesh mesh = Mesh::parse(way.mesh);
  options.world = mesh.num_ranks();
  int64_t bytes = 0;
  run(options, [&](Runtime&) {
    const CommRecord record;
    const auto matrix = [&](const Shape& shape, const std::string& layout) {
      return DistTensor::empty(Spec::get(
          mesh, shape, Placements(layout).resolve(mesh, shape), dtype));
    };
    const DistTensor a = matrix({m, k}, way.a), b = matrix({k, n}, way.b);
    summa(a, b).redistribute(Placements(way.c));
    for (const CommEvent& e : record.events()) bytes += e.predicted;
  });
  return bytes;
}

}  // namespace

std::vector<ProductWay> product_ways(int64_t m, int64_t k, int64_t n,
                                     int64_t ranks, DType dtype) {
  const Sizes3 s{static_cast<double>(m), static_cast<double>(k),
                 static_cast<double>(n)};
  const double item = static_cast<double>(size_of(dtype));
  const std::string line = fmt::format("x={}", ranks);
  std::vector<ProductWay> ways{{"1-D, a gathered", line, "S1", "S1", "S1",
                                "mk (x-1)/x", 1, others(s.m * s.k, ranks)},
                               {"1-D, b gathered", line, "S0", "S0", "S0",
                                "kn (x-1)/x", 1, others(s.k * s.n, ranks)},
                               {"1-D, c reduced", line, "S1", "S0", "S0",
                                "mn (x-1)/x", 1, others(s.m * s.n, ranks)}};
  if (const GridOfRanks g = best_grid(s, ranks, false); g.x > 0)
    ways.push_back({"2-D, summa", fmt::format("x={},y={}", g.x, g.y), "S0,S1",
                    "S0,S1", "S0,S1", "mk/x (y-1)/y + kn/y (x-1)/x", 1,
                    summa_elements(s, g.x, g.y, 1)});
  if (const GridOfRanks g = best_grid(s, ranks, true); g.x > 0)
    ways.push_back({"2.5-D, summa",
                    fmt::format("x={},y={},z={}", g.x, g.y, g.z), "S0,S1,R",
                    "S0,S1,R", "S0,S1,S0",
                    "(mk/x (y-1)/y + kn/y (x-1)/x)/z + mn/xy (z-1)/z", g.z,
                    summa_elements(s, g.x, g.y, g.z)});
  for (ProductWay& way : ways) {
    way.formula_bytes *= item;
    way.bytes = dry_bytes(way, m, k, n, dtype);
  }
  return ways;
}

std::string ways_table(const std::vector<ProductWay>& ways) {
  TextTable table("llllllrrrl",
                  {"way", "mesh", "a", "b", "c", "a rank receives", "copies",
                   "formula bytes", "dry-run bytes", ""});
  const auto least = std::min_element(
      ways.begin(), ways.end(), [](const ProductWay& u, const ProductWay& v) {
        return u.bytes < v.bytes;
      });
  for (const ProductWay& w : ways)
    table.add({w.name, w.mesh, w.a, w.b, w.c, w.formula, grouped(w.copies),
               grouped(static_cast<int64_t>(w.formula_bytes)), grouped(w.bytes),
               &w == &*least ? "<- least" : ""});
  return table.to_string();
}

nlohmann::ordered_json ways_json(const std::vector<ProductWay>& ways) {
  auto list = nlohmann::ordered_json::array();
  for (const ProductWay& w : ways)
    list.push_back({{"way", w.name},
                    {"mesh", w.mesh},
                    {"a", w.a},
                    {"b", w.b},
                    {"c", w.c},
                    {"formula", w.formula},
                    {"copies", w.copies},
                    {"formula_bytes", w.formula_bytes},
                    {"bytes", w.bytes}});
  return list;
}

}  // namespace dtensor::examples
