// Shared by kernels on rows.
#pragma once
#include <cstdint>

#include "dtensor/device/portable/executor.h"

namespace dtensor::kernels {

// Row r of a matrix. Null, the address of an empty one, stays null.
template <class T>
DT_HD T* row_at(T* p, int64_t r, int64_t stride) {
  return p ? p + r * stride : p;
}

inline namespace DT_PORTABLE {

// Writes a statistic of the row, from one lane.
template <class T>
DT_HD void put(portable::Row& row, T* to, T value) {
  row.each(1, [&](int64_t) { *to = value; });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
