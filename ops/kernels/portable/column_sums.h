// SPDX-License-Identifier: Apache-2.0
// Sums of a matrix's columns.
//
// There are no atomic additions, because their order would change the result:
// each thread sums some rows of one column, and a second step adds these sums.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

// How columns are cut: into `parts` parts of `height` rows; the last may have
// fewer.
struct ColumnParts {
  int64_t height, parts;
  // On the CPU, there is one part. On a GPU, there are at least one, and as
  // many as `least_rows` rows per part and parts * n <= `most` allow. The
  // default of `most` is about the number of threads that a large GPU runs at
  // once. REQUIRES: n > 0.
  ColumnParts(int64_t rows, int64_t n, int64_t least_rows = 16,
              int64_t most = int64_t{1} << 18) {
    const int64_t wanted =
        portable::kManyPasses
            ? 1
            : std::max<int64_t>(1, std::min(rows / least_rows, most / n));
    height = std::max<int64_t>(1, (rows + wanted - 1) / wanted);
    parts = std::max<int64_t>(1, (rows + height - 1) / height);
  }
};

// Each row of `out` becomes the sum of `segment` rows of `in` [parts, n]. The
// lanes of a portable::Row compute kColumns neighbouring columns of one row of
// `out`. Each column has several lanes, whose sums are added in fast memory.
template <class C, class Out>
void add_segments(Stream s, int64_t parts, int64_t segment, int64_t n,
                  const C* in, Out* out) {
  constexpr int64_t kColumns = 32, kMost = 32;
  const int64_t across = (n + kColumns - 1) / kColumns,
                down = (parts + segment - 1) / segment,
                lanes = segment < kMost ? segment : kMost;  // of a column
  portable::rows(
      s, across * down, segment * kColumns,
      DT_BODY(portable::Row & row, int64_t r) {
        const int64_t column = r % across * kColumns,
                      columns = n - column < kColumns ? n - column : kColumns,
                      begin = r / across * segment,
                      end = begin + segment < parts ? begin + segment : parts;
        C* const sums = row.fast<C>();
        row.each(lanes * kColumns, [&](int64_t i) {
          const int64_t j = i % kColumns;
          C sum = 0;
          if (j < columns)
            for (int64_t p = begin + i / kColumns; p < end; p += lanes)
              sum += in[p * n + column + j];
          sums[i] = sum;
        });
        row.each(columns, [&](int64_t j) {
          C sum = 0;
          for (int64_t i = 0; i < lanes; ++i) sum += sums[i * kColumns + j];
          out[r / across * n + column + j] = portable::rounded<Out>(sum);
        });
      },
      lanes * kColumns * static_cast<int64_t>(sizeof(C)));
}

// out [n] becomes the sum of the rows of `in` [parts, n]. REQUIRES: parts > 0.
template <class C, class Out>
void add_parts(Stream s, int64_t parts, int64_t n, const C* in, Out* out) {
  constexpr int64_t kSegment = 1024;
  if (parts <= kSegment) return add_segments(s, parts, parts, n, in, out);
  const int64_t segments = (parts + kSegment - 1) / kSegment;
  portable::Scratch of_segments(s,
                                segments * n * static_cast<int64_t>(sizeof(C)));
  C* const sums = of_segments.template as<C>();
  add_segments(s, parts, kSegment, n, in, sums);
  add_parts(s, segments, n, sums, out);
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
