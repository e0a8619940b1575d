// SPDX-License-Identifier: Apache-2.0
// NCCL's reductions, computed on the host.
#pragma once
#include <nccl.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace emulation {

inline size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

struct Bfloat16 {
  uint16_t bits;
  explicit operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  Bfloat16() = default;
  explicit Bfloat16(float x) {
    const auto word = std::bit_cast<uint32_t>(x);
    const uint32_t up = 0x7fff + (word >> 16 & 1);
    bits = static_cast<uint16_t>((x == x ? word + up : word | 0x400000) >> 16);
  }
};

// Reduces item by item, the last part first: NCCL promises no order.
template <class T>
std::vector<char> reduced(ncclRedOp_t op,
                          const std::vector<std::vector<char>>& parts) {
  // (Integers wrap.)
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                  std::conditional_t<sizeof(T) == 2, float, T>>;
  std::vector<char> all = parts.back();
  const auto item = [](const std::vector<char>& of, size_t i) {
    T x;
    std::memcpy(&x, of.data() + i * sizeof(T), sizeof(T));
    return x;
  };
  for (size_t i = 0; i < all.size() / sizeof(T); ++i) {
    T sum = item(parts.back(), i);
    Wide wide = static_cast<Wide>(sum);
    for (size_t p = parts.size() - 1; p-- > 0;) {
      const T x = item(parts[p], i);
      const Wide w = static_cast<Wide>(x);
      switch (op) {
        case ncclSum:
        case ncclAvg:
          wide = wide + w;
          break;
        case ncclProd:
          wide = wide * w;
          break;
        case ncclMax:
        case ncclMin: {
          bool less = w < wide;
          if constexpr (std::is_integral_v<T>) less = x < static_cast<T>(wide);
          if (less == (op == ncclMin)) wide = w;
          break;
        }
      }
    }
    if (op == ncclAvg) {
      if constexpr (std::is_integral_v<T>)
        wide = static_cast<Wide>(static_cast<T>(wide) /
                                 static_cast<T>(parts.size()));
      else
        wide = wide / static_cast<Wide>(parts.size());
    }
    sum = static_cast<T>(wide);
    std::memcpy(all.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return all;
}

inline std::vector<char> reduced(ncclDataType_t type, ncclRedOp_t op,
                                 const std::vector<std::vector<char>>& parts) {
  switch (type) {
    case ncclInt8:
      return reduced<int8_t>(op, parts);
    case ncclUint8:
      return reduced<uint8_t>(op, parts);
    case ncclInt32:
      return reduced<int32_t>(op, parts);
    case ncclUint32:
      return reduced<uint32_t>(op, parts);
    case ncclInt64:
      return reduced<int64_t>(op, parts);
    case ncclUint64:
      return reduced<uint64_t>(op, parts);
    case ncclFloat16:
      return reduced<_Float16>(op, parts);
    case ncclFloat32:
      return reduced<float>(op, parts);
    case ncclFloat64:
      return reduced<double>(op, parts);
    case ncclBfloat16:
      return reduced<Bfloat16>(op, parts);
  }
  return {};
}

}  // namespace emulation
