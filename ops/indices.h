// SPDX-License-Identifier: Apache-2.0
// The indices between the brackets of x[...], with torch's meaning:
//
//   using namespace dtensor::indexing;
//   x[0]                           x[0]
//   x[{0, Slice(1, None, 2)}]      x[0, 1::2]
//   x[{Ellipsis, None, -1}]        x[..., None, -1]
//   x[{rows, Slice()}]             x[rows, :], with a tensor of indices
//   x[mask]                        x[mask], with a tensor of bools
//
// A list has an index for each dimension: x[{0, 1}] is x[0, 1], and x[[0, 1]]
// is x[tensor({0, 1}, x.mesh())]. As these select, index_put(x, {0, Slice(1)},
// y) returns x with other elements there, and index_put_() writes them in place
// (embedding.h).
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

namespace indexing {

inline constexpr std::nullopt_t None = std::nullopt;  // or a new dimension
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis;  // all dimensions that others leave

// lo, lo + step, ... below hi, as in slice() (view.h): lo and hi are clamped,
// and count from the end if negative.
struct Slice {
  Slice(std::optional<int64_t> from = None, std::optional<int64_t> to = None,
        int64_t by = 1)
      : lo(from), hi(to), step(by) {}
  std::optional<int64_t> lo, hi;
  int64_t step;
};

}  // namespace indexing

// One index: an integer, which removes the dimension; a Slice; Ellipsis; None,
// which adds a dimension of size 1; or a tensor of indices (i32 or i64), or of
// bools, which stands for one dimension, or for as many as the mask has. {} and
// an undefined tensor are Slice(), the whole dimension.
class TensorIndex {
 public:
  enum class Kind : uint8_t { kSlice, kInteger, kNone, kEllipsis, kTensor };
  TensorIndex() = default;
  template <std::integral I>
  TensorIndex(I i) : kind(Kind::kInteger), at(i) {}
  TensorIndex(std::same_as<bool> auto) = delete;  // write None, or a mask
  TensorIndex(const indexing::Slice& s) : slice(s) {}
  TensorIndex(std::nullopt_t) : kind(Kind::kNone) {}
  TensorIndex(indexing::EllipsisType) : kind(Kind::kEllipsis) {}
  TensorIndex(const DistTensor& x)
      : kind(x.defined() ? Kind::kTensor : Kind::kSlice), tensor(x) {}

  Kind kind = Kind::kSlice;
  indexing::Slice slice;
  int64_t at = 0;
  DistTensor tensor;
};

// Indices of the first dimensions; an Ellipsis stands for those that are not
// named. A list, a vector of tensors, or one index alone.
class IndexList : public std::vector<TensorIndex> {
 public:
  IndexList() = default;
  IndexList(std::initializer_list<TensorIndex> list) : vector(list) {}
  IndexList(TensorList list) : vector(list.begin(), list.end()) {}
  IndexList(const std::vector<DistTensor>& list)
      : vector(list.begin(), list.end()) {}
  template <std::convertible_to<TensorIndex> T>
  IndexList(const T& one) : vector(1, one) {}
};

}  // namespace dtensor
