// Shared by kernels on rows.
#pragma once
#include <cstdint>

#include "dtensor/device/portable/executor.h"
#include "dtensor/ops/kernels/operands.h"

namespace dtensor::kernels {

inline namespace DT_PORTABLE {

// Writes a statistic of the row, from one lane.
template <class T>
DT_HD void put(portable::Row& row, T* to, T value) {
  row.each(1, [&](int64_t) { *to = value; });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
