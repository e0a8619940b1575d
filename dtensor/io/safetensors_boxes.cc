// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/safetensors_boxes.h"

#include <fmt/format.h>

namespace dtensor {

std::string_view safetensors_name(DType t) {
  for (const auto& [dtype, text] : safetensors::kNames)
    if (dtype == t) return text;
  return "";
}

namespace safetensors {

int64_t bytes_of(const Shape& shape, DType t) {
  int64_t n = size_of(t);
  for (int64_t s : shape)
    if (__builtin_mul_overflow(n, s, &n)) return -1;
  return n;
}

std::string shown(std::string_view name) {
  size_t n = std::min<size_t>(name.size(), 200);
  while (n > 0 && n < name.size() && (name[n] & 0xC0) == 0x80) --n;
  return std::string(name.substr(0, n)) + (n < name.size() ? "..." : "");
}

SafetensorsWindow checked(SafetensorsWindow w, const Shape& value,
                          const Shape& file, const Refuse& refuse) {
  const int n = value.size();
  if (w.order.empty())
    for (int i = 0; i < n; ++i) w.order.push_back(i);
  if (w.offset.empty()) w.offset = Shape::filled(n, 0);
  if (n != file.size() || w.order.size() != n || w.offset.size() != n) {
    refuse(
        fmt::format("the dimensions of tensor, value, order and offset number "
                    "{}, {}, {} and {}; make them equal",
                    file.size(), n, w.order.size(), w.offset.size()));
    return w;
  }
  uint32_t seen = 0;
  for (int i = 0; i < n; ++i) {
    const int64_t d = w.order[i];
    if (d < 0 || d >= n || (seen >> d & 1)) {
      refuse("its order " + to_string(w.order) +
             " is not a permutation; name each dimension once");
      return w;
    }
    seen |= 1u << d;
    if (w.offset[i] < 0 || w.offset[i] > file[i] - value[static_cast<int>(d)])
      refuse(
          fmt::format("with order {} and offset {} it does not fit into the "
                      "tensor; write offsets of at least 0, and a shape that "
                      "ends within the tensor",
                      to_string(w.order), to_string(w.offset)));
  }
  return w;
}

Shape seen_as(const SafetensorsWindow& window, const Shape& file, int n,
              const Refuse& refuse) {
  if (!window.seen_as.empty()) {
    if (numel(window.seen_as) != numel(file))
      refuse(fmt::format(
          "seen as {}, the tensor would not keep its number of elements, {}",
          to_string(window.seen_as), numel(file)));
    return window.seen_as;
  }
  Shape seen;
  for (int d = file.size(); d < n; ++d) seen.push_back(1);
  for (int64_t size : file) seen.push_back(size);
  return seen;
}

Region reordered(const Region& region, const Shape& order) {
  Region out;
  for (int64_t d : order) out.push_back(region[static_cast<size_t>(d)]);
  return out;
}

}  // namespace safetensors
}  // namespace dtensor
