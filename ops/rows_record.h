// SPDX-License-Identifier: Apache-2.0
// Collects what used_rows() (data_shapes.h) returns, for those who take the
// gradients of the rows. Private to ops and nn.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The rows of `ids` of a table: their values or, in a sum, their gradient.
struct SomeRows {
  DistTensor table, ids, rows;
};

// While it lives, used_rows() on this thread adds its results to `calls`.
// Records nest; the innermost one gets them.
class RowsRecord {
 public:
  RowsRecord() : outer_(current()) { current() = this; }
  ~RowsRecord() { current() = outer_; }
  RowsRecord(const RowsRecord&) = delete;
  RowsRecord& operator=(const RowsRecord&) = delete;
  static RowsRecord*& current() {
    static thread_local RowsRecord* innermost = nullptr;
    return innermost;
  }

  std::vector<SomeRows> calls;
  // Adds gradients of rows of one table, each in the spec rows_spec() of its
  // rows: the ids become distinct again. used_rows() sets it, so that programs
  // without such tables need not link it.
  using Sum = SomeRows (*)(const std::vector<SomeRows>& gradients);
  Sum sum = nullptr;

 private:
  RowsRecord* const outer_;
};

}  // namespace dtensor
