// SPDX-License-Identifier: Apache-2.0
// Compares the ways to split one matrix product over the ranks, and the bytes
// that each sends.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dtensor/placement/dtype.h"

namespace dtensor::examples {

// One way to compute c = a [m, k] times b [k, n]. Every rank holds an equal
// part of a, b and c (with `copies` copies of a and b).
struct ProductWay {
  std::string name, mesh, a, b, c;
  std::string formula;  // of the elements that a rank receives
  int64_t copies = 1;
  double formula_bytes = 0;  // received by a rank, by the formula
  int64_t bytes = 0;         // received by a rank, by a dry run
};

// The possible ways. 1-D: one of the three matrices is gathered or reduced. 2-D
// and 2.5-D: summa() on the grid of two or three axes longer than 1 that
// minimizes the formula. They are left out if the ranks do not form such a
// grid.
std::vector<ProductWay> product_ways(int64_t m, int64_t k, int64_t n,
                                     int64_t ranks, DType);

std::string ways_table(const std::vector<ProductWay>&);
nlohmann::ordered_json ways_json(const std::vector<ProductWay>&);

}  // namespace dtensor::examples
