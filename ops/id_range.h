// SPDX-License-Identifier: Apache-2.0
// Checks that ids (of rows or classes) are in range.
#pragma once
#include <functional>
#include <optional>

#include "dtensor/ops/op.h"

namespace dtensor {

// Returns the text of the Error about an id that is out of range.
using IdSentence = std::function<std::string(int64_t id)>;
// The IdSentence for ids that are indices of dimension `dim`, which has size n.
IdSentence no_index(int64_t n, int64_t dim);

// Throws Error with the text of sentence(id) if an id is outside of [0, n) and
// is not `ignored`. Every rank of the mesh calls it, and every rank throws: at
// once on the CPU, and later on other devices (dtensor/data_check.h). `ids`
// (i32 or i64) is this rank's part of an input with this layout. If axes split
// it, the ranks exchange 16 bytes, which no budget counts. Checks nothing in a
// dry run.
void check_ids_in(RankContext&, std::string_view op, const Tensor& ids,
                  const Spec& layout, int64_t n, std::optional<int64_t> ignored,
                  IdSentence);
// Like check_ids_in(), but takes what a kernel such as kernels::TakeRows or
// CeRange has found. `ends`, i64 [2], has the largest id and ~ of the smallest
// one. (The kernel may leave out ids that it knows to be in range.)
void check_id_ends(RankContext&, std::string_view op, const Tensor& ends,
                   const Spec& layout, int64_t n, IdSentence);

}  // namespace dtensor
