// Sums of a matrix's columns.
//
// Without atomic additions, whose order would change the result: each thread
// sums some rows of one column, and what they found is summed in a second step.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

// Rows of one part, and how many parts a column has.
struct ColumnParts {
  int64_t height, parts;
  // At least so many rows in each, and at most so many sums in all: as many as
  // threads that a large GPU runs at once, say. REQUIRES: n > 0.
  ColumnParts(int64_t rows, int64_t n, int64_t least_rows = 16,
              int64_t most = int64_t{1} << 18) {
    const int64_t wanted =
        std::max<int64_t>(1, std::min(rows / least_rows, most / n));
    height = std::max<int64_t>(1, (rows + wanted - 1) / wanted);
    parts = std::max<int64_t>(1, (rows + height - 1) / height);
  }
};

// The sum over the parts, [parts, n].
template <class C, class Out>
void add_parts(Stream s, int64_t parts, int64_t n, const C* in, Out* out) {
  portable::rows(
      s, n, parts, DT_BODY(portable::Row & row, int64_t j) {
        const C sum = row.reduce(parts, C(0), portable::Sum(),
                                 [&](int64_t p) { return in[p * n + j]; });
        put(row, out + j, portable::rounded<Out>(sum));
      });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
