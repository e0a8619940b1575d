// SPDX-License-Identifier: Apache-2.0
// Sizes and strides of up to kMaxDims dimensions, stored in the object itself.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor {

inline constexpr int kMaxDims = 8;

// A short list of int64: a shape, strides or offsets. Never allocates. More
// than kMaxDims entries throw Error.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> v) {
    for (int64_t x : v) push_back(x);
  }
  explicit Shape(std::span<const int64_t> v) {
    for (int64_t x : v) push_back(x);
  }
  // `n` entries of `value`.
  static Shape filled(int n, int64_t value);

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t& operator[](int i) { return d_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return d_[static_cast<size_t>(i)]; }
  int64_t& back() { return d_[static_cast<size_t>(n_ - 1)]; }
  int64_t back() const { return d_[static_cast<size_t>(n_ - 1)]; }
  const int64_t* begin() const { return d_.data(); }
  const int64_t* end() const { return d_.data() + n_; }
  int64_t* begin() { return d_.data(); }
  int64_t* end() { return d_.data() + n_; }
  void push_back(int64_t x) {
    if (n_ == kMaxDims) too_long();
    d_[static_cast<size_t>(n_++)] = x;
  }
  void pop_back() { --n_; }
  void insert(int at, int64_t x);
  void erase(int at);
  bool operator==(const Shape& o) const {
    if (n_ != o.n_) return false;
    for (int i = 0; i < n_; ++i)
      if ((*this)[i] != o[i]) return false;
    return true;
  }

 private:
  [[noreturn]] static void too_long();
  std::array<int64_t, kMaxDims> d_{};
  int n_ = 0;
};

// The product of the sizes; 1 if there are none. Throws Error if a size is
// negative, or if the bytes of as many f64 elements do not fit into int64
// (sizes of 0 count as 1 there).
int64_t numel(const Shape&);

// Row-major strides, in elements.
Shape contiguous_strides(const Shape&);

// "[2, 3]".
std::string to_string(const Shape&);
// Reads "64x64" or "64,64"; "" is the shape of a scalar. Throws Error for other
// texts (headed by `where`), and for too many or too large sizes.
Shape parse_shape(std::string_view text, std::string_view where);

// `dim`, or dim + ndim if it is negative. Throws Error if it is out of range.
int normalize_dim(int64_t dim, int ndim, std::string_view where);

// The shape that two shapes broadcast to (NumPy's rule). Throws Error if they
// do not broadcast.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view where);

}  // namespace dtensor
