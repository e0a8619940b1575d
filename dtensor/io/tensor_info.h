// The description of a tensor in a file.
#pragma once
#include <string>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// A tensor in a file; its elements are in row-major order.
struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
};

}  // namespace dtensor
