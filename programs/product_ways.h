// SPDX-License-Identifier: Apache-2.0
// Compares ways to split one matrix product over the ranks, by the bytes that a
// rank receives.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dtensor/placement/dtype.h"

namespace dtensor::examples {

// One way to compute c = a [m, k] times b [k, n], with the layouts of a, b and
// c on `mesh`. Every rank holds an equal part of c, and of `copies` copies of a
// and b, as far as the sizes can be divided.
struct ProductWay {
  std::string name, mesh, a, b, c;
  std::string formula;  // for the elements that a rank receives
  int64_t copies = 1;
  double formula_bytes = 0;  // received by a rank, by the formula
  int64_t bytes = 0;         // received by a rank, by a dry run
};

// Returns the possible ways. 1-D: one of the three matrices is gathered or
// reduced. 2-D and 2.5-D: summa() on a grid of two or three axes, all longer
// than 1. If the ranks form several such grids, the one with the smallest
// formula is used; if they form none, the list lacks 2-D or 2.5-D.
std::vector<ProductWay> product_ways(int64_t m, int64_t k, int64_t n,
                                     int64_t ranks, DType);

std::string ways_table(const std::vector<ProductWay>&);
nlohmann::ordered_json ways_json(const std::vector<ProductWay>&);

}  // namespace dtensor::examples
