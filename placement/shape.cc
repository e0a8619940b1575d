// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/shape.h"

#include <algorithm>
#include <charconv>

#include "dtensor/placement/error.h"

namespace dtensor {

void Shape::too_long() {
  fail("shape",
       "a shape, or another list with an entry for each dimension, has more "
       "than {0} entries, but a tensor has at most {0} dimensions; write fewer",
       kMaxDims);
}

Shape Shape::filled(int n, int64_t value) {
  Shape s;
  for (int i = 0; i < n; ++i) s.push_back(value);
  return s;
}

void Shape::insert(int at, int64_t x) {
  push_back(x);
  for (int i = n_ - 1; i > at; --i) std::swap((*this)[i], (*this)[i - 1]);
}

void Shape::erase(int at) {
  for (int i = at; i + 1 < n_; ++i) (*this)[i] = (*this)[i + 1];
  --n_;
}

int64_t numel(const Shape& s) {
  int64_t n = 1;
  bool overflow = false, zero = false;
  for (int64_t x : s) {
    DT_CHECK(x >= 0, "shape", "{} has a negative size; write 0 or more",
             to_string(s));
    if (x == 0) zero = true;
    overflow |= __builtin_mul_overflow(n, x == 0 ? 1 : x, &n);
  }
  int64_t bytes;
  overflow |= __builtin_mul_overflow(n, int64_t{8}, &bytes);
  DT_CHECK(!overflow, "shape",
           "the sizes of {} are too large, since those that are not 0 multiply "
           "to 2^60 or more; write smaller sizes",
           to_string(s));
  return zero ? 0 : n;
}

Shape contiguous_strides(const Shape& s) {
  Shape r = Shape::filled(s.size(), 1);
  for (int i = s.size() - 2; i >= 0; --i)
    r[i] = r[i + 1] * std::max<int64_t>(s[i + 1], 1);
  return r;
}

std::string to_string(const Shape& s) {
  std::string t = "[";
  for (int i = 0; i < s.size(); ++i) {
    if (i) t += ", ";
    t += std::to_string(s[i]);
  }
  return t + "]";
}

Shape parse_shape(std::string_view text, std::string_view where) {
  Shape s;
  if (text.empty()) return s;
  const char* p = text.data();
  const char* end = p + text.size();
  for (;;) {
    int64_t x = 0;
    auto [q, ec] = std::from_chars(p, end, x);
    DT_CHECK(ec == std::errc() && x >= 0, where,
             "'{}' is not a shape; write sizes as 64x64 or 64,64", text);
    s.push_back(x);
    if (q == end) break;
    DT_CHECK((*q == 'x' || *q == ',') && q + 1 != end, where,
             "'{}' is not a shape; write sizes as 64x64 or 64,64", text);
    p = q + 1;
  }
  numel(s);
  return s;
}

int normalize_dim(int64_t dim, int ndim, std::string_view where) {
  DT_CHECK(ndim > 0, where,
           "dimension {} is out of range, because a scalar has no dimensions; "
           "pass a tensor that has some",
           dim);
  DT_CHECK(dim >= -ndim && dim < ndim, where,
           "dimension {} is out of range; write {} to {}", dim, -ndim,
           ndim - 1);
  return static_cast<int>(dim < 0 ? dim + ndim : dim);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view where) {
  int n = std::max(a.size(), b.size());
  Shape r = Shape::filled(n, 1);
  for (int i = 0; i < n; ++i) {
    int ia = i - (n - a.size()), ib = i - (n - b.size());
    int64_t x = ia < 0 ? 1 : a[ia], y = ib < 0 ? 1 : b[ib];
    DT_CHECK(x == y || x == 1 || y == 1, where,
             "shapes {} and {} do not broadcast: dimension {} is {} and {}; "
             "make them equal, or one of them 1",
             to_string(a), to_string(b), i - n, x, y);
    r[i] = x == 1 ? y : x;
  }
  return r;
}

}  // namespace dtensor
