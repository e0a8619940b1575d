// The ways to split one product of matrices over the ranks there are, and what
// each sends.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dtensor/placement/dtype.h"

namespace dtensor::examples {

// a [m, k] times b [k, n] = c. Every rank holds an equal part of a, of b (of
// `copies` of both) and of c.
struct ProductWay {
  std::string name, mesh, a, b, c;
  std::string formula;  // of elements, of equal parts
  int64_t copies = 1;
  double formula_bytes = 0;  // that a rank receives
  int64_t bytes = 0;         // the same of a dry run: the most of any rank
};

// 1-D: one of the three is gathered or reduced. 2-D and 2.5-D: summa(), on the
// grid of ranks for which the formula is least; not there when no grid of so
// many ranks has two axes, or three.
std::vector<ProductWay> product_ways(int64_t m, int64_t k, int64_t n,
                                     int64_t ranks, DType);

std::string ways_table(const std::vector<ProductWay>&);
nlohmann::ordered_json ways_json(const std::vector<ProductWay>&);

}  // namespace dtensor::examples
