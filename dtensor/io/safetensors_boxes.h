// SPDX-License-Identifier: Apache-2.0
// Functions shared by writing and reading safetensors files. Not for users.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/io/checkpoint_boxes.h"
#include "dtensor/io/safetensors.h"

namespace dtensor::safetensors {

inline constexpr int64_t kBuffer = 1 << 20;

inline constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::kF32, "F32"},   {DType::kF64, "F64"}, {DType::kBF16, "BF16"},
    {DType::kF16, "F16"},   {DType::kI32, "I32"}, {DType::kI64, "I64"},
    {DType::kBool, "BOOL"}, {DType::kI8, "I8"}};

// The size of a tensor in bytes, or -1 if it does not fit into int64.
int64_t bytes_of(const Shape&, DType);

// A name from a file as errors show it: cut after about 200 bytes.
std::string shown(std::string_view name);

using Refuse = std::function<void(std::string_view)>;

// Returns the window with its defaults filled in, for a value of shape `value`
// in a tensor of shape `file`. Calls refuse(why), which throws, if the window
// does not fit.
SafetensorsWindow checked(SafetensorsWindow, const Shape& value,
                          const Shape& file, const Refuse& refuse);

// Returns the shape in which the window sees a tensor of shape `file`, for a
// value of n dimensions. Calls refuse(why), which throws, if that shape has
// another number of elements.
Shape seen_as(const SafetensorsWindow&, const Shape& file, int n,
              const Refuse& refuse);

// Returns the region with its dimensions in the file's order.
Region reordered(const Region&, const Shape& order);

// Calls fn(box, element) for every box of `region`. `local` holds the elements
// of `region`; both have their dimensions in the file's order. `box` is a view
// of `local`, and `element` is the number of its first element in the file's
// tensor, whose shape is `file`. Index i of `region` in dimension d is index
// offset[d] + i of that tensor. REQUIRES: `region` is not empty.
template <class Fn>
void each_box(const Tensor& local, const Region& region, const Shape& offset,
              const Shape& file, Fn&& fn) {
  const Shape strides = contiguous_strides(file);
  const checkpoint::Box whole{Shape::filled(file.size(), 0), file};
  for (const checkpoint::Window& w : checkpoint::windows(region, whole)) {
    int64_t at = 0;
    for (int d = 0; d < file.size(); ++d)
      at += (offset[d] + w.in_box[d]) * strides[d];
    fn(checkpoint::view_of(local, w.in_part, w.size), at);
  }
}

// Cuts a box of a tensor of shape `file` into parts that are contiguous in the
// file, and calls fn(part, first) for each part. `at` is the number of the
// box's first element in the file's tensor, and `first` that of the part's. A
// part is contiguous in memory or has at most kBuffer bytes. REQUIRES:
// dimensions of the box before `dim` have size 1.
template <class Fn>
void each_run(const Shape& file, const Tensor& box, int dim, int64_t at,
              const Fn& fn) {
  const int n = file.size();
  // Whether the indices of `dim` follow one another in the file without a gap.
  bool adjacent = true;
  for (int d = dim + 1; d < n; ++d) adjacent &= box.shape()[d] == file[d];
  if (adjacent && (box.contiguous() || box.bytes() <= kBuffer))
    return fn(box, at);
  int64_t row = 1;  // elements in the file for one index of `dim`
  for (int d = dim + 1; d < n; ++d) row *= file[d];
  const int64_t size = box.shape()[dim];
  const int64_t step =
      adjacent
          ? std::clamp<int64_t>(kBuffer / (row * size_of(box.dtype())), 1, size)
          : 1;
  for (int64_t i = 0; i < size; i += step) {
    const Tensor part = box.slice(dim, i, std::min(i + step, size));
    // A single index that is still too large is cut along the next dimension.
    each_run(file, part, part.shape()[dim] == 1 && dim + 1 < n ? dim + 1 : dim,
             at + i * row, fn);
  }
}

}  // namespace dtensor::safetensors
